//! B103: leaving well. Here the process itself, with real signals; `shutdown_clock` has the phases to the millisecond.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use rustix::process::Signal;
use serde_json::json;
use tandem::testkit::client::{BodyEnd, ClientError, RawClient, RawResponse};
use tandem::testkit::engine::openai::{ChatStream, chat_json, sse_head};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Script, Step};
use tandem::testkit::eventually::{eventually, eventually_async};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::scale;
use crate::process::{Process, SOON};

/// Model names that choose an answer: `endless` streams without an end, `silent` never answers.
fn answer(request: &RecordedRequest) -> Vec<Step> {
    let body = request.json();
    match body["model"].as_str().unwrap_or_default() {
        "endless" => ChatStream::new(2).then(Step::Stall).into_steps(),
        "silent" => Step::Stall.into_steps(),
        "head" => vec![Step::Write(sse_head()), Step::Stall],
        _ if body["stream"] == true => ChatStream::new(20).gap(Duration::from_millis(30)).into_steps(),
        _ => chat_json("hi").into_steps(),
    }
}

async fn start(engine: &EngineHandle, delay: &str, grace: &str) -> Process {
    let url = engine.url();
    let flags = ["--worker", &url, "--shutdown-delay", delay, "--grace", grace, "--threads", "2"];
    Process::start(&flags).await
}

async fn engine() -> EngineHandle {
    Engine::start_tcp(Script::new(answer)).await
}

/// One request on a connection of its own. `Err`: the connection was refused or reset.
async fn one(front: SocketAddr) -> Result<RawResponse, ClientError> {
    let stream = TcpStream::connect(front).await?;
    RawClient::new(stream, SOON).request(&post_chat(chat_body("m", false))).await
}

/// Requests one after the other, each on a new connection, until the listener is closed. How many were answered, and
/// how many of them with `Connection: close`.
///
/// The kernel cannot close a listener and tell what it completes in the same microsecond, so one reset is allowed: by the
/// very close, after which everything is refused.
async fn knock(front: SocketAddr) -> (usize, usize) {
    let (mut answered, mut closing) = (0, 0);
    loop {
        match one(front).await {
            Ok(answer) => {
                assert_eq!(answer.status(), 200);
                answered += 1;
                closing += usize::from(answer.header("connection") == Some("close"));
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => {
                let after = TcpStream::connect(front).await;
                assert!(after.is_err(), "accepted and not answered, with the listener open: {error}");
                return (answered, closing);
            }
        }
    }
}

async fn whole_stream(front: SocketAddr) -> RawResponse {
    let mut client = RawClient::connect(front).await;
    client.request(&post_chat(chat_body("m", true))).await.unwrap()
}

/// CI: 2 rolls of 10 streams under 4 × about 80 requests per second. Full: 20 rolls.
#[tokio::test]
async fn b103_a_roll_loses_no_request() {
    for _ in 0..scale(2, 20) {
        let engine = engine().await;
        let mut process = start(&engine, "300ms", "20s").await;
        let front = process.front;
        let mut streams = JoinSet::new();
        (0..10).for_each(|_| drop(streams.spawn(whole_stream(front))));
        let mut knockers = JoinSet::new();
        (0..4).for_each(|_| drop(knockers.spawn(knock(front))));
        engine.log.wait_for(20, SOON).await;
        process.signal(Signal::TERM);
        let unready = eventually_async(SOON, "/readyz to be 503", async || {
            let answer = process.admin_get("/readyz").await;
            if answer.status() == 503 { Ok(answer.text()) } else { Err(answer.status()) }
        })
        .await;
        assert_eq!(unready, "not ready\nphase: unready\n");
        assert_eq!(process.admin_get("/livez").await.status(), 200);
        let phase = process.scrape().await.get("tandem_shutdown_phase", &[("phase", "unready")]);
        assert_eq!(phase, Some(1.0));
        let (answered, closing) =
            knockers.join_all().await.into_iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        assert!(closing > 0 && closing < answered, "{closing} of {answered} said close");
        for stream in streams.join_all().await {
            assert!(stream.is_complete());
            assert_eq!(stream.events().last().unwrap().data, "[DONE]");
        }
        assert_eq!(process.exited(SOON).await.code(), Some(0));
        let lines = process.access_lines(answered + 10).await;
        assert_eq!(lines.len(), answered + 10);
        assert!(lines.iter().all(|line| line["outcome"] == "ok"));
        process.logged(&[("phase", json!("stopped")), ("forced", json!(0))]).await;
    }
}

/// Connections that the kernel has accepted for us are accepted, also when the listener closes in the same moment. The
/// stopped process makes the moment as long as needed.
#[tokio::test]
async fn b103_what_waits_in_the_accept_queue_is_served() {
    for _ in 0..scale(2, 50) {
        let engine = engine().await;
        let mut process = start(&engine, "0s", "20s").await;
        process.signal(Signal::STOP);
        let mut waiting = Vec::new();
        for _ in 0..30 {
            let mut client = process.client().await;
            client.send(&post_chat(chat_body("m", false))).await.unwrap();
            waiting.push(client);
        }
        process.signal(Signal::TERM);
        process.signal(Signal::CONT);
        for (n, mut client) in waiting.into_iter().enumerate() {
            let answer =
                client.read_response().await.unwrap_or_else(|error| panic!("connection {n}: {error}"));
            assert_eq!(answer.status(), 200);
        }
        assert_eq!(process.exited(SOON).await.code(), Some(0));
    }
}

/// The same for a request that is already in the socket of an open, idle connection.
#[tokio::test]
async fn b103_a_request_on_its_way_on_an_idle_connection_is_served() {
    for _ in 0..scale(2, 50) {
        let engine = engine().await;
        let mut process = start(&engine, "0s", "20s").await;
        let mut clients = Vec::new();
        for _ in 0..20 {
            let mut client = process.client().await;
            assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
            clients.push(client);
        }
        process.signal(Signal::STOP);
        for client in &mut clients {
            client.send(&post_chat(chat_body("m", false))).await.unwrap();
        }
        process.signal(Signal::TERM);
        process.signal(Signal::CONT);
        for (n, client) in clients.iter_mut().enumerate() {
            let answer =
                client.read_response().await.unwrap_or_else(|error| panic!("connection {n}: {error}"));
            assert_eq!(answer.status(), 200);
        }
        assert_eq!(process.exited(SOON).await.code(), Some(0));
    }
}

/// Idle connections, silent ones and ones with half a head are no reason to stay.
#[tokio::test]
async fn b103_connections_without_a_request_do_not_hold_the_process() {
    let engine = engine().await;
    let mut process = start(&engine, "0s", "20s").await;
    let mut idle = process.client().await;
    assert_eq!(idle.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
    let silent = process.client().await;
    let mut h2 = process.h2_client().await;
    assert_eq!(h2.request(h2_chat(&process), chat_body("m", false).into()).await.unwrap().status, 200);
    process.signal(Signal::TERM);
    assert_eq!(process.exited(Duration::from_secs(3)).await.code(), Some(0));
    let (rest, ..) = idle.read_to_end().await.unwrap();
    assert_eq!(rest, b"");
    silent.close();
    h2.closed().await.unwrap();
}

fn h2_chat(process: &Process) -> Request<()> {
    let uri = format!("{}/v1/chat/completions", process.url());
    Request::post(uri).header("content-type", "application/json").body(()).unwrap()
}

#[tokio::test]
async fn b103_h2_gets_goaway_and_its_streams_finish_and_new_connections_are_served() {
    let engine = engine().await;
    let mut process = start(&engine, "400ms", "20s").await;
    let mut old = process.h2_client().await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(old.start(h2_chat(&process), Some(chat_body("m", true).into())).await.unwrap());
    }
    engine.log.wait_for(5, SOON).await;
    process.signal(Signal::TERM);
    eventually(SOON, "GOAWAY", || old.frames.goaways().first().map(|g| g.code).ok_or(())).await;
    // A client that still finds this router connects anew, for as long as the delay lasts.
    for _ in 0..10 {
        let mut new = process.h2_client().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        let answer = new.request(h2_chat(&process), Bytes::from(chat_body("m", false))).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.end), (200, BodyEnd::Complete));
        eventually(SOON, "GOAWAY", || new.frames.goaways().first().map(|g| g.code).ok_or(())).await;
    }
    for stream in streams {
        let answer = stream.finish().await.unwrap();
        assert_eq!(answer.end, BodyEnd::Complete);
        assert!(answer.body.ends_with(b"data: [DONE]\n\n"));
    }
    assert!(old.frames.goaways().iter().all(|g| g.code == 0), "NO_ERROR");
    assert_eq!(process.exited(SOON).await.code(), Some(0));
}

/// Sends `model` and waits until the engine has it; the client with the answer still to come.
async fn open(process: &Process, engine: &EngineHandle, model: &str) -> RawClient<TcpStream> {
    let before = engine.log.request_count();
    let mut client = process.client().await;
    client.send(&post_chat(chat_body(model, true))).await.unwrap();
    engine.log.wait_for(before + 1, SOON).await;
    client
}

fn check_forced_stream(answer: &RawResponse) {
    assert!(!answer.is_complete(), "a forced stream must not look complete");
    let events = answer.events();
    let last: serde_json::Value = serde_json::from_str(&events.last().unwrap().data).unwrap();
    assert_eq!(last["error"]["code"], "shutting_down");
    assert!(!answer.text().contains("[DONE]"));
}

#[tokio::test]
async fn b103_at_the_deadline_what_is_left_gets_an_error_and_is_counted() {
    let engine = engine().await;
    let mut process = start(&engine, "50ms", "200ms").await;
    let mut stream = open(&process, &engine, "endless").await;
    stream.read_until(b"t1 ").await.unwrap();
    let mut silent = open(&process, &engine, "silent").await;
    let mut h2 = process.h2_client().await;
    let h2_stream = h2.start(h2_chat(&process), Some(chat_body("endless", true).into())).await.unwrap();
    engine.log.wait_for(3, SOON).await;
    process.signal(Signal::TERM);
    let (rest, ..) = stream.read_to_end().await.unwrap();
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.contains("\"code\":\"shutting_down\"") && !rest.contains("[DONE]"), "{rest}");
    assert!(!rest.ends_with("0\r\n\r\n"), "a forced stream must not look complete");
    let refused = silent.read_response().await.unwrap();
    assert_eq!((refused.status(), refused.header("connection")), (503, Some("close")));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["error"]["code"], "shutting_down");
    let answer = h2_stream.finish().await.unwrap();
    assert!(matches!(answer.end, BodyEnd::Reset(_)), "{:?}", answer.end);
    assert!(String::from_utf8_lossy(&answer.body).contains("shutting_down"));
    drop(h2);
    assert_eq!(process.exited(SOON).await.code(), Some(0));
    let lines = process.access_lines(3).await;
    assert!(lines.iter().all(|line| line["outcome"] == "forced"), "{lines:?}");
    process
        .logged(&[("phase", json!("forcing")), ("forced", json!(3)), ("second_signal", json!(false))])
        .await;
    process.logged(&[("phase", json!("stopped")), ("forced", json!(3))]).await;
}

#[tokio::test]
async fn b103_a_second_signal_forces_in_any_phase() {
    for (delay, signals) in [
        ("60s", [Signal::TERM, Signal::TERM]),
        ("0s", [Signal::TERM, Signal::INT]),
        ("0s", [Signal::INT, Signal::TERM]),
    ] {
        let engine = engine().await;
        let mut process = start(&engine, delay, "600s").await;
        let mut client = open(&process, &engine, "endless").await;
        process.signal(signals[0]);
        let phase = if delay == "0s" { "draining" } else { "unready" };
        process.logged(&[("phase", json!(phase))]).await;
        process.signal(signals[1]);
        check_forced_stream(&client.read_response().await.unwrap());
        assert_eq!(process.exited(Duration::from_secs(5)).await.code(), Some(0));
        process
            .logged(&[("phase", json!("forcing")), ("forced", json!(1)), ("second_signal", json!(true))])
            .await;
    }
}

/// A client that takes nothing cannot keep a process that was forced.
#[tokio::test]
async fn b103_a_client_that_reads_nothing_does_not_outlast_force() {
    let flood = Step::Write(tandem::testkit::wire::chunked::chunk(&vec![b'x'; 8 << 20]));
    let steps = vec![Step::Write(sse_head()), flood, Step::Stall];
    let engine = Engine::start_tcp(Script::always(steps)).await;
    let mut process = start(&engine, "0s", "100ms").await;
    let mut client = open(&process, &engine, "flood").await;
    client.stop_reading();
    process.signal(Signal::TERM);
    assert_eq!(process.exited(Duration::from_secs(5)).await.code(), Some(0));
    process.logged(&[("phase", json!("stopped"))]).await;
    let lines = process.access_lines(1).await;
    assert_eq!(lines[0]["outcome"], "forced");
}
