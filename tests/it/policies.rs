//! Which engine is next: spread, ties, and who is passed over. In-flight counts are made by engines that hold requests.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tandem::config::{Policy, RouterConfig};
use tandem::testkit::client::{BodyEnd, RawClient};
use tandem::testkit::engine::openai::{ChatStream, chat_json};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Script, Step};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::memory::{DialFault, MemoryNet, MemoryStream};
use tandem::testkit::router::{TestRouter, config, config_for};

const ALL: [Policy; 3] = [Policy::RoundRobin, Policy::LeastInFlight, Policy::PowerOfTwo];

fn answer(request: &RecordedRequest) -> Vec<Step> {
    match request.json()["model"].as_str() {
        Some("hold") => Step::Stall.into_steps(),
        _ => chat_json("hi").into_steps(),
    }
}

struct Rig {
    net: MemoryNet,
    engines: Vec<EngineHandle>,
    router: TestRouter,
    held: Vec<RawClient<MemoryStream>>,
}

impl Rig {
    fn new(policy: Policy, engines: usize) -> Self {
        let net = MemoryNet::new();
        let names: Vec<String> = (0..engines).map(|n| format!("e{n}")).collect();
        let handles = names.iter().map(|name| Engine::in_memory(&net, name, Script::new(answer))).collect();
        let mut config: RouterConfig =
            config(&names.iter().map(|name| format!("{name}:80")).collect::<Vec<_>>());
        config.services[0].policy.mixed = policy;
        let router = TestRouter::in_memory(config, &net);
        Self { net, engines: handles, router, held: Vec::new() }
    }

    async fn quick(&self, n: usize) {
        let mut client = self.router.memory_client().await;
        for _ in 0..n {
            assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
        }
    }

    /// Requests that stay in flight.
    async fn hold(&mut self, n: usize) {
        for _ in 0..n {
            let before: usize = self.counts().iter().sum();
            let mut client = self.router.memory_client().await;
            client.send(&post_chat(chat_body("hold", false))).await.unwrap();
            while self.counts().iter().sum::<usize>() == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            self.held.push(client);
        }
    }

    fn counts(&self) -> Vec<usize> {
        self.engines.iter().map(|e| e.log.request_count()).collect()
    }

    async fn drain(&self, engine: usize, on: bool) {
        let id = self.router.endpoints()[engine].id.to_string();
        self.router.admin.endpoints.set_drain(&id, on).await;
    }

    async fn done(mut self) {
        self.held.clear();
        let engines: Vec<&EngineHandle> = self.engines.iter().collect();
        self.router.assert_invariants(&engines).await;
    }
}

#[tokio::test(start_paused = true)]
async fn round_robin_takes_turns_exactly() {
    let rig = Rig::new(Policy::RoundRobin, 4);
    rig.quick(40).await;
    assert_eq!(rig.counts(), [10; 4]);
    rig.done().await;
}

/// B171: 1,000 requests that come while nothing else is in flight, so that every choice is a tie.
#[tokio::test(start_paused = true)]
async fn b171_ties_spread_over_all_engines() {
    for policy in ALL {
        let rig = Rig::new(policy, 4);
        rig.quick(1000).await;
        let counts = rig.counts();
        assert!(counts.iter().all(|n| (180..=320).contains(n)), "{policy:?}: {counts:?}");
        rig.done().await;
    }
}

/// B171, B169: slow requests spread by what is in flight here, not by what was polled some time ago.
#[tokio::test(start_paused = true)]
async fn b171_slow_requests_spread_evenly() {
    for policy in ALL {
        let mut rig = Rig::new(policy, 4);
        rig.hold(100).await;
        let counts = rig.counts();
        let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        let slack = if policy == Policy::PowerOfTwo { 8 } else { 0 };
        assert!(max - min <= slack, "{policy:?}: {counts:?}");
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_less_loaded_engine_is_preferred() {
    let mut rig = Rig::new(Policy::LeastInFlight, 3);
    for engine in [1, 2] {
        rig.drain(engine, true).await;
    }
    rig.hold(5).await;
    for engine in [1, 2] {
        rig.drain(engine, false).await;
    }
    rig.hold(4).await;
    assert_eq!(rig.counts(), [5, 2, 2]);
    rig.done().await;
    // Of two, the better one: with two engines that is always the less loaded one.
    let mut rig = Rig::new(Policy::PowerOfTwo, 2);
    rig.drain(1, true).await;
    rig.hold(5).await;
    rig.drain(1, false).await;
    rig.hold(5).await;
    assert_eq!(rig.counts(), [5, 5]);
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_engine_is_passed_over_and_its_share_spreads() {
    for policy in ALL {
        let rig = Rig::new(policy, 3);
        rig.drain(1, true).await;
        rig.quick(400).await;
        let counts = rig.counts();
        assert_eq!(counts[1], 0, "{policy:?}");
        assert!(counts[0] >= 150 && counts[2] >= 150, "{policy:?}: {counts:?}");
        assert!(policy != Policy::RoundRobin || counts[0] == 200, "{counts:?}");
        rig.drain(1, false).await;
        rig.quick(100).await;
        assert!(rig.counts()[1] > 10, "{policy:?}: {:?}", rig.counts());
        rig.done().await;
    }
}

/// A connect failure puts an engine last for a while: one request finds out, and pays a retry, the others go elsewhere.
#[tokio::test(start_paused = true)]
async fn an_ejected_engine_comes_last_and_comes_back() {
    for policy in ALL {
        let rig = Rig::new(policy, 3);
        rig.net.set_fault("e1", DialFault::Refuse);
        rig.quick(60).await;
        assert!(rig.router.endpoints()[1].ejection.is_ejected(), "{policy:?}");
        assert_eq!(rig.counts()[1], 0);
        assert_eq!(rig.net.dials("e1"), 1, "{policy:?}: dialled once, then left alone");
        rig.net.set_fault("e1", DialFault::None);
        tokio::time::sleep(Duration::from_millis(1100)).await;
        rig.quick(60).await;
        assert!(rig.counts()[1] > 5, "{policy:?}: {:?}", rig.counts());
        rig.done().await;
    }
}

/// Ejected is last, not out: with nothing else left it is tried.
#[tokio::test(start_paused = true)]
async fn when_all_are_ejected_they_are_still_tried() {
    for policy in ALL {
        let rig = Rig::new(policy, 2);
        for endpoint in rig.router.endpoints() {
            endpoint.ejection.fail();
        }
        rig.quick(20).await;
        assert_eq!(rig.counts().iter().sum::<usize>(), 20);
        assert!(rig.router.endpoints().iter().any(|e| !e.ejection.is_ejected()), "an answer ends it");
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn turns_go_on_among_ejected_engines() {
    let rig = Rig::new(Policy::RoundRobin, 2);
    let service = std::sync::Arc::clone(&rig.router.shared.view.load().services[0]);
    for endpoint in rig.router.endpoints() {
        endpoint.ejection.fail();
    }
    let none = tandem::proxy::route::Excluded::default();
    let mixed = tandem::registry::Role::Mixed;
    let picked = || {
        let hold = tandem::proxy::route::pick_role(&service, &service.cohorts[0], mixed, &none);
        hold.unwrap().endpoint().id
    };
    let (first, second) = (picked(), picked());
    assert_ne!(first, second);
    assert_eq!((picked(), picked()), (first, second));
    rig.done().await;
}

fn chat_over_h2(router: &TestRouter) -> Request<()> {
    let uri = format!("{}/v1/chat/completions", router.url());
    Request::post(uri).header("content-type", "application/json").body(()).unwrap()
}

/// Streams of one HTTP/2 connection are requests like any other: served at once, and spread.
#[tokio::test]
async fn the_streams_of_one_h2_connection_run_side_by_side_and_spread() {
    let script = || Script::always(ChatStream::new(10).gap(Duration::from_millis(15)));
    let (a, b) = (Engine::start_tcp(script()).await, Engine::start_tcp(script()).await);
    let router = TestRouter::start(config_for(&[&a, &b])).await;
    let mut client = router.h2_client().await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let body = Bytes::from(chat_body("m", true));
        streams.push(client.start(chat_over_h2(&router), Some(body)).await.unwrap());
    }
    a.log.wait_for(10, Duration::from_secs(5)).await;
    b.log.wait_for(10, Duration::from_secs(5)).await;
    assert!(
        a.log.requests().iter().all(|r| r.response.done_at.is_none()),
        "all of them run at the same time"
    );
    for stream in streams {
        let answer = stream.finish().await.unwrap();
        assert_eq!(answer.end, BodyEnd::Complete);
        assert!(answer.body.ends_with(b"data: [DONE]\n\n"));
    }
    assert_eq!((a.log.request_count(), b.log.request_count()), (10, 10));
    client.abort();
    router.assert_invariants(&[&a, &b]).await;
}

/// `limits.h2_streams`: announced in SETTINGS, so that a client that keeps to it waits with the next stream.
#[tokio::test]
async fn the_h2_stream_limit_is_announced_and_kept() {
    let engine = Engine::start_tcp(Script::new(answer)).await;
    let mut config = config_for(&[&engine]);
    config.limits.h2_streams = 4;
    let router = TestRouter::start(config).await;
    let mut client = router.h2_client().await;
    // The client learns the limit with the first answer.
    let first = client.request(chat_over_h2(&router), chat_body("m", false).into()).await.unwrap();
    assert_eq!(first.status, 200);
    let mut held = Vec::new();
    for _ in 0..4 {
        let body = Bytes::from(chat_body("hold", false));
        held.push(client.start(chat_over_h2(&router), Some(body)).await.unwrap());
    }
    engine.log.wait_for(5, Duration::from_secs(5)).await;
    let fifth = async { client.request(chat_over_h2(&router), chat_body("m", false).into()).await };
    let waited = tokio::time::timeout(Duration::from_millis(100), fifth).await;
    assert!(waited.is_err(), "a fifth stream had to wait");
    assert_eq!(engine.log.request_count(), 5);
    held.pop().unwrap().reset(h2::Reason::CANCEL);
    let next = client.request(chat_over_h2(&router), chat_body("m", false).into()).await.unwrap();
    assert_eq!(next.status, 200);
    drop(held);
    client.abort();
    router.assert_invariants(&[&engine]).await;
}
