//! What the router does not know passes: hostile usage, unknown fields, tool calls (B134 B137 B140 B142).

use std::fmt::Write as _;

use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};
use tandem::testkit::engine::openai::{ChatStream, event, sse_head};
use tandem::testkit::engine::{Body, Engine, IntoSteps, Response, Script, Step};
use tandem::testkit::router::{TestRouter, config_for};
use tandem::testkit::wire::chunked::{LAST_CHUNK, chunk};

use super::bytes_rig::{Rig, hi};
use super::scale;

/// `usage` of a hostile engine. The flag: the router may count tokens from it.
const USAGES: [(&str, bool); 13] = [
    (r#""usage":"oops""#, false),
    (r#""usage":{"prompt_token_details":0}"#, false),
    (r#""usage":{"prompt_tokens":"1024","completion_tokens":"1"}"#, false),
    (r#""usage":null"#, false),
    (r#""usage":1e30"#, false),
    (r#""usage":{"prompt_tokens":1e30,"completion_tokens":-1e30}"#, false),
    (r#""usage":{"prompt_tokens":-7,"completion_tokens":-1}"#, false),
    (r#""usage":{"prompt_tokens":99999999999999999999999,"completion_tokens":1}"#, false),
    (r#""usage":[{"prompt_tokens":3}]"#, false),
    (r#""usage":{"prompt_tokens":{},"completion_tokens":[]}"#, false),
    (r#""usage":{"usage":{"usage":{"usage":"#, false),
    (r#""choices":"none","usage":{"prompt_tokens":3,"completion_tokens":5}"#, true),
    (r#""object":null,"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":"x"}"#, true),
];

/// Not JSON at all: in a document nothing of it can be read, and nothing says that it was usage.
fn cut(usage: &str) -> bool {
    usage.ends_with(':')
}

async fn hostile(make: impl Fn(&str) -> (Vec<Step>, String), request: &str) {
    for (usage, counts) in USAGES {
        let (steps, expected) = make(usage);
        let rig = Rig::new(Script::always(steps));
        let answer = rig.passes(request).await;
        assert!(answer.is_complete());
        assert_eq!(answer.text(), expected, "{usage}");
        assert!(!rig.router.endpoints()[0].ejection.is_ejected());
        let scrape = rig.router.scrape();
        let tokens = scrape.sum("tandem_tokens_total", &[]);
        assert!((tokens - if counts { 8.0 } else { 0.0 }).abs() < 0.5, "{usage}: {tokens} tokens");
        // Skipped is counted, except `null`, which engines send on purpose.
        let unreadable = scrape.sum("tandem_usage_unreadable_total", &[]);
        let skipped = !counts && !usage.ends_with("null");
        assert!(
            unreadable < 1.5 && (!skipped || cut(usage) || unreadable > 0.5),
            "{usage}: {unreadable} unreadable"
        );
        let ok = scrape.sum("tandem_requests_total", &[("outcome", "ok")]);
        assert!((ok - 1.0).abs() < 0.5, "{usage}");
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b134_a_hostile_answer_is_relayed_and_not_counted() {
    let make = |usage: &str| {
        let body = format!("{{{usage},\"id\":[]}}");
        (Response::json(200, body.clone()).into_steps(), body)
    };
    hostile(make, r#"{"model":"m","messages":[]}"#).await;
}

#[tokio::test(start_paused = true)]
async fn b134_a_hostile_stream_is_relayed_and_not_counted() {
    let make = |usage: &str| {
        let events = event(&format!("{{\"id\":1,{usage}}}")) + &event("[1,2") + &event("[DONE]");
        let steps =
            vec![Step::Write(sse_head()), Step::Write(chunk(events.as_bytes())), Step::write(LAST_CHUNK)];
        (steps, events)
    };
    hostile(make, r#"{"model":"m","messages":[],"stream":true}"#).await;
}

/// Answers that are no JSON object at all, deep, or empty.
#[tokio::test(start_paused = true)]
async fn b134_any_answer_body_passes() {
    let deep = "[".repeat(200_000);
    for body in ["", "null", "[]", "\"x\"", "0", "{", "{\"usage\":", &deep, "\u{feff}{}", "<html>"] {
        let rig = Rig::new(Script::always(Response::json(200, body.to_owned())));
        assert_eq!(rig.passes(r#"{"model":"m"}"#).await.text(), body);
        rig.engine.set_script(Script::always(
            Response::new(200, Body::Chunked(vec![event(body).into()]))
                .header("content-type", "text/event-stream"),
        ));
        assert_eq!(rig.passes(r#"{"model":"m","stream":true}"#).await.text(), event(body));
        rig.done().await;
    }
}

const UNKNOWN: &str = r#"{"vendor_x":{"a":[1,null],"model":"inner","stream":true},"model":"m","return_token_ids":true,
 "top_k":-1 ,"chat_template_kwargs":{"enable_thinking":false},"messages":[{"role":"user","content":"x","vendor_y":[{}]},
 {"role":"assistant","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}],"reasoning":null}],
 "stream":false,"stream_options":{"include_usage":true,"continuous_usage_stats":true,"zz":1},"":{},"Model":"upper",
 "tools":[{"type":"function","function":{"name":"f","strict":null,"x-vendor":{}},"defer":true}],"ignore_eos":true,
 "rid":"client-rid","user":"u","logit_bias":{"50256":-100},"extra_body":{"bootstrap_room":1,"kv_transfer_params":{}}}
"#;

#[tokio::test(start_paused = true)]
async fn b137_unknown_fields_pass_at_every_level() {
    let rig = Rig::new(hi());
    rig.passes(UNKNOWN).await;
    rig.passes(UNKNOWN.replace('\n', "\r\n\t")).await;
    rig.done().await;
}

#[tokio::test]
async fn b137_unknown_fields_pass_over_h2_too() {
    let engine = Engine::start_tcp(hi()).await;
    let router = TestRouter::start(config_for(&[&engine])).await;
    let mut client = router.h2_client().await;
    let uri = format!("{}/v1/chat/completions?beta=1&x=%2F", router.url());
    let request = Request::post(uri).header("content-type", "application/json").body(()).unwrap();
    assert_eq!(client.request(request, Bytes::from_static(UNKNOWN.as_bytes())).await.unwrap().status, 200);
    let sent = &engine.log.requests()[0];
    assert_eq!(
        (sent.target.as_str(), sent.body.as_slice()),
        ("/v1/chat/completions?beta=1&x=%2F", UNKNOWN.as_bytes())
    );
    client.abort();
    router.assert_invariants(&[&engine]).await;
}

/// The router's own keys are the closed list that does not pass (I11); everything around them does.
#[tokio::test(start_paused = true)]
async fn b137_only_the_routers_own_keys_are_removed() {
    let rig = Rig::new(hi());
    let body = r#"{"a":1,"bootstrap_room":7,"model":"m","kv_transfer_params":{"x":1},"b":[1.0],"bootstrap_host":"h"}"#;
    assert_eq!(rig.send(body).await.status(), 200);
    let sent = rig.engine.log.requests()[0].json();
    assert_eq!(sent, json!({"a": 1, "model": "m", "b": [1.0]}));
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn b140_a_conversation_with_tools_arrives_as_it_was() {
    let rig = Rig::new(hi());
    rig.passes(r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"weather?"},
      {"role":"assistant","tool_calls":[{"id":"call_1","type":"function","function":{"name":"w","arguments":"{\"city\":\"Z\\u00fcrich\\n\",\"n\":1.0}"}},
      {"id":"call_2","type":"function","function":{"arguments":"","name":"w"}}]},
      {"role":"tool","tool_call_id":"call_1","content":"{\"t\": 21.50}"},{"tool_call_id":"call_2","role":"tool","content":null},
      {"role":"user","content":""}],"tool_choice":"required","parallel_tool_calls":true}"#)
        .await;
    rig.done().await;
}

/// The engine's tool calls, whole and in arguments cut anywhere.
#[tokio::test(start_paused = true)]
async fn b140_the_engines_tool_calls_arrive_as_they_were() {
    let pieces = [r#"{\"ci"#, r#"ty\": \"Z\u00fc"#, r"rich\ud83d", r#"\ude00\"}"#];
    let mut events = String::new();
    for piece in pieces {
        let delta = format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{piece}"}}}}]}}"#);
        write!(events, "data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n").unwrap();
    }
    events += &event("[DONE]");
    for every in [1, 7, 64] {
        let mut steps = vec![Step::Write(sse_head())];
        steps.extend(events.as_bytes().chunks(every).map(|piece| Step::Write(chunk(piece))));
        steps.push(Step::write(LAST_CHUNK));
        let rig = Rig::new(Script::always(steps));
        assert_eq!(rig.passes(r#"{"model":"m","stream":true,"tools":[]}"#).await.text(), events);
        rig.done().await;
    }
}

fn many_tools(tools: usize, bytes: usize) -> String {
    let each = bytes / tools;
    let tool = |n: usize| {
        let description = "d\u{e9}".repeat(each / 3);
        let mut function = json!({"name": format!("tool_{n}"), "description": description});
        if n != 3 {
            function["parameters"] = json!({"type": "object", "properties": {"q": {"type": "string"}}});
        }
        json!({"type": "function", "function": function})
    };
    json!({"model": "m", "messages": [], "tools": (0..tools).map(tool).collect::<Vec<Value>>()}).to_string()
}

/// CI: 26 tools in 376 KB and 128 in 1 MB, in two forms of framing. Full: 5 MB more.
#[tokio::test(start_paused = true)]
async fn b142_many_tools_and_one_without_parameters_are_forwarded() {
    let rig = Rig::new(hi());
    for (tools, bytes) in [(26, 376 << 10), (128, 1 << 20), (128, scale(1 << 18, 5 << 20))] {
        rig.passes(many_tools(tools, bytes)).await;
    }
    rig.done().await;
}

#[tokio::test]
async fn b142_the_same_chunked_and_over_h2() {
    let engine = Engine::start_tcp(Script::always(ChatStream::new(2))).await;
    let router = TestRouter::start(config_for(&[&engine])).await;
    let body = many_tools(26, 376 << 10);
    let mut client = router.client().await;
    let head = tandem::testkit::fixtures::request_head(
        "POST",
        "/v1/chat/completions",
        &["Content-Type: application/json", "Transfer-Encoding: chunked"],
    );
    client.send(&head).await.unwrap();
    for piece in body.as_bytes().chunks(9999) {
        client.send(chunk(piece)).await.unwrap();
    }
    client.send(LAST_CHUNK).await.unwrap();
    assert_eq!(client.read_response().await.unwrap().status(), 200);
    client.close();
    let mut client = router.h2_client().await;
    let uri = format!("{}/v1/chat/completions", router.url());
    let request = Request::post(uri).header("content-type", "application/json").body(()).unwrap();
    assert_eq!(client.request(request, body.clone().into()).await.unwrap().status, 200);
    client.abort();
    assert!(engine.log.requests().iter().all(|request| request.body == body.as_bytes()));
    router.assert_invariants(&[&engine]).await;
}
