//! Clients that stay and stop reading: they lose their place after the write stall, and slow ones keep theirs.

use h2::client::Builder;
use tandem::testkit::client::H2Client;
use tandem::testkit::engine::openai::{ChatStream, chat_json};
use tandem::testkit::engine::{IntoSteps, Script, Step};
use tandem::testkit::eventually::{eventually, eventually_eq};
use tandem::testkit::fixtures::get;
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::FRONT;
use tandem::types::clock::now;

use super::relay_rig::{chat_h2, count, last_line, memory, memory_on, ms, secs, streamed};

/// So many events of 8 KiB without a pause.
fn flood(events: usize) -> Vec<Step> {
    ChatStream::of(vec!["x".repeat(8 * 1024); events]).into_steps()
}

/// As in the row: 50 clients, a limit of 50.
#[tokio::test(start_paused = true)]
async fn b31_clients_that_stop_reading_lose_their_place_after_the_write_stall() {
    let clients = 50u32;
    let rig = memory([Script::always(flood(100))], |config| {
        config.limits.in_flight = 50;
        config.timeouts.write_stall = Some(secs(3));
    });
    let log = &rig.engines[0].log;
    let mut stuck = Vec::new();
    for _ in 0..clients {
        let mut client = rig.h1().await;
        client.send(streamed()).await.unwrap();
        client.read_until(b"\n\n").await.unwrap();
        client.stop_reading();
        stuck.push(client);
    }
    tokio::time::sleep(secs(1)).await;
    // While it lasts: visible, refused politely, and the process is alive.
    assert_eq!(count(&rig.router, "tandem_requests_in_flight", &[]), 50);
    let mut other = rig.h1().await;
    let shed = other.request(streamed()).await.unwrap();
    assert_eq!((shed.status(), shed.header("retry-after")), (503, Some("1")));
    assert_eq!(shed.json()["error"]["code"], "server_overloaded");
    assert_eq!(other.request(get("/health")).await.unwrap().status(), 200);
    // The engine was held back: what it could not write it did not.
    let most = log.requests().iter().map(|r| r.response.written).max().unwrap();
    // 64 KiB in each pipe; the rest is hyper's write buffer, about half a megabyte.
    assert!(most < 700 * 1024, "{most} bytes of one stream were taken in for a client that reads nothing");

    tokio::time::sleep(secs(3)).await;
    eventually_eq(ms(100), "in flight", 0, || count(&rig.router, "tandem_requests_in_flight", &[])).await;
    log.wait_until(secs(1), "every leg to be dropped", |_, conns| {
        conns.iter().filter(|c| c.peer_left.is_some()).count() == 50
    })
    .await;
    let stalled = rig.router.access_lines().iter().filter(|l| l["error"] == "client_stalled").count();
    assert_eq!(stalled, 50);
    let answer = other.request(streamed()).await.unwrap();
    assert!(answer.is_complete(), "the places are free again");
    other.close();
    drop(stuck);
    rig.settle().await;
}

/// Flow control stalls one stream; its connection and the other streams on it are fine.
#[tokio::test(start_paused = true)]
async fn b31_an_h2_stream_that_is_not_read_is_reset_and_its_neighbours_live() {
    let script = Script::new(|request| {
        if request.json()["stream"] == true { flood(100) } else { chat_json("hello").into_steps() }
    });
    let rig = memory([script], |config| config.timeouts.write_stall = Some(secs(3)));
    let mut settings = Builder::new();
    settings.initial_window_size(32 * 1024).initial_connection_window_size(1 << 20);
    let mut client = H2Client::new(rig.net.dial(FRONT).await.unwrap(), &settings).await;
    let (request, body) = chat_h2(true);
    let mut stuck = client.start(request, Some(body)).await.unwrap();
    stuck.head().await.unwrap();
    let started = now();
    for _ in 0..5 {
        let (request, body) = chat_h2(false);
        let answer = client.request(request, body).await.unwrap();
        assert_eq!(answer.status, 200);
        tokio::time::sleep(ms(400)).await;
    }
    assert_eq!(client.frames.reset_of(stuck.stream), None, "too early");
    let code =
        eventually(secs(5), "the stream to be reset", || client.frames.reset_of(stuck.stream).ok_or(()))
            .await;
    let took = now() - started;
    assert!(took >= secs(3) && took < ms(3500), "{took:?}");
    assert_ne!(code, 0, "a reset without an error would look like success");
    assert_eq!(last_line(&rig.router), ("client_cancelled".to_owned(), "client_stalled".to_owned()));
    let (request, body) = chat_h2(false);
    assert_eq!(client.request(request, body).await.unwrap().status, 200);
    // Another stream of the connection, which its client gives up, is none that stalled.
    let (request, body) = chat_h2(true);
    let mut left = client.start(request, Some(body)).await.unwrap();
    left.head().await.unwrap();
    left.reset(h2::Reason::CANCEL);
    tokio::time::sleep(ms(100)).await;
    assert_eq!(last_line(&rig.router), ("client_cancelled".to_owned(), "client_left".to_owned()));
    drop(stuck);
    client.abort();
    rig.settle().await;
}

/// Slow is not stalled: a client that takes something within each limit keeps its stream.
#[tokio::test(start_paused = true)]
async fn b31_a_slow_reader_that_moves_is_never_cut() {
    let net = MemoryNet::new().with_buffer(4 * 1024);
    let rig = memory_on(net, [Script::always(flood(100))], |config| {
        config.timeouts.write_stall = Some(secs(3));
        config.timeouts.idle = Some(secs(5));
    });
    let mut client = rig.h1().await;
    client.send(streamed()).await.unwrap();
    let mut taken = 0;
    for _ in 0..40 {
        client.stop_reading();
        tokio::time::sleep(secs(2)).await;
        client.resume_reading();
        taken = client.unread().await.len();
        assert!(client.ended().await.is_none(), "cut after {taken} bytes");
    }
    assert!((40 * 4096..1_000_000).contains(&taken), "{taken} bytes");
    let rest = client.read_until(b"\r\n0\r\n\r\n").await;
    assert!(rest.is_ok(), "eighty slow seconds did not cut it");
    client.close();
    assert_eq!(last_line(&rig.router).0, "ok");
    rig.settle().await;
}
