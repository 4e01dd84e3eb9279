//! Bodies that are not the JSON they should be: the client's fault, said once, and no engine hears of it.

use tandem::proxy::request::route::{BodyKind, Route};
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::fixtures::{chat_body, post};
use tandem::testkit::router::{TestRouter, config_for};

use super::ask::{BOTH, CHAT, Protocol, Seen, ask};

async fn rig() -> (EngineHandle, TestRouter) {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let router = TestRouter::start(config_for(&[&engine])).await;
    (engine, router)
}

fn nested(open: &str, close: &str, depth: usize) -> Vec<u8> {
    format!("{{\"model\":\"m\",\"x\":{}{}}}", open.repeat(depth), close.repeat(depth)).into()
}

/// Bodies that are no JSON object, or whose routed keys have the wrong type.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let json = "invalid_json";
    let kind = "invalid_type";
    let mut cases: Vec<(&str, Vec<u8>)> = vec![
        (json, b" \r\n\t".to_vec()),
        (json, b"\x00".to_vec()),
        (json, b"{".to_vec()),
        (json, b"[]".to_vec()),
        (json, b"\"str\"".to_vec()),
        (json, b"null".to_vec()),
        (json, b"{\"model\":\"m\"}{".to_vec()),
        (json, b"{\"model\":\"m\",}".to_vec()),
        (json, b"{\"model\":\"m\"".to_vec()),
        (json, b"{'model':'m'}".to_vec()),
        (json, b"{\"a\":NaN}".to_vec()),
        (json, b"{\"a\":01}".to_vec()),
        (json, b"{\"a\":\"\n\"}".to_vec()),
        (json, b"{\"a\":\"\\x\"}".to_vec()),
        (json, b"{\"model\":\"m\",\"a\":\"\xe7\xa7\"}".to_vec()),
        (json, b"{\"model\":\"m\",\"a\":\"\xff\"}".to_vec()),
        (json, b"\xef\xbb\xbf{\"model\":\"m\"}".to_vec()),
        (json, "\u{feff}{}".encode_utf16().flat_map(u16::to_le_bytes).collect()),
        (json, b"model=m&stream=true".to_vec()),
        (json, nested("[", "]", 10_000)),
        (json, nested("{\"a\":", "}", 10_000)),
        (json, b"[".repeat(100_000)),
        (kind, b"{\"model\":3}".to_vec()),
        (kind, b"{\"model\":[\"m\"]}".to_vec()),
        (kind, b"{\"model\":{\"a\":1}}".to_vec()),
        (kind, b"{\"model\":\"\\ud83d\"}".to_vec()),
        (kind, b"{\"model\":\"m\",\"stream\":\"true\"}".to_vec()),
        (kind, b"{\"model\":\"m\",\"stream\":1}".to_vec()),
    ];
    // Large enough to be scanned off the traffic thread.
    cases.push((json, [b"{\"a\":\"".as_slice(), &b"x".repeat(300_000), b"\"".as_slice()].concat()));
    cases
}

#[tokio::test]
async fn b40_malformed_json_is_a_400_that_reaches_no_engine_and_keeps_the_connection() {
    let (engine, router) = rig().await;
    let cases = malformed();
    let mut client = router.client().await;
    for (code, body) in &cases {
        let answer = client.request(post(CHAT, &[], body)).await.unwrap();
        Seen::h1(&answer).assert_error(400, code);
        assert_eq!(answer.header("connection"), None);
        let seen = ask(&router, Protocol::H2, "POST", CHAT, &[], body).await;
        seen.assert_error(400, code);
        assert_eq!(seen.json()["error"]["type"], "invalid_request_error");
        assert_eq!(seen.json()["error"]["param"].is_string(), *code == "invalid_type");
    }
    // No body at all, which the JSON helper above cannot send.
    let answer = client.request(post(CHAT, &[], "")).await.unwrap();
    Seen::h1(&answer).assert_error(400, "invalid_json");
    ask(&router, Protocol::H2, "POST", CHAT, &[], "").await.assert_error(400, "invalid_json");
    assert_eq!(client.request(post(CHAT, &[], chat_body("m", false))).await.unwrap().status(), 200);
    client.close();
    assert_eq!((engine.log.request_count(), engine.log.conns().len()), (1, 1));
    let refused = 2 * (cases.len() + 1);
    let lines = router.access_lines();
    assert_eq!(lines.iter().filter(|l| l["outcome"] == "rejected" && l["attempts"] == 0).count(), refused);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b40_every_json_route_judges_alike() {
    let (engine, router) = rig().await;
    for &route in Route::ALL.iter().filter(|r| r.body() == BodyKind::Json) {
        for protocol in BOTH {
            ask(&router, protocol, "POST", route.as_str(), &[], "{").await.assert_error(400, "invalid_json");
            let text = ["Content-Type: text/plain"];
            let seen = ask(&router, protocol, "POST", route.as_str(), &text, chat_body("m", false)).await;
            seen.assert_error(415, "unsupported_content_type");
        }
    }
    assert_eq!(engine.log.request_count(), 0);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b40_depth_is_bounded_where_the_documentation_says() {
    let (engine, router) = rig().await;
    let mut client = router.client().await;
    // The object itself is the first level of 127.
    let fits = client.request(post(CHAT, &[], nested("[", "]", 126))).await.unwrap();
    assert_eq!(fits.status(), 200);
    let deep = client.request(post(CHAT, &[], nested("[", "]", 127))).await.unwrap();
    Seen::h1(&deep).assert_error(400, "invalid_json");
    assert!(deep.json()["error"]["message"].as_str().unwrap().contains("127 levels"));
    client.close();
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b133_a_known_key_that_stands_twice_is_a_400_naming_it() {
    let (engine, router) = rig().await;
    let cases = [
        ("model", r#"{"model":"cheap","messages":[],"model":"gpu-big"}"#),
        ("model", r#"{"model":"m","model":"m"}"#),
        ("model", r#"{"model":"cheap","mod\u0065l":"gpu-big"}"#),
        ("model", r#"{"\u006d\u006f\u0064\u0065\u006C":"cheap","model":"gpu-big"}"#),
        ("model", r#"{"model":null,"model":"gpu-big"}"#),
        ("stream", r#"{"model":"m","stream":false,"stream":true}"#),
        ("stream", r#"{"model":"m","stream":true,"messages":[],"str\u0065am":false}"#),
        ("max_tokens", r#"{"model":"m","max_tokens":1,"max_tokens":100000}"#),
        ("n", r#"{"model":"m","n":1,"n":128}"#),
        ("prompt", r#"{"model":"m","prompt":"a","prompt":"b"}"#),
        ("messages", r#"{"model":"m","messages":[],"messages":[{}]}"#),
        ("stream_options", r#"{"model":"m","stream_options":{},"stream_options":{}}"#),
        ("priority", r#"{"model":"m","priority":1,"priority":-1}"#),
        ("bootstrap_room", r#"{"model":"m","bootstrap_room":1,"bootstrap_room":2}"#),
        ("kv_transfer_params", r#"{"kv_transfer_params":{},"model":"m","kv_transfer_p\u0061rams":{}}"#),
    ];
    for (key, body) in cases {
        for protocol in BOTH {
            let seen = ask(&router, protocol, "POST", CHAT, &[], body).await;
            seen.assert_error(400, "duplicate_key");
            assert_eq!(seen.json()["error"]["param"], key, "{body}");
        }
    }
    assert_eq!(engine.log.request_count(), 0);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b133_what_routing_acts_on_is_what_the_engine_reads() {
    let (engine, router) = rig().await;
    // Doubles that are nobody's business here stay as they are: unknown keys, and known ones inside other values.
    let kept = [
        r#"{"model":"m","x":1,"x":2,"messages":[{"model":"a","model":"b","stream":true,"stream":false}]}"#,
        r#"{"Model":"other","MODEL":"third","model":"m","model ":"fourth"}"#,
        r#"{"metadata":{"model":"inner","bootstrap_room":7},"mod\u0065l":"m"}"#,
    ];
    for body in kept {
        assert_eq!(ask(&router, Protocol::H1, "POST", CHAT, &[], body).await.status, 200);
    }
    let body = r#"{"bootstrap_room":7,"model":"m","bootstrap_host":"evil","stream":false,"kv_transfer_params":{"a":[1]}}"#;
    assert_eq!(ask(&router, Protocol::H1, "POST", CHAT, &[], body).await.status, 200);
    let seen: Vec<String> =
        engine.log.requests().iter().map(|r| String::from_utf8_lossy(&r.body).into_owned()).collect();
    assert_eq!(seen[..3], kept);
    assert_eq!(seen[3], r#"{"model":"m","stream":false}"#);
    assert!(router.access_lines().iter().all(|line| line["model"] == "m"));
    router.assert_invariants(&[&engine]).await;
}
