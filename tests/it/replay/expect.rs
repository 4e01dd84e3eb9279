//! `Expect: 100-continue`: the body is asked for only when it will be read.

use std::time::Duration;

use tandem::config::RouterConfig;
use tandem::testkit::client::{RawClient, RawResponse};
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::fixtures::{big_chat_body, request_head};
use tandem::testkit::router::{TestRouter, config, config_for};
use tandem::types::clock::now;
use tokio::net::TcpStream;

use super::ask::{CHAT, Seen};
use super::keys_file;

/// The upload of the report, bytes.
const UPLOAD: usize = 3_000_000;

async fn rig(change: impl FnOnce(&mut RouterConfig)) -> (EngineHandle, TestRouter) {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let mut config = config_for(&[&engine]);
    change(&mut config);
    let router = TestRouter::start(config).await;
    (engine, router)
}

/// A head that announces the upload and waits.
async fn announce(router: &TestRouter, path: &str, headers: &[&str]) -> RawClient<TcpStream> {
    let length = format!("Content-Length: {UPLOAD}");
    let mut lines = vec![length.as_str(), "Content-Type: application/json", "Expect: 100-continue"];
    lines.extend_from_slice(headers);
    let mut client = router.client().await;
    client.send(request_head("POST", path, &lines)).await.unwrap();
    client
}

/// The final answer, at once and with no 100 before it.
async fn refused(client: &mut RawClient<TcpStream>) -> Seen {
    let started = now();
    let answer: RawResponse = client.read_response().await.unwrap();
    assert!(now() - started < Duration::from_millis(500));
    assert!(answer.informational.is_empty(), "{answer:?}");
    Seen::h1(&answer)
}

#[tokio::test]
async fn b11_an_upload_that_will_be_read_is_asked_for_and_the_engine_hears_nothing_of_it() {
    let (engine, router) = rig(|_| {}).await;
    let body = big_chat_body("m", false, UPLOAD);
    for expect in ["Expect: 100-continue", "expect: 100-Continue"] {
        let length = format!("Content-Length: {UPLOAD}");
        let mut client = router.client().await;
        for framing in [length.as_str(), "Transfer-Encoding: chunked"] {
            client.send(request_head("POST", CHAT, &[framing, expect])).await.unwrap();
            let head = client.read_head().await.unwrap();
            assert_eq!((head.status, head.headers.0.len()), (100, 0));
            let wire = if framing.starts_with('C') {
                body.clone()
            } else {
                format!("{UPLOAD:x}\r\n{body}\r\n0\r\n\r\n")
            };
            client.send(wire).await.unwrap();
            let answer = client.read_response().await.unwrap();
            assert_eq!((answer.status(), answer.informational.len()), (200, 0));
        }
        client.close();
    }
    for request in engine.log.requests() {
        assert!(!request.headers.has("expect"));
        assert!(request.body == body.as_bytes());
    }
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b11_a_client_that_does_not_wait_is_served_too() {
    let (engine, router) = rig(|_| {}).await;
    let body = big_chat_body("m", false, UPLOAD);
    let mut client = announce(&router, CHAT, &[]).await;
    client.send(&body).await.unwrap();
    assert_eq!(client.read_response().await.unwrap().status(), 200);
    client.close();
    // HTTP/1.0 knows no 100.
    let mut client = router.client().await;
    let head = format!(
        "POST {CHAT} HTTP/1.0\r\nHost: test\r\nContent-Length: {UPLOAD}\r\nExpect: 100-continue\r\n\r\n"
    );
    let answer = client.request(format!("{head}{body}")).await.unwrap();
    assert_eq!((answer.status(), answer.informational.len()), (200, 0));
    client.close();
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b11_a_head_that_is_refused_anyway_gets_its_final_answer_without_a_100() {
    let keys = keys_file();
    let good = "Authorization: Bearer front-door-key-1";
    let (engine, router) = rig(|config| config.api_keys_file = Some(keys.path().to_owned())).await;
    refused(&mut announce(&router, CHAT, &[]).await).await.assert_error(401, "invalid_api_key");
    let bad = ["Authorization: Bearer front-door-key-2"];
    refused(&mut announce(&router, CHAT, &bad).await).await.assert_error(401, "invalid_api_key");
    refused(&mut announce(&router, "/workers", &[good]).await).await.assert_error(404, "unknown_route");
    refused(&mut announce(&router, "/v1/models", &[good]).await)
        .await
        .assert_error(405, "method_not_allowed");
    let gzip = [good, "Content-Encoding: gzip"];
    refused(&mut announce(&router, CHAT, &gzip).await)
        .await
        .assert_error(415, "unsupported_content_encoding");
    let framing = [good, "Content_Length: 3"];
    refused(&mut announce(&router, CHAT, &framing).await).await.assert_error(400, "invalid_framing");
    assert_eq!(engine.log.request_count(), 0);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b11_an_upload_over_a_bound_gets_its_final_answer_without_a_100() {
    let (engine, router) = rig(|config| config.limits.body = UPLOAD as u64 - 1).await;
    refused(&mut announce(&router, CHAT, &[]).await).await.assert_error(413, "request_too_large");
    router.assert_invariants(&[&engine]).await;
    let (engine, router) = rig(|config| config.limits.buffered_bytes = Some(UPLOAD as u64 - 1)).await;
    refused(&mut announce(&router, CHAT, &[]).await).await.assert_error(503, "buffer_exhausted");
    router.assert_invariants(&[&engine]).await;
    let (engine, router) = rig(|config| config.limits.in_flight = 1).await;
    // Holds the only permit: its body never comes.
    let holder = announce(&router, CHAT, &[]).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    refused(&mut announce(&router, CHAT, &[]).await).await.assert_error(503, "server_overloaded");
    holder.close();
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b11_without_an_endpoint_the_final_answer_comes_without_a_100() {
    let router = TestRouter::start(config(&[])).await;
    let seen = refused(&mut announce(&router, CHAT, &[]).await).await;
    seen.assert_error(503, "no_endpoint");
    assert!(seen.header("retry-after").is_some());
    router.assert_invariants(&[]).await;
    // The same once all there are have been withdrawn.
    let (engine, router) = rig(|_| {}).await;
    for endpoint in router.endpoints() {
        router.admin.endpoints.set_drain(&endpoint.id.to_string(), true).await;
    }
    refused(&mut announce(&router, CHAT, &[]).await).await.assert_error(503, "no_endpoint");
    assert_eq!(engine.log.request_count(), 0);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b11_a_refused_client_that_sends_its_upload_all_the_same_still_reads_why() {
    let (engine, router) = rig(|config| config.limits.body = 1000).await;
    let mut client = announce(&router, CHAT, &[]).await;
    client.stop_reading();
    client.send(big_chat_body("m", false, UPLOAD)).await.unwrap();
    client.resume_reading();
    Seen::h1(&client.read_response().await.unwrap()).assert_error(413, "request_too_large");
    client.close();
    router.assert_invariants(&[&engine]).await;
}
