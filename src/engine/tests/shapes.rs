//! The mock's answers beside the recorded ones: same keys in the same order with the same kinds of values.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::*;

/// JSON without its values. Of a list only its first element.
#[derive(Debug, PartialEq)]
enum Shape {
    Null,
    Bool,
    Number,
    Text,
    List(Option<Box<Shape>>),
    Map(Vec<(String, Shape)>),
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Shape, E> {
                Ok(Shape::Null)
            }
            fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
                Ok(Shape::Bool)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
                Ok(Shape::Number)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
                Ok(Shape::Number)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
                Ok(Shape::Number)
            }
            fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
                Ok(Shape::Text)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let first = list.next_element::<Shape>()?;
                while list.next_element::<Shape>()?.is_some() {}
                Ok(Shape::List(first.map(Box::new)))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Shape::Map(entries))
            }
        }
        from.deserialize_any(Reader)
    }
}

fn shape(json: &str) -> Shape {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"))
}

/// The events of a stream by their shape; the end is none.
fn events(stream: &str) -> Vec<Option<Shape>> {
    let data = |event: crate::testkit::sse::Event| (!event.is_done()).then(|| shape(&event.data));
    crate::testkit::sse::parse(stream.as_bytes()).into_iter().map(data).collect()
}

/// Bodies recorded with a pair.
macro_rules! pair {
    ($name:literal) => {
        include_str!(concat!("../../../tests/fixtures/engine/", $name))
    };
}

/// Whole answers as they were on the wire; here their bodies, chunk framing taken off.
macro_rules! wire {
    ($name:literal) => {
        payload(include_str!(concat!("../../../tests/fixtures/recordings/", $name, ".http")))
    };
}

fn payload(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    if !head.to_lowercase().contains("chunked") {
        return body.to_owned();
    }
    let (mut rest, mut all) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        all.push_str(&after[..size]);
        rest = &after[size + 2..];
        if size == 0 {
            break;
        }
    }
    all
}

async fn asked(wire: Wire, role: Role, path: &str, body: &Value) -> String {
    ask(engine(config(wire, role)).await.addr, path, "", body).await.text()
}

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn whole_answers_of_plain_engines_have_the_recorded_shape() {
    for (wire, recorded) in [(Wire::Vllm, wire!("vllm-chat")), (Wire::Sglang, wire!("sglang-chat"))] {
        let mut mine = shape(&asked(wire, Role::Plain, CHAT, &body("x", &json!({"max_tokens": 1}))).await);
        let mut recorded = shape(&recorded);
        // It was recorded on a prefill that kept its blocks; the next test is about that.
        for one in [&mut mine, &mut recorded] {
            let Shape::Map(entries) = one else { panic!("no object") };
            for (_, value) in entries.iter_mut().filter(|(key, _)| key == "kv_transfer_params") {
                *value = Shape::Null;
            }
        }
        assert_eq!(mine, recorded, "{wire:?}");
    }
    let mine = asked(
        Wire::Sglang,
        Role::Plain,
        "/generate",
        &json!({"text": "x", "sampling_params": {"max_new_tokens": 3}}),
    )
    .await;
    assert_eq!(shape(&mine), shape(&wire!("sglang-generate")));
}

#[tokio::test]
async fn streams_have_the_recorded_events() {
    let usage = json!({"stream": true, "max_tokens": 1, "stream_options": {"include_usage": true}});
    for (wire, recorded) in
        [(Wire::Vllm, wire!("vllm-chat-stream")), (Wire::Sglang, wire!("sglang-chat-stream"))]
    {
        assert_eq!(
            events(&asked(wire, Role::Plain, CHAT, &body("x", &usage)).await),
            events(&recorded),
            "{wire:?}"
        );
    }
    let short = json!({"stream": true, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": true}});
    let mine = asked(Wire::Vllm, Role::Prefill, CHAT, &body("x", &short)).await;
    assert_eq!(events(&mine), events(pair!("vllm-prefill-chat.sse")));
    let completion = json!({"model": "tiny", "prompt": "x", "max_tokens": 1, "stream": true});
    let mine = asked(Wire::Vllm, Role::Prefill, "/v1/completions", &completion).await;
    assert_eq!(events(&mine), events(pair!("vllm-completion.sse")));
    let longer =
        asked(Wire::Vllm, Role::Plain, CHAT, &body("x", &json!({"stream": true, "max_tokens": 3}))).await;
    assert_eq!(events(&longer)[2..], events(pair!("vllm-decode-chat-tail.sse"))[1..]);
}

#[tokio::test]
async fn a_prefill_returns_the_recorded_parameters() {
    let params = json!({"do_remote_decode": true, "do_remote_prefill": false});
    for (max_tokens, recorded) in
        [(1, pair!("vllm-prefill-chat.json")), (5, pair!("vllm-prefill-longer-chat.json"))]
    {
        let asked_for = body("x", &json!({"max_tokens": max_tokens, "kv_transfer_params": params}));
        assert_eq!(shape(&asked(Wire::Vllm, Role::Prefill, CHAT, &asked_for).await), shape(recorded));
    }
    let completion = json!({"model": "tiny", "prompt": "x", "max_tokens": 1, "kv_transfer_params": params});
    let mine = asked(Wire::Vllm, Role::Prefill, "/v1/completions", &completion).await;
    assert_eq!(shape(&mine), shape(pair!("vllm-prefill-completion.json")));
    let decode = asked(Wire::Vllm, Role::Decode, CHAT, &body("x", &json!({"max_tokens": 2}))).await;
    assert_eq!(shape(&decode), shape(pair!("vllm-decode-chat.json")));
    let value: Value = serde_json::from_str(&mine).unwrap();
    let (id, request) = (value["id"].as_str().unwrap(), &value["kv_transfer_params"]["remote_request_id"]);
    assert!(request.as_str().unwrap().starts_with(&format!("{id}-0-")), "{id} {request}");
}

#[tokio::test]
async fn errors_say_the_recorded_words() {
    let decode = |more: Value| async move { asked(Wire::Vllm, Role::Decode, CHAT, &body("x", &more)).await };
    let same = |mine: String, recorded: &str| {
        let (mine, recorded): (Value, Value) =
            (serde_json::from_str(&mine).unwrap(), serde_json::from_str(recorded).unwrap());
        assert_eq!(mine, recorded);
    };
    same(decode(json!({"kv_transfer_params": "x"})).await, pair!("vllm-params-string.json"));
    same(decode(json!({"kv_transfer_params": {"do_remote_prefill": true}})).await, pair!("vllm-fatal.json"));
    same(decode(json!({"max_tokens": 1, "min_tokens": 4})).await, pair!("vllm-min-tokens.json"));
    same(decode(json!({"n": 2, "temperature": 0})).await, pair!("vllm-n-greedy.json"));
    let away = json!({"do_remote_prefill": true, "remote_block_ids": [[1]], "remote_engine_id": "e",
                      "remote_request_id": "r", "remote_host": "127.0.0.1", "remote_port": 1});
    same(decode(json!({"kv_transfer_params": away})).await, pair!("vllm-no-remote.json"));
    let mine = decode(json!({"stream": true, "kv_transfer_params": away})).await;
    let [error, end] = ["data: {\"error\":", "data: [DONE]"].map(|start| {
        let line = |stream: &str| stream.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        (line(&mine), line(pair!("vllm-no-remote.sse")))
    });
    assert_eq!((error.0, end.0), (error.1, end.1), "byte by byte");
    assert_eq!(events(&mine), events(pair!("vllm-no-remote.sse")));
    let mine = asked(
        Wire::Sglang,
        Role::Decode,
        CHAT,
        &body("x", &json!({"rid": "15ca3d2aeebe45969b10afa818ca7b96"})),
    )
    .await;
    same(mine, pair!("sglang-no-room.json"));
}

#[tokio::test]
async fn models_and_unknown_paths_have_the_recorded_shape() {
    let engine = engine(config(Wire::Sglang, Role::Plain)).await;
    assert_eq!(shape(&get(engine.addr, "/v1/models").await.text()), shape(&wire!("sglang-models")));
    assert_eq!(get(engine.addr, "/get_load").await.text(), wire!("sglang-not-found"));
}

#[tokio::test]
async fn loads_begin_like_the_recorded_ones() {
    let recorded = r#"{"timestamp":"","version":"","accelerator":null,"num_accelerators":1,"loads":[{"timestamp":1.5,
        "dp_rank":0,"num_running_reqs":0,"num_waiting_reqs":0,"num_waiting_uncached_tokens":0,"num_used_tokens":0,
        "num_total_tokens":0,"num_active_tokens":0,"num_prealloc_ready_tokens":0,"max_total_num_tokens":1,
        "max_running_requests":1,"token_usage":0.0,"gen_throughput":0.0,"cache_hit_rate":0.0,"utilization":-1.0,
        "total_prefill_uncached_tokens":0,"total_prefill_busy_us":0,"decode_moments":null,"memory":{"weight_gb":0.0,
        "kv_cache_gb":0.0,"graph_gb":0.0,"token_capacity":1},"disaggregation":{"mode":"prefill",
        "prefill_bootstrap_queue_reqs":0,"prefill_inflight_queue_reqs":0,"decode_prealloc_queue_reqs":0,
        "decode_transfer_queue_reqs":0}}]}"#;
    let engine = engine(config(Wire::Sglang, Role::Prefill)).await;
    assert_eq!(shape(&get(engine.addr, "/v1/loads").await.text()), shape(recorded));
}

#[tokio::test]
async fn metrics_have_the_recorded_names_and_labels() {
    let sglang = get(engine(config(Wire::Sglang, Role::Prefill)).await.addr, "/metrics").await.text();
    for name in ["num_running_reqs", "num_queue_reqs", "token_usage", "num_prefill_bootstrap_queue_reqs"] {
        let line = format!(
            "sglang:{name}{{engine_type=\"prefill\",model_name=\"tiny\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"}} 0.0"
        );
        assert!(sglang.lines().any(|have| have == line), "{line}\n{sglang}");
    }
    let vllm = get(engine(config(Wire::Vllm, Role::Plain)).await.addr, "/metrics").await.text();
    for line in [
        "# TYPE vllm:num_requests_running gauge",
        "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 0.0",
        "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"tiny\",reason=\"capacity\"} 0.0",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.0",
        "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\",model_name=\"tiny\"} 0.0",
    ] {
        assert!(vllm.lines().any(|have| have == line), "{line}\n{vllm}");
    }
}
