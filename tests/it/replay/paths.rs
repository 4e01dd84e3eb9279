//! One decision about a path, for authorisation, metrics and forwarding: the bytes as they stand.

use tandem::testkit::client::RawResponse;
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::fixtures::chat_body;
use tandem::testkit::router::{TestRouter, config_for};

use super::ask::{BOTH, CHAT, Protocol, Seen, ask};
use super::keys_file;

async fn rig() -> (EngineHandle, TestRouter) {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let router = TestRouter::start(config_for(&[&engine])).await;
    (engine, router)
}

/// Spellings that some server takes for a path that is served, or that is not to be reached.
const CONFUSING: [&str; 30] = [
    "/v1/../workers",
    "/v1/%2e%2e/workers",
    "/v1/%2E%2E/workers",
    "/v1/..%2fworkers",
    "/v1/chat/completions/../../../workers",
    "//workers",
    "/workers",
    "/workers/",
    "/workers%2fx",
    "/WORKERS",
    "/workers;x",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1/./chat/completions",
    "/v1/x/../chat/completions",
    "/v1/chat/completions/",
    "/v1/chat/completions;x",
    "/v1/chat/completions;/workers",
    "/v1/chat/completions%20",
    "/v1/chat/completions%00",
    "/v1/chat/completions%3f",
    "/v1/chat%2fcompletions",
    "/v1/ch%61t/completions",
    "/V1/chat/completions",
    "/v1/Chat/Completions",
    "/v1/chat\\completions",
    "/metrics",
    "/livez",
    "/",
    "/v1/models/m",
];

#[tokio::test]
async fn b182_only_exact_paths_are_routes_and_nothing_else_reaches_an_engine() {
    let (engine, router) = rig().await;
    let mut expected = 0;
    for protocol in BOTH {
        for path in CONFUSING {
            // A backslash is no URI character: the h2 client will not send it.
            if protocol == Protocol::H2 && path.contains('\\') {
                continue;
            }
            for method in ["GET", "POST", "DELETE"] {
                let body = if method == "POST" { chat_body("m", false) } else { String::new() };
                let seen = ask(&router, protocol, method, path, &["Authorization: Bearer x"], body).await;
                seen.assert_error(404, "unknown_route");
                expected += 1;
            }
        }
    }
    assert_eq!(engine.log.request_count(), 0);
    let lines = router.access_lines();
    assert_eq!(lines.len(), expected);
    assert!(lines.iter().all(|line| line["route"] == "unknown" && line["outcome"] == "rejected"));
    let series = router.scrape().series("tandem_requests_total").to_vec();
    assert!(series.iter().all(|(labels, _)| labels["route"] == "unknown"), "no path became a label");
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b182_a_key_opens_no_door_for_another_spelling() {
    let keys = keys_file();
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let mut config = config_for(&[&engine]);
    config.api_keys_file = Some(keys.path().to_owned());
    let router = TestRouter::start(config).await;
    for protocol in BOTH {
        for target in [CHAT, "/v1/chat/completions?x=/health", "/v1/chat/completions?/../../health"] {
            let seen = ask(&router, protocol, "POST", target, &[], chat_body("m", false)).await;
            seen.assert_error(401, "invalid_api_key");
        }
        for path in
            ["/health/../v1/chat/completions", "/health;/v1/chat/completions", "/health%2f..%2fv1%2fmodels"]
        {
            let seen = ask(&router, protocol, "POST", path, &[], chat_body("m", false)).await;
            seen.assert_error(404, "unknown_route");
        }
    }
    assert_eq!(engine.log.request_count(), 0);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b182_a_query_is_forwarded_as_it_stands() {
    let (engine, router) = rig().await;
    let queries = [
        "?a=1&b=%2e%2e%2f&c=//;d",
        "?",
        "??x",
        "?q=/v1/../workers&r=http://other/",
        "?k=%E7%A7%8B+%20&k=k&=&",
        "?a=b?c=d/;e",
    ];
    for protocol in BOTH {
        for query in queries {
            let seen =
                ask(&router, protocol, "POST", &format!("{CHAT}{query}"), &[], chat_body("m", false)).await;
            assert_eq!(seen.status, 200, "{query}");
            assert_eq!(engine.log.requests().pop().unwrap().target, format!("{CHAT}{query}"));
        }
    }
    let lines = router.access_lines();
    assert!(lines.iter().all(|line| line["route"] == "chat_completions" && line["outcome"] == "ok"));
    router.assert_invariants(&[&engine]).await;
}

/// The answer to a chat with exactly this target and these header lines, on a connection of its own.
async fn chat_at(router: &TestRouter, target: &str, lines: &str) -> RawResponse {
    let body = chat_body("m", false);
    let length = body.len();
    let mut client = router.client().await;
    let head = format!("POST {target} HTTP/1.1\r\n{lines}Content-Length: {length}\r\n\r\n");
    client.request(format!("{head}{body}")).await.unwrap()
}

#[tokio::test]
async fn b182_absolute_targets_name_the_same_routes_and_must_agree_with_host() {
    let (engine, router) = rig().await;
    for (target, lines) in [
        ("http://test/v1/chat/completions", "Host: test\r\n"),
        ("http://TEST:80/v1/chat/completions", "Host: test\r\n"),
        ("HTTP://test/v1/chat/completions?q=//x", "Host: test\r\n"),
        ("https://test/v1/chat/completions", "Host: test:443\r\n"),
    ] {
        let answer = chat_at(&router, target, lines).await;
        assert_eq!(answer.status(), 200, "{target} {}", answer.text());
        let seen = engine.log.requests().pop().unwrap();
        // Origin form, with the endpoint's own name as its host.
        assert!(seen.target == CHAT || seen.target == format!("{CHAT}?q=//x"), "{}", seen.target);
        assert_eq!(seen.headers.all("host"), [engine.addr().to_string()]);
    }
    let served = engine.log.request_count();
    for (target, lines) in [
        ("http://other/v1/chat/completions", "Host: test\r\n"),
        ("http://test:81/v1/chat/completions", "Host: test\r\n"),
        ("http://user@test/v1/chat/completions", "Host: test\r\n"),
        ("ftp://test/v1/chat/completions", "Host: test\r\n"),
        ("http://test/v1/chat/completions", ""),
        (CHAT, ""),
        (CHAT, "Host: a\r\nHost: b\r\n"),
        (CHAT, "Host: test\r\nHost: test\r\n"),
        (CHAT, "Host:\r\n"),
        (CHAT, "Host: test/v1\r\n"),
        (CHAT, "Host: a, b\r\n"),
        (CHAT, "Host: user@test\r\n"),
    ] {
        let answer = chat_at(&router, target, lines).await;
        Seen::h1(&answer).assert_error(400, "invalid_host");
        assert_eq!(answer.header("connection"), Some("close"));
    }
    Seen::h1(&chat_at(&router, "http://test/workers", "Host: test\r\n").await)
        .assert_error(404, "unknown_route");
    Seen::h1(&chat_at(&router, "http://test", "Host: test\r\n").await).assert_error(404, "unknown_route");
    assert_eq!(engine.log.request_count(), served);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b182_asterisks_authorities_and_fragments_reach_nothing_unexpected() {
    let (engine, router) = rig().await;
    let wire = |method: &str, target: &str| format!("{method} {target} HTTP/1.1\r\nHost: test\r\n\r\n");
    for (method, target, status, code) in [
        ("OPTIONS", "*", 404, "unknown_route"),
        ("GET", "*", 404, "unknown_route"),
        ("POST", "*", 404, "unknown_route"),
        ("CONNECT", "test:443", 400, "invalid_host"),
        ("CONNECT", "test", 405, "method_not_allowed"),
        ("CONNECT", CHAT, 405, "method_not_allowed"),
        ("GET", "test:443", 400, "invalid_host"),
        ("GET", "test", 404, "unknown_route"),
        ("GET", "workers", 400, "invalid_host"),
        ("GET", "/workers#/health", 404, "unknown_route"),
        ("GET", "#/health", 400, "invalid_framing"),
    ] {
        let mut client = router.client().await;
        client.send(wire(method, target)).await.unwrap();
        let answer = client.read_response().await.unwrap();
        assert_eq!(answer.status(), status, "{method} {target}: {}", answer.text());
        Seen::h1(&answer).assert_error(status, code);
    }
    assert_eq!(engine.log.request_count(), 0);
    // A fragment is not the server's business: it goes no further.
    let answer = chat_at(&router, "/v1/chat/completions?a=b#/workers", "Host: test\r\n").await;
    assert_eq!(answer.status(), 200);
    assert_eq!(engine.log.requests()[0].target, format!("{CHAT}?a=b"));
    router.assert_invariants(&[&engine]).await;
}
