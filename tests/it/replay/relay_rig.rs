//! What the replays of the relay share: routers with their engines, requests over both protocols, and the checks
//! that go with every failed stream.

use std::time::Duration;

use bytes::Bytes;
use h2::client::Builder;
use http::Request;
use serde_json::Value;
use tandem::config::RouterConfig;
use tandem::testkit::client::{BodyEnd, H2Client, RawClient};
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::memory::{MemoryNet, MemoryStream};
use tandem::testkit::router::{FRONT, TestRouter, config, config_for};
use tandem::testkit::sse::{Event, parse};

pub(super) const SOON: Duration = Duration::from_secs(5);

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A router in memory, its network, and its engines `e0`, `e1`, …
pub(super) struct Memory<const N: usize> {
    pub(super) net: MemoryNet,
    pub(super) engines: [EngineHandle; N],
    pub(super) router: TestRouter,
}

/// For paused clocks. `change` is applied to the configuration before the start.
pub(super) fn memory<const N: usize>(
    scripts: [Script; N],
    change: impl FnOnce(&mut RouterConfig),
) -> Memory<N> {
    memory_on(MemoryNet::new(), scripts, change)
}

pub(super) fn memory_on<const N: usize>(
    net: MemoryNet,
    scripts: [Script; N],
    change: impl FnOnce(&mut RouterConfig),
) -> Memory<N> {
    let mut n = 0;
    let engines = scripts.map(|script| {
        n += 1;
        Engine::in_memory(&net, &format!("e{}", n - 1), script)
    });
    let names: Vec<String> = (0..N).map(|n| format!("e{n}:80")).collect();
    let mut config = config(&names);
    change(&mut config);
    let router = TestRouter::in_memory(config, &net);
    Memory { net, engines, router }
}

impl<const N: usize> Memory<N> {
    pub(super) async fn h1(&self) -> RawClient<MemoryStream> {
        self.router.memory_client().await
    }

    pub(super) async fn h2(&self) -> H2Client {
        H2Client::new(self.net.dial(FRONT).await.unwrap(), &Builder::new()).await
    }

    /// The invariants of every replay.
    pub(super) async fn settle(&self) {
        let engines: Vec<&EngineHandle> = self.engines.iter().collect();
        self.router.assert_invariants(&engines).await;
    }

    /// One streamed chat over either protocol, its client closed afterwards.
    pub(super) async fn stream(&self, protocol: Protocol) -> Seen {
        match protocol {
            Protocol::H1 => {
                let mut client = self.h1().await;
                Seen::h1(&client.request(streamed()).await.unwrap())
            }
            Protocol::H2 => Seen::h2(&mut self.h2().await).await,
        }
    }
}

/// A router with its engines on TCP.
pub(super) async fn tcp<const N: usize>(
    scripts: [Script; N],
    change: impl FnOnce(&mut RouterConfig),
) -> ([EngineHandle; N], TestRouter) {
    let mut engines = Vec::new();
    for script in scripts {
        engines.push(Engine::start_tcp(script).await);
    }
    let engines: [EngineHandle; N] = engines.try_into().unwrap();
    let mut config = config_for(&engines.iter().collect::<Vec<_>>());
    change(&mut config);
    (engines, TestRouter::start(config).await)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    H1,
    H2,
}

pub(super) const BOTH: [Protocol; 2] = [Protocol::H1, Protocol::H2];

/// A streamed chat request, HTTP/1.1.
pub(super) fn streamed() -> Bytes {
    post_chat(chat_body("m", true))
}

/// A chat request that is not streamed, HTTP/1.1.
pub(super) fn plain() -> Bytes {
    post_chat(chat_body("m", false))
}

/// A chat request, HTTP/2.
pub(super) fn chat_h2(stream: bool) -> (Request<()>, Bytes) {
    let request = Request::post("http://test/v1/chat/completions").header("content-type", "application/json");
    (request.body(()).unwrap(), chat_body("m", stream).into())
}

/// What a client saw of a stream, whatever the protocol.
pub(super) struct Seen {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    pub(super) complete: bool,
    /// The transfer ended in the way that the protocol has for a failed one.
    pub(super) aborted: bool,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (body, Self { status, complete, aborted, .. }) = (String::from_utf8_lossy(&self.body), self);
        write!(f, "{status} complete {complete} aborted {aborted} {body:?}")
    }
}

impl Seen {
    pub(super) fn h1(answer: &tandem::testkit::client::RawResponse) -> Self {
        Self {
            status: answer.status(),
            body: answer.body.clone(),
            complete: answer.is_complete(),
            aborted: !answer.is_complete(),
        }
    }

    pub(super) async fn h2(client: &mut H2Client) -> Self {
        let (request, body) = chat_h2(true);
        let answer = client.request(request, body).await.unwrap();
        Self {
            status: answer.status.as_u16(),
            complete: answer.end == BodyEnd::Complete,
            aborted: client.frames.reset_of(answer.stream) == Some(u32::from(h2::Reason::INTERNAL_ERROR)),
            body: answer.body,
        }
    }

    pub(super) fn events(&self) -> Vec<Event> {
        parse(&self.body)
    }

    /// Exactly one error event of the router, the last one, with this code; no `[DONE]`; an aborted transfer.
    pub(super) fn assert_failed(&self, code: &str) {
        assert_eq!(self.status, 200);
        let events = self.events();
        let errors: Vec<Value> = events
            .iter()
            .filter_map(|e| serde_json::from_str::<Value>(&e.data).ok())
            .filter(|e| !e["error"].is_null())
            .collect();
        assert_eq!(errors.len(), 1, "one error event in {:?}", String::from_utf8_lossy(&self.body));
        let last = events.last().unwrap().json();
        assert_eq!(last["error"]["code"], code);
        assert!(last["error"]["message"].is_string() && last["error"]["request_id"].is_string());
        assert!(!events.iter().any(Event::is_done), "[DONE] means success");
        let text = String::from_utf8_lossy(&self.body);
        assert!(!text.contains("\"finish_reason\":\"stop\""), "nothing may be made up: {text}");
        assert!(!self.complete && self.aborted, "the transfer must not look complete: {self:?}");
    }
}

/// The last access line: outcome and error code.
pub(super) fn last_line(router: &TestRouter) -> (String, String) {
    let lines = router.access_lines();
    let word = |key: &str| lines.last().unwrap()[key].as_str().unwrap_or_default().to_owned();
    (word("outcome"), word("error"))
}

/// How many legs ended in this way.
pub(super) fn legs(router: &TestRouter, outcome: &str) -> u64 {
    count(router, "tandem_upstream_legs_total", &[("outcome", outcome)])
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
pub(super) fn count(router: &TestRouter, name: &str, labels: &[(&str, &str)]) -> u64 {
    router.scrape().sum(name, labels) as u64
}
