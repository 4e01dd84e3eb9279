//! Plain engines in memory on a paused clock, the orders an operator's.

use std::time::Duration;

use bytes::Bytes;
use h2::client::Builder;
use http::Request;
use tandem::admin::DrainChange;
use tandem::config::{Policies, Policy};
use tandem::registry::report::{Entry, Filter};
use tandem::testkit::client::{H2Client, RawClient};
use tandem::testkit::engine::openai::{ChatStream, chat_json};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Script, Step};
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::memory::{DialFault, MemoryNet, MemoryStream};
use tandem::testkit::router::{FRONT, TestRouter, config};
use tandem::types::clock::now;
use tandem::types::drain_order::DrainOrder;
use tokio::time::sleep;

use super::order;

const SECOND: Duration = Duration::from_secs(1);

fn answer(request: &RecordedRequest) -> Vec<Step> {
    match request.json()["model"].as_str().unwrap_or_default() {
        "endless" => ChatStream::new(1).then(Step::Stall).into_steps(),
        "fast" => ChatStream::of(vec!["x".repeat(4000); 4000]).into_steps(),
        "steady" => ChatStream::new(600).gap(Duration::from_millis(100)).into_steps(),
        "silent" => Step::Stall.into_steps(),
        "half" => {
            vec![Step::write("HTTP/1.1 500 Internal\r\ncontent-length: 50\r\n\r\n{"), Step::Stall]
        }
        _ => chat_json("hi").into_steps(),
    }
}

struct Rig {
    net: MemoryNet,
    router: TestRouter,
    engines: [EngineHandle; 2],
}

fn rig() -> Rig {
    let net = MemoryNet::new();
    let engines = ["e1", "e2"].map(|name| Engine::in_memory(&net, name, Script::new(answer)));
    let mut config = config(&["e1:80".to_owned(), "e2:80".to_owned()]);
    config.services[0].policy = Policies::all(Policy::RoundRobin);
    (config.timeouts.idle, config.timeouts.first_byte, config.timeouts.write_stall) = (None, None, None);
    Rig { router: TestRouter::in_memory(config, &net), net, engines }
}

impl Rig {
    /// One request under way; with a stream, after its first event. The first goes to `e1`, and so on in turn.
    async fn open(&self, model: &str) -> RawClient<MemoryStream> {
        let mut client = self.router.memory_client().await;
        client.send(&post_chat(chat_body(model, model != "silent"))).await.unwrap();
        if model == "silent" {
            sleep(Duration::from_millis(50)).await;
        } else {
            client.read_until(if model == "fast" { b"xxxx" } else { b"t0 " }).await.unwrap();
        }
        client
    }

    async fn order(&self, engine: usize, order: Option<DrainOrder>) {
        let endpoint = &self.router.endpoints()[engine];
        let changed = self.router.admin.endpoints.order(&endpoint.id.to_string(), order).await;
        assert_eq!(changed, DrainChange::Changed);
    }

    fn entry(&self, engine: usize) -> Entry {
        let url = Some(self.router.endpoints()[engine].url.clone());
        let report = self.router.admin.reporter.report(&Filter { url, ..Filter::default() });
        report.endpoints.into_iter().next().unwrap()
    }

    /// Requests by outcome, legs cancelled, legs cut, ejections.
    fn counts(&self, outcome: &str) -> [f64; 4] {
        let scrape = self.router.scrape();
        [
            scrape.sum("tandem_requests_total", &[("outcome", outcome)]),
            scrape.sum("tandem_endpoint_requests_total", &[("outcome", "cancelled")]),
            scrape.sum("tandem_endpoint_forced_total", &[]),
            scrape.sum("tandem_endpoint_ejections_total", &[]),
        ]
    }

    async fn empty(&self, engine: usize) {
        eventually(SECOND, "the endpoint carries nothing", || match self.entry(engine).in_flight.total() {
            0 => Ok(()),
            n => Err(n),
        })
        .await;
    }

    async fn done(self) {
        let [a, b] = &self.engines;
        self.router.assert_invariants(&[a, b]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_a_stream_gets_one_error_event_and_a_silent_request_its_error() {
    let rig = rig();
    let mut stream = rig.open("endless").await;
    let mut other = rig.open("steady").await;
    let mut silent = rig.open("silent").await;
    let began = now();
    rig.order(0, Some(order(10_000, true))).await;
    let entry = rig.entry(0);
    assert!(entry.force && (9000..=10_000).contains(&entry.deadline_in_ms.unwrap()), "{entry:?}");
    sleep(Duration::from_millis(9900)).await;
    assert_eq!((rig.entry(0).in_flight.decode, rig.entry(0).forced), (2, 0), "not before its time");
    let (text, ..) = stream.read_to_end().await.unwrap();
    assert!(now() - began < SECOND * 11);
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(text.matches("drain_forced").count(), 1, "{text}");
    assert!(!text.contains("[DONE]") && !text.ends_with("0\r\n\r\n"), "aborted: {text}");
    let refused = silent.read_response().await.unwrap();
    assert_eq!((refused.status(), refused.json()["error"]["code"].as_str()), (503, Some("drain_forced")));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    rig.empty(0).await;
    sleep(Duration::from_millis(100)).await;
    let entry = rig.entry(0);
    assert_eq!((entry.forced, entry.selectable), (2, false));
    assert!(entry.deadline_in_ms.unwrap() < 0);
    assert_eq!(rig.counts("forced"), [2.0, 2.0, 2.0, 0.0]);
    assert_eq!(rig.engines[1].log.request_count(), 1, "nothing was repeated");
    other.read_until(b"[DONE]").await.expect("the other engine's stream comes to its end");
    drop((stream, silent, other));
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_answer_that_has_only_begun_is_cut_too() {
    let rig = rig();
    let mut client = rig.router.memory_client().await;
    client.send(&post_chat(chat_body("half", false))).await.unwrap();
    sleep(SECOND).await;
    rig.order(0, Some(order(0, true))).await;
    let reply = client.read_response().await.unwrap();
    assert_eq!((reply.status(), reply.json()["error"]["code"].as_str()), (503, Some("drain_forced")));
    rig.empty(0).await;
    assert_eq!(rig.counts("forced"), [1.0, 1.0, 1.0, 0.0]);
    drop(client);
    rig.done().await;
}

/// A stream that makes progress all the time, and one of HTTP/2.
#[tokio::test(start_paused = true)]
async fn a_stream_that_flows_is_cut_too_on_either_protocol() {
    let rig = rig();
    let mut flowing = rig.open("steady").await;
    let mut h2 = H2Client::new(rig.net.dial(FRONT).await.unwrap(), &Builder::new()).await;
    let request = || {
        let head =
            Request::post("http://test/v1/chat/completions").header("content-type", "application/json");
        (head.body(()).unwrap(), Some(Bytes::from(chat_body("endless", true))))
    };
    let (head, body) = request();
    let kept = h2.start(head, body).await.unwrap();
    sleep(Duration::from_millis(100)).await;
    let (head, body) = request();
    let cut = h2.start(head, body).await.unwrap();
    sleep(Duration::from_millis(100)).await;
    assert_eq!((rig.entry(0).in_flight.decode, rig.entry(1).in_flight.decode), (2, 1));
    rig.order(0, Some(order(0, true))).await;
    rig.empty(0).await;
    let (text, ..) = flowing.read_to_end().await.unwrap();
    assert!(String::from_utf8_lossy(&text).contains("drain_forced"));
    assert_eq!(
        (rig.entry(0).forced, rig.entry(1).in_flight.decode),
        (2, 1),
        "one of two streams of one connection"
    );
    drop((kept, cut, flowing));
    h2.abort();
    rig.done().await;
}

/// hyper does not ask for more of an answer while its client takes nothing.
#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_bytes_does_not_keep_its_engine() {
    let rig = rig();
    let stuck = rig.open("fast").await;
    let other = rig.open("fast").await;
    let mut h2 =
        H2Client::new(rig.net.dial(FRONT).await.unwrap(), Builder::new().initial_window_size(100)).await;
    let head = Request::post("http://test/v1/chat/completions").header("content-type", "application/json");
    let body = Some(Bytes::from(chat_body("fast", true)));
    let stream = h2.start(head.body(()).unwrap(), body).await.unwrap();
    sleep(SECOND).await;
    assert_eq!((rig.entry(0).in_flight.decode, rig.entry(1).in_flight.decode), (2, 1));
    rig.order(0, Some(order(1000, true))).await;
    sleep(Duration::from_millis(950)).await;
    assert_eq!(rig.entry(0).in_flight.decode, 2);
    rig.empty(0).await;
    sleep(SECOND).await;
    assert_eq!(
        (rig.entry(0).forced, rig.entry(1).in_flight.decode),
        (2, 1),
        "another engine's is left alone"
    );
    assert_eq!(rig.counts("forced"), [2.0, 2.0, 2.0, 0.0]);
    drop((stuck, other, stream));
    h2.abort();
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn without_force_or_after_an_abort_nothing_is_cut() {
    for aborted in [false, true] {
        let rig = rig();
        let mut stream = rig.open("steady").await;
        rig.order(0, Some(order(5000, aborted))).await;
        sleep(Duration::from_millis(4900)).await;
        if aborted {
            rig.order(0, None).await;
        }
        stream.read_until(b"[DONE]").await.expect("the stream's own end");
        assert_eq!((rig.entry(0).forced, rig.entry(0).selectable), (0, aborted));
        drop(stream);
        eventually(SECOND, "its outcome", || {
            if rig.counts("ok") == [1.0, 0.0, 0.0, 0.0] { Ok(()) } else { Err(rig.counts("ok")) }
        })
        .await;
        rig.done().await;
    }
}

/// The endpoint comes back, and what it carries then is not of the time before.
#[tokio::test(start_paused = true)]
async fn a_restored_endpoint_serves_again_and_is_cut_again_only_by_another_order() {
    let rig = rig();
    for round in 1..=2 {
        let clients = [rig.open("endless").await, rig.open("endless").await];
        rig.order(0, Some(order(0, true))).await;
        rig.empty(0).await;
        rig.order(0, None).await;
        assert_eq!(rig.entry(0).forced, round);
        let fresh = [rig.open("endless").await, rig.open("endless").await];
        rig.order(1, Some(order(0, true))).await;
        sleep(SECOND * 2).await;
        assert_eq!(rig.entry(0).in_flight.decode, 1, "it began after the cut");
        rig.order(1, None).await;
        drop((clients, fresh));
        rig.empty(0).await;
    }
    rig.done().await;
}

/// Nothing of it was sent: it goes elsewhere, and no retry is spent.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_still_connecting_goes_to_another_engine() {
    let net = MemoryNet::new();
    let e2 = Engine::in_memory(&net, "e2", Script::new(answer));
    let mut config = config(&["e1:80".to_owned(), "e2:80".to_owned()]);
    config.services[0].policy = Policies::all(Policy::RoundRobin);
    config.services[0].retries.max = 0;
    config.timeouts.connect = None;
    net.set_fault("e1", DialFault::BlackHole);
    let router = TestRouter::in_memory(config, &net);
    let mut client = router.memory_client().await;
    client.send(&post_chat(chat_body("m", false))).await.unwrap();
    sleep(SECOND).await;
    let endpoint = &router.endpoints()[0];
    assert_eq!(endpoint.holds(), 1);
    router.admin.endpoints.order(&endpoint.id.to_string(), Some(order(0, true))).await;
    assert_eq!(client.read_response().await.unwrap().status(), 200);
    assert_eq!((endpoint.holds(), endpoint.forced()), (0, 0), "no leg of it had begun");
    client.close();
    router.assert_invariants(&[&e2]).await;
}
