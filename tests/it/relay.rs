//! The plain relay, whole: answers and streams pass byte-exact, over both protocols and both transports.

use std::time::Duration;

use tandem::testkit::engine::openai::{ChatStream, chat_json};
use tandem::testkit::engine::{Engine, IntoSteps, RecordedRequest, Script, Step};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::{TestRouter, config, config_for};

fn chat(request: &RecordedRequest) -> Vec<Step> {
    if request.json()["stream"] == true {
        ChatStream::new(5).gap(Duration::from_millis(20)).usage().into_steps()
    } else {
        chat_json("秋水 🌍").into_steps()
    }
}

#[tokio::test]
async fn a_chat_and_a_stream_pass_whole_over_h1() {
    let engine = Engine::start_tcp(Script::new(chat)).await;
    let router = TestRouter::start(config_for(&[&engine])).await;
    let mut client = router.client().await;
    let answer = client.request(&post_chat(chat_body("m", false))).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.text().contains("秋水 🌍"));
    let stream = client.request(&post_chat(chat_body("m", true))).await.unwrap();
    assert!(stream.is_complete());
    assert_eq!(stream.events().last().unwrap().data, "[DONE]");
    client.close();
    router.assert_invariants(&[&engine]).await;
    let lines = router.access_lines();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["outcome"], "ok");
    assert_eq!(engine.log.conns().len(), 1, "the second request reused the connection");
}

#[tokio::test(start_paused = true)]
async fn the_same_runs_in_memory_on_a_paused_clock() {
    let net = MemoryNet::new();
    let engine = Engine::in_memory(&net, "e1", Script::new(chat));
    let router = TestRouter::in_memory(config(&["e1:80".to_owned()]), &net);
    let mut client = router.memory_client().await;
    let stream = client.request(&post_chat(chat_body("m", true))).await.unwrap();
    assert!(stream.is_complete());
    client.close();
    router.assert_invariants(&[&engine]).await;
}
