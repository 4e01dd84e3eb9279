//! The admin listener of the real process: probes, metrics, configuration, and taking an endpoint out by hand.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tandem::testkit::engine::openai::{ChatStream, chat_json};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Script, Step};
use tandem::testkit::eventually::eventually_async;
use tandem::testkit::fixtures::{chat_body, post_chat};

use crate::process::{Process, SOON, run, tandem};

const TOKEN: &str = "Authorization: Bearer admin-token-1";

fn answer(request: &RecordedRequest) -> Vec<Step> {
    if request.json()["stream"] == true {
        ChatStream::new(20).gap(Duration::from_millis(30)).into_steps()
    } else {
        chat_json("hi").into_steps()
    }
}

/// Two engines behind a process, with the admin token of [`TOKEN`] if wanted.
async fn rig(token: bool) -> (EngineHandle, EngineHandle, Process, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "admin-token-1\n").unwrap();
    let (a, b) = (Engine::start_tcp(Script::new(answer)).await, Engine::start_tcp(Script::new(answer)).await);
    let (url_a, url_b) = (a.url(), b.url());
    let mut flags =
        vec!["--worker", &url_a, "--worker", &url_b, "--policy", "round_robin", "--shutdown-delay", "0s"];
    if token {
        flags.extend(["--admin-token-file", file.to_str().unwrap()]);
    }
    let process = Process::start(&flags).await;
    (a, b, process, dir)
}

async fn endpoint(process: &Process, engine: &EngineHandle) -> Value {
    let list = process.admin_get("/endpoints").await.json();
    let all = list["endpoints"].as_array().unwrap().clone();
    all.into_iter().find(|e| e["url"] == engine.url()).unwrap()
}

async fn drain_path(process: &Process, engine: &EngineHandle) -> String {
    format!("/endpoints/{}/drain", endpoint(process, engine).await["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_drained_endpoint_takes_no_new_request_while_its_stream_finishes() {
    let (a, b, process, _dir) = rig(true).await;
    // Round robin: two streams, one on each.
    let (mut first, mut second) = (process.client().await, process.client().await);
    for client in [&mut first, &mut second] {
        client.send(&post_chat(chat_body("m", true))).await.unwrap();
    }
    a.log.wait_for(1, SOON).await;
    b.log.wait_for(1, SOON).await;
    let path = drain_path(&process, &a).await;
    let drained = process.admin_call("PUT", &path, &[TOKEN]).await;
    assert_eq!((drained.status(), &drained.json()["changed"]), (200, &json!(true)));
    let again = process.admin_call("PUT", &path, &[TOKEN]).await;
    assert_eq!((again.status(), &again.json()["changed"]), (200, &json!(false)));
    let shown = endpoint(&process, &a).await;
    assert_eq!(
        (&shown["selectable"], &shown["reason"], &shown["draining"]),
        (&json!(false), &json!("admin_drain"), &json!(true))
    );
    assert_eq!(shown["in_flight"], 1);
    for _ in 0..20 {
        let mut client = process.client().await;
        assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
    }
    assert_eq!((a.log.request_count(), b.log.request_count()), (1, 21));
    for client in [&mut first, &mut second] {
        let stream = client.read_response().await.unwrap();
        assert_eq!(stream.events().last().unwrap().data, "[DONE]");
    }
    eventually_async(SOON, "the drained endpoint to be empty", async || {
        let n = endpoint(&process, &a).await["in_flight"].clone();
        if n == 0 { Ok(()) } else { Err(n) }
    })
    .await;
    a.log.wait_all_closed(SOON).await;
    let back = process.admin_call("DELETE", &path, &[TOKEN]).await;
    assert_eq!((back.status(), &back.json()["draining"]), (200, &json!(false)));
    for _ in 0..10 {
        let mut client = process.client().await;
        assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
    }
    assert_eq!(a.log.request_count(), 6);
    for (action, changed) in [("endpoint.drain", true), ("endpoint.drain", false), ("endpoint.undrain", true)]
    {
        process
            .logged(&[("target", json!("audit")), ("action", json!(action)), ("changed", json!(changed))])
            .await;
    }
}

#[tokio::test]
async fn with_every_endpoint_drained_requests_are_503_and_the_process_stays_ready() {
    let (a, b, process, _dir) = rig(true).await;
    for engine in [&a, &b] {
        let path = drain_path(&process, engine).await;
        assert_eq!(process.admin_call("PUT", &path, &[TOKEN]).await.status(), 200);
    }
    let mut client = process.client().await;
    let answer = client.request(&post_chat(chat_body("m", false))).await.unwrap();
    assert_eq!((answer.status(), &answer.json()["error"]["code"]), (503, &json!("no_endpoint")));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(process.admin_get("/readyz").await.status(), 200);
    assert_eq!(a.log.request_count() + b.log.request_count(), 0);
}

/// Who may drain, with a token configured and without: B180's matrix for the one route that changes something.
#[tokio::test]
async fn b180_changes_need_the_token_and_reads_do_not() {
    let (a, b, process, _dir) = rig(true).await;
    let path = drain_path(&process, &a).await;
    for headers in [
        &[][..],
        &["Authorization: Bearer wrong"],
        &["Authorization: admin-token-1"],
        &["Authorization: Basic admin-token-1"],
        &["Authorization: Bearer admin-token-1", "Authorization: Bearer admin-token-1"],
        &["X-Api-Key: admin-token-1"],
        &["Authorization: Bearer "],
    ] {
        for method in ["PUT", "DELETE"] {
            let denied = process.admin_call(method, &path, headers).await;
            assert_eq!(denied.status(), 401, "{method} {headers:?}");
            assert_eq!(denied.json()["error"]["code"], "admin_token_required");
        }
    }
    assert_eq!(process.admin_call("PUT", "/endpoints/nonsense/drain", &[]).await.status(), 401);
    assert_eq!(process.admin_call("PUT", "/endpoints/nonsense/drain", &[TOKEN]).await.status(), 404);
    for method in ["POST", "PATCH", "GET"] {
        assert_eq!(process.admin_call(method, &path, &[TOKEN]).await.status(), 405, "{method}");
    }
    assert_eq!(endpoint(&process, &a).await["selectable"], true);
    // The front door has none of these routes.
    let mut client = process.client().await;
    for line in [
        format!("PUT {path}"),
        "GET /metrics".to_owned(),
        "GET /config".to_owned(),
        "GET /endpoints".to_owned(),
    ] {
        let answer = client
            .request(format!("{line} HTTP/1.1\r\nHost: t\r\n{TOKEN}\r\nContent-Length: 0\r\n\r\n"))
            .await;
        assert_eq!(answer.unwrap().status(), 404, "{line}");
    }
    assert_eq!(a.log.request_count() + b.log.request_count(), 0);
}

#[tokio::test]
async fn b180_without_a_token_loopback_may_and_a_web_page_may_not() {
    let (a, _b, process, _dir) = rig(false).await;
    let path = drain_path(&process, &a).await;
    let page = process.admin_call("PUT", &path, &["Origin: http://evil.example"]).await;
    assert_eq!(page.status(), 403);
    assert_eq!(process.admin_call("PUT", &path, &[]).await.status(), 200);
    assert_eq!(endpoint(&process, &a).await["draining"], true);
}

#[tokio::test]
async fn probes_metrics_and_configuration_are_served() {
    let (a, b, mut process, _dir) = rig(true).await;
    for path in ["/livez", "/healthz", "/readyz", "/readyz?verbose"] {
        assert_eq!(process.admin_get(path).await.status(), 200, "{path}");
    }
    let verbose = process.admin_get("/readyz?verbose").await.text();
    assert!(verbose.contains("[+]listening ok") && verbose.contains("phase: running"), "{verbose}");
    for _ in 0..4 {
        let mut client = process.client().await;
        assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
    }
    for path in ["/metrics", "/metrics/endpoints"] {
        let page = process.admin_get(path).await;
        assert!(page.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"), "{path}");
    }
    let scrape = process.scrape().await;
    for (name, labels, value) in [
        (
            "tandem_requests_total",
            &[("route", "chat_completions"), ("outcome", "ok"), ("service", "default")][..],
            4.0,
        ),
        ("tandem_requests_in_flight", &[], 0.0),
        ("tandem_shutdown_phase", &[("phase", "running")], 1.0),
        ("tandem_shutdown_phase", &[("phase", "unready")], 0.0),
        ("tandem_endpoint_requests_total", &[("url", &a.url()), ("outcome", "ok")], 2.0),
        ("tandem_endpoint_requests_total", &[("url", &b.url()), ("outcome", "ok")], 2.0),
        ("tandem_endpoint_selectable", &[("url", &a.url())], 1.0),
    ] {
        let seen = scrape.sum(name, labels);
        assert!((seen - value).abs() < 0.5, "{name} {labels:?}: {seen}");
    }
    assert!(scrape.sum("process_resident_memory_bytes", &[]) > 1e6);
    // The effective configuration, which the checker takes, without the token.
    let config = process.admin_get("/config").await.text();
    assert!(config.contains(&a.url()) && !config.contains("admin-token-1"), "{config}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("effective.yaml");
    std::fs::write(&file, config).unwrap();
    let (code, _, said) = run(tandem("check").arg(&file)).await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(process.admin_get("/nothing").await.status(), 404);
    process.signal(Signal::TERM);
    assert_eq!(process.exited(SOON).await.code(), Some(0));
    process.access_lines(4).await;
}

/// Slow clients of the admin listener, or many, do not touch the traffic.
#[tokio::test]
async fn traffic_does_not_wait_for_the_admin_listener() {
    let (_a, _b, process, _dir) = rig(true).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        let mut client = tandem::testkit::client::RawClient::connect(process.admin).await;
        client.send(b"GET /metrics/endpoints HTTP/1.1\r\nHost: t\r\n").await.unwrap();
        silent.push(client);
    }
    let mut client = process.client().await;
    for _ in 0..50 {
        assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
    }
    assert_eq!(process.admin_get("/livez").await.status(), 200);
}
