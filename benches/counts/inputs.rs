//! Bodies, heads and answers as clients and engines send them.

use bytes::Bytes;
use http::request::Parts;

/// A chat of about `len` bytes, in turns.
pub(crate) fn chat(len: usize, stream: bool) -> Bytes {
    let text = "The quick brown fox jumps over the lazy dog, twice, and then rests in the shade. ";
    let mut body =
        String::from(r#"{"model":"mistral-7b-instruct","messages":[{"role":"system","content":"be brief"}"#);
    while body.len() + 100 < len {
        body.push_str(r#",{"role":"user","content":""#);
        for _ in 0..10 {
            if body.len() + 100 < len {
                body.push_str(text);
            }
        }
        body.push_str("\"}");
    }
    let end = format!(r#"],"max_tokens":64,"temperature":0.7,"stream":{stream},"user":"u-1"}}"#);
    body.push_str(&end);
    body.into()
}

/// The head of a client's request.
pub(crate) fn parts(length: usize) -> Parts {
    let request = http::Request::post("/v1/chat/completions")
        .header("host", "router.example")
        .header("content-type", "application/json")
        .header("content-length", length)
        .header("accept", "application/json")
        .header("accept-encoding", "gzip, deflate")
        .header("user-agent", "OpenAI/Python 2.8.1")
        .header("x-stainless-lang", "python")
        .header("x-stainless-runtime-version", "3.12.3")
        .header("authorization", "Bearer sk-0123456789abcdef0123456789abcdef");
    request.body(()).unwrap().into_parts().0
}

/// An engine's plain answer.
pub(crate) fn answer() -> Bytes {
    with_head(
        r#"{"id":"chatcmpl-1f2e3d","object":"chat.completion","created":1764500000,"model":"mistral-7b-instruct","choices":[{"index":0,"message":{"role":"assistant","content":"It was the fox that jumped, and the dog that slept in the shade.","tool_calls":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":23,"total_tokens":39,"completion_tokens":16}}"#,
    )
}

/// A vLLM prefill's answer, which names `blocks` blocks of KV.
pub(crate) fn prefilled(blocks: u32) -> Bytes {
    let list: Vec<String> = (0..blocks).map(|n| (n * 7 + 100).to_string()).collect();
    format!(
        r#"{{"id":"cmpl-1","object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":"It"}},"finish_reason":"length"}}],"usage":{{"prompt_tokens":23,"total_tokens":24,"completion_tokens":1}},"kv_transfer_params":{{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[{}],"remote_engine_id":"3f1de0c0-7f10-4abc-8000-0199a7c2ffee","remote_host":"10.0.0.3","remote_port":5600,"tp_size":1}}}}"#,
        list.join(",")
    )
    .into()
}

/// Behind the head of an engine's JSON answer.
pub(crate) fn with_head(body: &str) -> Bytes {
    format!(
        "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 10:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: {}\r\ncontent-type: application/json\r\n\r\n{body}",
        body.len()
    )
    .into()
}

/// The head of an engine's stream.
pub(crate) const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 10:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// One token's event, about 180 bytes.
pub(crate) fn event(n: usize) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1f2e3d\",\"object\":\"chat.completion.chunk\",\"created\":1764500000,\"model\":\"mistral-7b\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word{n:04}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// As a chunk of its own.
pub(crate) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}
