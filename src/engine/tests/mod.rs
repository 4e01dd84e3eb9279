//! Engines driven by a client of the test's own, without a router.

mod faults;
mod sglang;
mod shapes;
mod storm;
mod vllm;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::{EngineConfig, Role, Running, Timing, Wire, start};
use crate::testkit::client::{RawClient, RawResponse};
use crate::testkit::sse::chat_text;

/// Longest wait of a test for what must come.
const SOON: Duration = Duration::from_secs(5);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// With the engine's waits at a hundredth.
fn config(wire: Wire, role: Role) -> EngineConfig {
    EngineConfig::new(wire, role).scaled(0.01)
}

async fn engine(config: EngineConfig) -> Running {
    start(config).await.unwrap()
}

/// Runs beside the test.
#[expect(clippy::disallowed_methods, reason = "a test's own task, awaited by it")]
fn beside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(work)
}

fn post(path: &str, headers: &str, body: &Value) -> String {
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: e\r\ncontent-type: application/json\r\n{headers}");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

async fn connect(addr: SocketAddr) -> RawClient<TcpStream> {
    RawClient::connect(addr).await
}

async fn ask(addr: SocketAddr, path: &str, headers: &str, body: &Value) -> RawResponse {
    connect(addr).await.request(post(path, headers, body)).await.unwrap()
}

async fn chat(addr: SocketAddr, body: &Value) -> RawResponse {
    ask(addr, "/v1/chat/completions", "", body).await
}

async fn get(addr: SocketAddr, path: &str) -> RawResponse {
    connect(addr).await.request(format!("GET {path} HTTP/1.1\r\nhost: e\r\n\r\n")).await.unwrap()
}

/// A chat request with more keys.
fn body(prompt: &str, more: &Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": prompt}]});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// What any right answer to this prompt begins with.
fn right(prompt: &str, tokens: u32) -> String {
    super::expected(0, body(prompt, &json!({})).to_string().as_bytes(), tokens).unwrap()
}

fn said(response: &RawResponse) -> String {
    if response.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
        return chat_text(&response.events());
    }
    response.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}

fn slow(token: Duration) -> Timing {
    Timing { token, ..EngineConfig::new(Wire::Vllm, Role::Plain).timing }
}

#[tokio::test]
async fn a_plain_engine_of_either_wire_says_the_same_streamed_or_not() {
    for wire in [Wire::Sglang, Wire::Vllm] {
        let engine = engine(config(wire, Role::Plain)).await;
        let whole = chat(engine.addr, &body("hello there", &json!({"max_tokens": 5}))).await;
        let streamed =
            chat(engine.addr, &body("hello there", &json!({"max_tokens": 5, "stream": true}))).await;
        assert_eq!((said(&whole), said(&streamed)), (right("hello there", 5), right("hello there", 5)));
        assert_eq!(whole.json()["usage"]["completion_tokens"], 5);
        assert!(streamed.events().last().unwrap().is_done());
        assert_ne!(right("hello there", 5), right("hello where", 5));
    }
}

#[tokio::test]
async fn every_choice_of_a_list_and_of_samples_has_its_index() {
    let engine = engine(config(Wire::Vllm, Role::Plain)).await;
    let asked = json!({"model": "tiny", "prompt": ["a b", "c"], "n": 2, "max_tokens": 3});
    let answer = ask(engine.addr, "/v1/completions", "", &asked).await.json();
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|c| c["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(
        (&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]),
        (&json!(3), &json!(12))
    );
    let alone = json!({"model": "tiny", "prompt": "c", "max_tokens": 3});
    let alone = ask(engine.addr, "/v1/completions", "", &alone).await.json();
    assert_eq!(choices[2]["text"], alone["choices"][0]["text"]);
    assert_ne!(choices[2]["text"], choices[3]["text"]);
}
