//! The real `openai` client. Here against the scripted engine itself: what the client makes of answers that
//! are right, refused or cut, without a router between, is what the same tests through the router compare to.

use std::time::Duration;

use serde_json::{Value, json};
use tandem::testkit::engine::openai::{ChatStream, chat_json, error, event, models};
use tandem::testkit::engine::{Engine, IntoSteps, RecordedRequest, Script, Step};
use tandem::testkit::openai::run;
use tandem::testkit::wire::chunked::{LAST_CHUNK, chunk};

/// The model's name chooses what happens to a chat.
fn answer(request: &RecordedRequest) -> Vec<Step> {
    if request.path() == "/v1/models" {
        return models(&["mock", "other"]).into_steps();
    }
    let body = request.json();
    let in_stream =
        json!({"error": {"message": "engine lost", "type": "upstream_error", "code": "upstream"}});
    let in_stream =
        vec![Step::Write(chunk(event(&in_stream.to_string()).as_bytes())), Step::Write(LAST_CHUNK.into())];
    match body["model"].as_str().unwrap_or_default() {
        "missing" => error(404, "no such model").header("x-request-id", "req-1").into_steps(),
        "bad" => error(400, "bad request").into_steps(),
        "busy" => error(503, "busy").header("retry-after", "7").into_steps(),
        "cut" => ChatStream::new(2).then(Step::Reset).into_steps(),
        "broken" => ChatStream::new(2).then(in_stream).into_steps(),
        _ if body["stream"] == true => ChatStream::new(3).gap(Duration::from_millis(5)).usage().into_steps(),
        _ => chat_json("秋水 🌍").into_steps(),
    }
}

async fn results(scenarios: &[&str]) -> Value {
    let engine = Engine::start_tcp(Script::new(answer)).await;
    run(&format!("{}/v1", engine.url()), scenarios).await
}

#[tokio::test]
async fn answers_streams_and_models_reach_the_client_whole() {
    let seen = results(&["chat", "stream", "models"]).await;
    assert_eq!(seen["chat"]["text"], "秋水 🌍");
    assert_eq!(seen["chat"]["finish_reason"], "stop");
    assert_eq!(seen["stream"]["text"], "t0 t1 t2 ");
    assert_eq!(seen["stream"]["error"], Value::Null);
    assert_eq!(seen["stream"]["finish_reason"], "stop");
    assert_eq!(seen["stream"]["usage"]["total_tokens"], 8);
    assert_eq!(seen["models"]["ids"], json!(["mock", "other"]));
}

#[tokio::test]
async fn refusals_raise_with_their_status_and_body() {
    let seen = results(&["error:missing", "error:bad", "error:busy"]).await;
    let classes = [
        ("missing", "NotFoundError", 404),
        ("bad", "BadRequestError", 400),
        ("busy", "InternalServerError", 503),
    ];
    for (model, class, status) in classes {
        let error = &seen[format!("error:{model}")]["error"];
        assert_eq!((error["class"].as_str(), error["status"].as_u64()), (Some(class), Some(status)));
        assert_eq!(error["type"], "mock_error");
    }
    assert_eq!(seen["error:missing"]["error"]["body"]["message"], "no such model");
    assert_eq!(seen["error:missing"]["error"]["request_id"], "req-1");
    assert_eq!(seen["error:busy"]["error"]["retry_after"], "7");
}

#[tokio::test]
async fn a_stream_that_fails_surfaces_as_an_error_after_its_events() {
    let seen = results(&["stream:cut", "stream:broken"]).await;
    for scenario in ["stream:cut", "stream:broken"] {
        assert_eq!(seen[scenario]["finish_reason"], Value::Null);
        assert_ne!(seen[scenario]["error"], Value::Null, "{scenario}");
    }
    assert_eq!(seen["stream:broken"]["text"], "t0 t1 ");
    assert_eq!(seen["stream:broken"]["error"]["class"], "APIError");
    assert_eq!(seen["stream:broken"]["error"]["message"], "engine lost");
}
