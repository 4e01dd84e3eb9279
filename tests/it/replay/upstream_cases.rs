//! What the own HTTP/1.1 client must handle, seen from outside: the client's answer, the connection's fate, the books.

use bytes::Bytes;
use tandem::testkit::client::{BodyFraming, RawResponse};
use tandem::testkit::engine::openai::{ChatStream, chat_json, error};
use tandem::testkit::engine::{Body, IntoSteps, Response, Script, Step, informational};
use tandem::testkit::fixtures::{big_chat_body, get, post_chat, request_head};
use tandem::testkit::wire::chunked::LAST_CHUNK;
use tandem::types::clock::now;

use super::relay_rig::{
    BOTH, Memory, Protocol, Seen, last_line, legs, memory, ms, plain, secs, streamed, tcp,
};

fn always(steps: impl IntoSteps) -> Memory<1> {
    memory([Script::always(steps)], |_| {})
}

/// One answer; the client is closed and the invariants are checked.
async fn once(rig: &Memory<1>) -> RawResponse {
    let mut client = rig.h1().await;
    let answer = client.request(plain()).await.unwrap();
    client.close();
    rig.settle().await;
    answer
}

fn idle(rig: &Memory<1>) -> usize {
    rig.router.endpoints()[0].pool.len()
}

#[tokio::test(start_paused = true)]
async fn interim_answers_are_swallowed_and_a_storm_of_them_ends_the_leg() {
    let storm = |n: usize, tail: Step| {
        let mut steps: Vec<Step> = (0..n)
            .map(|n| informational([100, 102, 103, 199][n % 4], &["Link: </x>; rel=preload"]))
            .collect();
        steps.push(tail);
        steps
    };
    let rig = always(storm(16, Step::Respond(chat_json("after"))));
    let answer = once(&rig).await;
    assert_eq!((answer.status(), answer.informational.len()), (200, 0));
    assert_eq!((answer.header("link"), idle(&rig)), (None, 1));
    let rig = always(storm(17, Step::Respond(chat_json("after"))));
    let answer = once(&rig).await;
    assert_eq!((answer.status(), answer.json()["error"]["code"].as_str()), (502, Some("upstream_malformed")));
    assert_eq!((answer.header("x-should-retry"), idle(&rig)), (Some("false"), 0));
    // For ever, and in one write with the answer.
    let rig = always(storm(5000, Step::Stall));
    assert_eq!(once(&rig).await.status(), 502);
    let both = [b"HTTP/1.1 100 Continue\r\n\r\n".as_slice(), &chat_json("x").to_bytes()].concat();
    let rig = always(vec![Step::write(both)]);
    assert_eq!(once(&rig).await.body, chat_json("x").wire_body());
}

/// The engine refuses while 3 MB are on their way: its answer comes through, the upload stops, the connection goes.
#[tokio::test(start_paused = true)]
async fn an_early_answer_stops_the_upload_and_ends_the_connection() {
    let refusal = || error(413, "too long");
    for keep_reading in [false, true] {
        let answer = [Step::Respond(refusal()), Step::Sleep(secs(1)), Step::Close];
        let steps = [vec![Step::ReadNoBody { keep_reading }], answer.to_vec()].concat();
        let rig = memory([Script::always(steps).read_size(4096)], |_| {});
        let body = big_chat_body("m", false, 3 << 20);
        let mut client = rig.h1().await;
        let started = now();
        let answer = client.request(post_chat(&body)).await.unwrap();
        assert_eq!((answer.status(), answer.body.as_slice()), (413, refusal().wire_body().as_ref()));
        assert!(now() - started < secs(1), "not after the upload");
        assert_eq!(idle(&rig), 0, "half a request is on it");
        tokio::time::sleep(secs(2)).await;
        let request = &rig.engines[0].log.requests()[0];
        assert!(request.body.len() < 1 << 20, "{} bytes were sent on", request.body.len());
        assert_eq!(
            (last_line(&rig.router).0.as_str(), legs(&rig.router, "rejected")),
            ("upstream_rejected", 1)
        );
        client.close();
        rig.settle().await;
    }
}

/// The same on real sockets, where an engine that closes on unread bytes resets the connection behind its answer.
#[tokio::test]
async fn an_early_answer_survives_the_reset_behind_it() {
    let steps = vec![
        Step::ReadNoBody { keep_reading: false },
        Step::Respond(error(413, "too long").connection_close()),
    ];
    let ([engine], router) = tcp([Script::always(steps)], |_| {}).await;
    let body = post_chat(big_chat_body("m", false, 3 << 20));
    for _ in 0..10 {
        let mut client = router.client().await;
        let answer = client.request(&body).await.unwrap();
        assert_eq!((answer.status(), answer.json()["error"]["message"].as_str()), (413, Some("too long")));
        client.close();
    }
    router.assert_invariants(&[&engine]).await;
    assert_eq!(router.endpoints()[0].pool.len(), 0);
}

/// An early *stream*: the answer begins before the request is out, and goes on.
#[tokio::test(start_paused = true)]
async fn an_early_stream_is_relayed_to_its_end() {
    let stream = ChatStream::new(5).gap(ms(10));
    let payload = stream.payload();
    let steps = [
        vec![Step::ReadNoBody { keep_reading: false }, Step::StopReading],
        stream.into_steps(),
        vec![Step::Close],
    ];
    let rig = memory([Script::always(steps.concat())], |_| {});
    let mut client = rig.h1().await;
    let answer = client.request(post_chat(big_chat_body("m", true, 3 << 20))).await.unwrap();
    assert_eq!((answer.text(), answer.is_complete()), (payload, true));
    client.close();
    rig.settle().await;
    assert_eq!((last_line(&rig.router).0.as_str(), idle(&rig)), ("ok", 0));
}

#[tokio::test(start_paused = true)]
async fn answers_without_a_body_end_at_their_head_and_keep_the_connection() {
    let bare = |status: u16| Response::new(status, Body::Empty).header("x-engine", "1");
    let cases = [
        bare(204),
        bare(304).header("content-length", "500").header("etag", "\"x\""),
        Response::new(200, Body::Full(Bytes::new())),
        Response::new(200, Body::Chunked(vec![])),
        Response::new(205, Body::Full(Bytes::new())),
    ];
    for case in cases {
        let status = case.status;
        let rig = always(case.clone());
        let mut client = rig.h1().await;
        for _ in 0..2 {
            let answer = client.request(plain()).await.unwrap();
            assert_eq!((answer.status(), answer.body.len(), answer.is_complete()), (status, 0, true));
        }
        let mut h2 = rig.h2().await;
        let seen = Seen::h2(&mut h2).await;
        assert_eq!((seen.status, seen.complete), (status, true), "{case:?}");
        client.close();
        h2.abort();
        rig.settle().await;
        let outcomes: Vec<_> = rig.router.access_lines().iter().map(|l| l["outcome"].to_string()).collect();
        assert_eq!(outcomes, ["\"ok\"", "\"ok\"", "\"ok\""], "{case:?}");
        assert_eq!((legs(&rig.router, "ok"), legs(&rig.router, "cancelled")), (3, 0), "{case:?}");
        assert_eq!(
            (idle(&rig), rig.engines[0].log.conns().len()),
            (1, 1),
            "{case:?}: one connection for all"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn head_is_answered_without_a_body_and_with_the_engines_length() {
    let bodies = [
        Response::json(200, "").header("x-len", "stated"),
        Response::new(200, Body::Raw(Bytes::new())).header("content-length", "147"),
        Response::new(200, Body::Raw(Bytes::new())).header("transfer-encoding", "chunked"),
        Response::new(200, Body::Raw(Bytes::new())),
    ];
    for response in bodies {
        let length = response.headers.iter().find(|(n, _)| n == "content-length").map(|(_, v)| v.clone());
        let rig = always(response.clone());
        let mut client = rig.h1().await;
        for _ in 0..2 {
            client.send(request_head("HEAD", "/v1/models", &[])).await.unwrap();
            let answer = client.read_head_response().await.unwrap();
            assert_eq!(answer.status(), 200);
            if let Some(length) = &length {
                assert_eq!(answer.header("content-length"), Some(length.as_str()), "{response:?}");
            }
        }
        assert_eq!(client.request(get("/health")).await.unwrap().status(), 200, "in step: {response:?}");
        client.close();
        rig.settle().await;
        assert_eq!((legs(&rig.router, "ok"), idle(&rig)), (2, 1), "{response:?}");
        assert!(rig.router.access_lines().iter().all(|l| l["outcome"] == "ok"));
        assert_eq!(rig.engines[0].log.requests()[0].method, "HEAD");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_framed_by_close_is_relayed_and_its_connection_is_gone() {
    let body = Bytes::from("{\"framed\":\"by close\"}".repeat(500));
    let closes = [
        Response::new(200, Body::CloseDelimited(body.clone())).header("content-type", "application/json"),
        Response::new(200, Body::CloseDelimited(body.clone())).http10(),
        // A kept-alive promise does not help a body without an end.
        Response::new(200, Body::CloseDelimited(body.clone())).header("connection", "keep-alive"),
    ];
    for response in closes {
        for protocol in BOTH {
            let rig = always(response.clone());
            let seen = rig.stream(protocol).await;
            assert_eq!((seen.status, seen.body.as_slice(), seen.complete), (200, body.as_ref(), true));
            rig.settle().await;
            assert_eq!((idle(&rig), last_line(&rig.router).0.as_str()), (0, "ok"));
        }
    }
    // A reset is no end.
    let steps = vec![Step::write("HTTP/1.1 200 OK\r\n\r\nhalf"), Step::Sleep(ms(1)), Step::Reset];
    let rig = always(steps);
    let answer = once(&rig).await;
    assert_eq!((answer.framing.clone(), answer.text()), (BodyFraming::ChunkedTruncated, "half".into()));
    assert_eq!(last_line(&rig.router).0, "upstream_error");
}

#[tokio::test(start_paused = true)]
async fn http_1_0_engines_are_spoken_to_and_reused_only_when_they_say_so() {
    let ten =
        |headers: &str| vec![Step::write(format!("HTTP/1.0 200 OK\r\n{headers}content-length: 2\r\n\r\nok"))];
    for (headers, kept) in
        [("", 0), ("connection: keep-alive\r\n", 1), ("connection: keep-alive, close\r\n", 0)]
    {
        let rig = always(ten(headers));
        let answer = once(&rig).await;
        assert_eq!((answer.head.version.as_str(), answer.text().as_str()), ("HTTP/1.1", "ok"));
        assert_eq!(idle(&rig), kept, "{headers:?}");
    }
    // HTTP/1.0 has no chunks, so an answer that claims them is ambiguous.
    let chunked = "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    assert_eq!(once(&always(vec![Step::write(chunked)])).await.status(), 502);
    // A stream without any framing, as old servers send it.
    let sse = "HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let events = ChatStream::new(3).payload();
    let rig = always(vec![Step::write(sse), Step::Sleep(ms(5)), Step::write(events.clone()), Step::Close]);
    let seen = rig.stream(Protocol::H1).await;
    assert_eq!((String::from_utf8_lossy(&seen.body).as_ref(), seen.complete), (events.as_str(), true));
    rig.settle().await;
}

#[tokio::test(start_paused = true)]
async fn connection_close_is_believed() {
    let rig = always(chat_json("x").connection_close());
    let mut client = rig.h1().await;
    for _ in 0..2 {
        let answer = client.request(plain()).await.unwrap();
        assert_eq!(
            (answer.status(), answer.header("connection")),
            (200, None),
            "between us and the engine only"
        );
    }
    client.close();
    rig.settle().await;
    assert_eq!((idle(&rig), rig.engines[0].log.conns().len()), (0, 2));
}

/// Bytes behind a message would be the next client's answer.
#[tokio::test(start_paused = true)]
async fn bytes_behind_the_message_end_the_connection_and_reach_nobody() {
    let sized = chat_json("mine").to_bytes();
    let chunked =
        [&b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nmine\r\n"[..], LAST_CHUNK].concat();
    let empty = b"HTTP/1.1 204 No Content\r\n\r\n".to_vec();
    let refused = error(400, "mine").to_bytes();
    let extra = chat_json("another client's").to_bytes();
    for message in [sized.to_vec(), chunked, empty, refused.to_vec()] {
        for gap in [ms(0), ms(1)] {
            let steps = if gap.is_zero() {
                vec![Step::write([&message[..], &extra].concat())]
            } else {
                vec![Step::write(message.clone()), Step::Sleep(gap), Step::write(extra.clone())]
            };
            let rig = always(steps);
            let mut client = rig.h1().await;
            for _ in 0..3 {
                let answer = client.request(plain()).await.unwrap();
                assert!(!String::from_utf8_lossy(&answer.body).contains("another"), "{answer:?}");
                assert!(answer.is_complete());
                tokio::time::sleep(ms(10)).await;
            }
            client.close();
            rig.settle().await;
            assert_eq!(rig.engines[0].log.conns().len(), 3, "a new connection each time");
            assert_eq!(rig.engines[0].log.request_count(), 3);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_switch_of_protocols_that_nobody_asked_for_is_refused() {
    let upgrade = informational(101, &["Upgrade: websocket", "Connection: Upgrade"]);
    // Whatever follows belongs to the other protocol, also where it looks like an answer.
    for behind in [Step::write("raw bytes"), Step::Respond(chat_json("raw bytes"))] {
        let rig = always(vec![upgrade.clone(), behind, Step::Stall]);
        let answer = once(&rig).await;
        assert_eq!(
            (answer.status(), answer.json()["error"]["code"].as_str()),
            (502, Some("upstream_malformed"))
        );
        assert_eq!((answer.header("upgrade"), idle(&rig)), (None, 0));
        assert!(!answer.text().contains("raw bytes"));
    }
}

/// An engine that half-closes behind its answer has said all: the message counts, the connection does not.
#[tokio::test(start_paused = true)]
async fn an_engine_that_half_closes_behind_its_answer_is_not_reused() {
    let rig = always(vec![Step::Respond(chat_json("x")), Step::HalfClose, Step::Stall]);
    let mut client = rig.h1().await;
    for _ in 0..2 {
        assert_eq!(client.request(plain()).await.unwrap().status(), 200);
        tokio::time::sleep(ms(200)).await;
    }
    client.close();
    rig.settle().await;
    assert_eq!(rig.engines[0].log.conns().len(), 2);
}

/// Back-pressure: what a client does not take, its engine cannot send, and nothing is lost meanwhile.
#[tokio::test(start_paused = true)]
async fn a_slow_client_holds_its_engine_back_and_loses_nothing() {
    let body = Bytes::from(vec![b'z'; 4 << 20]);
    let answer =
        Response::new(200, Body::Full(body.clone())).header("content-type", "application/octet-stream");
    let rig = always(answer);
    let mut client = rig.h1().await;
    client.send(streamed()).await.unwrap();
    let head = client.read_head().await.unwrap();
    client.stop_reading();
    tokio::time::sleep(secs(20)).await;
    // 64 KiB in each pipe; the rest is hyper's write buffer, about half a megabyte.
    let sent = rig.engines[0].log.requests()[0].response.written;
    assert!(sent < 1 << 20, "{sent} bytes were taken in");
    client.resume_reading();
    let answer = client.read_rest(head).await.unwrap();
    assert!(answer.body == body);
    client.close();
    rig.settle().await;
}
