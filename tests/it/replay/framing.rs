//! Requests whose framing two readers could understand differently. TCP, one connection per case.

use std::time::Duration;

use tandem::testkit::client::{ClientError, RawClient, RawResponse};
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::fixtures::{chat_body, get, post, request_head};
use tandem::testkit::router::{TestRouter, config_for};
use tandem::testkit::wire::PeerEnd;
use tandem::types::clock::now;
use tokio::net::TcpStream;

use super::ask::{CHAT, Seen};
use super::keys_file;

const SMUGGLED: &str = "DELETE /workers/x HTTP/1.1\r\nHost: test\r\n\r\n";

async fn rig() -> (EngineHandle, TestRouter) {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let router = TestRouter::start(config_for(&[&engine])).await;
    (engine, router)
}

/// The one answer to these bytes; then the server closes, with nothing more to say.
async fn only_answer(router: &TestRouter, wire: impl AsRef<[u8]>) -> RawResponse {
    let wire = wire.as_ref();
    let shown = String::from_utf8_lossy(&wire[..wire.len().min(200)]).into_owned();
    let mut client = router.client().await;
    client.send(wire).await.unwrap();
    let answer = client.read_response().await.unwrap_or_else(|e| panic!("{e} after {shown:?}"));
    let (rest, end, _) = client.read_to_end().await.unwrap();
    assert_eq!((String::from_utf8_lossy(&rest).as_ref(), end), ("", PeerEnd::Fin), "after {shown:?}");
    answer
}

/// A chat with these header lines and this body, and a second request behind it.
fn message(lines: &str, body: &str) -> Vec<u8> {
    let head = request_head("POST", CHAT, &[lines]);
    [head.as_ref(), body.as_bytes(), SMUGGLED.as_bytes()].concat()
}

#[tokio::test]
async fn b01_a_length_beside_a_transfer_coding_hides_no_second_request() {
    let (engine, router) = rig().await;
    let body = chat_body("m", false);
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let chunked = [
        "Content-Length: 6\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 6",
        "content-length: 6\r\ntransfer-encoding: CHUNKED",
        "TRANSFER-ENCODING:\tchunked\r\nCONTENT-LENGTH:\t6",
    ]
    .map(|lines| (lines, chunked.as_str()));
    let mut requests = 0;
    for (lines, body) in chunked {
        // The coding wins, the length goes no further, and the connection ends: RFC 9112 §6.3.
        let answer = only_answer(&router, message(lines, body)).await;
        assert_eq!(answer.status(), 200, "{lines:?}");
        requests += 1;
        let seen = &engine.log.requests()[requests - 1];
        assert!(!seen.headers.has("transfer-encoding") && seen.body == chat_body("m", false).as_bytes());
    }
    let refused = [
        "Content-Length: 6\r\nTransfer-Encoding: chunked, identity",
        "Content-Length: 6\r\nTransfer-Encoding: identity, chunked",
        "Content-Length: 6\r\nTransfer-Encoding: gzip, chunked",
        "Content-Length: 6\r\nTransfer-Encoding: xchunked",
        "Content-Length: 6\r\nTransfer-Encoding: chunkedx",
        "Content-Length: 6\r\nTransfer-Encoding: \"chunked\"",
        "Content-Length: 6\r\nTransfer-Encoding: identity",
        "Content-Length: 6\r\nTransfer-Encoding:",
        "Content-Length: 6\r\nTransfer-Encoding: chunked;q=1",
        "Content-Length: 6\r\nTransfer-Encoding: \x0bchunked",
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Content-Length: 6\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Content-Length: 6\r\nTransfer-Encoding : chunked",
        "Content-Length: 6\r\nTransfer-Encoding\t: chunked",
        "Content-Length: 6\r\n Transfer-Encoding: chunked",
        "Content-Length: 6\r\nTransfer_Encoding: chunked",
        "Content-Length: 6\r\nContent_Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 05",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length: 5;",
        "Content-Length:",
        "Content-Length: 18446744073709551616",
    ];
    for lines in refused {
        let answer = only_answer(&router, message(lines, "0\r\n\r\n")).await;
        Seen::h1(&answer).assert_error(400, "invalid_framing");
        assert_eq!(answer.header("connection"), Some("close"), "{lines:?}");
    }
    let http10 = format!(
        "POST {CHAT} HTTP/1.0\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}"
    );
    Seen::h1(&only_answer(&router, http10).await).assert_error(400, "invalid_framing");
    assert_eq!(engine.log.request_count(), requests);
    // One line each: the inner request never ran.
    assert_eq!(router.access_lines().len(), requests + refused.len() + 1);
    router.assert_invariants(&[&engine]).await;
}

/// Sends a chunked chat with this body framing and something behind it, and reads the one answer.
async fn chunked(router: &TestRouter, body: &[u8]) -> RawResponse {
    let head = request_head("POST", CHAT, &["Transfer-Encoding: chunked"]);
    only_answer(router, [head.as_ref(), body, SMUGGLED.as_bytes()].concat()).await
}

#[tokio::test]
async fn b03_malformed_chunk_size_lines_are_refused_and_reach_no_engine() {
    let (engine, router) = rig().await;
    let lines: [&str; 19] = [
        "dzz\r\n",
        "0xd\r\n",
        "0_d\r\n",
        "+d\r\n",
        "-d\r\n",
        " d\r\n",
        "\td\r\n",
        "d ;ext=\"a\nb\"\r\n",
        "d;a=b\n",
        "\r\n",
        "d\n",
        "d\r",
        "d\r\r\n",
        "d\x0b\r\n",
        "d,\r\n",
        ";\r\n",
        "g\r\n",
        "\u{ff14}\r\n",
        "d\x00\r\n",
    ];
    for line in lines {
        let answer = chunked(&router, format!("{line}{{\"model\":\"m\"}}\r\n0\r\n\r\n").as_bytes()).await;
        Seen::h1(&answer).assert_error(400, "request_incomplete");
    }
    assert_eq!(engine.log.request_count(), 0);
    assert_eq!(router.access_lines().len(), lines.len());
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b03_chunk_extensions_and_trailers_are_taken_and_not_forwarded() {
    let (engine, router) = rig().await;
    let body = chat_body("m", false);
    let (a, b) = body.split_at(10);
    let wire = format!(
        "A;name=value;q=\"x;y\"\r\n{a}\r\n{:x} ; e\r\n{b}\r\n000;last\r\nX-Trailer: secret\r\n\r\n",
        b.len()
    );
    let mut client = router.client().await;
    let head = request_head("POST", CHAT, &["Transfer-Encoding: chunked", "Trailer: X-Trailer"]);
    let answer = client.request([head.as_ref(), wire.as_bytes()].concat()).await.unwrap();
    assert_eq!(answer.status(), 200);
    // The connection is still in step.
    assert_eq!(client.request(get("/health")).await.unwrap().status(), 200);
    client.close();
    let seen = &engine.log.requests()[0];
    assert_eq!((seen.raw_body.as_slice(), seen.body.as_slice()), (body.as_bytes(), body.as_bytes()));
    for absent in ["transfer-encoding", "trailer", "x-trailer"] {
        assert!(!seen.headers.has(absent), "{absent}");
    }
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b04_chunks_longer_than_their_size_and_sizes_beyond_any_integer_are_refused_at_once() {
    let (engine, router) = rig().await;
    let mut config = config_for(&[&engine]);
    config.limits.body = 1 << 20;
    let limited = TestRouter::start(config).await;
    let broken: [&[u8]; 6] = [
        b"5\r\nAAAAAXXX\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello\r0\r\n\r\n",
        b"10000000000000005\r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    ];
    let started = now();
    for body in broken {
        Seen::h1(&chunked(&router, body).await).assert_error(400, "request_incomplete");
    }
    // Sizes that fit an integer and no limit: what follows the size is not waited for.
    for size in ["80000000", "FFFFFFFF", "7FFFFFFFFFFFFFFF", "FFFFFFFFFFFFFFFF"] {
        let mut client = limited.client().await;
        let head = request_head("POST", CHAT, &["Transfer-Encoding: chunked"]);
        let part = [head.as_ref(), size.as_bytes(), b"\r\n", &vec![b'x'; (1 << 20) + 1]].concat();
        client.send(part).await.unwrap();
        let answer = client.read_response().await.unwrap();
        Seen::h1(&answer).assert_error(413, "request_too_large");
        assert_eq!(answer.header("connection"), Some("close"));
        client.close();
    }
    assert!(now() - started < Duration::from_secs(1));
    assert_eq!(engine.log.request_count(), 0);
    limited.assert_invariants(&[&engine]).await;
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn a_body_that_ends_early_is_refused_or_cancelled_and_reaches_no_engine() {
    let (engine, router) = rig().await;
    for lines in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        let mut client = router.client().await;
        let head = request_head("POST", CHAT, &[lines]);
        client.send([head.as_ref(), b"5\r\n{\"mod"].concat()).await.unwrap();
        client.shutdown_write().await.unwrap();
        // A client that closes its sending side has left; whether it still hears of it does not matter.
        match client.read_response().await {
            Ok(answer) => Seen::h1(&answer).assert_error(400, "request_incomplete"),
            Err(error) => assert!(matches!(error, ClientError::Ended { .. }), "{error}"),
        }
    }
    assert_eq!(engine.log.request_count(), 0);
    assert_eq!(router.access_lines().len(), 2);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b05_an_upgrade_is_never_proxied_and_hides_no_second_request() {
    let keys = keys_file();
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let mut config = config_for(&[&engine]);
    config.api_keys_file = Some(keys.path().to_owned());
    let router = TestRouter::start(config).await;
    let body = chat_body("m", false);
    for (count, upgrade) in
        ["h2c", "websocket", "foo", "h2c, websocket", "HTTP/2.0", "TLS/1.2"].iter().enumerate()
    {
        let upgrade = format!("Upgrade: {upgrade}");
        let lines = [
            "Connection: Upgrade, HTTP2-Settings, X-Hop",
            "X-Hop: mine",
            &upgrade,
            "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
            "Authorization: Bearer front-door-key-1",
        ];
        let mut client = router.client().await;
        let wire = [post(CHAT, &lines, &body), get("/v1/models"), get("/workers")].concat();
        client.send(wire).await.unwrap();
        let answer = client.read_response().await.unwrap();
        assert_eq!((answer.status(), answer.informational.len()), (200, 0), "{upgrade}");
        assert!(answer.header("upgrade").is_none());
        Seen::h1(&answer_of(&mut client).await).assert_error(401, "invalid_api_key");
        Seen::h1(&answer_of(&mut client).await).assert_error(404, "unknown_route");
        let requests = engine.log.requests();
        assert_eq!(requests.len(), count + 1);
        for absent in ["connection", "upgrade", "http2-settings", "x-hop"] {
            assert!(!requests[count].headers.has(absent), "{absent}");
        }
        assert_eq!(requests[count].body, body.as_bytes());
    }
    router.assert_invariants(&[&engine]).await;
}

async fn answer_of(client: &mut RawClient<TcpStream>) -> RawResponse {
    client.read_response().await.unwrap()
}
