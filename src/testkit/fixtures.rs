//! Request bodies and whole requests to send.

use bytes::Bytes;
use serde_json::json;

/// Text whose characters take one to four bytes, with combining and joining ones.
pub const UNICODE: &str = "秋水长天 🌍 e\u{301} \u{200c} ж \"quoted\" \\back\\";

/// A small chat body.
pub fn chat_body(model: &str, stream: bool) -> String {
    chat_body_with(model, stream, "Hello there")
}

/// A chat body with this user message.
pub fn chat_body_with(model: &str, stream: bool, content: &str) -> String {
    let messages = json!([{"role": "user", "content": content}]);
    json!({"model": model, "messages": messages, "stream": stream, "max_tokens": 16}).to_string()
}

/// A chat body of exactly so many bytes; panics when that is less than an empty message needs.
pub fn big_chat_body(model: &str, stream: bool, bytes: usize) -> String {
    let empty = chat_body_with(model, stream, "").len();
    let body = chat_body_with(model, stream, &"x".repeat(bytes.checked_sub(empty).unwrap()));
    assert_eq!(body.len(), bytes);
    body
}

/// Chat bodies that mean the same as JSON and differ as bytes: number text, escapes, key order, white space and
/// unknown keys that a relay must keep.
pub fn odd_chat_bodies(model: &str) -> Vec<String> {
    vec![
        format!(r#"{{"temperature":1.0e0,"model":"{model}","seed":12345678901234567890,"messages":[]}}"#),
        format!(
            "{{ \"messages\" :\t[ {{\"content\":\"\\u00e9\\ud83c\\udf0d\\/\"}} ],\r\n\"model\": \"{model}\" }}\n"
        ),
        format!(
            r#"{{"z":{{"model":"inner","stream":true}},"model":"{model}","a":[1,1.00,-0,1E+2],"messages":[]}}"#
        ),
        chat_body_with(model, false, UNICODE),
    ]
}

/// A `POST` with `Content-Length`, JSON content type, and these further header lines.
pub fn post(path: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Bytes {
    let body = body.as_ref();
    let length = format!("Content-Length: {}", body.len());
    let own = ["Content-Type: application/json", length.as_str()];
    let lines: Vec<&str> = own.iter().chain(headers).copied().collect();
    [request_head("POST", path, &lines).as_ref(), body].concat().into()
}

/// A `POST` to the chat path.
pub fn post_chat(body: impl AsRef<[u8]>) -> Bytes {
    post("/v1/chat/completions", &[], body)
}

pub fn get(path: &str) -> Bytes {
    request_head("GET", path, &[])
}

/// A request head with `Host: test` and these header lines.
pub fn request_head(method: &str, path: &str, headers: &[&str]) -> Bytes {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n");
    for line in headers {
        head.push_str(line);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_is_json_for_its_model() {
        let mut bodies = odd_chat_bodies("m");
        bodies.push(chat_body("m", true));
        bodies.push(big_chat_body("m", false, 5000));
        for body in bodies {
            let value: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(value["model"], "m", "{body}");
        }
    }
}
