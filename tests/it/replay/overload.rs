//! The two bounds that shed load: buffered request bytes and requests in flight.

use std::time::Duration;

use bytes::Bytes;
use h2::client::Builder;
use tandem::testkit::client::{H2Client, RawClient};
use tandem::testkit::engine::openai::ChatStream;
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps as _, Script, Step};
use tandem::testkit::fixtures::{big_chat_body, chat_body, get, post_chat, request_head};
use tandem::testkit::memory::{MemoryNet, MemoryStream};
use tandem::testkit::router::{FRONT, TestRouter, config, config_for};
use tandem::testkit::wire::chunked::chunk;

use super::ask::{BOTH, CHAT, Seen, ask, h2_request};

const KIB: usize = 1 << 10;
const SECOND: Duration = Duration::from_secs(1);

#[track_caller]
fn assert_shed(seen: &Seen, code: &str) {
    seen.assert_error(503, code);
    assert_eq!(seen.header("retry-after"), Some("1"));
    // Nothing was executed: the client may repeat.
    assert_eq!(seen.header("x-should-retry"), None);
}

#[tokio::test]
async fn a_body_over_the_buffer_budget_is_shed_however_it_announces_itself() {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let mut config = config_for(&[&engine]);
    config.limits.buffered_bytes = Some(64 * KIB as u64);
    let router = TestRouter::start(config).await;
    let body = big_chat_body("m", false, 64 * KIB + 1);
    for protocol in BOTH {
        let seen = ask(&router, protocol, "POST", CHAT, &[], &body).await;
        assert_shed(&seen, "buffer_exhausted");
        let fits = big_chat_body("m", false, 64 * KIB);
        assert_eq!(ask(&router, protocol, "POST", CHAT, &[], &fits).await.status, 200);
    }
    let mut client = router.client().await;
    let head = request_head("POST", CHAT, &["Transfer-Encoding: chunked"]);
    client.send([head.as_ref(), &chunk(body.as_bytes())].concat()).await.unwrap();
    assert_shed(&Seen::h1(&client.read_response().await.unwrap()), "buffer_exhausted");
    client.close();
    let mut client = router.h2_client().await;
    let answer = client.request(h2_request("POST", CHAT, &[]), body.into()).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.headers["retry-after"].as_bytes()), (503, b"1".as_slice()));
    client.abort();
    assert_eq!(engine.log.request_count(), 2);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test(start_paused = true)]
async fn the_buffer_budget_is_one_for_all_requests_and_free_again_at_the_answers_head() {
    let net = MemoryNet::new();
    // The head after a second, the stream's end after many.
    let slow = ChatStream::new(3).gap(10 * SECOND).into_steps();
    let engine = Engine::in_memory(&net, "e1", Script::always([vec![Step::Sleep(SECOND)], slow].concat()));
    let mut config = config(&["e1:80".to_owned()]);
    config.limits.buffered_bytes = Some(64 * KIB as u64);
    let router = TestRouter::in_memory(config, &net);
    let mut first = router.memory_client().await;
    first.send(post_chat(big_chat_body("m", true, 40 * KIB))).await.unwrap();
    engine.log.wait_for(1, SECOND).await;
    let mut second = router.memory_client().await;
    let refused = second.request(post_chat(big_chat_body("m", true, 40 * KIB))).await.unwrap();
    assert_shed(&Seen::h1(&refused), "buffer_exhausted");
    // A small one still fits beside the first.
    second.send(post_chat(chat_body("m", true))).await.unwrap();
    engine.log.wait_for(2, SECOND).await;
    let head = first.read_head().await.unwrap();
    assert_eq!(head.status, 200);
    let mut third = router.memory_client().await;
    third.send(post_chat(big_chat_body("m", true, 40 * KIB))).await.unwrap();
    engine.log.wait_for(3, SECOND).await;
    assert!(first.read_rest(head).await.unwrap().is_complete());
    for mut client in [second, third] {
        assert!(client.read_response().await.unwrap().is_complete());
        client.close();
    }
    first.close();
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_announced_and_do_not_come_take_nothing_from_the_buffer_budget() {
    let net = MemoryNet::new();
    let engine = Engine::in_memory(&net, "e1", Script::openai("m"));
    let mut config = config(&["e1:80".to_owned()]);
    config.limits.buffered_bytes = Some(64 * KIB as u64);
    let router = TestRouter::in_memory(config, &net);
    let mut hoarders = Vec::new();
    for _ in 0..16 {
        let mut client = router.memory_client().await;
        client.send(request_head("POST", CHAT, &["Content-Length: 60000"])).await.unwrap();
        client.send(&[b' '; 100]).await.unwrap();
        hoarders.push(client);
    }
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!(router.shared.buffered.used(), 1600, "what has arrived");
    let mut client = router.memory_client().await;
    let answer = client.request(post_chat(big_chat_body("m", false, 60 * KIB))).await.unwrap();
    assert_eq!(answer.status(), 200);
    hoarders.into_iter().for_each(RawClient::close);
    client.close();
    router.assert_invariants(&[&engine]).await;
}

/// A router that takes two requests, and an engine whose streams last three seconds behind their heads.
fn two_at_a_time(net: &MemoryNet) -> (EngineHandle, TestRouter) {
    let engine = Engine::in_memory(net, "e1", Script::always(ChatStream::new(3).gap(SECOND).into_steps()));
    let mut config = config(&["e1:80".to_owned()]);
    config.limits.in_flight = 2;
    let router = TestRouter::in_memory(config, net);
    (engine, router)
}

async fn started(router: &TestRouter) -> RawClient<MemoryStream> {
    let mut client = router.memory_client().await;
    client.send(post_chat(chat_body("m", true))).await.unwrap();
    client
}

#[tokio::test(start_paused = true)]
async fn a_place_in_flight_is_held_until_the_body_ends_over_h1() {
    let net = MemoryNet::new();
    let (engine, router) = two_at_a_time(&net);
    let (mut first, second) = (started(&router).await, started(&router).await);
    let head = first.read_head().await.unwrap();
    engine.log.wait_for(2, SECOND).await;
    // Heads have been answered; the bodies have not ended.
    let mut third = router.memory_client().await;
    for _ in 0..3 {
        let refused = third.request(post_chat(chat_body("m", true))).await.unwrap();
        assert_shed(&Seen::h1(&refused), "server_overloaded");
    }
    assert_eq!(third.request(get("/health")).await.unwrap().status(), 200, "probes need no place");
    assert_eq!(third.request(get("/v1/nothing")).await.unwrap().status(), 404, "nor do refusals");
    assert_eq!(router.shared.in_flight.used(), 2);
    assert!(first.read_rest(head).await.unwrap().is_complete());
    // One has ended; and one leaves.
    assert!(third.request(post_chat(chat_body("m", true))).await.unwrap().is_complete());
    second.close();
    let mut fourth = started(&router).await;
    assert!(fourth.read_response().await.unwrap().is_complete());
    for client in [first, third, fourth] {
        client.close();
    }
    let line = |code: &str| router.access_lines().iter().filter(|l| l["error"] == code).count();
    assert_eq!(line("server_overloaded"), 3);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test(start_paused = true)]
async fn a_place_in_flight_is_held_until_the_body_ends_over_h2() {
    let net = MemoryNet::new();
    let (engine, router) = two_at_a_time(&net);
    let mut client = H2Client::new(net.dial(FRONT).await.unwrap(), &Builder::new()).await;
    let chat = || Bytes::from(chat_body("m", true));
    let request = || h2_request("POST", CHAT, &[]);
    let mut first = client.start(request(), Some(chat())).await.unwrap();
    let second = client.start(request(), Some(chat())).await.unwrap();
    assert_eq!(first.head().await.unwrap().status().as_u16(), 200);
    engine.log.wait_for(2, SECOND).await;
    let refused = client.request(request(), chat()).await.unwrap();
    assert_eq!((refused.status.as_u16(), refused.headers["retry-after"].as_bytes()), (503, b"1".as_slice()));
    let error = &serde_json::from_slice::<serde_json::Value>(&refused.body).unwrap()["error"];
    assert_eq!(error["code"], "server_overloaded");
    while first.data().await.is_some() {}
    let after = client.request(request(), chat()).await.unwrap();
    assert_eq!(after.status.as_u16(), 200);
    // A reset stream gives its place back too.
    let third = client.start(request(), Some(chat())).await.unwrap();
    let fourth = client.start(request(), Some(chat())).await.unwrap();
    engine.log.wait_for(5, SECOND).await;
    third.reset(h2::Reason::CANCEL);
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!(client.request(request(), chat()).await.unwrap().status.as_u16(), 200);
    drop((second, fourth));
    client.abort();
    router.assert_invariants(&[&engine]).await;
}
