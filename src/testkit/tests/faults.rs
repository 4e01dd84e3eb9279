//! FIN is seen as FIN and RST as RST, on both sides and both transports.

use std::time::Duration;

use crate::testkit::client::{BodyFraming, ClientError, RawClient};
use crate::testkit::engine::openai::{ChatStream, chat_json};
use crate::testkit::engine::{Engine, IntoSteps as _, Response, Script, Step};
use crate::testkit::fixtures::{chat_body, get, post_chat};
use crate::testkit::memory::{MemoryNet, MemoryStream};
use crate::testkit::wire::{PeerEnd, Wire};
use crate::types::clock::now;
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_secs(5);

fn stall() -> Script {
    Script::always(vec![Step::write("HTTP/1.1 200 OK\r\n\r\n"), Step::Stall])
}

/// Lets a client leave in the middle of an answer; how the engine saw it.
async fn leave<IO: Wire>(
    mut client: RawClient<IO>,
    reset: bool,
    log: &crate::testkit::engine::Log,
) -> PeerEnd {
    client.send(get("/")).await.unwrap();
    client.read_head().await.unwrap();
    let left = now();
    if reset {
        client.reset();
    } else {
        client.close();
    }
    let conn = log.conns().len() - 1;
    let (end, at) = log.wait_peer_left(conn, SOON).await;
    assert!(at >= left);
    log.wait_all_closed(SOON).await;
    assert_eq!(log.requests().last().unwrap().peer_left, Some((end, at)));
    end
}

#[tokio::test]
async fn the_engine_tells_a_client_that_closed_from_one_that_reset() {
    let tcp = Engine::start_tcp(stall()).await;
    let memory = Engine::in_memory(&MemoryNet::new(), "e", stall());
    for (reset, expected) in [(false, PeerEnd::Fin), (true, PeerEnd::Rst)] {
        let client = RawClient::<TcpStream>::connect(tcp.addr()).await;
        assert_eq!(leave(client, reset, &tcp.log).await, expected);
        let client = RawClient::<MemoryStream>::in_memory(memory.dial().await.unwrap());
        assert_eq!(leave(client, reset, &memory.log).await, expected);
    }
}

#[tokio::test]
async fn the_client_tells_an_engine_that_closed_from_one_that_reset() {
    for (step, expected) in [(Step::Close, PeerEnd::Fin), (Step::Reset, PeerEnd::Rst)] {
        let script = Script::always(vec![Step::write("HTTP/1.1 200 OK\r\n\r\npart"), step]);
        let tcp = Engine::start_tcp(script.clone()).await;
        let mut client = RawClient::connect(tcp.addr()).await;
        let answer = client.request(get("/")).await.unwrap();
        assert_eq!(answer.framing, BodyFraming::Close(expected));
        let memory = Engine::in_memory(&MemoryNet::new(), "e", script);
        let mut client = RawClient::in_memory(memory.dial().await.unwrap());
        let answer = client.request(get("/")).await.unwrap();
        assert_eq!(
            (answer.framing, answer.body.as_slice()),
            (BodyFraming::Close(expected), b"part".as_slice())
        );
    }
}

#[tokio::test]
async fn a_cut_stream_is_not_complete() {
    let cut = ChatStream::new(3).then(Step::Reset);
    let sent = cut.payload();
    let engine = Engine::start_tcp(Script::always(cut.into_steps())).await;
    let mut client = RawClient::connect(engine.addr()).await;
    let answer = client.request(post_chat(chat_body("m", true))).await.unwrap();
    assert_eq!(answer.framing, BodyFraming::ChunkedTruncated);
    assert!(!answer.is_complete());
    assert!(sent.starts_with(&answer.text()));
    assert!(!answer.events().iter().any(crate::testkit::sse::Event::is_done));

    engine.set_script(Script::always(vec![
        Step::write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
        Step::Close,
    ]));
    let answer = RawClient::connect(engine.addr()).await.request(get("/")).await.unwrap();
    assert_eq!(answer.framing, BodyFraming::Length { declared: 9, received: 4 });
    assert!(!answer.is_complete());
}

#[tokio::test]
async fn a_half_closed_client_ends_the_script_unless_tolerated() {
    for tolerate in [false, true] {
        let script =
            Script::always(vec![Step::Sleep(Duration::from_millis(50)), Step::Respond(chat_json("late"))]);
        let script = if tolerate { script.tolerate_half_close() } else { script };
        let engine = Engine::start_tcp(script).await;
        let mut client = RawClient::connect(engine.addr()).await;
        client.send(get("/")).await.unwrap();
        client.shutdown_write().await.unwrap();
        let answer = client.read_response().await;
        assert_eq!(answer.is_ok(), tolerate, "{answer:?}");
        assert_eq!(engine.log.conns()[0].peer_left.map(|(end, _)| end), Some(PeerEnd::Fin));
        assert_eq!(engine.log.requests()[0].response.done_at.is_some(), tolerate);
    }
}

#[tokio::test]
async fn the_engines_half_close_ends_the_answer_but_not_the_connection() {
    let steps = vec![Step::write("HTTP/1.1 200 OK\r\n\r\nall"), Step::HalfClose, Step::Stall];
    let engine = Engine::start_tcp(Script::always(steps)).await;
    let mut client = RawClient::connect(engine.addr()).await;
    let answer = client.request(get("/")).await.unwrap();
    assert_eq!((answer.text(), answer.is_complete()), ("all".into(), true));
    assert_eq!(engine.log.open_connections(), 1);
    client.close();
    assert_eq!(engine.log.wait_peer_left(0, SOON).await.0, PeerEnd::Fin);
}

#[tokio::test]
async fn an_engine_can_close_or_reset_an_idle_connection_at_its_next_turn() {
    for (step, expected) in [(Step::CloseBeforeReading, PeerEnd::Fin), (Step::ResetOnFirstByte, PeerEnd::Rst)]
    {
        let closes = expected == PeerEnd::Fin;
        let answers = vec![Response::text(200, "1").into_steps(), vec![step]];
        let engine = Engine::start_tcp(Script::queue(answers)).await;
        let mut client = RawClient::connect(engine.addr()).await;
        client.request(get("/")).await.unwrap();
        if !closes {
            client.send(get("/second")).await.unwrap();
        }
        let (_, end, _) = client.read_to_end().await.unwrap();
        assert_eq!(end, expected);
        engine.log.wait_all_closed(SOON).await;
        let conn = &engine.log.conns()[0];
        assert_eq!((conn.requests, conn.stray.is_empty()), (1, closes));
    }
}

#[tokio::test]
async fn refused_reset_and_stopped_engines_show_as_such() {
    let mut engine = Engine::start_tcp(Script::openai("m")).await;
    let mut first = RawClient::connect(engine.addr()).await;
    first.request(get("/health")).await.unwrap();
    engine.refuse().await;
    let refused = TcpStream::connect(engine.addr()).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    first.request(get("/health")).await.unwrap();
    engine.reset_connections();
    assert_eq!(first.read_to_end().await.unwrap().1, PeerEnd::Rst);
    engine.accept_again().await;
    let mut second = RawClient::connect(engine.addr()).await;
    second.request(get("/health")).await.unwrap();
    assert_eq!(engine.log.open_connections(), 1);
    engine.stop().await;
    assert_eq!(second.read_to_end().await.unwrap().1, PeerEnd::Fin);
    assert_eq!(engine.log.open_connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_black_holed_engine_answers_nothing_until_it_returns() {
    let engine = Engine::in_memory(&MemoryNet::new(), "e", Script::openai("m"));
    let mut client = RawClient::in_memory(engine.dial().await.unwrap());
    client.request(get("/health")).await.unwrap();
    engine.blackhole(true);
    client.limit = Duration::from_hours(1);
    assert!(matches!(client.request(get("/health")).await, Err(ClientError::TimedOut(_))));
    assert!(tokio::time::timeout(SOON, engine.dial()).await.is_err());
    assert_eq!(engine.log.request_count(), 1);
    engine.blackhole(false);
    assert_eq!(client.read_response().await.unwrap().status(), 200);
    engine.dial().await.unwrap();
}

#[tokio::test]
async fn a_connect_to_a_black_hole_never_completes() {
    let hole = Engine::black_hole().await;
    let connect = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(hole.addr));
    assert!(connect.await.is_err());
}

#[tokio::test]
#[should_panic(expected = "waited 50ms for 2 complete requests; the engine saw 1 requests, 1 connections")]
async fn waiting_in_vain_says_what_the_engine_saw() {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    RawClient::connect(engine.addr()).await.request(get("/health")).await.unwrap();
    engine.log.wait_for(2, Duration::from_millis(50)).await;
}
