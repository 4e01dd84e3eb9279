//! Clients that leave or half-close: noticed at once, everything released, nobody blamed.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use tandem::testkit::client::{H2Client, RawClient};
use tandem::testkit::engine::openai::{chat_json, content_event, sse_head};
use tandem::testkit::engine::{Log, Script, Step};
use tandem::testkit::eventually::eventually_eq;
use tandem::testkit::fixtures::{big_chat_body, get, post_chat};
use tandem::testkit::memory::{DialFault, MemoryNet};
use tandem::testkit::router::{TestRouter, config};
use tandem::testkit::wire::chunked::chunk;
use tandem::testkit::wire::split::Split;
use tandem::testkit::wire::{PeerEnd, Wire};
use tandem::types::clock::{Instant, now};

use super::relay_rig::{SOON, chat_h2, count, last_line, legs, memory, ms, plain, secs, streamed, tcp};
use super::scale;

/// The bound of the issue, in virtual time; the product needs none of it.
const NOTICED: Duration = Duration::from_millis(100);

/// Where the request stands when its client leaves.
#[derive(Debug, Clone, Copy)]
enum Point {
    BeforeHead,
    InStream,
    /// In an error body that is being gathered.
    InErrorBody,
}

const POINTS: [Point; 3] = [Point::BeforeHead, Point::InStream, Point::InErrorBody];

fn silent(point: Point) -> Script {
    let start = match point {
        Point::BeforeHead => vec![],
        Point::InStream => vec![Step::Write(sse_head()), Step::Write(chunk(content_event("t").as_bytes()))],
        Point::InErrorBody => vec![Step::write("HTTP/1.1 500 x\r\ncontent-length: 9\r\n\r\nhalf")],
    };
    Script::always([start, vec![Step::Stall]].concat())
}

#[derive(Debug, Clone, Copy)]
enum Leave {
    Fin,
    Rst,
    H2Reset,
    /// The connection of an HTTP/2 client goes, with no word about the stream.
    H2Gone,
}

const WAYS: [Leave; 4] = [Leave::Fin, Leave::Rst, Leave::H2Reset, Leave::H2Gone];

/// Sends a request, waits until the engine is silent on it, leaves; when.
async fn leave_h1<IO: Wire>(mut client: RawClient<IO>, point: Point, reset: bool, log: &Log) -> Instant {
    client.send(streamed()).await.unwrap();
    let requests = log.conns().iter().map(|c| c.requests).sum::<usize>();
    log.wait_for(requests.max(1), SOON).await;
    if matches!(point, Point::InStream) {
        client.read_until(b"\"t\"").await.unwrap();
    }
    tokio::time::sleep(ms(20)).await;
    let left = now();
    if reset {
        client.reset();
    } else {
        client.close();
    }
    left
}

async fn leave_h2(mut client: H2Client, point: Point, gone: bool, log: &Log) -> Instant {
    let (request, body) = chat_h2(true);
    let mut stream = client.start(request, Some(body)).await.unwrap();
    log.wait_for(1, SOON).await;
    if matches!(point, Point::InStream) {
        stream.head().await.unwrap();
        stream.data().await.unwrap().unwrap();
    }
    tokio::time::sleep(ms(20)).await;
    let left = now();
    if gone {
        client.abort();
    } else {
        stream.reset(Reason::CANCEL);
        // The connection lives on: only the stream was given up.
        tokio::time::sleep(ms(1)).await;
        std::mem::forget(client);
    }
    left
}

fn assert_cancelled(router: &TestRouter, what: &str) {
    let left = ("client_cancelled".to_owned(), "client_left".to_owned());
    assert_eq!(last_line(router), left, "{what}");
    assert_eq!((legs(router, "cancelled"), legs(router, "error")), (1, 0), "nobody is blamed: {what}");
    assert_eq!(count(router, "tandem_endpoint_ejections_total", &[]), 0, "{what}");
}

#[tokio::test(start_paused = true)]
async fn b26_a_client_that_leaves_a_silent_engine_is_noticed_within_100_ms() {
    for (way, point) in WAYS.into_iter().flat_map(|way| POINTS.map(|point| (way, point))) {
        let what = format!("{way:?} {point:?}");
        let rig = memory([silent(point)], |_| {});
        let log = &rig.engines[0].log;
        let left = match way {
            Leave::Fin | Leave::Rst => leave_h1(rig.h1().await, point, matches!(way, Leave::Rst), log).await,
            Leave::H2Reset | Leave::H2Gone => {
                leave_h2(rig.h2().await, point, matches!(way, Leave::H2Gone), log).await
            }
        };
        let (_, at) = log.wait_peer_left(0, secs(60)).await;
        assert!(at - left <= NOTICED, "{what}: {:?}", at - left);
        assert_eq!(rig.router.endpoints()[0].holds(), 0, "{what}");
        eventually_eq(ms(100), "outcomes", 1, || count(&rig.router, "tandem_requests_total", &[])).await;
        assert_cancelled(&rig.router, &what);
        if !matches!(way, Leave::H2Reset) {
            rig.settle().await;
        }
    }
}

/// The same on real sockets, where the row's own second is the bound: this machine may be busy.
#[tokio::test]
async fn b26_the_kernel_tells_of_a_client_that_left() {
    for (way, point) in WAYS.into_iter().flat_map(|way| POINTS.map(|point| (way, point))) {
        let what = format!("{way:?} {point:?}");
        let ([engine], router) = tcp([silent(point)], |_| {}).await;
        let left = match way {
            Leave::Fin | Leave::Rst => {
                leave_h1(router.client().await, point, matches!(way, Leave::Rst), &engine.log).await
            }
            Leave::H2Reset | Leave::H2Gone => {
                leave_h2(router.h2_client().await, point, matches!(way, Leave::H2Gone), &engine.log).await
            }
        };
        let (_, at) = engine.log.wait_peer_left(0, SOON).await;
        assert!(at - left <= secs(1), "{what}: {:?}", at - left);
        eventually_eq(secs(1), "outcomes", 1, || count(&router, "tandem_requests_total", &[])).await;
        assert_cancelled(&router, &what);
        if !matches!(way, Leave::H2Reset) {
            router.assert_invariants(&[&engine]).await;
        }
    }
}

/// Bytes behind the request (a pipelined one, or the stray CRLF of old clients) must not hide that the client left.
#[tokio::test(start_paused = true)]
async fn b26_a_client_that_sent_more_and_left_is_noticed_too() {
    for behind in [Bytes::from_static(b"\r\n"), streamed(), get("/health"), vec![b'x'; 30_000].into()] {
        for point in POINTS {
            for reset in [false, true] {
                let rig = memory([silent(point)], |_| {});
                let mut client = rig.h1().await;
                client.send([streamed(), behind.clone()].concat()).await.unwrap();
                let log = &rig.engines[0].log;
                log.wait_for(1, SOON).await;
                tokio::time::sleep(ms(20)).await;
                let left = now();
                if reset {
                    client.reset();
                } else {
                    client.close();
                }
                let (_, at) = log.wait_peer_left(0, secs(60)).await;
                assert!(at - left <= NOTICED, "{point:?} reset {reset} behind {behind:?}: {:?}", at - left);
                rig.settle().await;
                assert_eq!(log.request_count(), 1, "a request whose client has left is not begun");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b26_a_client_that_leaves_while_an_engine_is_dialled_or_uploaded_to_is_noticed() {
    // The dial never completes.
    let net = MemoryNet::new();
    net.set_fault("e0:80", DialFault::BlackHole);
    let mut never = config(&["e0:80".to_owned()]);
    never.timeouts.connect = None;
    let router = TestRouter::in_memory(never, &net);
    let mut client = router.memory_client().await;
    client.send(plain()).await.unwrap();
    eventually_eq(SOON, "dials", 1, || net.dials("e0:80")).await;
    client.close();
    eventually_eq(NOTICED, "outcomes", 1, || count(&router, "tandem_requests_total", &[])).await;
    assert_cancelled(&router, "dial");
    router.assert_invariants(&[]).await;

    // The engine takes nothing.
    let body = big_chat_body("m", false, 1 << 20);
    let stuck = Script::always(vec![
        Step::ReadNoBody { keep_reading: false },
        Step::StopReading,
        Step::Sleep(secs(25)),
    ]);
    let rig = memory([stuck], |_| {});
    let mut client = rig.h1().await;
    client.send(post_chat(body)).await.unwrap();
    rig.engines[0].log.wait_for_heads(1, SOON).await;
    client.close();
    eventually_eq(NOTICED, "outcomes", 1, || count(&rig.router, "tandem_requests_total", &[])).await;
    assert_cancelled(&rig.router, "upload");
    tokio::time::sleep(secs(30)).await;
    rig.settle().await;
}

/// A client that leaves before its body is whole never reaches an engine.
#[tokio::test(start_paused = true)]
async fn b26_a_client_that_leaves_inside_its_body_reaches_no_engine() {
    for reset in [false, true] {
        let rig = memory([Script::openai("m")], |_| {});
        let mut client = rig.h1().await;
        let whole = plain();
        client.send(&whole[..whole.len() - 5]).await.unwrap();
        tokio::time::sleep(ms(10)).await;
        if reset {
            client.reset();
        } else {
            client.close();
        }
        eventually_eq(NOTICED, "outcomes", 1, || count(&rig.router, "tandem_requests_total", &[])).await;
        rig.settle().await;
        assert_eq!(rig.engines[0].log.request_count(), 0);
    }
}

/// The documented choice: a client that closes its sending side has left.
#[tokio::test(start_paused = true)]
async fn b33_a_half_closed_client_has_left() {
    for point in POINTS {
        let rig = memory([silent(point)], |_| {});
        let mut client = rig.h1().await;
        client.send(streamed()).await.unwrap();
        rig.engines[0].log.wait_for(1, SOON).await;
        tokio::time::sleep(ms(20)).await;
        let left = now();
        client.shutdown_write().await.unwrap();
        let (_, at) = rig.engines[0].log.wait_peer_left(0, secs(60)).await;
        assert!(at - left <= NOTICED, "{point:?}");
        // The router lets go of the connection as well: nothing waits for a client that will say no more.
        let (bytes, end, at) = client.read_to_end().await.unwrap();
        assert_eq!(end, PeerEnd::Fin);
        assert!(at - left <= NOTICED);
        assert!(!String::from_utf8_lossy(&bytes).contains("0\r\n\r\n"), "not a complete answer");
        assert_cancelled(&rig.router, &format!("{point:?}"));
        client.close();
        rig.settle().await;
    }
}

/// Together with its request, as `nc -N` does, and on a real socket.
#[tokio::test]
async fn b33_a_half_close_right_behind_the_request_leaks_nothing() {
    let ([engine], router) = tcp([silent(Point::BeforeHead)], |_| {}).await;
    for _ in 0..scale(20, 1000) {
        let mut client = router.client().await;
        client.send(streamed()).await.unwrap();
        client.shutdown_write().await.unwrap();
        let (bytes, _, _) = client.read_to_end().await.unwrap();
        assert!(bytes.is_empty());
    }
    router.assert_invariants(&[&engine]).await;
    assert!(router.access_lines().iter().all(|l| l["outcome"] == "client_cancelled"));
}

/// What was read ahead while looking for the client's end is the next request, not lost and not reordered.
#[tokio::test(start_paused = true)]
async fn b26_pipelined_requests_are_answered_in_order_however_they_arrive() {
    let script = Script::new(|request| {
        let n = request.json()["n"].to_string();
        vec![Step::Sleep(ms(50)), Step::Respond(chat_json(&n))]
    });
    let one = |n: usize| {
        let pad = "p".repeat(n * 700);
        post_chat(format!(r#"{{"model":"m","n":{n},"pad":"{pad}","messages":[]}}"#))
    };
    let all: Vec<u8> = (0..12).map(one).collect::<Vec<_>>().concat();
    for seed in 0..scale(8, 200) {
        let rig = memory([script.clone()], |_| {});
        let mut client = rig.h1().await;
        client.send_split(&all, &Split::Random { seed, max: 9000 }, ms(seed % 3)).await.unwrap();
        for n in 0..12 {
            let answer = client.read_response().await.unwrap();
            assert_eq!(answer.json()["choices"][0]["message"]["content"], n.to_string(), "seed {seed}");
        }
        client.close();
        rig.settle().await;
    }
}
