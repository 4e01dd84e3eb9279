//! One request of the storm, as its client sees it.

use bytes::Bytes;
use h2::client::Builder;
use http::Request;
use serde_json::{Value, json};
use tandem::testkit::client::{BodyEnd, H2Client, RawClient};
use tandem::testkit::fixtures::post;
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::FRONT;
use tandem::testkit::sse;
use tokio::time::{sleep, timeout};

use super::super::rig::{CHAT, Proto, ms};
use super::cases::{Case, Harm, Side, Stage};
use super::world::TOKENS;
use tandem::types::clock::{Instant, now};

/// What is sent.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) id: String,
    pub(super) case: Case,
    /// Bits of the engines that are at fault.
    pub(super) victims: u32,
    pub(super) jitter: u64,
}

/// What came back. `None`: the client did not wait for it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) answer: Option<Answer>,
    pub(super) started: Instant,
    pub(super) ended: Instant,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) told_not_to_retry: bool,
    pub(super) body: Vec<u8>,
    pub(super) events: bool,
    /// By its own framing.
    pub(super) complete: bool,
}

impl Ask {
    pub(super) fn body(&self) -> String {
        let messages = json!([{"role": "user", "content": format!("storm {}", self.id)}]);
        json!({"model": "tiny", "messages": messages, "stream": self.case.stream, "max_tokens": TOKENS})
            .to_string()
    }

    fn script(&self) -> Option<String> {
        let words = self.case.words()?;
        let letter = if self.case.side == Side::Decode { 'd' } else { 'p' };
        let parts = (0..super::world::EACH).filter(|n| self.victims & (1 << n) != 0);
        Some(parts.map(|n| format!("@{letter}{n}:{words}")).collect::<Vec<_>>().join(";"))
    }

    /// After how long the fault of a whole weather, or of the client, comes.
    pub(super) fn offset(&self) -> u64 {
        let at = match self.case.stage {
            Stage::Connect => return 0,
            Stage::Sent => 2,
            Stage::Computing => 50,
            Stage::Transfer => 140,
            Stage::Held | Stage::Tail | Stage::Streaming => 270,
        };
        at + self.jitter
    }

    pub(super) async fn send(&self, net: MemoryNet) -> Seen {
        let started = now();
        let leaves = matches!(self.case.harm, Harm::Leaves | Harm::Resets);
        let answer = match self.case.proto {
            Proto::H1 => self.h1(&net, leaves).await,
            Proto::H2 => self.h2(&net, leaves).await,
        };
        Seen { answer, started, ended: now() }
    }

    async fn h1(&self, net: &MemoryNet, leaves: bool) -> Option<Answer> {
        let mut client = RawClient::in_memory(net.dial(FRONT).await.unwrap());
        let mut lines = vec![format!("X-Request-Id: {}", self.id)];
        lines.extend(self.script().map(|words| format!("X-Mock: {words}")));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        client.send(post(CHAT, &lines, self.body())).await.unwrap();
        if leaves {
            sleep(ms(self.offset())).await;
            if self.case.harm == Harm::Resets {
                client.reset();
            }
            return None;
        }
        let seen = client.read_response().await.unwrap();
        Some(Answer {
            status: seen.status(),
            told_not_to_retry: seen.header("x-should-retry") == Some("false"),
            events: seen.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")),
            complete: seen.is_complete(),
            body: seen.body,
        })
    }

    async fn h2(&self, net: &MemoryNet, leaves: bool) -> Option<Answer> {
        let mut client = H2Client::new(net.dial(FRONT).await.unwrap(), &Builder::new()).await;
        let mut request = Request::post(format!("http://test{CHAT}"))
            .header("content-type", "application/json")
            .header("x-request-id", &self.id);
        if let Some(words) = self.script() {
            request = request.header("x-mock", words);
        }
        let stream = client.start(request.body(()).unwrap(), Some(Bytes::from(self.body()))).await.unwrap();
        if leaves {
            sleep(ms(self.offset())).await;
            if self.case.harm == Harm::Leaves {
                stream.reset(h2::Reason::CANCEL);
                sleep(ms(1)).await;
            }
            client.abort();
            return None;
        }
        let seen = timeout(super::LONGEST, stream.finish()).await.unwrap().unwrap();
        client.abort();
        let header = |name: &str| seen.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        Some(Answer {
            status: seen.status.as_u16(),
            told_not_to_retry: header("x-should-retry") == "false",
            events: header("content-type").starts_with("text/event-stream"),
            complete: seen.end == BodyEnd::Complete,
            body: seen.body,
        })
    }
}

impl Answer {
    fn data(&self) -> Vec<Value> {
        let events = sse::parse(&self.body);
        events.iter().filter(|event| !event.is_done()).map(sse::Event::json).collect()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// What the model said, as far as it came.
    pub(super) fn text(&self) -> String {
        if self.events {
            let said = |chunk: &Value| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
            return self.data().iter().filter_map(said).collect();
        }
        self.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
    }

    /// It ends as the engine's complete answers do.
    pub(super) fn is_framed_as_complete(&self) -> bool {
        let done = !self.events || sse::parse(&self.body).last().is_some_and(sse::Event::is_done);
        self.complete && done
    }

    pub(super) fn error_events(&self) -> usize {
        let is_error = |chunk: &&Value| chunk.get("error").is_some();
        if self.events { self.data().iter().filter(is_error).count() } else { 0 }
    }

    pub(super) fn finish(&self) -> Option<String> {
        let reason = |chunk: &Value| chunk["choices"][0]["finish_reason"].as_str().map(str::to_owned);
        if self.events { self.data().iter().find_map(reason) } else { reason(&self.json()) }
    }
}
