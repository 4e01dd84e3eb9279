//! What engines answer, and how it is framed on the way to the client.

use bytes::Bytes;
use tandem::testkit::client::BodyEnd;
use tandem::testkit::engine::openai::{ChatStream, chat_json};
use tandem::testkit::engine::{Body, Engine, EngineHandle, IntoSteps as _, Response, Script, Step};
use tandem::testkit::fixtures::{chat_body, post, post_chat};
use tandem::testkit::openai::run;
use tandem::testkit::router::{TestRouter, config_for};

use super::ask::{BOTH, CHAT, Seen, ask, h2_request};

async fn rig(script: Script) -> (EngineHandle, TestRouter) {
    let engine = Engine::start_tcp(script).await;
    let router = TestRouter::start(config_for(&[&engine])).await;
    (engine, router)
}

#[tokio::test]
async fn b07_an_error_to_a_streaming_chat_arrives_whole_and_in_one_framing() {
    let json = r#"{"error":{"message":"max_tokens too large","code":400}}  "#;
    assert_eq!(json.len(), 57);
    let (engine, router) = rig(Script::always(Response::json(400, json))).await;
    let chunked = Response::new(400, Body::Chunked(vec![json[..20].into(), json[20..].into()]))
        .header("content-type", "application/json");
    let closed =
        Response::new(400, Body::CloseDelimited(json.into())).header("content-type", "application/json");
    for answer in [Response::json(400, json), chunked, closed] {
        engine.set_script(Script::always(answer));
        for protocol in BOTH {
            let seen = ask(&router, protocol, "POST", CHAT, &[], chat_body("m", true)).await;
            assert_eq!((seen.status, seen.body.as_slice()), (400, json.as_bytes()));
            assert_eq!(seen.header("content-length"), Some("57"));
            assert_eq!(seen.header("transfer-encoding"), None);
        }
    }
    // A text that is wrapped grows: its old length must not stay.
    engine.set_script(Script::always(Response::text(400, "prompt too long")));
    for protocol in BOTH {
        let seen = ask(&router, protocol, "POST", CHAT, &[], chat_body("m", true)).await;
        seen.assert_error(400, "upstream_error");
        assert_eq!(seen.json()["error"]["message"], "prompt too long");
    }
    router.assert_invariants(&[&engine]).await;
}

/// Answers whose end is a matter of opinion.
const AMBIGUOUS: [&str; 12] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Length: 12\r\n\r\n0123456789ab",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello",
    "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
];

#[tokio::test]
async fn b09_an_ambiguous_answer_is_a_502_blamed_on_its_engine_and_its_connection_is_not_reused() {
    let (engine, router) = rig(Script::openai("m")).await;
    for protocol in BOTH {
        for answer in AMBIGUOUS {
            engine.set_script(Script::always(vec![Step::write(answer), Step::Stall]));
            let seen = ask(&router, protocol, "POST", CHAT, &[], chat_body("m", false)).await;
            seen.assert_error(502, "upstream_malformed");
            // The engine had the whole request: whether it was executed is not known.
            assert_eq!(seen.header("x-should-retry"), Some("false"));
        }
    }
    let bad = 2 * AMBIGUOUS.len();
    assert_eq!(
        (engine.log.request_count(), engine.log.conns().len()),
        (bad, bad),
        "one connection each, no retry"
    );
    engine.set_script(Script::openai("m"));
    let seen = ask(&router, BOTH[0], "POST", CHAT, &[], chat_body("m", false)).await;
    assert_eq!(seen.status, 200);
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let bad = bad as f64;
    let scrape = router.scrape();
    let close = |name, labels: &[(&str, &str)], wanted: f64| (scrape.sum(name, labels) - wanted).abs() < 0.5;
    assert!(close("tandem_upstream_legs_total", &[("outcome", "error")], bad));
    assert!(close("tandem_endpoint_requests_total", &[("outcome", "error")], bad));
    assert!(close("tandem_requests_total", &[("outcome", "upstream_error")], bad));
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b09_an_answer_shorter_than_its_length_is_a_cut_transfer() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let length = format!("{head}Content-Length: 50\r\n\r\n{{\"id\":");
    let chunks = format!("{head}Transfer-Encoding: chunked\r\n\r\n6\r\n{{\"id\":\r\n");
    let (engine, router) = rig(Script::openai("m")).await;
    let mut count = 0;
    for wire in [length, chunks] {
        for end in [Step::Close, Step::Reset] {
            engine.set_script(Script::always(vec![Step::write(wire.clone()), end]));
            let mut client = router.client().await;
            let answer = client.request(post_chat(chat_body("m", false))).await.unwrap();
            assert_eq!(
                (answer.status(), answer.text().as_str(), answer.is_complete()),
                (200, "{\"id\":", false)
            );
            client.close();
            let mut client = router.h2_client().await;
            let chat = Bytes::from(chat_body("m", false));
            let answer = client.request(h2_request("POST", CHAT, &[]), chat).await.unwrap();
            assert_eq!((answer.status.as_u16(), answer.body.as_slice()), (200, b"{\"id\":".as_slice()));
            assert!(matches!(answer.end, BodyEnd::Reset(_)), "{answer:?}");
            count += 2;
        }
    }
    assert_eq!((engine.log.request_count(), engine.log.conns().len()), (count, count), "no reuse, no retry");
    for line in router.access_lines() {
        assert_eq!(
            (&line["outcome"], &line["error"]),
            (&"upstream_error".into(), &"upstream_lost".into()),
            "{line}"
        );
    }
    engine.set_script(Script::openai("m"));
    assert_eq!(ask(&router, BOTH[1], "POST", CHAT, &[], chat_body("m", false)).await.status, 200);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b12_a_compressed_answer_passes_with_its_coding_byte_for_byte() {
    let script = Script::new(|request| {
        assert_eq!(request.headers.get("accept-encoding"), Some("gzip, br"));
        if request.json()["stream"] == true {
            let stream = ChatStream::new(3).payload();
            let pieces = gzip(stream.as_bytes()).chunks(7).map(Bytes::copy_from_slice).collect();
            let answer =
                Response::new(200, Body::Chunked(pieces)).header("content-type", "text/event-stream");
            return answer.header("content-encoding", "gzip").header("vary", "Accept-Encoding").into_steps();
        }
        zipped(&chat_json("秋水")).into_steps()
    });
    let (engine, router) = rig(script).await;
    let stream = gzip(ChatStream::new(3).payload().as_bytes());
    let whole = zipped(&chat_json("秋水"));
    for protocol in BOTH {
        let accepts = ["Accept-Encoding: gzip, br"];
        let seen = ask(&router, protocol, "POST", CHAT, &accepts, chat_body("m", false)).await;
        assert_eq!(seen.body, whole.wire_body());
        assert_eq!(seen.header("content-length"), Some(seen.body.len().to_string().as_str()));
        assert_eq!(
            (seen.header("content-encoding"), seen.header("vary")),
            (Some("gzip"), Some("Accept-Encoding"))
        );
        let seen = ask(&router, protocol, "POST", CHAT, &accepts, chat_body("m", true)).await;
        assert_eq!(seen.body, stream);
        assert_eq!((seen.header("content-encoding"), seen.header("content-length")), (Some("gzip"), None));
    }
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b12_a_compressed_error_keeps_its_coding_and_is_not_wrapped() {
    let text = gzip(b"prompt too long");
    let answer = Response::text(400, text.clone()).header("content-encoding", "gzip");
    let (engine, router) = rig(Script::always(answer)).await;
    for protocol in BOTH {
        let seen =
            ask(&router, protocol, "POST", CHAT, &["Accept-Encoding: gzip"], chat_body("m", false)).await;
        assert_eq!((seen.status, &seen.body), (400, &text));
        assert_eq!(
            (seen.header("content-encoding"), seen.header("content-type")),
            (Some("gzip"), Some("text/plain"))
        );
    }
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b12_the_openai_client_reads_a_compressed_answer() {
    let (engine, router) = rig(Script::new(|request| {
        assert!(request.headers.get("accept-encoding").is_some_and(|v| v.contains("gzip")));
        zipped(&chat_json("秋水 🌍")).into_steps()
    }))
    .await;
    let seen = run(&format!("{}/v1", router.url()), &["chat"]).await;
    assert_eq!(seen["chat"]["text"], "秋水 🌍");
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn answers_on_one_connection_keep_to_their_own_framing() {
    let json = Response::json(200, r#"{"a":1}"#);
    let chunked = Response::new(200, Body::Chunked(vec!["{\"b\"".into(), ":2}".into()]));
    let closed = Response::new(200, Body::CloseDelimited("{\"c\":3}".into()));
    let none = Response::new(204, Body::Empty);
    let answers = [json, chunked, closed, none].map(Response::into_steps);
    let (engine, router) = rig(Script::queue(answers.to_vec())).await;
    let mut client = router.client().await;
    let request = post(CHAT, &[], chat_body("m", false));
    let mut texts = Vec::new();
    for _ in 0..4 {
        let answer = client.request(&request).await.unwrap();
        let (length, coding) = (answer.header("content-length"), answer.header("transfer-encoding"));
        assert!(length.is_none() || coding.is_none(), "{answer:?}");
        texts.push((Seen::h1(&answer).status, answer.text()));
    }
    let expected = [(200, "{\"a\":1}"), (200, "{\"b\":2}"), (200, "{\"c\":3}"), (204, "")];
    assert_eq!(texts, expected.map(|(status, text)| (status, text.to_owned())));
    client.close();
    router.assert_invariants(&[&engine]).await;
}

fn zipped(answer: &Response) -> Response {
    Response::json(200, gzip(&answer.wire_body()))
        .header("content-encoding", "gzip")
        .header("vary", "Accept-Encoding")
}

/// A gzip file (RFC 1952) of one stored block.
fn gzip(data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1];
    file.extend(length.to_le_bytes());
    file.extend((!length).to_le_bytes());
    file.extend(data);
    let crc = data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    });
    file.extend((!crc).to_le_bytes());
    file.extend(u32::from(length).to_le_bytes());
    file
}
