//! When a decode has shown that it works: its first *token event* (pd.md, "When D's head goes out").
//!
//! vLLM's decode answers 200 and a role-only chunk before it has pulled the KV, and a failed pull follows in-band; neither
//! proves anything. So the head, and what came with it, is held until an event with content, tool calls, reasoning, text,
//! logprobs or a finish reason. An error event before that can still become a status or a retry.

use serde::Deserialize;
use serde_json::Value;

/// Most payload bytes that are held.
pub(super) const MOST_HELD: usize = 8 * 1024;

/// What the payload so far shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sign {
    /// Nothing yet: hold on.
    Wait,
    /// Tokens, a comment, or something that is none of our business: let it go.
    Token,
    /// A top-level `error`: its event as JSON.
    Error(Value),
}

/// Events of the Responses and Messages APIs that an engine sends before it has a token.
const OPENING: &[&str] = &[
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "message_start",
    "content_block_start",
    "ping",
];

#[derive(Deserialize)]
struct Event {
    r#type: Option<Value>,
    error: Option<Value>,
    choices: Option<Vec<Choice>>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Value>,
    text: Option<Value>,
    logprobs: Option<Value>,
    finish_reason: Option<Value>,
}

/// Looks at the payload of an event stream from its beginning.
pub(super) fn sign(payload: &[u8]) -> Sign {
    if payload.len() > MOST_HELD {
        return Sign::Token;
    }
    let mut rest = payload;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let line = rest[..end].trim_ascii_end();
        rest = &rest[end + 1..];
        match line.strip_prefix(b"data:") {
            Some(data) => match event(data.trim_ascii()) {
                Sign::Wait => {}
                other => return other,
            },
            // A comment keeps the connection alive on purpose; `event:`, `id:` and blank lines say nothing.
            None if line.starts_with(b":") => return Sign::Token,
            None => {}
        }
    }
    Sign::Wait
}

fn event(data: &[u8]) -> Sign {
    let Ok(event) = serde_json::from_slice::<Event>(data) else { return Sign::Token };
    if let Some(error) = event.error {
        return Sign::Error(error);
    }
    match event.choices {
        Some(choices) if choices.iter().all(Choice::is_silent) => Sign::Wait,
        None if event.r#type.as_ref().and_then(Value::as_str).is_some_and(|t| OPENING.contains(&t)) => {
            Sign::Wait
        }
        _ => Sign::Token,
    }
}

impl Choice {
    /// A role, and nothing else.
    fn is_silent(&self) -> bool {
        let empty = |value: &Value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        let role_only = |delta: &Value| {
            delta
                .as_object()
                .is_none_or(|fields| fields.iter().all(|(key, value)| key == "role" || empty(value)))
        };
        self.delta.as_ref().is_none_or(role_only)
            && [&self.text, &self.logprobs, &self.finish_reason].into_iter().flatten().all(empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";

    fn of(text: &str) -> Sign {
        sign(text.as_bytes())
    }

    #[test]
    fn a_role_only_chunk_is_held_and_the_first_token_releases() {
        assert_eq!(of(ROLE), Sign::Wait);
        for delta in
            ["{\"content\":\"a\"}", "{\"tool_calls\":[{\"index\":0}]}", "{\"reasoning_content\":\"r\"}"]
        {
            assert_eq!(of(&format!("{ROLE}data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n")), Sign::Token);
        }
        assert_eq!(of("data: {\"choices\":[{\"text\":\"a\"}]}\n\n"), Sign::Token);
        assert_eq!(of("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"), Sign::Token);
        assert_eq!(of("data: {\"text\":\"a\",\"meta_info\":{}}\n\n"), Sign::Token, "SGLang's generate");
    }

    #[test]
    fn half_a_line_is_not_judged() {
        assert_eq!(of(&ROLE[..ROLE.len() - 20]), Sign::Wait);
        assert_eq!(of("data: {\"error\""), Sign::Wait);
    }

    #[test]
    fn an_error_before_the_first_token_is_told_apart() {
        let text =
            format!("{ROLE}data: {{\"error\":{{\"message\":\"x\",\"code\":500}}}}\n\ndata: [DONE]\n\n");
        assert!(matches!(of(&text), Sign::Error(error) if error["code"] == 500));
        assert_eq!(of("data: {\"error\":null,\"choices\":[{\"text\":\"a\"}]}\n\n"), Sign::Token);
    }

    #[test]
    fn what_other_apis_send_first_is_no_token() {
        for kind in OPENING {
            assert_eq!(
                of(&format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"response\":{{}}}}\n\n")),
                Sign::Wait
            );
        }
        assert_eq!(of("data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n"), Sign::Token);
        assert_eq!(of("data: {\"choices\":[]}\n\n"), Sign::Wait);
    }

    #[test]
    fn comments_done_and_floods_release() {
        assert_eq!(of(": ping\n\n"), Sign::Token);
        assert_eq!(of("data: [DONE]\n\n"), Sign::Token);
        assert_eq!(of(&"event: x\n".repeat(1000)), Sign::Token);
    }
}
