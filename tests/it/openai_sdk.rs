//! The real `openai` client: against the scripted engine itself, and the same through the router, so that what the router
//! changes for its users is what a test says and nothing else.

use std::time::Duration;

use serde_json::{Value, json};
use tandem::config::RouterConfig;
use tandem::testkit::engine::openai::{ChatStream, chat_json, error, event, models};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Script, Step};
use tandem::testkit::openai::{run, run_with};
use tandem::testkit::router::{TestRouter, config_for};
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
        "busy-briefly" => error(503, "busy").header("retry-after-ms", "1").into_steps(),
        "lost" => Step::Reset.into_steps(),
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

async fn routed(change: impl FnOnce(&mut RouterConfig)) -> (EngineHandle, TestRouter) {
    let engine = Engine::start_tcp(Script::new(answer)).await;
    let mut config = config_for(&[&engine]);
    change(&mut config);
    let router = TestRouter::start(config).await;
    (engine, router)
}

async fn through(router: &TestRouter, options: &[&str], scenarios: &[&str]) -> Value {
    run_with(&format!("{}/v1", router.url()), options, scenarios).await
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

/// What a user of the client sees is what the engine alone would give, but for the request id.
#[tokio::test]
async fn through_the_router_everything_is_as_without_it() {
    let scenarios = [
        "chat",
        "stream",
        "models",
        "error:missing",
        "error:bad",
        "error:busy",
        "stream:broken",
        "stream:missing",
    ];
    let (engine, router) = routed(|_| {}).await;
    let (mut direct, mut seen) = tokio::join!(results(&scenarios), through(&router, &[], &scenarios));
    for scenario in ["error:missing", "error:bad", "error:busy", "stream:missing"] {
        let ids = [&mut direct, &mut seen].map(|all| all[scenario]["error"]["request_id"].take());
        assert!(ids[1].as_str().is_some_and(|id| !id.is_empty() && ids[0] != ids[1]), "{scenario}: {ids:?}");
    }
    assert_eq!(seen, direct);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn through_the_router_a_cut_stream_raises_after_its_events() {
    let (engine, router) = routed(|_| {}).await;
    let seen = through(&router, &[], &["stream:cut", "stream:broken"]).await;
    let cut = &seen["stream:cut"];
    assert_eq!((&cut["text"], &cut["finish_reason"]), (&json!("t0 t1 "), &Value::Null));
    assert_eq!(
        (&cut["error"]["class"], &cut["error"]["code"]),
        (&json!("APIError"), &json!("upstream_lost"))
    );
    assert_eq!(seen["stream:broken"]["error"]["message"], "engine lost");
    let outcomes: Vec<Value> = router.access_lines().iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["upstream_error", "upstream_error"]);
    router.assert_invariants(&[&engine]).await;
}

/// With two repeats the client asks three times, unless it is told that a generation may have happened.
#[tokio::test]
async fn the_client_repeats_what_it_may_and_nothing_that_may_have_run() {
    let (engine, router) = routed(|_| {}).await;
    let seen =
        through(&router, &["--retries", "2"], &["error:busy-briefly", "error:lost", "error:bad"]).await;
    let asked = |model: &str| engine.log.requests().iter().filter(|r| r.json()["model"] == model).count();
    assert_eq!((asked("busy-briefly"), asked("lost"), asked("bad")), (3, 1, 1));
    let lost = &seen["error:lost"]["error"];
    assert_eq!(
        (&lost["status"], &lost["code"], &lost["should_retry"]),
        (&json!(502), &json!("upstream_lost"), &json!("false"))
    );
    assert_eq!(seen["error:busy-briefly"]["error"]["should_retry"], Value::Null);
    router.assert_invariants(&[&engine]).await;
}

/// Nothing was sent to any engine: the client may and does ask again.
#[tokio::test]
async fn a_router_without_engines_is_asked_again() {
    let (mut engine, router) = routed(|_| {}).await;
    engine.refuse().await;
    let seen = through(&router, &["--retries", "1"], &["error"]).await;
    let error = &seen["error"]["error"];
    assert_eq!(
        (&error["status"], &error["code"], &error["should_retry"]),
        (&json!(502), &json!("upstream_connect_failed"), &Value::Null)
    );
    assert_eq!(router.access_lines().len(), 2);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn the_routers_own_refusals_raise_as_openais_would() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("keys"), "sk-right\n").unwrap();
    let (engine, router) = routed(|config| {
        config.services[0].models = vec!["mock".to_owned()];
        config.api_keys_file = Some(dir.path().join("keys"));
    })
    .await;
    let (right, wrong) = tokio::join!(
        through(&router, &["--key", "sk-right"], &["chat", "error:unknown", "models"]),
        through(&router, &["--key", "sk-wrong"], &["error", "models"])
    );
    assert_eq!(right["chat"]["text"], "秋水 🌍");
    let unknown = &right["error:unknown"]["error"];
    for (key, value) in [("class", "NotFoundError"), ("code", "model_not_found"), ("param", "model")] {
        assert_eq!(unknown[key], value);
    }
    for refused in [&wrong["error"]["error"], &wrong["models"]["error"]] {
        assert_eq!(
            (&refused["class"], &refused["code"]),
            (&json!("AuthenticationError"), &json!("invalid_api_key"))
        );
        assert!(refused["request_id"].as_str().is_some_and(|id| !id.is_empty()));
    }
    let keys_seen = engine.log.requests().iter().any(|r| String::from_utf8_lossy(&r.head).contains("sk-"));
    assert!(!keys_seen, "the front door's key went on");
    router.assert_invariants(&[&engine]).await;
}
