//! B103 on a paused clock: each phase at its exact time, as clients, probes and metrics see it.

use std::time::Duration;

use tandem::config::RouterConfig;
use tandem::drain::{Phase, Report};
use tandem::testkit::engine::openai::{ChatStream, chat_json};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Script, Step};
use tandem::testkit::fixtures::{chat_body, get, post_chat, request_head};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::{FRONT, TestRouter, config};
use tandem::types::clock::{Instant, now};
use tokio::sync::oneshot;
use tokio::time::sleep;

const DELAY: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_mins(10);

fn answer(request: &RecordedRequest) -> Vec<Step> {
    let body = request.json();
    match body["model"].as_str().unwrap_or_default() {
        "endless" => ChatStream::new(1).then(Step::Stall).into_steps(),
        "silent" => Step::Stall.into_steps(),
        "minute" => ChatStream::new(60).gap(Duration::from_secs(1)).into_steps(),
        _ => chat_json("hi").into_steps(),
    }
}

fn rig() -> (MemoryNet, EngineHandle, TestRouter) {
    let net = MemoryNet::new();
    let engine = Engine::in_memory(&net, "e1", Script::new(answer));
    let mut config: RouterConfig = config(&["e1:80".to_owned()]);
    (config.shutdown.delay, config.shutdown.grace) = (DELAY, GRACE);
    (config.timeouts.idle, config.timeouts.first_byte) = (None, None);
    let router = TestRouter::in_memory(config, &net);
    (net, engine, router)
}

/// When each phase was reached, relative to the start, together with the end and its report.
async fn shut_down(router: &mut TestRouter, second: oneshot::Receiver<()>) -> (Report, Duration) {
    let started = now();
    let report = router.shut_down(second).await;
    (report, now() - started)
}

fn near(a: Duration, b: Duration) -> bool {
    a >= b && a < b + Duration::from_millis(200)
}

fn readiness(router: &TestRouter) -> (bool, &'static str) {
    let readiness = (router.admin.readiness)();
    (readiness.ready, readiness.phase)
}

#[tokio::test(start_paused = true)]
async fn b103_without_requests_the_process_leaves_after_the_delay() {
    let (_net, engine, mut router) = rig();
    let mut idle = router.memory_client().await;
    assert_eq!(idle.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
    let (report, took) = shut_down(&mut router, oneshot::channel().1).await;
    assert_eq!(report, Report { forced: 0 });
    assert!(near(took, DELAY), "{took:?}");
    assert_eq!(readiness(&router), (false, "stopped"));
    assert!(idle.ended().await.is_some());
    router.assert_invariants(&[&engine]).await;
}

/// Plays a client beside the shutdown and tells when it saw what.
async fn during_the_delay(net: &MemoryNet, started: Instant) {
    let mut kept = tandem::testkit::client::RawClient::in_memory(net.dial(FRONT).await.unwrap());
    sleep(Duration::from_secs(4)).await;
    let answer = kept.request(&post_chat(chat_body("m", false))).await.unwrap();
    assert_eq!((answer.status(), answer.header("connection")), (200, Some("close")));
    let (rest, ..) = kept.read_to_end().await.unwrap();
    assert!(rest.is_empty() && now() - started < DELAY);
    let mut health = tandem::testkit::client::RawClient::in_memory(net.dial(FRONT).await.unwrap());
    let answer = health.request(&get("/health")).await.unwrap();
    assert_eq!((answer.status(), answer.header("connection")), (200, Some("close")));
    sleep(Duration::from_millis(1100)).await;
    net.dial(FRONT).await.expect_err("the listener is closed after the delay");
}

#[tokio::test(start_paused = true)]
async fn b103_the_phases_are_seen_in_order_and_a_long_stream_finishes() {
    let (net, engine, mut router) = rig();
    assert_eq!(readiness(&router), (true, "running"));
    let mut stream = router.memory_client().await;
    stream.send(&post_chat(chat_body("minute", true))).await.unwrap();
    let head = stream.read_head().await.unwrap();
    assert_eq!(head.headers.get("connection"), None);
    let started = now();
    let shared = std::sync::Arc::clone(&router.shared);
    let seen = async {
        let mut seen = Vec::new();
        for phase in [Phase::Unready, Phase::Draining, Phase::Stopped] {
            shared.phases.reached(phase).await;
            seen.push((phase, now() - started));
        }
        seen
    };
    let whole = stream.read_rest(head);
    let ((report, took), seen, whole, ()) = tokio::join!(
        shut_down(&mut router, oneshot::channel().1),
        seen,
        whole,
        during_the_delay(&net, started)
    );
    let whole = whole.unwrap();
    assert!(whole.is_complete());
    assert_eq!(whole.events().last().unwrap().data, "[DONE]");
    assert_eq!(report, Report { forced: 0 });
    assert!(near(took, Duration::from_secs(63)), "{took:?}");
    assert!(seen[0].1.is_zero() && near(seen[1].1, DELAY) && near(seen[2].1, took), "{seen:?}");
    drop(stream);
    router.assert_invariants(&[&engine]).await;
    assert!(router.scrape().sum("tandem_forced_requests_total", &[]) < 0.5);
}

#[tokio::test(start_paused = true)]
async fn b103_the_grace_is_kept_to_and_then_everything_is_ended_with_an_error() {
    let (_net, engine, mut router) = rig();
    let (mut stream, mut silent) = (router.memory_client().await, router.memory_client().await);
    let mut upload = router.memory_client().await;
    stream.send(&post_chat(chat_body("endless", true))).await.unwrap();
    stream.read_until(b"t0 ").await.unwrap();
    silent.send(&post_chat(chat_body("silent", false))).await.unwrap();
    engine.log.wait_for(2, Duration::from_secs(1)).await;
    let lines = ["Content-Type: application/json", "Content-Length: 2000"];
    upload.send(&request_head("POST", "/v1/chat/completions", &lines)).await.unwrap();
    // Keeps the body from stalling: a byte every 20 s for longer than the grace.
    let trickle = async {
        for _ in 0..40 {
            sleep(Duration::from_secs(20)).await;
            if upload.send(b" ").await.is_err() {
                break;
            }
        }
        String::from_utf8_lossy(upload.unread().await).into_owned()
    };
    let ((report, took), stream, silent, upload) = tokio::join!(
        shut_down(&mut router, oneshot::channel().1),
        stream.read_to_end(),
        silent.read_response(),
        trickle
    );
    assert_eq!(report, Report { forced: 3 });
    assert!(near(took, DELAY + GRACE), "{took:?}");
    let text = String::from_utf8_lossy(&stream.unwrap().0).into_owned();
    assert!(
        text.contains("shutting_down") && !text.contains("[DONE]") && !text.ends_with("0\r\n\r\n"),
        "{text}"
    );
    let silent = silent.unwrap();
    assert_eq!((silent.status(), silent.header("retry-after")), (503, Some("1")));
    assert!(silent.json()["error"]["message"].as_str().unwrap().contains("shutting down"));
    assert!(upload.starts_with("HTTP/1.1 503") && upload.contains("shutting_down"), "{upload}");
    let forced = router.scrape().get("tandem_forced_requests_total", &[]).unwrap();
    assert!((forced - 3.0).abs() < 0.5, "{forced}");
    assert!(router.access_lines().iter().all(|line| line["outcome"] == "forced"));
    engine.log.wait_all_closed(Duration::from_secs(1)).await;
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test(start_paused = true)]
async fn b103_a_second_signal_forces_at_once() {
    for after in [Duration::from_secs(1), Duration::from_secs(100)] {
        let (_net, engine, mut router) = rig();
        let mut client = router.memory_client().await;
        client.send(&post_chat(chat_body("endless", true))).await.unwrap();
        client.read_until(b"t0 ").await.unwrap();
        let (second, signal) = oneshot::channel();
        let send = async {
            sleep(after).await;
            second.send(()).unwrap();
        };
        let ((report, took), rest, ()) =
            tokio::join!(shut_down(&mut router, signal), client.read_to_end(), send);
        assert_eq!(report, Report { forced: 1 });
        assert!(near(took, after), "{took:?}");
        assert!(String::from_utf8_lossy(&rest.unwrap().0).contains("shutting_down"));
        router.assert_invariants(&[&engine]).await;
    }
}

/// Half a head is a request on its way: it is served when it comes, and given up within its own limit.
#[tokio::test(start_paused = true)]
async fn b103_half_a_head_is_waited_for_within_the_header_read_limit() {
    for (rest_after, served) in [(Duration::from_secs(8), true), (Duration::from_secs(30), false)] {
        let (_net, engine, mut router) = rig();
        let mut client = router.memory_client().await;
        let request = post_chat(chat_body("m", false));
        sleep(Duration::from_secs(1)).await;
        let finish = async {
            sleep(Duration::from_secs(4)).await;
            client.send(&request[..30]).await.unwrap();
            sleep(rest_after).await;
            let _ = client.send(&request[30..]).await;
            client.read_response().await
        };
        let ((report, took), answer) = tokio::join!(shut_down(&mut router, oneshot::channel().1), finish);
        assert_eq!(report, Report { forced: 0 });
        assert_eq!(answer.is_ok_and(|a| a.status() == 200), served);
        // A connection that was silent so far has its header-read limit from the accept on.
        assert!(took < DELAY + Duration::from_secs(12), "{took:?}");
        router.assert_invariants(&[&engine]).await;
    }
}
