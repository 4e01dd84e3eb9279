//! Prompts of the three APIs, as their KV and their length. A "token" is a word, or an id where ids were sent.

use serde_json::Value;

use super::text::content;

/// One prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) content: u64,
    pub(super) tokens: u32,
}

impl Prompt {
    fn text(text: &str, seed: u64) -> Self {
        Self { content: content(seed, [b"text".as_slice(), text.as_bytes()]), tokens: words(text) }
    }

    /// A list of token ids; `None` when it is another list.
    fn ids(ids: &[Value], seed: u64) -> Option<Self> {
        let ids: Vec<[u8; 8]> =
            ids.iter().map(|id| id.as_u64().map(u64::to_le_bytes)).collect::<Option<_>>()?;
        let parts = std::iter::once(b"ids".as_slice()).chain(ids.iter().map(<[u8; 8]>::as_slice));
        Some(Self { content: content(seed, parts), tokens: count(ids.len()) })
    }

    fn messages(messages: &[Value], seed: u64) -> Self {
        let mut parts: Vec<Vec<u8>> = vec![b"chat".to_vec()];
        let mut tokens = 0;
        for message in messages {
            let role = message["role"].as_str().unwrap_or("user");
            let said = message_text(&message["content"]);
            tokens += words(&said) + 1;
            parts.push(role.as_bytes().to_vec());
            parts.push(said.into_bytes());
        }
        Self { content: content(seed, parts.iter().map(Vec::as_slice)), tokens: tokens.max(1) }
    }
}

/// Of a chat request.
pub(super) fn chat(body: &Value, seed: u64) -> Option<Vec<Prompt>> {
    let messages = body["messages"].as_array().filter(|messages| !messages.is_empty())?;
    Some(vec![Prompt::messages(messages, seed)])
}

/// Of `prompt` (completions), `text` or `input_ids` (SGLang's own API): text, ids, or a list of either.
pub(super) fn plain(value: &Value, seed: u64) -> Option<Vec<Prompt>> {
    match value {
        Value::String(text) => Some(vec![Prompt::text(text, seed)]),
        Value::Array(items) if items.first()?.is_u64() => Some(vec![Prompt::ids(items, seed)?]),
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::String(text) => Some(Prompt::text(text, seed)),
                Value::Array(ids) if !ids.is_empty() => Prompt::ids(ids, seed),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// Of a body of whichever API.
pub(super) fn any(body: &Value, seed: u64) -> Option<Vec<Prompt>> {
    chat(body, seed)
        .or_else(|| ["prompt", "text", "input_ids"].iter().find_map(|key| plain(&body[*key], seed)))
}

/// A string, or the text of its parts.
fn message_text(value: &Value) -> String {
    let part = |part: &Value| part["text"].as_str().map(str::to_owned);
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(part).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}

fn words(text: &str) -> u32 {
    count(text.split_whitespace().count()).max(1)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_form_of_a_prompt_is_read_and_counted() {
        let tokens = |value: Value| {
            plain(&value, 0).map(|all| all.iter().map(|prompt| prompt.tokens).collect::<Vec<_>>())
        };
        assert_eq!(tokens(json!("a b c")), Some(vec![3]));
        assert_eq!(tokens(json!([5, 6])), Some(vec![2]));
        assert_eq!(tokens(json!(["a", "b c"])), Some(vec![1, 2]));
        assert_eq!(tokens(json!([[1, 2, 3], [4]])), Some(vec![3, 1]));
        assert_eq!(tokens(json!([])), None);
        assert_eq!(tokens(json!([1, "a"])), None);
        assert_eq!(tokens(json!(null)), None);
    }

    #[test]
    fn parts_of_a_message_are_its_text() {
        let of = |content: Value| chat(&json!({"messages": [{"role": "user", "content": content}]}), 0);
        assert_eq!(
            of(json!("a b")),
            of(json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]))
        );
        assert_eq!(of(json!("a b")).map(|all| all[0].tokens), Some(3));
    }
}
