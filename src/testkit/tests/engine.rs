use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use crate::testkit::client::RawClient;
use crate::testkit::engine::openai::{self, ChatStream, chat_json};
use crate::testkit::engine::{
    BodyState, Engine, EngineHandle, IntoSteps as _, Log, Response, Script, Step, serve_conn,
};
use crate::testkit::fixtures::{chat_body, get, post, post_chat, request_head};
use crate::testkit::memory::{MemoryNet, MemoryStream};
use crate::testkit::task::spawn;
use crate::testkit::wire::head::Framing;
use crate::testkit::wire::split::Split;
use crate::types::clock::now;

const SOON: Duration = Duration::from_secs(5);

async fn dialled(script: Script) -> (EngineHandle, RawClient<MemoryStream>) {
    let engine = Engine::in_memory(&MemoryNet::new(), "e", script);
    let client = RawClient::in_memory(engine.dial().await.unwrap());
    (engine, client)
}

#[tokio::test]
async fn exact_bytes_are_recorded_whatever_the_split() {
    let engine = Engine::start_tcp(Script::always(chat_json("hi"))).await;
    let chunked = "POST /a?q=%20 HTTP/1.1\r\nhOST:  x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked_body = "3;e=1\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n";
    let plain = post("/b", &["X-Odd: \u{e9}"], "body\r\n\r\n");
    let wire = [chunked.as_bytes(), chunked_body.as_bytes(), &plain].concat();
    for split in [Split::Whole, Split::EveryByte, Split::Random { seed: 5, max: 9 }] {
        let mut client = RawClient::connect(engine.addr()).await;
        client.send_split(&wire, &split, Duration::ZERO).await.unwrap();
        client.read_response().await.unwrap();
        client.read_response().await.unwrap();
    }
    let requests = engine.log.wait_for(6, SOON).await;
    for (n, pair) in requests.chunks(2).enumerate() {
        assert_eq!(pair[0].head, chunked.as_bytes());
        assert_eq!(pair[0].raw_body, chunked_body.as_bytes());
        assert_eq!((pair[0].body.as_slice(), pair[0].framing), (b"abcde".as_slice(), Framing::Chunked));
        assert_eq!([pair[1].head.as_slice(), &pair[1].body].concat(), plain);
        assert_eq!((pair[0].conn, pair[0].ordinal, pair[1].conn, pair[1].ordinal), (n, 0, n, 1));
        assert_eq!((pair[0].target.as_str(), pair[0].path()), ("/a?q=%20", "/a"));
    }
}

#[tokio::test]
async fn ambiguous_and_malformed_requests_are_refused_and_end_the_connection() {
    let bad: [&[u8]; 4] = [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5zz\r\nhello\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    for wire in bad {
        let (engine, mut client) = dialled(Script::always(chat_json("hi"))).await;
        client.send([wire, &get("/second")].concat()).await.unwrap();
        let answer = client.read_response().await.unwrap();
        assert_eq!(answer.status(), 400);
        client.read_to_end().await.unwrap();
        let requests = engine.log.requests();
        assert_eq!(requests.len(), 1);
        assert!(requests[0].malformed.is_some());
        assert_eq!(requests[0].body_state, BodyState::Malformed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_comes_event_by_event_on_the_paused_clock() {
    let gap = Duration::from_mins(1);
    let stream = ChatStream::new(3).gap(gap).usage();
    let (expected, events) = (stream.payload(), stream.events().len());
    let (_engine, mut client) = dialled(Script::always(stream.into_steps())).await;
    let started = now();
    let answer = client.request(post_chat(chat_body("m", true))).await.unwrap();
    assert_eq!(answer.text(), expected);
    assert!(answer.is_complete());
    assert!(answer.events().last().unwrap().is_done());
    // Sixty virtual seconds before each event, exactly.
    assert_eq!(now() - started, gap * u32::try_from(events).unwrap());
    assert_eq!(client.arrivals().len(), 1 + events);
}

#[tokio::test(start_paused = true)]
async fn splits_are_visible_as_separate_reads() {
    let wire = chat_json("split me").to_bytes();
    for (split, gap) in
        [(Split::EveryByte, Duration::ZERO), (Split::At(vec![3, 20]), Duration::from_millis(1))]
    {
        let pieces = split.pieces(wire.len());
        let step = Step::write_paced(wire.clone(), split, gap);
        let (_engine, mut client) = dialled(Script::always(step)).await;
        client.request(get("/")).await.unwrap();
        let totals: Vec<usize> =
            client.arrivals().iter().map(|(_, total)| usize::try_from(*total).unwrap()).collect();
        assert_eq!(totals, pieces.iter().map(|piece| piece.end).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn the_core_serves_a_bare_duplex_pipe() {
    let (near, far) = tokio::io::duplex(1024);
    let log = Log::new();
    let served = spawn(serve_conn(far, Script::openai("m"), log.clone()));
    let mut client = RawClient::new(near, SOON);
    let answer = client.request(get("/v1/models")).await.unwrap();
    assert_eq!(answer.json()["data"][0]["id"], "m");
    client.close();
    served.await.unwrap();
    assert_eq!((log.open_connections(), log.conns()[0].requests), (0, 1));
}

#[tokio::test]
async fn a_queue_is_played_in_order_then_its_default_and_paths_go_their_own_way() {
    let answers = vec![chat_json("1").into_steps(), Response::text(503, "busy").into_steps()];
    let script = Script::queue(answers).or_else(Script::openai("m")).on("/health", Response::text(200, "ok"));
    let (engine, mut client) = dialled(script).await;
    let mut statuses = Vec::new();
    for request in [post_chat(chat_body("m", false)), get("/health"), get("/x"), get("/v1/models"), get("/x")]
    {
        statuses.push(client.request(request).await.unwrap().status());
    }
    assert_eq!(statuses, [200, 200, 503, 200, 404]);
    engine.set_script(Script::always(Response::text(418, "new")));
    assert_eq!(client.request(get("/x")).await.unwrap().status(), 418);
    assert_eq!(engine.log.requests().len(), 6);
}

#[tokio::test]
async fn an_answer_can_come_before_the_body_is_read() {
    let early = |keep_reading| {
        let answer = Response::text(413, "too large").connection_close();
        vec![Step::ReadNoBody { keep_reading }, Step::Respond(answer)]
    };
    for keep_reading in [true, false] {
        let (engine, mut client) = dialled(Script::always(early(keep_reading))).await;
        client.send(request_head("POST", "/", &["Content-Length: 1000000"])).await.unwrap();
        assert_eq!(client.read_response().await.unwrap().status(), 413);
        engine.log.wait_all_closed(SOON).await;
        let request = &engine.log.requests()[0];
        assert_eq!(request.body_state, BodyState::Partial);
        assert!(request.response.done_at.is_some());
    }
}

#[tokio::test]
async fn an_engine_that_stops_reading_fills_the_window() {
    let script = Script::always(vec![Step::ReadNoBody { keep_reading: false }, Step::Stall]);
    let (engine, mut client) = dialled(script).await;
    client.limit = Duration::from_millis(200);
    client.send(request_head("POST", "/", &["Content-Length: 1000000"])).await.unwrap();
    engine.log.wait_for_heads(1, SOON).await;
    assert!(client.send(vec![b'x'; 1_000_000]).await.is_err());
    assert!(engine.log.requests()[0].body.is_empty());
}

#[tokio::test]
async fn interim_answers_upgrades_and_surplus_bytes_are_written_as_told() {
    let steps = vec![
        crate::testkit::engine::informational(103, &["Link: </a>"]),
        Step::Respond(Response::text(200, "ok")),
        Step::write("surplus"),
    ];
    let (_engine, mut client) = dialled(Script::always(steps)).await;
    let answer = client.request(get("/")).await.unwrap();
    assert_eq!((answer.informational[0].status, answer.status(), answer.text()), (103, 200, "ok".into()));
    assert_eq!(client.read_until(b"surplus").await.unwrap(), b"surplus");

    let switch = crate::testkit::engine::informational(101, &["Upgrade: x", "Connection: Upgrade"]);
    let (_engine, mut client) = dialled(Script::always(vec![switch, Step::write("raw"), Step::Stall])).await;
    assert_eq!(client.request(get("/")).await.unwrap().status(), 101);
    assert_eq!(client.read_until(b"raw").await.unwrap(), b"raw");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_its_keep_alive() {
    let (engine, mut client) = dialled(Script::openai("m").keep_alive(SOON)).await;
    client.request(get("/health")).await.unwrap();
    let started = now();
    let (bytes, end, at) = client.read_to_end().await.unwrap();
    assert_eq!((bytes.len(), end), (0, crate::testkit::wire::PeerEnd::Fin));
    assert_eq!(at - started, SOON);
    assert!(engine.log.conns()[0].peer_left.is_none());
}

#[tokio::test]
async fn a_recorded_answer_goes_out_byte_for_byte() {
    let bytes = b"HTTP/1.0 200 OK\nX: y\r\n\r\n\x00\xff";
    let (mut near, far) = MemoryStream::pair(1024);
    let script = Script::always(vec![openai::recorded(&bytes[..]), Step::Close]);
    spawn(serve_conn(far, script, Log::new()));
    near.write_all(&get("/")).await.unwrap();
    let (received, _, _) = RawClient::in_memory(near).read_to_end().await.unwrap();
    assert_eq!(received, bytes);
}
