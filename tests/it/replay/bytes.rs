//! Bytes are sacred: odd text, odd numbers, unknown fields and tool calls reach the engine as the client wrote them,
//! and whatever the engine says reaches the client (B127 B128 B130 B131 B134 B137 B140 B142).

use std::fmt::Write as _;

use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};
use tandem::testkit::client::RawResponse;
use tandem::testkit::engine::openai::{ChatStream, chat_json, content_event, event, sse_head};
use tandem::testkit::engine::{Body, Engine, EngineHandle, IntoSteps, Response, Script, Step};
use tandem::testkit::fixtures::{post, post_chat};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::{TestRouter, config, config_for};
use tandem::testkit::wire::chunked::{LAST_CHUNK, chunk};

use super::scale;

struct Rig {
    engine: EngineHandle,
    router: TestRouter,
}

impl Rig {
    fn new(script: Script) -> Self {
        let net = MemoryNet::new();
        let engine = Engine::in_memory(&net, "e1", script);
        let router = TestRouter::in_memory(config(&["e1:80".to_owned()]), &net);
        Self { engine, router }
    }

    async fn send(&self, body: impl AsRef<[u8]>) -> RawResponse {
        let mut client = self.router.memory_client().await;
        client.request(&post_chat(body)).await.unwrap()
    }

    /// Sends a body that must pass, and checks that the engine got these very bytes.
    async fn passes(&self, body: impl AsRef<[u8]>) -> RawResponse {
        let body = body.as_ref();
        let before = self.engine.log.request_count();
        let answer = self.send(body).await;
        assert_eq!(answer.status(), 200, "{}: {}", String::from_utf8_lossy(body), answer.text());
        let requests = self.engine.log.requests();
        assert_eq!(requests.len(), before + 1);
        assert!(
            requests[before].body == body,
            "changed: {}",
            String::from_utf8_lossy(&requests[before].body)
        );
        answer
    }

    async fn done(self) {
        self.router.assert_invariants(&[&self.engine]).await;
    }
}

fn hi() -> Script {
    Script::always(chat_json("hi"))
}

/// Sizes at which somebody cuts a preview, a prefix or a log line.
const CUTS: [usize; 12] = [12, 64, 100, 128, 200, 256, 500, 512, 1024, 2048, 8192, 65536];

/// CI: 12 sizes × 5 characters × 5 offsets in model, prompt and path. Full: 40 offsets.
#[tokio::test(start_paused = true)]
async fn b127_no_cut_falls_inside_a_character() {
    let rig = Rig::new(hi());
    let near = scale(2, 20);
    for cut in CUTS {
        for odd in ["数", "─", "\u{200c}", "👩\u{200d}👩\u{200d}👧", "e\u{301}"] {
            for offset in cut - near..=cut + near {
                let text = "a".repeat(offset) + &odd.repeat(8);
                let (model, prompt) =
                    if cut > 2048 { ("m", text.as_str()) } else { (text.as_str(), text.as_str()) };
                rig.passes(
                    json!({"model": model, "messages": [{"role": "user", "content": prompt}]}).to_string(),
                )
                .await;
            }
        }
    }
    rig.done().await;
}

/// The same in what is refused: the model name in an error, the path of a 404.
#[tokio::test(start_paused = true)]
async fn b127_errors_that_quote_the_client_are_cut_at_characters() {
    let net = MemoryNet::new();
    let mut config = config(&["e1:80".to_owned()]);
    config.services[0].models = vec!["known".to_owned()];
    let router = TestRouter::in_memory(config, &net);
    for offset in 120..=136 {
        let model = "a".repeat(offset) + "数👩\u{200d}👧─";
        let mut client = router.memory_client().await;
        let answer =
            client.request(&post_chat(json!({"model": model, "messages": []}).to_string())).await.unwrap();
        assert_eq!((answer.status(), &answer.json()["error"]["code"]), (404, &json!("model_not_found")));
        let path = format!("/v1/{}%E6%95%B0", "a".repeat(offset));
        let answer = client.request(&post(&path, &[], "{}")).await.unwrap();
        assert_eq!((answer.status(), &answer.json()["error"]["code"]), (404, &json!("unknown_route")));
    }
    // Not a URI for us: refused, whoever says so, and nothing breaks.
    let mut client = router.memory_client().await;
    let answer = client.request(&post("/v1/模型", &[], "{}")).await.unwrap();
    assert!((400..=404).contains(&answer.status()), "{}", answer.status());
    client.close();
    let lines = router.access_lines();
    assert!(lines.iter().filter_map(|l| l["model"].as_str()).all(|m| m.len() <= 128 && m.starts_with("aaa")));
    router.assert_invariants(&[]).await;
}

/// A model name is data: it is in no header, so it can break none, and no engine is blamed for it.
#[tokio::test(start_paused = true)]
async fn b128_a_model_name_never_becomes_a_header() {
    let rig = Rig::new(hi());
    for model in [
        "模型-β [x]".to_owned(),
        "a\r\nx-evil: 1".to_owned(),
        "\u{0}\u{7f}\u{85}\u{2028}".to_owned(),
        "x".repeat(9000),
    ] {
        let answer = rig.passes(json!({"model": model, "messages": []}).to_string()).await;
        assert_eq!(answer.header("x-evil"), None);
        let head = String::from_utf8(answer.head.raw.clone()).unwrap();
        assert!(head.is_ascii() && !head.contains("evil") && head.len() < 1000, "{head}");
    }
    for request in rig.engine.log.requests() {
        assert!(request.head.is_ascii());
        assert_eq!(request.headers.get("x-evil"), None);
    }
    assert!(!rig.router.endpoints()[0].ejection.is_ejected());
    // One line each, whatever the name holds.
    let text = rig.router.access_text();
    assert_eq!(text.lines().count(), 4);
    assert!(!text.contains('\u{2028}') && !text.contains('\u{85}') && !text.contains('\u{7f}'));
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn b130_surrogates_nulls_and_normal_forms_are_not_touched() {
    let rig = Rig::new(hi());
    for content in [
        r"\ud83d",
        r"\udc00a",
        r"\ud83d\ud83d\ude00",
        r"\u0000",
        r"\uD83D\uDE00 \/ \b\f",
        "é e\u{301} \u{212b} \u{f900} \u{fb01}",
        "\u{feff}\u{200c}\u{202e}\u{10ffff}",
    ] {
        rig.passes(format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{content}"}}],"x":"{content}"}}"#
        ))
        .await;
    }
    // Where it is a name that the router must understand, it is understood or refused, never changed.
    let lone = rig.send(r#"{"model":"m\ud83d","messages":[]}"#).await;
    assert!(lone.status() == 400 || lone.status() == 200);
    let sent = rig.engine.log.requests();
    assert!(sent.iter().all(|r| !String::from_utf8_lossy(&r.body).contains('\u{fffd}')));
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn b130_invalid_utf8_is_400_and_reaches_no_engine() {
    let rig = Rig::new(hi());
    for bad in [&b"\xff"[..], b"\xc3", b"\xed\xa0\xbd", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xf5\x80\x80\x80"] {
        let body = [br#"{"model":"m","messages":[{"content":""#, bad, br#""}]}"#].concat();
        let answer = rig.send(&body).await;
        assert_eq!(
            (answer.status(), &answer.json()["error"]["code"]),
            (400, &json!("invalid_json")),
            "{bad:?}"
        );
    }
    assert_eq!(rig.engine.log.request_count(), 0);
    rig.done().await;
}

/// Byte tokens of an engine's logprobs, in a document and in a stream, are the engine's bytes.
#[tokio::test(start_paused = true)]
async fn b130_the_engines_own_odd_text_passes_untouched() {
    let body = r#"{ "choices":[{"logprobs":{"content":[{"token":"\ud83d","bytes":[240,159]},{"token":"\u00e9"}]}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2} }"#;
    let rig = Rig::new(Script::always(Response::json(200, body)));
    assert_eq!(rig.passes(r#"{"model":"m"}"#).await.body, body.as_bytes());
    let events =
        [event(body.replace('\n', " ").as_str()), event("{\"a\":\"\u{2028}\"}"), content_event("\u{0}é")];
    let mut steps = vec![Step::Write(sse_head())];
    steps.extend(events.iter().map(|e| Step::Write(chunk(e.as_bytes()))));
    steps.push(Step::write(LAST_CHUNK));
    rig.engine.set_script(Script::always(steps));
    assert_eq!(rig.passes(r#"{"model":"m","stream":true}"#).await.text(), events.concat());
    // Not even text: an answer that says it is JSON and is not.
    let garbage = Bytes::from_static(b"{\"a\":\"\xff\xfe\x00\"}");
    rig.engine.set_script(Script::always(Response::json(200, garbage.clone())));
    assert_eq!(rig.passes(r#"{"model":"m"}"#).await.body, garbage);
    rig.done().await;
}

const NUMBERS: [&str; 20] = [
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "-9223372036854775809",
    "1e400",
    "-1e400",
    "1E+2",
    "1.0",
    "1.00e0",
    "-0",
    "-0.0",
    "0.1e-400",
    "123456789012345678901234567890123456789012345678901234567890",
    "0.123456789012345678901234567890123456789012345678901234567890",
    "5e-324",
    "1e0000000000000000000000000000000000000001",
    "3.141592653589793238462643383279",
];

#[tokio::test(start_paused = true)]
async fn b131_every_digit_arrives() {
    let rig = Rig::new(hi());
    for n in NUMBERS {
        rig.passes(format!(
            r#"{{"model":"m","seed":{n},"metadata":{{"x":{n}}},"messages":[],"tools":[{{"type":"function","function":{{"name":"f","parameters":{{"minimum":{n},"enum":[{n},{n}]}}}}}}],"max_tokens":{n},"n":{n},"priority":{n}}}"#
        ))
        .await;
    }
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn b131_the_engines_digits_arrive_too() {
    let list = NUMBERS.join(",");
    let body = format!(r#"{{"choices":[],"created":{},"x":[{list}]}}"#, NUMBERS[15]);
    let rig = Rig::new(Script::always(Response::json(200, body.clone())));
    assert_eq!(rig.passes(r#"{"model":"m"}"#).await.text(), body);
    rig.done().await;
}

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
