//! Front-door API keys as clients meet them: who enters, when, and what of it goes on.

use std::time::Duration;

use http::Request;
use rustix::process::Signal;
use serde_json::json;
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::eventually::eventually_async;
use tandem::testkit::fixtures::{big_chat_body, chat_body, get, post, request_head};
use tandem::testkit::router::{TestRouter, config_for};

use crate::process::{Process, SOON, run, tandem};

const CHAT: &str = "/v1/chat/completions";

async fn rig() -> (EngineHandle, TestRouter, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("keys"), "# team a\nsk-one\n\nsk-two\n").unwrap();
    let engine = Engine::start_tcp(Script::always(chat_json("hi"))).await;
    let mut config = config_for(&[&engine]);
    config.api_keys_file = Some(dir.path().join("keys"));
    let router = TestRouter::start(config).await;
    (engine, router, dir)
}

#[tokio::test]
async fn only_a_key_of_the_file_enters_on_any_route_and_protocol() {
    let (engine, router, _dir) = rig().await;
    for (lines, status) in [
        (&["Authorization: Bearer sk-one"][..], 200),
        (&["X-Api-Key: sk-two"], 200),
        (&["X-Api-Key: wrong", "Authorization: Bearer sk-two"], 200),
        (&[], 401),
        (&["Authorization: Bearer sk-on"], 401),
        (&["Authorization: Bearer sk-one2"], 401),
        (&["Authorization: Bearer # team a"], 401),
        (&["Authorization: Basic sk-one"], 401),
        (&["Api-Key: sk-one"], 401),
        (&["Cookie: key=sk-one"], 401),
    ] {
        let mut client = router.client().await;
        let answer = client.request(&post(CHAT, lines, chat_body("m", false))).await.unwrap();
        assert_eq!(answer.status(), status, "{lines:?}");
        let mut client = router.h2_client().await;
        let mut request =
            Request::post(format!("{}{CHAT}", router.url())).header("content-type", "application/json");
        for (name, value) in lines.iter().map(|line| line.split_once(": ").unwrap()) {
            request = request.header(name, value);
        }
        let body = chat_body("m", false).into();
        assert_eq!(
            client.request(request.body(()).unwrap(), body).await.unwrap().status,
            status,
            "h2 {lines:?}"
        );
        if status == 401 {
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            let error = &answer.json()["error"];
            assert_eq!(
                (&error["code"], &error["type"]),
                (&json!("invalid_api_key"), &json!("authentication_error"))
            );
        }
    }
    assert_eq!(engine.log.request_count(), 6);
    let mut client = router.client().await;
    assert_eq!(client.request(&get("/v1/models")).await.unwrap().status(), 401);
    assert_eq!(client.request(&get("/v1/models?key=sk-one")).await.unwrap().status(), 401);
    assert_eq!(client.request(&get("/health")).await.unwrap().status(), 200, "a probe has no key");
    assert_eq!(engine.log.request_count(), 6);
    client.close();
    router.assert_invariants(&[&engine]).await;
}

/// The refusal comes while the body is still at the client.
#[tokio::test]
async fn a_wrong_key_is_refused_before_the_body_is_read() {
    let (engine, router, _dir) = rig().await;
    for expect in [None, Some("Expect: 100-continue")] {
        let lines = ["Content-Type: application/json", "Content-Length: 3000000", "X-Api-Key: wrong"];
        let lines = [&lines[..], expect.as_slice()].concat();
        let mut client = router.client().await;
        let answer = client.request(&request_head("POST", CHAT, &lines)).await.unwrap();
        assert_eq!(answer.status(), 401);
        assert!(answer.informational.is_empty(), "no 100 Continue before the refusal");
        client.close();
    }
    let mut client = router.h2_client().await;
    let request =
        Request::post(format!("{}{CHAT}", router.url())).header("x-api-key", "wrong").body(()).unwrap();
    let mut stream = client.start(request, None).await.unwrap();
    assert_eq!(stream.head().await.unwrap().status(), 401);
    drop(stream);
    client.abort();
    assert!(router.access_lines().iter().all(|line| line["bytes_in"] == 0 && line["outcome"] == "rejected"));
    router.assert_invariants(&[&engine]).await;
}

/// A client that sends its whole body before it reads still gets the answer, not a reset.
#[tokio::test]
async fn a_refused_upload_still_gets_its_answer() {
    let (engine, router, _dir) = rig().await;
    let mut client = router.client().await;
    let answer = client.request(&post(CHAT, &[], big_chat_body("m", false, 3 << 20))).await.unwrap();
    assert_eq!(answer.status(), 401);
    client.close();
    router.assert_invariants(&[&engine]).await;
}

async fn status_of(process: &Process, key: &str) -> u16 {
    let line = format!("Authorization: Bearer {key}");
    let mut client = process.client().await;
    client.request(&post(CHAT, &[&line], chat_body("m", false))).await.unwrap().status()
}

/// In the real process, whose watcher runs on a runtime of its own. Polls every 2 s, so this is a slow one.
#[tokio::test]
async fn keys_are_taken_over_while_the_process_runs_and_a_bad_file_changes_nothing() {
    let (engine, _router, dir) = rig().await;
    let keys = dir.path().join("keys");
    let url = engine.url();
    let flags = ["--worker", &url, "--api-keys-file", keys.to_str().unwrap(), "--shutdown-delay", "0s"];
    let mut process = Process::start(&flags).await;
    assert_eq!((status_of(&process, "sk-one").await, status_of(&process, "sk-new").await), (200, 401));
    std::fs::write(dir.path().join("next"), "sk-new\n").unwrap();
    std::fs::rename(dir.path().join("next"), &keys).unwrap();
    eventually_async(SOON, "the new key to enter", async || match status_of(&process, "sk-new").await {
        200 => Ok(()),
        other => Err(other),
    })
    .await;
    assert_eq!(status_of(&process, "sk-one").await, 401);
    std::fs::write(&keys, "").unwrap();
    let refused = [("result", "error")];
    eventually_async(SOON, "the empty file to be refused", async || {
        let n = process.scrape().await.sum("tandem_api_key_reloads_total", &refused);
        if n > 0.5 { Ok(()) } else { Err(n) }
    })
    .await;
    assert_eq!(status_of(&process, "sk-new").await, 200);
    assert!(process.scrape().await.sum("tandem_api_key_reloads_total", &[("result", "ok")]) > 0.5);
    assert!(engine.log.requests().iter().all(|r| !String::from_utf8_lossy(&r.head).contains("sk-")));
    process.signal(Signal::TERM);
    assert_eq!(process.exited(Duration::from_secs(5)).await.code(), Some(0));
    assert!(!process.stderr().contains("sk-") && !process.stdout().contains("sk-"));
}

/// A file that holds no key would lock everybody out or let everybody in.
#[tokio::test]
async fn without_a_usable_key_file_the_process_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in
        [("empty", Some("")), ("comments", Some("# a\n")), ("bad", Some("two words\n")), ("none", None)]
    {
        let file = dir.path().join(name);
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let mut command = tandem("router");
        command.args(["--worker", "http://127.0.0.1:1", "--api-keys-file", file.to_str().unwrap()]);
        let (code, _, said) = run(&mut command).await;
        assert!(matches!(code, Some(1 | 2)), "{name}: {said}");
        assert!(said.contains("api_keys_file") && !said.contains("two words"), "{name}: {said}");
    }
}
