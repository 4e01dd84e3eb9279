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

/// What is sent.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) id: String,
    pub(super) case: Case,
    /// Bits of the engines that are at fault.
    pub(super) victims: u32,
    pub(super) jitter: u64,
    /// Words of the prompt beyond its own two.
    pub(super) words: usize,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) told_not_to_retry: bool,
    pub(super) body: Vec<u8>,
    /// By its own framing.
    pub(super) complete: bool,
    /// The data of a stream's events, or the one object of an answer that is none.
    said: Vec<Value>,
    /// A stream ends with `[DONE]`.
    done: bool,
}

impl Ask {
    pub(super) fn body(&self) -> String {
        let prompt = format!("storm {}{}", self.id, " on".repeat(self.words));
        let messages = json!([{"role": "user", "content": prompt}]);
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

    /// `None`: the client did not wait for an answer.
    pub(super) async fn send(&self, net: MemoryNet) -> Option<Answer> {
        let leaves = matches!(self.case.harm, Harm::Leaves | Harm::Resets);
        match self.case.proto {
            Proto::H1 => self.h1(&net, leaves).await,
            Proto::H2 => self.h2(&net, leaves).await,
        }
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
        let (status, complete) = (seen.status(), seen.is_complete());
        let [told, kind] =
            ["x-should-retry", "content-type"].map(|n| seen.header(n).unwrap_or_default().to_owned());
        Some(Answer::new(status, &told, &kind, seen.body, complete))
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
        let complete = seen.end == BodyEnd::Complete;
        let (told, kind) = (header("x-should-retry"), header("content-type"));
        Some(Answer::new(seen.status.as_u16(), told, kind, seen.body.clone(), complete))
    }
}

impl Answer {
    fn new(status: u16, told: &str, kind: &str, body: Vec<u8>, complete: bool) -> Self {
        let told_not_to_retry = told == "false";
        if !kind.starts_with("text/event-stream") {
            let said = vec![serde_json::from_slice(&body).unwrap_or_default()];
            return Self { status, told_not_to_retry, body, complete, said, done: true };
        }
        let events = sse::parse(&body);
        let done = events.last().is_some_and(sse::Event::is_done);
        let said = events.iter().filter(|event| !event.is_done()).map(sse::Event::json).collect();
        Self { status, told_not_to_retry, body, complete, said, done }
    }

    pub(super) fn json(&self) -> &Value {
        &self.said[0]
    }

    /// What the model said, as far as it came.
    pub(super) fn text(&self) -> String {
        let choices = self.said.iter().map(|chunk| &chunk["choices"][0]);
        let text = |choice: &Value| {
            ["delta", "message"].iter().find_map(|key| choice[key]["content"].as_str().map(str::to_owned))
        };
        choices.filter_map(text).collect()
    }

    /// It ends as the engine's complete answers do.
    pub(super) fn is_framed_as_complete(&self) -> bool {
        self.complete && self.done
    }

    pub(super) fn error_events(&self) -> usize {
        self.said.iter().filter(|chunk| chunk.get("error").is_some()).count()
    }

    pub(super) fn finish(&self) -> Option<&str> {
        self.said.iter().find_map(|chunk| chunk["choices"][0]["finish_reason"].as_str())
    }
}
