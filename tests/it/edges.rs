//! Answers at the edge of their framing, and clients at the edge of flow control.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tandem::testkit::client::{BodyEnd, H2Client};
use tandem::testkit::engine::openai::{ChatStream, chat_json};
use tandem::testkit::engine::{Body, Engine, IntoSteps, RecordedRequest, Response, Script, Step};
use tandem::testkit::fixtures::{chat_body, post_chat, request_head};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::{FRONT, TestRouter, config, config_for};
use tandem::types::clock;
use tokio::sync::oneshot;

#[tokio::test]
async fn an_answer_without_a_body_is_ok_and_keeps_its_connection() {
    let engine = Engine::start_tcp(Script::queue(vec![
        Response::json(200, "").into_steps(),
        Response::new(204, Body::Empty).into_steps(),
        Response::new(200, Body::Empty).header("content-length", "17").into_steps(),
        chat_json("after").into_steps(),
    ]))
    .await;
    let router = TestRouter::start(config_for(&[&engine])).await;
    let mut client = router.client().await;
    for status in [200, 204] {
        let answer = client.request(&post_chat(chat_body("m", false))).await.unwrap();
        assert_eq!((answer.status(), answer.body.len()), (status, 0));
    }
    client.send(request_head("HEAD", "/v1/models", &[])).await.unwrap();
    let answer = client.read_head_response().await.unwrap();
    assert_eq!((answer.status(), answer.header("content-length")), (200, Some("17")));
    assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
    client.close();
    router.assert_invariants(&[&engine]).await;
    for line in router.access_lines() {
        assert_eq!(line["outcome"], "ok", "{line}");
    }
    assert_eq!(engine.log.conns().len(), 1, "each answer gave its connection back");
}

#[tokio::test]
async fn an_event_stream_of_announced_length_that_is_cut_is_never_complete() {
    let event = "data: {\"choices\":[]}\n\n";
    // Less is missing than an error event is long: put into its place, the event would complete the transfer.
    let head = Response::new(200, Body::Empty)
        .header("content-type", "text/event-stream")
        .header("content-length", &(event.len() + 10).to_string())
        .head();
    let steps = vec![Step::write([head.as_ref(), event.as_bytes()].concat()), Step::Close];
    let engine = Engine::start_tcp(Script::always(steps)).await;
    let router = TestRouter::start(config_for(&[&engine])).await;
    let mut client = router.client().await;
    let answer = client.request(&post_chat(chat_body("m", true))).await.unwrap();
    assert!(!answer.is_complete(), "{:?} {:?}", answer.framing, String::from_utf8_lossy(&answer.body));
    client.close();
    router.assert_invariants(&[&engine]).await;
    assert_eq!(router.access_lines()[0]["outcome"], "upstream_error");
}

fn h2_post(path: &str) -> Request<()> {
    let url = format!("http://test{path}");
    Request::post(url).header("content-type", "application/json").body(()).expect("a request")
}

/// hyper takes even the last frame of an answer before it looks for room; what is stuck there must not stay for ever.
#[tokio::test(start_paused = true)]
async fn an_h2_stream_whose_window_never_opens_stalls_like_any_other() {
    let net = MemoryNet::new();
    let answer = |request: &RecordedRequest| {
        let stream = request.json()["stream"] == true;
        if stream {
            ChatStream::new(3).then(Step::Stall).into_steps()
        } else {
            chat_json("all of it").into_steps()
        }
    };
    let engine = Engine::in_memory(&net, "e1", Script::new(answer));
    let router = TestRouter::in_memory(config(&["e1:80".to_owned()]), &net);
    let mut settings = h2::client::Builder::new();
    settings.initial_window_size(0);
    let mut client = H2Client::new(net.dial(FRONT).await.unwrap(), &settings).await;
    let chat = "/v1/chat/completions";
    for (path, stream) in [(chat, true), (chat, false), ("/no/such/route", false)] {
        let begun = clock::now();
        let sent = client.start(h2_post(path), Some(Bytes::from(chat_body("m", stream)))).await;
        let answer = sent.unwrap().finish().await.unwrap();
        assert!(matches!(answer.end, BodyEnd::Reset(_)), "{path}: {:?}", answer.end);
        let waited = begun.elapsed();
        let limit = router.shared.timeouts.write_stall.unwrap();
        assert!((limit..limit + Duration::from_millis(100)).contains(&waited), "{path}: {waited:?}");
    }
    drop(client);
    router.assert_invariants(&[&engine]).await;
    let lines = router.access_lines();
    assert_eq!(
        (&lines[0]["outcome"], &lines[0]["error"]),
        (&"client_cancelled".into(), &"client_stalled".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_of_an_engine_that_may_have_generated_is_told_not_to_retry_when_the_grace_is_over() {
    let net = MemoryNet::new();
    let engine = Engine::in_memory(&net, "e1", Script::always(Step::Stall));
    let mut config = config(&["e1:80".to_owned()]);
    config.shutdown.grace = Duration::from_secs(5);
    let mut router = TestRouter::in_memory(config, &net);
    let mut client = router.memory_client().await;
    client.send(post_chat(chat_body("m", false))).await.unwrap();
    engine.log.wait_for(1, Duration::from_secs(1)).await;
    let (_second, never) = oneshot::channel();
    assert_eq!(router.shut_down(never).await.forced, 1);
    let answer = client.read_response().await.unwrap();
    assert_eq!((answer.status(), answer.header("x-should-retry")), (503, Some("false")));
    assert_eq!(answer.json()["error"]["code"], "shutting_down");
    client.close();
    router.assert_invariants(&[&engine]).await;
}
