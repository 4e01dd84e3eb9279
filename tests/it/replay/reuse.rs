//! The reuse race: the engine closes a waiting connection just as it is used.

use std::time::Duration;

use tandem::testkit::client::RawResponse;
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{IntoSteps, Script, Step};
use tandem::testkit::memory::DialFault;

use super::relay_rig::{ms, plain, tcp};
use super::retry::{good, retries, rig, seen};
use super::scale;

/// Lets one connection wait in the pool for `idle`, then sends on it; the engine does `second` with that request.
async fn reuse(second: Vec<Step>, idle: Duration, other: Script) -> (RawResponse, [usize; 2], u64) {
    let script = Script::queue(vec![chat_json("1").into_steps(), second]).or_else(good());
    let rig = rig([script, other], 2);
    rig.net.set_fault("e1", DialFault::Refuse);
    let mut client = rig.h1().await;
    assert_eq!(client.request(plain()).await.unwrap().status(), 200);
    tokio::time::sleep(idle).await;
    let answer = client.request(plain()).await.unwrap();
    client.close();
    rig.settle().await;
    (answer, seen(&rig), retries(&rig.router, "reuse_race"))
}

/// Idle for 100 ms, lost within 100 ms of our first byte, nothing answered: the engine never read it.
#[tokio::test(start_paused = true)]
async fn b35_only_the_reuse_race_is_repeated_on_the_same_engine() {
    let reset = || vec![Step::ResetOnFirstByte];
    let (answer, [_, _], raced) = reuse(reset(), ms(150), good()).await;
    assert_eq!((answer.status(), raced), (200, 1));
    // Too fresh to be an idle close.
    let (answer, _, raced) = reuse(reset(), ms(50), good()).await;
    assert_eq!((answer.status(), answer.header("x-should-retry"), raced), (502, Some("false"), 0));
    // Read, and lost much later: that was no race.
    let (answer, [n, _], raced) = reuse(vec![Step::Sleep(ms(150)), Step::Close], ms(150), good()).await;
    assert_eq!((answer.status(), n, raced), (502, 2, 0));
    // An answer had begun.
    let begun = vec![Step::write("HTTP/1.1 200 OK\r\ncont"), Step::Close];
    let (answer, _, raced) = reuse(begun, ms(150), good()).await;
    assert_eq!((answer.status(), answer.header("x-should-retry"), raced), (502, Some("false"), 0));
    // An idle close that was seen in time costs nothing at all.
    let (answer, [n, _], raced) = reuse(vec![Step::CloseBeforeReading], ms(150), good()).await;
    assert_eq!((answer.status(), n, raced), (200, 2, 0));
}

/// Two waiting connections that are both stale: the one new attempt must not meet the second.
#[tokio::test(start_paused = true)]
async fn b35_the_attempt_after_a_race_is_made_on_a_new_connection() {
    let slow = || vec![Step::Sleep(ms(10)), Step::Respond(chat_json("1"))];
    let stale = || vec![Step::ResetOnFirstByte];
    let answers = vec![slow(), slow(), slow(), stale(), stale(), stale()];
    let rig = rig([Script::queue(answers).or_else(good())], 1);
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = rig.h1().await;
        client.send(plain()).await.unwrap();
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.read_response().await.unwrap().status(), 200);
    }
    assert_eq!(rig.router.endpoints()[0].pool.len(), 3);
    tokio::time::sleep(ms(200)).await;
    assert_eq!(clients[0].request(plain()).await.unwrap().status(), 200);
    assert_eq!(retries(&rig.router, "reuse_race"), 1);
    drop(clients);
    rig.settle().await;
}

/// The race itself, on the kernel's terms. CI: 12 requests at a keep-alive of 120 ms; full: 500 ms for five minutes.
#[tokio::test]
async fn b35_an_engine_that_closes_as_the_connection_is_reused_costs_no_request() {
    let (keep_alive, requests) = scale((ms(120), 12), (ms(500), 600));
    let script = Script::openai("m").keep_alive(keep_alive);
    let ([engine], router) = tcp([script], |_| {}).await;
    let mut client = router.client().await;
    let mut random = fastrand::Rng::with_seed(7);
    for n in 0..requests {
        let answer = client.request(plain()).await.unwrap();
        assert_eq!(answer.status(), 200, "request {n}: {}", answer.text());
        let jitter = Duration::from_micros(random.u64(0..2000));
        tokio::time::sleep(keep_alive.saturating_sub(ms(1)) + jitter).await;
    }
    client.close();
    router.assert_invariants(&[&engine]).await;
    assert_eq!(engine.log.request_count(), requests, "none was run twice");
}

/// On a real socket the engine's silent reset meets the written request.
#[tokio::test]
async fn b35_a_reset_on_reuse_is_repeated_and_run_once() {
    let answers = vec![chat_json("1").into_steps(), vec![Step::ResetOnFirstByte]];
    let ([engine], router) = tcp([Script::queue(answers).or_else(good())], |_| {}).await;
    let mut client = router.client().await;
    assert_eq!(client.request(plain()).await.unwrap().status(), 200);
    tokio::time::sleep(ms(130)).await;
    assert_eq!(client.request(plain()).await.unwrap().status(), 200);
    client.close();
    router.assert_invariants(&[&engine]).await;
    assert_eq!((engine.log.request_count(), retries(&router, "reuse_race")), (2, 1));
}
