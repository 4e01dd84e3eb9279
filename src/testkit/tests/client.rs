use std::time::Duration;

use crate::testkit::client::{BodyFraming, ClientError, RawClient};
use crate::testkit::engine::{Body, Engine, Response, Script, Step};
use crate::testkit::fixtures::{get, request_head};
use crate::testkit::memory::MemoryNet;
use crate::testkit::wire::PeerEnd;
use crate::testkit::wire::split::Split;
use bytes::Bytes;

/// Plays these bytes as the answer to one request, byte by byte, then closes.
async fn answer(wire: &[u8]) -> Result<crate::testkit::client::RawResponse, ClientError> {
    let steps = vec![Step::write_split(wire.to_vec(), Split::EveryByte), Step::Close];
    let engine = Engine::in_memory(&MemoryNet::new(), "e", Script::always(steps));
    RawClient::in_memory(engine.dial().await.unwrap()).request(get("/")).await
}

#[tokio::test]
async fn each_framing_is_read_to_its_own_end() {
    let bodies = [
        (Body::Full("abc".into()), BodyFraming::Length { declared: 3, received: 3 }),
        (
            Body::Chunked(vec!["ab".into(), "c".into()]),
            BodyFraming::Chunked { chunks: vec![2, 1], trailers: Vec::new() },
        ),
        (Body::CloseDelimited("abc".into()), BodyFraming::Close(PeerEnd::Fin)),
    ];
    for (body, framing) in bodies {
        let response = Response::new(200, body);
        let read = answer(&response.to_bytes()).await.unwrap();
        assert_eq!((read.text(), &read.framing, read.is_complete()), ("abc".into(), &framing, true));
        assert_eq!([read.head.raw, read.raw_body].concat(), response.to_bytes());
    }
    let bodiless = answer(&Response::new(204, Body::Empty).to_bytes()).await.unwrap();
    assert_eq!(bodiless.framing, BodyFraming::Empty);
}

#[tokio::test]
async fn malformed_answers_are_errors_and_never_guessed_at() {
    let malformed: [&[u8]; 6] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc0\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
    ];
    for wire in malformed {
        let read = answer(wire).await;
        assert!(matches!(read, Err(ClientError::Malformed(_))), "{read:?}");
    }
    assert!(matches!(answer(b"HTTP/1.1 200").await, Err(ClientError::Ended { end: PeerEnd::Fin, .. })));
}

#[tokio::test]
async fn a_head_request_has_no_body_and_the_connection_goes_on() {
    let script = Script::new(|request| {
        let body = if request.method == "HEAD" { Body::Empty } else { Body::Full("abc".into()) };
        let response = Response::new(200, body);
        let head = request.method == "HEAD";
        vec![Step::Respond(if head { response.header("content-length", "3") } else { response })]
    });
    let engine = Engine::in_memory(&MemoryNet::new(), "e", script);
    let mut client = RawClient::in_memory(engine.dial().await.unwrap());
    client.send(request_head("HEAD", "/", &[])).await.unwrap();
    let answer = client.read_head_response().await.unwrap();
    assert_eq!((answer.header("content-length"), &answer.framing), (Some("3"), &BodyFraming::Empty));
    assert_eq!(client.request(get("/")).await.unwrap().text(), "abc");
}

#[tokio::test]
async fn a_client_that_stops_reading_blocks_the_engine() {
    let body = Bytes::from(vec![b'x'; 32 << 20]);
    let engine = Engine::start_tcp(Script::always(Response::new(200, Body::Full(body)))).await;
    let mut client = RawClient::connect_small(engine.addr(), 8 * 1024).await;
    client.stop_reading();
    client.send(get("/")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let response = engine.log.requests()[0].response;
    assert!(response.written > 0 && response.written < 16 << 20, "{response:?}");
    assert_eq!(response.done_at, None);
    client.resume_reading();
    assert_eq!(client.read_response().await.unwrap().body.len(), 32 << 20);
    assert!(engine.log.requests()[0].response.done_at.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_given_up_on() {
    let engine = Engine::in_memory(&MemoryNet::new(), "e", Script::always(Step::Stall));
    let mut client = RawClient::in_memory(engine.dial().await.unwrap());
    assert!(matches!(client.request(get("/")).await, Err(ClientError::TimedOut(_))));
}
