//! Answers in the shapes of OpenAI-compatible engines, as steps.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::request::RecordedRequest;
use super::response::{Body, Response};
use super::step::{IntoSteps, Step};
use crate::testkit::wire::chunked::{LAST_CHUNK, chunk};

const CREATED: u64 = 1_764_430_000;

/// A complete non-streaming chat answer.
pub fn chat_json(text: &str) -> Response {
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": CREATED, "model": "mock",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
    });
    Response::json(200, body.to_string())
}

/// What a vLLM prefill answers that keeps KV for a decode.
pub fn kv_answer(engine: &str) -> Value {
    json!({"id": "x", "choices": [],
        "kv_transfer_params": {"remote_block_ids": [[1, 2]], "remote_engine_id": engine}})
}

/// A complete streamed chat answer of `events` content events, with this pause before each.
pub fn chat_sse(events: usize, gap: Duration) -> Vec<Step> {
    ChatStream::new(events).gap(gap).into_steps()
}

/// `GET /v1/models` for these names.
pub fn models(names: &[&str]) -> Response {
    let entry = |name: &&str| json!({"id": name, "object": "model", "created": CREATED, "owned_by": "mock"});
    let data: Vec<Value> = names.iter().map(entry).collect();
    Response::json(200, json!({"object": "list", "data": data}).to_string())
}

/// An engine's own error.
pub fn error(status: u16, message: &str) -> Response {
    let error = json!({"message": message, "type": "mock_error", "param": null, "code": status});
    Response::json(status, json!({"error": error}).to_string())
}

/// A recorded or hand-written answer, byte for byte.
pub fn recorded(bytes: impl Into<Bytes>) -> Step {
    Step::write(bytes)
}

/// Head of a chunked event stream.
pub fn sse_head() -> Bytes {
    let head = Response::new(200, Body::Chunked(Vec::new())).header("content-type", "text/event-stream");
    head.head()
}

/// The text of one event, `data: …` and its blank line.
pub fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// The text of one content event with this delta.
pub fn content_event(text: &str) -> String {
    event(&delta(&json!({"content": text}), None))
}

fn delta(delta: &Value, finish: Option<&str>) -> String {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": CREATED, "model": "mock",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    })
    .to_string()
}

/// A streamed chat answer, one chunk and one write per event.
#[derive(Debug, Clone)]
pub struct ChatStream {
    contents: Vec<String>,
    gap: Duration,
    usage: bool,
    tail: Vec<Step>,
}

impl ChatStream {
    /// So many content events: `t0 `, `t1 `, …
    pub fn new(events: usize) -> Self {
        Self::of((0..events).map(|n| format!("t{n} ")).collect())
    }

    /// One content event per text.
    pub fn of(contents: Vec<String>) -> Self {
        Self { contents, gap: Duration::ZERO, usage: false, tail: Vec::new() }
    }

    /// Pause before each event.
    #[must_use]
    pub fn gap(mut self, gap: Duration) -> Self {
        self.gap = gap;
        self
    }

    /// Adds the usage event that precedes `[DONE]`.
    #[must_use]
    pub fn usage(mut self) -> Self {
        self.usage = true;
        self
    }

    /// After the content events these steps instead of the orderly end.
    #[must_use]
    pub fn then(mut self, steps: impl IntoSteps) -> Self {
        self.tail = steps.into_steps();
        self
    }

    /// The text of every event of the orderly answer, in order.
    pub fn events(&self) -> Vec<String> {
        let mut events = vec![event(&delta(&json!({"role": "assistant", "content": ""}), None))];
        events.extend(self.contents.iter().map(|text| content_event(text)));
        if self.tail.is_empty() {
            events.push(event(&delta(&json!({}), Some("stop"))));
            events.extend(self.usage.then(usage_event));
            events.push(event("[DONE]"));
        }
        events
    }

    /// The payload that a client must receive: the events, joined.
    pub fn payload(&self) -> String {
        self.events().concat()
    }
}

fn usage_event() -> String {
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8});
    let event_json = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": CREATED, "model": "mock",
        "choices": [], "usage": usage,
    });
    event(&event_json.to_string())
}

impl IntoSteps for ChatStream {
    fn into_steps(self) -> Vec<Step> {
        let mut steps = vec![Step::Write(sse_head())];
        for text in self.events() {
            if !self.gap.is_zero() {
                steps.push(Step::Sleep(self.gap));
            }
            steps.push(Step::Write(chunk(text.as_bytes())));
        }
        if self.tail.is_empty() {
            steps.push(Step::write(LAST_CHUNK));
        }
        steps.extend(self.tail);
        steps
    }
}

/// The default behaviour of [`Script::openai`](super::Script::openai): chat streamed or not as asked, models
/// and health; 404 for the rest.
pub(super) fn answer(model: &str, request: &RecordedRequest) -> Vec<Step> {
    match (request.method.as_str(), request.path()) {
        ("GET", "/v1/models") => models(&[model]).into_steps(),
        ("GET", "/health") => Response::text(200, "").into_steps(),
        ("POST", "/v1/chat/completions") => answer_chat(&request.json()),
        (_, path) => error(404, &format!("no such path: {path}")).into_steps(),
    }
}

fn answer_chat(body: &Value) -> Vec<Step> {
    if body["stream"] != json!(true) {
        return chat_json("hello").into_steps();
    }
    let stream = ChatStream::new(4);
    let usage = body["stream_options"]["include_usage"] == json!(true);
    if usage { stream.usage().into_steps() } else { stream.into_steps() }
}
