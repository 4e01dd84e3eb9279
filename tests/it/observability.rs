//! One access line and one outcome per request, whatever becomes of it; metrics that no client can make grow; sinks that
//! cost lines and never time.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tandem::config::{LogFormat, LogSink, RouterConfig};
use tandem::proxy::listener::{Downstream, Protocol, run_worker};
use tandem::proxy::relay::Ticket;
use tandem::proxy::request::id::RequestId;
use tandem::testkit::engine::openai::{ChatStream, chat_json, error};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Script, Step};
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::{chat_body, get, post, post_chat, request_head};
use tandem::testkit::memory::{DialFault, MemoryNet};
use tandem::testkit::router::{TestRouter, config};
use tandem::upstream::TcpDial;

use crate::process::{Process, SOON, poll};
use crate::replay::scale;

/// The model's name says what becomes of the request.
fn answer(request: &RecordedRequest) -> Vec<Step> {
    let body = request.json();
    match body["model"].as_str().unwrap_or_default() {
        "not-found" => error(404, "no").into_steps(),
        "busy" => error(503, "busy").into_steps(),
        "fails" => error(500, "oops").into_steps(),
        "lost" => Step::Reset.into_steps(),
        "cut" => ChatStream::new(2).then(Step::Reset).into_steps(),
        "silent" => Step::Stall.into_steps(),
        "stalls" => ChatStream::new(2).then(Step::Stall).into_steps(),
        _ if body["stream"] == true => ChatStream::new(3).usage().into_steps(),
        _ => chat_json("hi").into_steps(),
    }
}

fn rig(change: impl FnOnce(&mut RouterConfig)) -> (MemoryNet, EngineHandle, TestRouter) {
    let net = MemoryNet::new();
    let engine = Engine::in_memory(&net, "e1", Script::new(answer));
    let mut config = config(&["e1:80".to_owned()]);
    config.timeouts.first_byte = Some(Duration::from_secs(2));
    config.timeouts.idle = Some(Duration::from_secs(1));
    change(&mut config);
    let router = TestRouter::in_memory(config, &net);
    (net, engine, router)
}

/// Sends and reads whatever comes; a client that leaves does so after the first bytes, or after 500 ms.
async fn play(router: &TestRouter, request: &[u8], leaves: bool) {
    let mut client = router.memory_client().await;
    client.send(request).await.unwrap();
    if leaves {
        let _ = tokio::time::timeout(Duration::from_millis(500), client.read_until(b"t1")).await;
    } else {
        let _ = client.read_response().await;
    }
}

/// B118: one request per outcome, exactly one line and one count each, and the sums agree.
#[tokio::test(start_paused = true)]
async fn b118_each_outcome_has_one_line_and_one_count() {
    let (net, engine, router) = rig(|_| {});
    let chat = |model: &str, stream: bool| post_chat(chat_body(model, stream));
    let cases = [
        (chat("m", false), false, "ok", 200, None),
        (chat("m", true), false, "ok", 200, None),
        (get("/v1/models"), false, "ok", 200, None),
        (get("/health"), false, "ok", 200, None),
        (get("/nothing"), false, "rejected", 404, Some("unknown_route")),
        (post_chat("{"), false, "rejected", 400, Some("invalid_json")),
        (request_head("DELETE", "/v1/models", &[]), false, "rejected", 405, Some("method_not_allowed")),
        (chat("not-found", false), false, "upstream_rejected", 404, None),
        (chat("busy", false), false, "upstream_busy", 503, None),
        (chat("fails", false), false, "upstream_error", 500, None),
        (chat("lost", false), false, "upstream_error", 502, Some("upstream_lost")),
        (chat("cut", true), false, "upstream_error", 200, Some("upstream_lost")),
        (chat("stalls", true), false, "upstream_timeout", 200, Some("upstream_timeout")),
        (chat("stalls", true), true, "client_cancelled", 200, Some("client_left")),
        (chat("silent", false), true, "client_cancelled", 0, Some("client_left")),
        (chat("silent", false), false, "upstream_timeout", 504, Some("upstream_timeout")),
    ];
    for (n, (request, leaves, outcome, status, error)) in cases.iter().enumerate() {
        play(&router, request, *leaves).await;
        let wanted = f64::from(u32::try_from(n + 1).unwrap());
        let all = || router.scrape().sum("tandem_requests_total", &[]);
        eventually(SOON, "the outcome", || if all() > wanted - 0.5 { Ok(()) } else { Err(all()) }).await;
        let lines = router.access_lines();
        let line = lines.last().unwrap();
        let said =
            (line["outcome"].as_str().unwrap(), line["status"].as_u64().unwrap(), line["error"].as_str());
        assert_eq!(said, (*outcome, *status, *error), "{line}");
        assert!(
            line.get("duration_us").is_some() && line["request_id"].as_str().is_some_and(|id| !id.is_empty())
        );
    }
    net.set_fault("e1", DialFault::Refuse);
    router.endpoints()[0].pool.close();
    play(&router, &chat("m", false), false).await;
    let id = router.endpoints()[0].id.to_string();
    router.admin.endpoints.set_drain(&id, true).await;
    play(&router, &chat("m", false), false).await;
    let lines = router.access_lines();
    assert_eq!(lines.len(), cases.len() + 2);
    assert_eq!(
        (&lines[cases.len()]["error"], &lines[cases.len()]["outcome"]),
        (&json!("upstream_connect_failed"), &json!("upstream_error"))
    );
    assert_eq!(
        (&lines[cases.len() + 1]["error"], &lines[cases.len() + 1]["outcome"]),
        (&json!("no_endpoint"), &json!("no_endpoint"))
    );
    let mut by_outcome: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for line in &lines {
        let key = ["outcome", "service"].map(|key| line[key].as_str().unwrap());
        *by_outcome.entry(key.into()).or_default() += 1.0;
    }
    assert!(by_outcome.contains_key(&("rejected", "none")));
    let scrape = router.scrape();
    for ((outcome, service), count) in by_outcome {
        let labels = [("outcome", outcome), ("service", service)];
        let seen = scrape.sum("tandem_requests_total", &labels);
        let timed = scrape.sum("tandem_request_duration_seconds_count", &labels);
        assert!(
            (seen - count).abs() < 0.5 && (timed - count).abs() < 0.5,
            "{outcome}: {count} lines, {seen} counted"
        );
    }
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test(start_paused = true)]
async fn shed_requests_have_their_line_too() {
    let (_net, engine, router) = rig(|config| config.limits.in_flight = 1);
    let mut holder = router.memory_client().await;
    holder.send(&post_chat(chat_body("silent", false))).await.unwrap();
    engine.log.wait_for(1, SOON).await;
    play(&router, &post_chat(chat_body("m", false)), false).await;
    let line = router.access_lines().pop().unwrap();
    assert_eq!(
        (&line["outcome"], &line["status"], &line["error"]),
        (&json!("overload"), &json!(503), &json!("server_overloaded"))
    );
    drop(holder);
    router.assert_invariants(&[&engine]).await;
}

/// B115, B116: CI 1,000 requests, full 10,000, of models, paths, methods, keys and headers nobody has seen before.
#[tokio::test(start_paused = true)]
async fn b115_no_client_makes_a_metric_series() {
    let (_net, engine, router) = rig(|config| config.services[0].models = vec!["known".to_owned()]);
    let odd = ["\n", "\"", "\\", "{}", "秋", "\u{0}", " ", "le=\"", "\u{7f}"];
    let mut client = router.memory_client().await;
    let mut before = 0;
    for n in 0..scale(1000, 10_000) {
        let tail = if n % 97 == 0 { "x".repeat(8000) } else { odd[n % odd.len()].to_owned() };
        let model = format!("model-{n}-{tail}");
        let body = json!({"model": model, "messages": [], "user": format!("u{n}")}).to_string();
        let answer = match n % 4 {
            0 => client.request(&post_chat(&body)).await,
            1 => client.request(&post(&format!("/v1/x{n}"), &[&format!("User-Agent: a{n}")], &body)).await,
            2 => client.request(&request_head(&format!("M{n}"), "/v1/models", &[])).await,
            _ => client.request(&post_chat(chat_body("known", false))).await,
        };
        assert_eq!(answer.unwrap().status(), [404, 404, 405, 200][n % 4], "{model}");
        if n == 20 {
            before = router.scrape().series_count();
        }
    }
    let scrape = router.scrape();
    assert_eq!(scrape.series_count(), before, "series after {} requests", scale(1000, 10_000));
    let text = router.shared.metrics.render() + &router.shared.metrics.render_endpoints();
    assert!(!text.contains("model-") && !text.contains("秋"));
    client.close();
    router.assert_invariants(&[&engine]).await;
}

/// A standard output that nobody reads costs lines, counted, and no time; the process still leaves.
#[tokio::test]
async fn a_log_sink_that_blocks_does_not_block_requests() {
    let engine = Engine::start_tcp(Script::new(answer)).await;
    let url = engine.url();
    let flags = ["--worker", &url, "--shutdown-delay", "0s", "--threads", "1"];
    let mut process = Process::start_unread(&flags).await;
    let mut client = process.client().await;
    // The pipe takes 64 KiB and the queue 2 MiB; a line with full names has about 600 bytes.
    let id = format!("X-Request-Id: {}", "i".repeat(128));
    let request = post("/v1/chat/completions", &[&id], chat_body(&"m".repeat(200), false));
    let batch = request.repeat(100);
    for _ in 0..scale(45, 200) {
        client.send(&batch).await.unwrap();
        for _ in 0..100 {
            assert_eq!(client.read_response().await.unwrap().status(), 200);
        }
    }
    let scrape = process.scrape().await;
    assert!(scrape.sum("tandem_access_log_dropped_lines_total", &[]) > 0.5, "the sink was not full");
    client.close();
    process.signal(Signal::TERM);
    assert_eq!(process.exited(SOON).await.code(), Some(0));
    let late =
        |line: &Value| line["message"].as_str().is_some_and(|m| m.contains("access log took too long"));
    // What it said last may still be in the pipe.
    poll("the late log to be told", async || process.log_lines().iter().any(late)).await;
}

/// A full disk: counted, said, and otherwise nothing.
#[tokio::test]
async fn a_full_disk_costs_lines_only() {
    let engine = Engine::start_tcp(Script::new(answer)).await;
    let url = engine.url();
    let process = Process::start(&["--worker", &url, "--access-log", "/dev/full"]).await;
    let mut client = process.client().await;
    assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
    crate::process::poll("the failed write to be counted", async || {
        process.scrape().await.sum("tandem_access_log_write_errors_total", &[]) > 0.5
    })
    .await;
    assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
}

#[tokio::test]
async fn text_and_json_lines_say_the_same() {
    let engine = Engine::start_tcp(Script::new(answer)).await;
    let url = engine.url();
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for format in ["json", "text"] {
        let file = dir.path().join(format);
        let flags = [
            "--worker",
            &url,
            "--shutdown-delay",
            "0s",
            "--access-log",
            file.to_str().unwrap(),
            "--access-log-format",
            format,
        ];
        let mut process = Process::start(&flags).await;
        let mut client = process.client().await;
        let id = ["X-Request-Id: the-id"];
        let body = chat_body("m", true);
        client.request(&post("/v1/chat/completions", &id, body)).await.unwrap();
        client.close();
        process.signal(Signal::TERM);
        assert_eq!(process.exited(SOON).await.code(), Some(0));
        assert_eq!(process.stdout(), "");
        seen.push(std::fs::read_to_string(&file).unwrap());
    }
    let line: Value = serde_json::from_str(&seen[0]).unwrap();
    assert_eq!(seen[1].lines().count(), 1);
    for key in [
        "request_id",
        "protocol",
        "method",
        "route",
        "model",
        "service",
        "endpoint",
        "stream",
        "status",
        "outcome",
        "attempts",
        "bytes_in",
        "bytes_out",
        "events",
    ] {
        let value = match &line[key] {
            Value::String(text) if !["protocol", "route", "outcome"].contains(&key) => format!("{text:?}"),
            Value::String(word) => word.clone(),
            other => other.to_string(),
        };
        assert!(seen[1].contains(&format!(" {key}={value}")), "{key}={value} in {}", seen[1]);
    }
    assert_eq!(
        (&line["request_id"], &line["events"], &line["stream"]),
        (&json!("the-id"), &json!(7), &json!(true))
    );
}

/// Sampling leaves out successes only.
#[tokio::test]
async fn failures_are_always_logged() {
    let engine = Engine::start_tcp(Script::new(answer)).await;
    let url = engine.url();
    let process = Process::start(&["--worker", &url, "--access-log-sample", "0%"]).await;
    let mut client = process.client().await;
    for model in ["m", "fails", "m", "not-found", "m"] {
        client.request(&post_chat(chat_body(model, false))).await.unwrap();
    }
    let lines = process.access_lines(2).await;
    let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["upstream_error", "upstream_rejected"]);
}

/// The parts of a router with two threads, none running.
fn parts(log: &std::path::Path) -> tandem::app::Router {
    let mut config = config(&[]);
    config.threads = Some(2);
    config.access_log.sink = LogSink::File(log.to_owned());
    config.access_log.format = LogFormat::Json;
    tandem::app::build(config, Arc::new(TcpDial::default())).unwrap()
}

/// A bug of ours is not blamed on the client; and an IPv4 peer of a dual-stack listener is one.
#[test]
fn a_request_that_panics_ends_as_internal_and_its_peer_is_written_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.log");
    let router = parts(&log);
    let worker = &router.workers[0].0;
    let peer = "[::ffff:192.0.2.7]:4711".parse().unwrap();
    let down = Downstream::new(peer, Arc::clone(&router.shared.phases));
    let ticket =
        || Ticket::new(Arc::clone(worker), &down, Protocol::H1, http::Method::GET, RequestId::mint());
    drop(ticket());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ticket = ticket();
        panic!("a bug");
    }));
    assert!(caught.is_err());
    worker.access.flush();
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    while text().lines().count() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let lines: Vec<Value> = text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = |n: usize| (lines[n]["outcome"].as_str().unwrap(), lines[n]["error"].as_str().unwrap());
    assert_eq!(said(0), ("client_cancelled", "client_left"));
    assert_eq!(said(1), ("internal", "internal_error"));
    assert!(lines.iter().all(|line| line["peer"] == "192.0.2.7"), "{lines:?}");
    assert_eq!(down.peer_text(), "192.0.2.7");
}

#[test]
fn a_traffic_thread_that_dies_while_the_process_runs_makes_it_unready() {
    let dir = tempfile::tempdir().unwrap();
    let mut router = parts(&dir.path().join("access.log"));
    assert!((router.admin.readiness)().ready);
    let (worker, lane) = router.workers.pop().unwrap();
    // Outside of a runtime there are no timers: it panics at once.
    let died = std::thread::spawn(move || {
        let mut work = std::pin::pin!(run_worker(worker, lane));
        let _ = work.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    });
    assert!(died.join().is_err());
    let readiness = (router.admin.readiness)();
    assert_eq!((readiness.ready, readiness.awaiting), (false, vec!["traffic-1".into()]));
}

/// With the accept loop gone a thread has nothing to do but to wait for its connections.
#[tokio::test(start_paused = true)]
async fn a_traffic_thread_whose_lane_closes_before_the_shutdown_makes_the_process_unready() {
    for (phase, ready) in [(None, false), (Some(tandem::drain::Phase::Draining), true)] {
        let dir = tempfile::tempdir().unwrap();
        let mut router = parts(&dir.path().join("access.log"));
        if let Some(phase) = phase {
            router.shared.phases.advance(phase);
        }
        let (worker, lane) = router.workers.remove(0);
        router.lanes.clear();
        run_worker(worker, lane).await;
        assert_eq!((router.admin.readiness)().awaiting.is_empty(), ready);
    }
}
