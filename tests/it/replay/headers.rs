//! Which headers cross the router: credentials by configuration, claims and steering never (B145 B147).

use bytes::Bytes;
use http::Request;
use serde_json::json;
use tandem::config::{Authorization, RouterConfig};
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, EngineHandle, RecordedRequest, Script};
use tandem::testkit::fixtures::{chat_body, post, request_head};
use tandem::testkit::router::{TestRouter, config_for};

use super::scale;

const CHAT: &str = "/v1/chat/completions";

struct Rig {
    engine: EngineHandle,
    router: TestRouter,
    /// Holds the secret files.
    dir: tempfile::TempDir,
}

impl Rig {
    /// `keys`: the front door has the key `front-key`.
    async fn new(authorization: fn(&std::path::Path) -> Authorization, keys: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), "engine-secret\n").unwrap();
        std::fs::write(dir.path().join("keys"), "front-key\nfront-key-2\n").unwrap();
        let engine = Engine::start_tcp(Script::always(chat_json("hi"))).await;
        let mut config: RouterConfig = config_for(&[&engine]);
        config.services[0].upstream.authorization = authorization(&dir.path().join("secret"));
        config.api_keys_file = keys.then(|| dir.path().join("keys"));
        let router = TestRouter::start(config).await;
        Self { engine, router, dir }
    }

    /// What the engine got of a chat with these headers over HTTP/1.1.
    async fn h1(&self, headers: &[&str]) -> RecordedRequest {
        self.raw(post(CHAT, headers, chat_body("m", false))).await
    }

    async fn raw(&self, request: Bytes) -> RecordedRequest {
        let before = self.engine.log.request_count();
        let mut client = self.router.client().await;
        let answer = client.request(&request).await.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text());
        self.engine.log.requests()[before].clone()
    }

    /// The same over HTTP/2.
    async fn h2(&self, headers: &[&str]) -> RecordedRequest {
        let before = self.engine.log.request_count();
        let mut request =
            Request::post(format!("{}{CHAT}", self.router.url())).header("content-type", "application/json");
        for line in headers {
            let (name, value) = line.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        let mut client = self.router.h2_client().await;
        let answer = client.request(request.body(()).unwrap(), chat_body("m", false).into()).await.unwrap();
        assert_eq!(answer.status, 200);
        self.engine.log.requests()[before].clone()
    }

    async fn done(self) {
        self.router.assert_invariants(&[&self.engine]).await;
        drop(self.dir);
    }
}

/// Every credential-like header that the engine got, in order.
fn credentials(request: &RecordedRequest) -> Vec<String> {
    let names = ["authorization", "x-api-key", "api-key", "proxy-authorization", "x_api_key", "api_key"];
    let head = String::from_utf8(request.head.clone()).unwrap();
    let is_one =
        |line: &&str| line.split_once(':').is_some_and(|(n, _)| names.contains(&&*n.to_ascii_lowercase()));
    head.lines().filter(is_one).map(str::to_ascii_lowercase).collect()
}

fn secret(file: &std::path::Path) -> Authorization {
    Authorization::FromSecret(file.to_owned())
}

const FRONT: [&str; 2] = ["Authorization: Bearer front-key", "X-Api-Key: front-key-2"];
const USER: [&str; 3] = ["Authorization: Bearer user", "X-Api-Key: user-key", "Api-Key: azure-key"];

/// Configuration × caller's headers × protocol: exactly these reach the engine.
#[tokio::test]
async fn b145_exactly_one_authorization_reaches_the_engine_by_the_documented_precedence() {
    type Case =
        (fn(&std::path::Path) -> Authorization, bool, &'static [&'static str], &'static [&'static str]);
    let engine = &["authorization: bearer engine-secret"][..];
    let passed = &["authorization: bearer user", "x-api-key: user-key", "api-key: azure-key"][..];
    let cases: [Case; 7] = [
        (|_| Authorization::Auto, false, &USER, passed),
        (|_| Authorization::Auto, true, &FRONT, &[]),
        (|_| Authorization::Pass, false, &USER, passed),
        (|_| Authorization::Strip, false, &USER, &[]),
        (secret, false, &USER, engine),
        (secret, false, &[], engine),
        (secret, true, &FRONT, engine),
    ];
    for (authorization, keys, sent, expected) in cases {
        let rig = Rig::new(authorization, keys).await;
        for got in [rig.h1(sent).await, rig.h2(sent).await] {
            let got = credentials(&got);
            assert_eq!(got, expected, "{keys} {sent:?}");
        }
        rig.done().await;
    }
}

/// Multipart and body-less routes take the same way.
#[tokio::test]
async fn b145_every_kind_of_route_has_the_same_precedence() {
    let rig = Rig::new(secret, false).await;
    let form = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n";
    let length = format!("Content-Length: {}", form.len());
    let lines = ["Content-Type: multipart/form-data; boundary=b", length.as_str(), USER[0], USER[1]];
    let request =
        [request_head("POST", "/v1/audio/transcriptions", &lines).as_ref(), form.as_bytes()].concat();
    let got = rig.raw(request.into()).await;
    assert_eq!(
        (got.body.as_slice(), credentials(&got)),
        (form.as_bytes(), vec!["authorization: bearer engine-secret".to_owned()])
    );
    let got = rig.raw(request_head("GET", "/v1/models", &USER)).await;
    assert_eq!(credentials(&got), ["authorization: bearer engine-secret"]);
    rig.done().await;
}

/// A front-door key is the router's own: whatever imitates its header goes no further either.
#[tokio::test]
async fn b145_the_front_door_key_is_never_forwarded() {
    let rig = Rig::new(|_| Authorization::Auto, true).await;
    for lines in [
        &["Authorization: bearer front-key"][..],
        &["X-Api-Key:  front-key "],
        &["Authorization: Bearer front-key", "Api-Key: front-key", "X_Api_Key: front-key"],
        &["X-Api-Key: front-key", "Proxy-Authorization: Bearer front-key", "Cookie: k=front-key"],
    ] {
        let got = rig.h1(lines).await;
        assert!(!String::from_utf8(got.head).unwrap().contains("front-key"), "{lines:?}");
    }
    rig.done().await;
}

#[tokio::test]
async fn b145_a_rotated_engine_secret_is_used_from_then_on() {
    let rig = Rig::new(secret, false).await;
    assert_eq!(credentials(&rig.h1(&[]).await), ["authorization: bearer engine-secret"]);
    let watched = rig.router.shared.secrets[0].clone().unwrap();
    std::fs::write(rig.dir.path().join("secret"), "").unwrap();
    watched.poll();
    assert_eq!(credentials(&rig.h1(&[]).await), ["authorization: bearer engine-secret"]);
    std::fs::write(rig.dir.path().join("secret"), "rotated-secret\n").unwrap();
    watched.poll();
    assert_eq!(credentials(&rig.h1(&[]).await), ["authorization: bearer rotated-secret"]);
    rig.done().await;
}

/// Header, and what the engine sees of it. `None`: nothing.
const TRUST: &[(&str, Option<&str>)] = &[
    ("X-Forwarded-For: 203.0.113.7, 198.51.100.1", Some("203.0.113.7, 198.51.100.1, 127.0.0.1")),
    ("X-Forwarded-Proto: https", Some("http")),
    ("X-Forwarded-Host: evil.example", Some("")),
    ("X-Forwarded-Port: 1", None),
    ("X-Forwarded-Server: evil", None),
    ("X-Forwarded-Prefix: /evil", None),
    ("Forwarded: for=203.0.113.7", None),
    ("X-Real-IP: 203.0.113.7", None),
    ("X-Serverless-Authorization: Bearer platform", None),
    ("Proxy-Authorization: Basic cDpw", None),
    ("Cookie: session=1", None),
    ("X-Gateway-Destination-Endpoint: 10.0.0.1:80", None),
    ("X-Gateway-Destination-Endpoint-Served: 10.0.0.1:80", None),
    ("X-Prefiller-Host-Port: 10.0.0.1:80", None),
    ("X-Data-Parallel-Rank: 3", None),
    ("X-Data-Parallel-Host-Port: 10.0.0.1:80", None),
    ("X-Override-Temperature: 2", None),
    ("X-Tandem-Anything: 1", None),
    ("X-SMG-Routing-Key: k", None),
    ("Te: trailers", None),
    ("Upgrade: h2c", None),
    ("Keep-Alive: timeout=5", None),
    ("Range: bytes=0-1", None),
    ("If-None-Match: \"x\"", None),
    ("X-Vendor-Feature: on", Some("on")),
    ("Accept: application/json", Some("application/json")),
    ("User-Agent: test/1", Some("test/1")),
    (
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ),
];

#[tokio::test]
async fn b147_what_crosses_the_trust_boundary_is_a_list() {
    let rig = Rig::new(|_| Authorization::Auto, false).await;
    for (line, expected) in TRUST {
        let name = line.split(':').next().unwrap();
        let hop = ["Te", "Upgrade", "Keep-Alive"].contains(&name);
        let mut got = vec![rig.h1(&[line]).await];
        if !hop {
            got.push(rig.h2(&[line]).await);
        }
        for request in got {
            let seen = request.headers.all(name);
            match expected {
                None => assert!(seen.is_empty(), "{line}: {seen:?}"),
                // Replaced by what the client really asked for.
                Some("") => assert!(seen.len() == 1 && !seen[0].contains("evil"), "{line}: {seen:?}"),
                Some(value) => assert_eq!(seen, [*value], "{line}"),
            }
        }
    }
    rig.done().await;
}

/// The client's address is appended to what it claims, in one line, however it claims it.
#[tokio::test]
async fn b147_the_last_forwarded_address_is_ours() {
    let rig = Rig::new(|_| Authorization::Auto, false).await;
    for lines in [
        &[][..],
        &["X-Forwarded-For: 1.1.1.1"],
        &["X-Forwarded-For: 1.1.1.1", "x-forwarded-for: 2.2.2.2"],
        &["X-Forwarded-For: "],
        &["X-Forwarded-For: 1.1.1.1", "Connection: x-forwarded-for"],
    ] {
        let request = rig.h1(lines).await;
        let seen = request.headers.all("x-forwarded-for");
        assert!(seen.len() == 1 && seen[0].ends_with("127.0.0.1"), "{lines:?}: {seen:?}");
        assert_eq!(request.headers.all("x-forwarded-proto"), ["http"]);
    }
    rig.done().await;
}

/// Names that imitate: `_` for `-`, the router's own headers named in `Connection`, doubled ones.
#[tokio::test]
async fn b147_imitations_are_dropped_or_refused() {
    let rig = Rig::new(|_| Authorization::Auto, true).await;
    for line in [
        "X_Forwarded_For: 1.1.1.1",
        "X_Real_Ip: 1.1.1.1",
        "X_Override_Temperature: 2",
        "Host_: x",
        "X_Tandem_A: 1",
    ] {
        let mut client = rig.router.client().await;
        let before = rig.engine.log.request_count();
        let request = post(CHAT, &[line, FRONT[0]], chat_body("m", false));
        let answer = client.request(&request).await.unwrap();
        if answer.status() == 200 {
            let name = line.split(':').next().unwrap();
            let passes = name == "Host_";
            assert_eq!(!rig.engine.log.requests()[before].headers.all(name).is_empty(), passes, "{line}");
        } else {
            assert_eq!((answer.status(), rig.engine.log.request_count()), (400, before), "{line}");
        }
    }
    // Two credentials: an engine might read the other one.
    for lines in [
        ["Authorization: Bearer front-key", "Authorization: Bearer other"],
        ["X-Api-Key: front-key", "X-Api-Key: x"],
    ] {
        let mut client = rig.router.client().await;
        let answer = client.request(&post(CHAT, &lines, chat_body("m", false))).await.unwrap();
        assert_eq!(answer.status(), 400, "{lines:?}");
    }
    rig.done().await;
}

/// With `pass`, two `Authorization` headers must not reach an engine either: which one counts would be its guess.
#[tokio::test]
async fn b145_two_authorizations_are_never_forwarded() {
    let rig = Rig::new(|_| Authorization::Pass, false).await;
    for lines in [
        ["Authorization: Bearer a", "Authorization: Bearer b"],
        ["Authorization: Bearer a", "authorization: Bearer a"],
        ["X-Api-Key: a", "X-Api-Key: b"],
        ["X-Api-Key: a", "X_Api_Key: b"],
    ] {
        let before = rig.engine.log.request_count();
        let mut client = rig.router.client().await;
        let answer = client.request(&post(CHAT, &lines, chat_body("m", false))).await.unwrap();
        assert_eq!(
            (answer.status(), &answer.json()["error"]["code"]),
            (400, &json!("duplicate_header")),
            "{lines:?}"
        );
        assert_eq!(rig.engine.log.request_count(), before);
    }
    rig.done().await;
}

/// What an engine says about its own connection, and its own request id, do not reach the client. CI: 1 round.
#[tokio::test]
async fn b147_the_engines_hop_by_hop_headers_stay_here() {
    for _ in 0..scale(1, 20) {
        let answer = chat_json("hi").header("connection", "x-secret-hop").header("x-secret-hop", "1");
        let answer = answer
            .header("keep-alive", "timeout=5")
            .header("x-request-id", "engine-id")
            .header("server", "vllm");
        let engine = Engine::start_tcp(Script::always(answer)).await;
        let router = TestRouter::start(config_for(&[&engine])).await;
        let mut client = router.client().await;
        let request = post(CHAT, &["X-Request-Id: client-id"], chat_body("m", false));
        let got = client.request(&request).await.unwrap();
        for name in ["connection", "keep-alive", "x-secret-hop"] {
            assert_eq!(got.header(name), None, "{name}");
        }
        assert_eq!((got.header("x-request-id"), got.header("server")), (Some("client-id"), Some("vllm")));
        let sent = engine.log.requests()[0].headers.get("x-request-id").unwrap().to_owned();
        assert!(sent.len() == 26 && sent.ends_with("-client-id"), "{sent}");
        client.close();
        router.assert_invariants(&[&engine]).await;
    }
}
