//! Pairs of scripted engines behind a router, and what a client saw of them.

use std::time::Duration;

use bytes::Bytes;
use h2::client::Builder;
use http::Request;
use serde_json::Value;
use tandem::admin::DrainChange;
use tandem::config::{EngineKind, Policies, Policy, RouterConfig, StaticEndpoint, VllmConnector};
use tandem::registry::report::{Entry, Filter, Report};
use tandem::testkit::client::{BodyEnd, H2Client, RawClient};
use tandem::testkit::engine::openai::{ChatStream, chat_json, kv_answer};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, Response, Script, Step};
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::post;
use tandem::testkit::memory::{MemoryNet, MemoryStream};
use tandem::testkit::metrics::Scrape;
use tandem::testkit::router::{FRONT, TestRouter, config};
use tandem::types::clock::{Instant, now};

pub(super) const CHAT: &str = "/v1/chat/completions";
pub(super) const NIXL: EngineKind = EngineKind::Vllm(VllmConnector::Nixl);
pub(super) const SGLANG: EngineKind = EngineKind::Sglang;
pub(super) const KINDS: [EngineKind; 2] = [SGLANG, NIXL];
pub(super) const H1: Proto = Proto::H1;
pub(super) const H2: Proto = Proto::H2;
/// Every kind, protocol and stream flag.
pub(super) const WAYS: [(EngineKind, Proto, bool); 8] = [
    (SGLANG, H1, true),
    (SGLANG, H1, false),
    (SGLANG, H2, true),
    (SGLANG, H2, false),
    (NIXL, H1, true),
    (NIXL, H1, false),
    (NIXL, H2, true),
    (NIXL, H2, false),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Proto {
    H1,
    H2,
}

pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// `steps` after a pause.
pub(super) fn after(pause: Duration, steps: impl IntoSteps) -> Vec<Step> {
    [vec![Step::Sleep(pause)], steps.into_steps()].concat()
}

/// What a working prefill of this kind answers.
pub(super) fn prefilled(kind: EngineKind) -> Vec<Step> {
    if kind == SGLANG {
        chat_json("p").into_steps()
    } else {
        Response::json(200, kv_answer("e").to_string()).into_steps()
    }
}

/// A prefill that takes 20 ms.
pub(super) fn good_p(kind: EngineKind) -> Script {
    chat(after(ms(20), prefilled(kind)))
}

/// A decode that takes 40 ms to its first token, and streams where asked.
pub(super) fn good_d() -> Script {
    Script::new(|request| match request.path() {
        CHAT | "/v1/completions" | "/generate" if request.json()["stream"] == true => {
            after(ms(40), ChatStream::new(3).usage())
        }
        CHAT | "/v1/completions" | "/generate" => after(ms(40), chat_json("hello")),
        _ => Response::text(200, "").into_steps(),
    })
}

/// These steps for each chat; aborts are taken.
pub(super) fn chat(steps: impl IntoSteps) -> Script {
    Script::always(Response::text(200, "")).on(CHAT, steps)
}

/// One answer per chat, then the last for ever; aborts are taken.
pub(super) fn chats(answers: Vec<Vec<Step>>) -> Script {
    let last = answers.last().unwrap().clone();
    Script::always(Response::text(200, "")).route(CHAT, Script::queue(answers).or_else(Script::always(last)))
}

pub(super) struct Rig {
    pub(super) net: MemoryNet,
    pub(super) p: Vec<EngineHandle>,
    pub(super) d: Vec<EngineHandle>,
    pub(super) router: TestRouter,
}

pub(super) fn rig(kind: EngineKind, p: Vec<Script>, d: Vec<Script>) -> Rig {
    rig_with(kind, p, d, |_| {})
}

/// With grace 0 unless `change` says otherwise, and engines taken in turn: `p0` and `d0` come first.
pub(super) fn rig_with(
    kind: EngineKind,
    p: Vec<Script>,
    d: Vec<Script>,
    change: impl FnOnce(&mut RouterConfig),
) -> Rig {
    let net = MemoryNet::new();
    let mut config: RouterConfig = config(&["unused:80".to_owned()]);
    let service = &mut config.services[0];
    let all = |role: &str, scripts: Vec<Script>, to: &mut Vec<StaticEndpoint>| {
        to.clear();
        let start = |(n, script)| {
            let name = format!("{role}{n}");
            to.push(StaticEndpoint::parse(&format!("http://{name}:80")).unwrap());
            Engine::in_memory(&net, &name, script)
        };
        scripts.into_iter().enumerate().map(start).collect::<Vec<_>>()
    };
    service.endpoints.clear();
    let p = all("p", p, &mut service.prefill);
    let d = all("d", d, &mut service.decode);
    service.engine = kind;
    service.policy = Policies::all(Policy::RoundRobin);
    service.upstream.cancel_decode_grace = Some(Duration::ZERO);
    change(&mut config);
    let router = TestRouter::in_memory(config, &net);
    Rig { net, p, d, router }
}

pub(super) fn body(stream: bool) -> String {
    tandem::testkit::fixtures::chat_body("m", stream)
}

/// One answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) complete: bool,
    pub(super) took: Duration,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("{:?}", String::from_utf8_lossy(&self.body)))
    }

    pub(super) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub(super) fn told_not_to_retry(&self) -> bool {
        self.header("x-should-retry") == Some("false")
    }
}

impl Rig {
    pub(super) async fn client(&self) -> RawClient<MemoryStream> {
        self.router.memory_client().await
    }

    pub(super) async fn h2(&self) -> H2Client {
        H2Client::new(self.net.dial(FRONT).await.unwrap(), &Builder::new()).await
    }

    pub(super) async fn ask(&self, proto: Proto, stream: bool) -> Reply {
        self.send(proto, CHAT, &[], &body(stream)).await
    }

    /// One request on a connection of its own, closed afterwards.
    pub(super) async fn send(&self, proto: Proto, path: &str, lines: &[&str], body: &str) -> Reply {
        let started = now();
        match proto {
            Proto::H1 => {
                let mut client = self.client().await;
                let seen = client.request(post(path, lines, body)).await.unwrap();
                let names = ["x-should-retry", "retry-after", "x-request-id", "content-type"];
                let headers =
                    names.iter().filter_map(|n| Some(((*n).to_owned(), seen.header(n)?.to_owned())));
                Reply {
                    status: seen.status(),
                    headers: headers.collect(),
                    complete: seen.is_complete(),
                    body: seen.body,
                    took: now() - started,
                }
            }
            Proto::H2 => {
                let mut client = self.h2().await;
                let mut request =
                    Request::post(format!("http://test{path}")).header("content-type", "application/json");
                for line in lines {
                    let (name, value) = line.split_once(':').unwrap();
                    request = request.header(name.trim(), value.trim());
                }
                let request = request.body(()).unwrap();
                let seen = client.request(request, Bytes::copy_from_slice(body.as_bytes())).await.unwrap();
                let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
                    (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                };
                let reply = Reply {
                    status: seen.status.as_u16(),
                    headers: seen.headers.iter().map(header).collect(),
                    complete: seen.end == BodyEnd::Complete,
                    body: seen.body,
                    took: now() - started,
                };
                client.abort();
                reply
            }
        }
    }

    /// Sends a chat, waits for `pause`, and leaves without reading.
    pub(super) async fn leave_after(&self, proto: Proto, stream: bool, pause: Duration) -> Instant {
        match proto {
            Proto::H1 => {
                let mut client = self.client().await;
                client.send(post(CHAT, &[], body(stream))).await.unwrap();
                tokio::time::sleep(pause).await;
                client.close();
            }
            Proto::H2 => {
                let mut client = self.h2().await;
                let request =
                    Request::post(format!("http://test{CHAT}")).header("content-type", "application/json");
                let open =
                    client.start(request.body(()).unwrap(), Some(Bytes::from(body(stream)))).await.unwrap();
                tokio::time::sleep(pause).await;
                open.reset(h2::Reason::CANCEL);
                tokio::time::sleep(ms(1)).await;
                client.abort();
                return now() - ms(1);
            }
        }
        now()
    }

    pub(super) fn scrape(&self) -> Scrape {
        self.router.scrape()
    }

    /// Requests to chat on each prefill and decode.
    pub(super) fn counts(&self) -> (Vec<usize>, Vec<usize>) {
        let count =
            |engines: &[EngineHandle]| engines.iter().map(|e| e.log.requests_to(CHAT).len()).collect();
        (count(&self.p), count(&self.d))
    }

    pub(super) fn legs(&self, role: &str, outcome: &str) -> f64 {
        self.scrape().sum("tandem_endpoint_requests_total", &[("role", role), ("outcome", outcome)])
    }

    pub(super) fn retries(&self, reason: &str) -> f64 {
        self.scrape().sum("tandem_retries_total", &[("reason", reason)])
    }

    pub(super) fn handoffs(&self) -> u64 {
        self.router.endpoints_of_pairs().iter().map(|e| e.handoffs.count()).sum()
    }

    pub(super) fn holds(&self) -> Vec<u64> {
        self.router.endpoints_of_pairs().iter().map(|e| e.holds()).collect()
    }

    /// Client side released: no permit, no request in flight, and its outcome is known.
    pub(super) fn released(&self) -> bool {
        self.router.shared.in_flight.used() == 0 && self.scrape().sum("tandem_requests_total", &[]) > 0.0
    }

    pub(super) fn report(&self) -> Report {
        self.router.admin.reporter.report(&Filter::default())
    }

    /// What the report says of one engine.
    pub(super) fn entry(&self, name: &str) -> Entry {
        let url = format!("http://{name}:80");
        self.report().endpoints.into_iter().find(|e| e.url == url).unwrap()
    }

    pub(super) async fn drain(&self, name: &str, drain: bool) {
        let id = format!("default/http://{name}:80");
        let all = self.router.admin.endpoints.list();
        let id =
            all.endpoints.iter().find(|e| e.url == format!("http://{name}:80")).map_or(id, |e| e.id.clone());
        assert_eq!(self.router.admin.endpoints.set_drain(&id, drain).await, DrainChange::Changed);
    }

    /// Waits until every connection that an engine saw a chat on was left.
    pub(super) async fn wait_left(&self, engine: &EngineHandle) -> Instant {
        eventually(secs(60), "the chat's connection to be left", || {
            let conn = engine.log.requests_to(CHAT).last().map(|r| r.conn);
            let conns = engine.log.conns();
            conn.and_then(|c| conns[c].closed_at).ok_or("open")
        })
        .await
    }

    /// Everything is released, leases included.
    pub(super) async fn done(self) {
        let prefills: Vec<&EngineHandle> = self.p.iter().collect();
        let decodes: Vec<&EngineHandle> = self.d.iter().collect();
        assert_pair_invariants(&self, &prefills, &decodes).await;
    }
}

/// The invariants of a router and, after the longest lease, no hand-off.
pub(super) async fn assert_pair_invariants(rig: &Rig, prefills: &[&EngineHandle], decodes: &[&EngineHandle]) {
    eventually(secs(40), "no hand-off is left", || {
        if rig.handoffs() == 0 { Ok(()) } else { Err(rig.handoffs()) }
    })
    .await;
    rig.router.assert_pair_invariants(prefills, decodes).await;
    // And so a drain protocol is told.
    for endpoint in rig.router.admin.endpoints.list().endpoints {
        rig.router.admin.endpoints.set_drain(&endpoint.id, true).await;
    }
    let open: Vec<_> = rig.report().endpoints.into_iter().filter(|e| e.quiesced_for_ms.is_none()).collect();
    assert!(open.is_empty(), "the report does not call quiesced {open:#?}");
    let mut rooms: Vec<u64> = decodes
        .iter()
        .flat_map(|d| d.log.requests())
        .filter_map(|r| r.json()["bootstrap_room"].as_u64())
        .collect();
    let all = rooms.len();
    rooms.sort_unstable();
    rooms.dedup();
    assert_eq!(rooms.len(), all, "no room twice");
}

/// Milliseconds between.
pub(super) fn between(from: Instant, to: Instant) -> u128 {
    (to - from).as_millis()
}
