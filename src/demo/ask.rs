//! One chat request to the router's front door, as any client would make it, whose right answer is known.

use std::net::SocketAddr;
use std::pin::pin;

use anyhow::Context as _;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::engines::{MODEL, SEED};
use crate::engine;

/// What is asked.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) stream: bool,
    body: String,
    /// The text that engines say whose KV was that of this prompt, all of it.
    right: String,
}

/// What came.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) request_id: String,
    pub(super) status: StatusCode,
    /// Whether the text is the one that belongs to the prompt: a pair that mixed two requests up would say another.
    pub(super) right: bool,
}

impl Question {
    pub(super) fn new(prompt: &str, tokens: u32, stream: bool) -> Self {
        let messages = json!([{"role": "user", "content": prompt}]);
        let body = json!({"model": MODEL, "stream": stream, "max_tokens": tokens, "messages": messages});
        let body = body.to_string();
        let right = engine::expected(SEED, body.as_bytes(), tokens).unwrap_or_default();
        Self { stream, body, right }
    }
}

/// On a connection of its own, closed when this is over or dropped.
pub(super) async fn ask(at: SocketAddr, question: &Question) -> anyhow::Result<Answer> {
    let socket = TcpStream::connect(at).await.with_context(|| format!("connect to {at}"))?;
    let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    let (mut exchange, mut connection) = (pin!(exchange(sender, at, question)), pin!(connection));
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // It may end when the last bytes are there, before they were read.
        _ = &mut connection => exchange.await,
    }
}

async fn exchange(
    mut sender: SendRequest<String>,
    at: SocketAddr,
    question: &Question,
) -> anyhow::Result<Answer> {
    let request = Request::post("/v1/chat/completions")
        .header("host", at.to_string())
        .header("content-type", "application/json")
        .body(question.body.clone())?;
    let answer = sender.send_request(request).await.context("no answer")?;
    let id = answer.headers().get("x-request-id").and_then(|id| id.to_str().ok());
    let (request_id, status) = (id.unwrap_or_default().to_owned(), answer.status());
    let body = answer.into_body().collect().await.context("the answer broke off")?.to_bytes();
    let said = if question.stream { streamed(&body) } else { plain(&body) };
    Ok(Answer { request_id, status, right: said.is_some_and(|said| said == question.right) })
}

fn plain(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    answer["choices"][0]["message"]["content"].as_str().map(str::to_owned)
}

/// The text of a whole stream; `None` when it did not come to its end.
fn streamed(body: &[u8]) -> Option<String> {
    let mut said = String::new();
    for event in std::str::from_utf8(body).ok()?.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if event == "[DONE]" {
            return Some(said);
        }
        let event: Value = serde_json::from_str(event).ok()?;
        said.push_str(event["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_counts_only_with_its_end() {
        let event = r#"data: {"choices":[{"delta":{"content":" a"}}]}"#;
        let whole = format!("{event}\n\n{event}\n\ndata: [DONE]\n\n");
        assert_eq!(streamed(whole.as_bytes()).as_deref(), Some(" a a"));
        assert_eq!(streamed(event.as_bytes()), None);
    }

    #[test]
    fn the_right_text_is_the_prompts_own_and_has_as_many_words_as_asked_for() {
        let (one, other) = (Question::new("a", 3, false), Question::new("b", 3, true));
        assert_eq!((one.right.split_whitespace().count(), one.stream), (3, false));
        assert_ne!(one.right, other.right);
    }
}
