//! Request heads that are refused: too large, unknown, of the wrong kind, or not HTTP at all. One shape for all (I13).

use std::time::Duration;

use http::Method;
use tandem::proxy::request::route::{BodyKind, Route};
use tandem::testkit::client::ClientError;
use tandem::testkit::engine::{Body, Engine, EngineHandle, Response, Script};
use tandem::testkit::fixtures::{chat_body, get, post_chat, request_head};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::{TestRouter, config, config_for};
use tandem::testkit::wire::PeerEnd;

use super::ask::{BOTH, CHAT, Seen, ask};

async fn rig() -> (EngineHandle, TestRouter) {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let router = TestRouter::start(config_for(&[&engine])).await;
    (engine, router)
}

#[tokio::test]
async fn a_head_over_its_bounds_is_a_readable_431_or_414_on_both_protocols() {
    let (engine, router) = rig().await;
    let limits = &router.shared.config.limits;
    let line = |n: usize| format!("X-Filler-{n}: {n}");
    let many: Vec<String> = (0..=limits.headers).map(line).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let large = format!("X-Large: {}", "x".repeat(limits.header_bytes));
    let url = |len: usize| format!("{CHAT}?{}", "q".repeat(len - CHAT.len() - 1));
    for protocol in BOTH {
        let seen = ask(&router, protocol, "POST", CHAT, &many, "{}").await;
        seen.assert_error(431, "headers_too_large");
        let seen = ask(&router, protocol, "POST", CHAT, &[&large], "{}").await;
        seen.assert_error(431, "headers_too_large");
        let seen = ask(&router, protocol, "POST", &url(limits.url + 1), &[], "{}").await;
        seen.assert_error(414, "uri_too_long");
    }
    assert_eq!(engine.log.request_count(), 0);
    for protocol in BOTH {
        // On the bound: Host, Content-Length and Content-Type are three more.
        let seen =
            ask(&router, protocol, "POST", CHAT, &many[..limits.headers - 3], chat_body("m", false)).await;
        assert_eq!(seen.status, 200);
        assert_eq!(ask(&router, protocol, "POST", &url(limits.url), &[], "{}").await.status, 200);
    }
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn unknown_routes_and_wrong_methods_are_404_and_405_with_allow() {
    let (engine, router) = rig().await;
    let mut expected = 0;
    for protocol in BOTH {
        ask(&router, protocol, "GET", "/nothing", &[], "").await.assert_error(404, "unknown_route");
        ask(&router, protocol, "POST", "/workers", &[], "{}").await.assert_error(404, "unknown_route");
        expected += 2;
        for &route in Route::ALL {
            for method in
                [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH]
            {
                if route.allows(&method) {
                    continue;
                }
                let seen = ask(&router, protocol, method.as_str(), route.as_str(), &[], "").await;
                seen.assert_error(405, "method_not_allowed");
                assert_eq!(seen.header("allow"), Some(route.allow()), "{route:?}");
                expected += 1;
            }
        }
        let seen = ask(&router, protocol, "TRACE", CHAT, &[], "").await;
        seen.assert_error(405, "method_not_allowed");
        expected += 1;
    }
    assert_eq!(engine.log.request_count(), 0);
    assert_eq!(router.access_lines().len(), expected);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn a_head_request_is_answered_without_a_body_on_both_protocols() {
    let (engine, router) = rig().await;
    for protocol in BOTH {
        let seen = ask(&router, protocol, "HEAD", CHAT, &[], "").await;
        assert_eq!((seen.status, seen.header("allow"), seen.body.len()), (405, Some("POST"), 0));
        assert_ne!(seen.header("content-length"), Some("0"));
        let seen = ask(&router, protocol, "HEAD", "/health", &[], "").await;
        assert_eq!((seen.status, seen.header("content-length"), seen.body.len()), (200, Some("15"), 0));
        // The engine's own refusal, in its own words: there is no body to wrap.
        let refusal =
            Response::new(404, Body::Empty).header("content-length", "9").header("content-type", "text/html");
        engine.set_script(Script::always(refusal));
        let seen = ask(&router, protocol, "HEAD", "/v1/models", &[], "").await;
        assert_eq!((seen.status, seen.header("content-length"), seen.body.len()), (404, Some("9"), 0));
        assert_eq!(seen.header("content-type"), Some("text/html"));
    }
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn compressed_bodies_and_foreign_content_types_are_415() {
    let (engine, router) = rig().await;
    let json_routes = Route::ALL.iter().filter(|r| r.body() == BodyKind::Json);
    for protocol in BOTH {
        for coding in ["gzip", "br", "deflate", "zstd", "gzip, identity", ""] {
            let seen =
                ask(&router, protocol, "POST", CHAT, &[&format!("Content-Encoding: {coding}")], "{}").await;
            seen.assert_error(415, "unsupported_content_encoding");
        }
        for media in
            ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
        {
            let line = format!("Content-Type: {media}");
            for route in json_routes.clone() {
                let seen = ask(&router, protocol, "POST", route.as_str(), &[&line], "{}").await;
                seen.assert_error(415, "unsupported_content_type");
            }
        }
        for route in [Route::AudioTranscriptions, Route::AudioTranslations] {
            let seen = ask(&router, protocol, "POST", route.as_str(), &[], "{}").await;
            seen.assert_error(415, "unsupported_content_type");
        }
        ask(&router, protocol, "POST", CHAT, &["Expect: 200-ok"], "{}")
            .await
            .assert_error(417, "expectation_failed");
    }
    assert_eq!(engine.log.request_count(), 0);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn a_model_that_no_service_lists_is_404_and_names_it() {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let mut config = config_for(&[&engine]);
    config.services[0].models = vec!["m".to_owned()];
    let router = TestRouter::start(config).await;
    for protocol in BOTH {
        for path in [CHAT, "/v1/completions", "/v1/embeddings", "/generate"] {
            let seen = ask(&router, protocol, "POST", path, &[], r#"{"model":"other"}"#).await;
            seen.assert_error(404, "model_not_found");
            assert_eq!(seen.json()["error"]["param"], "model");
            assert!(seen.json()["error"]["message"].as_str().unwrap().contains("`other`"));
        }
        assert_eq!(ask(&router, protocol, "POST", CHAT, &[], chat_body("m", false)).await.status, 200);
    }
    assert_eq!(engine.log.request_count(), 2);
    router.assert_invariants(&[&engine]).await;
}

/// Heads that the parser under our rules refuses, with the status each deserves.
fn unparseable() -> Vec<(u16, &'static str, Vec<u8>)> {
    let with = |line: &str| request_head("POST", CHAT, &[line]).to_vec();
    let framing = "invalid_framing";
    vec![
        (400, framing, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello".to_vec()),
        (400, framing, b"GET\r\n\r\n".to_vec()),
        (400, framing, b"GET  / HTTP/1.1\r\nHost: test\r\n\r\n".to_vec()),
        (400, framing, b"GET / HTTP/9.9\r\nHost: test\r\n\r\n".to_vec()),
        (400, framing, b"GET /\x00 HTTP/1.1\r\nHost: test\r\n\r\n".to_vec()),
        (400, framing, b"\x00\x00\x00\x00\x00\x00\x00\x00\r\n\r\n".to_vec()),
        (400, framing, b"GET / HTTP/1.1\r\nHost: te\x00st\r\n\r\n".to_vec()),
        (400, framing, b"GET / HTTP/1.1\r\nHo st: test\r\n\r\n".to_vec()),
        (400, framing, with("Transfer-Encoding : chunked")),
        (400, framing, with("X: a\r\n folded")),
        (400, framing, with("Content-Length: 5\r\nContent-Length: 6")),
        (400, framing, with("Content-Length: +5")),
        (400, framing, with("Content-Length: 99999999999999999999999")),
        (400, framing, with("Content-Length: 5\r\nTransfer-Encoding: xchunked")),
        (400, framing, with("Transfer-Encoding: chunked, identity")),
        (400, framing, format!("POST {CHAT} HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").into()),
        (431, "headers_too_large", with(&format!("X: {}", "x".repeat(200_000)))),
        (431, "headers_too_large", with(&vec!["A: b"; 300].join("\r\n"))),
        (414, "uri_too_long", request_head("GET", &format!("/{}", "u".repeat(70_000)), &[]).to_vec()),
    ]
}

#[tokio::test]
async fn heads_that_no_parser_takes_get_the_same_shape_a_metric_and_a_line() {
    let (engine, router) = rig().await;
    let cases = unparseable();
    for (status, code, head) in &cases {
        let shown = String::from_utf8_lossy(&head[..head.len().min(80)]).into_owned();
        let mut client = router.client().await;
        client.send(head).await.unwrap();
        let answer = client.read_response().await.unwrap_or_else(|e| panic!("{e} after {shown:?}"));
        Seen::h1(&answer).assert_error(*status, code);
        assert_eq!(answer.header("connection"), Some("close"), "{shown:?}");
        assert!(answer.header("date").is_some(), "{shown:?}");
        let (rest, end, _) = client.read_to_end().await.unwrap();
        assert_eq!((rest.len(), end), (0, PeerEnd::Fin), "{shown:?}");
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let count = cases.len() as f64;
    let rejected = [("route", "unknown"), ("outcome", "rejected")];
    assert!((router.scrape().sum("tandem_requests_total", &rejected) - count).abs() < 0.5);
    let lines = router.access_lines();
    assert_eq!(lines.len(), cases.len());
    for (line, (status, code, _)) in lines.iter().zip(&cases) {
        assert_eq!(
            (line["status"].as_u64(), line["error"].as_str()),
            (Some(u64::from(*status)), Some(*code))
        );
        assert_eq!((&line["route"], &line["outcome"]), (&"unknown".into(), &"rejected".into()));
        assert!(line["bytes_out"].as_u64().unwrap() > 50, "{line}");
    }
    assert_eq!(engine.log.request_count(), 0);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn an_unparseable_head_behind_good_requests_spoils_none_of_their_answers() {
    let (engine, router) = rig().await;
    let garbage = b"GARBAGE\r\n\r\n".as_slice();
    let chat = post_chat(chat_body("m", false));
    let stream = post_chat(chat_body("m", true));
    // One write, or each after the answer before it.
    for pipelined in [true, false] {
        let mut client = router.client().await;
        let parts: [&[u8]; 4] = [&chat, &stream, &get("/health"), garbage];
        if pipelined {
            client.send(parts.concat()).await.unwrap();
        }
        for part in parts {
            if !pipelined {
                client.send(part).await.unwrap();
            }
            let answer = client.read_response().await.unwrap();
            match part {
                _ if part == garbage => Seen::h1(&answer).assert_error(400, "invalid_framing"),
                _ => assert!(answer.status() == 200 && answer.is_complete(), "{answer:?}"),
            }
        }
        assert_eq!(client.read_to_end().await.unwrap().1, PeerEnd::Fin);
    }
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn a_client_that_takes_its_time_still_reads_why_a_huge_head_was_refused() {
    let (engine, router) = rig().await;
    let mut client = router.client().await;
    client.stop_reading();
    let head = request_head("GET", "/health", &[&format!("X: {}", "x".repeat(12 << 20))]);
    client.send(head).await.unwrap();
    client.resume_reading();
    Seen::h1(&client.read_response().await.unwrap()).assert_error(431, "headers_too_large");
    client.close();
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn half_a_head_is_no_request_and_gets_no_answer() {
    let (engine, router) = rig().await;
    let mut client = router.client().await;
    client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: te").await.unwrap();
    client.shutdown_write().await.unwrap();
    assert!(matches!(client.read_response().await, Err(ClientError::Ended { end: PeerEnd::Fin, .. })));
    assert_eq!(router.access_lines().len(), 0);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_an_unparseable_head_waits_for_its_client_within_the_write_limit() {
    let net = MemoryNet::new().with_buffer(16);
    let engine = Engine::in_memory(&net, "e1", Script::openai("m"));
    let router = TestRouter::in_memory(config(&["e1:80".to_owned()]), &net);
    let mut slow = router.memory_client().await;
    slow.stop_reading();
    slow.send("GET\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    slow.resume_reading();
    Seen::h1(&slow.read_response().await.unwrap()).assert_error(400, "invalid_framing");
    slow.close();
    let mut silent = router.memory_client().await;
    silent.stop_reading();
    silent.send("GET\r\n\r\n").await.unwrap();
    let limit = router.shared.timeouts.write_stall.unwrap();
    tokio::time::sleep(limit + Duration::from_secs(1)).await;
    assert!(router.scrape().sum("tandem_downstream_connections", &[]) < 0.5, "closed by the write limit");
    assert!(router.access_lines().iter().all(|line| line["outcome"] == "rejected"));
    silent.close();
    router.assert_invariants(&[&engine]).await;
}
