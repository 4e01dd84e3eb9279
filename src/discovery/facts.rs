//! What an engine says of itself over HTTP, read out of its answers. What is not there, or not of the form that the engine is
//! known to write, is not known: it is never a contradiction.
//!
//! vLLM's NIXL compatibility hash is read where an engine tells it, as the gauge `vllm:nixl_config_info` (vllm#52999, in no
//! release yet). Elsewhere a decode alone sees it, on a side channel (ZMQ), and what goes into it and is told over HTTP stands
//! for it: the version, where the weights are from, the type of the KV.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::EngineKind;
use crate::registry::EngineFacts;
use crate::types::fact::Fact;

/// Reads the body of an answer with status 200.
pub type Read = fn(&[u8], &mut EngineFacts);

/// What is asked, in this order.
pub const fn questions(engine: EngineKind) -> &'static [(&'static str, Read)] {
    match engine {
        EngineKind::Plain => &[],
        EngineKind::Sglang => &[("/server_info", sglang)],
        EngineKind::Vllm(_) => &[
            ("/version", vllm_version),
            ("/v1/models", vllm_models),
            ("/metrics", vllm_metrics),
            // Only where the engine runs in development mode; last, for it may take its time.
            ("/server_info?config_format=json", vllm_config),
        ],
    }
}

/// SGLang's arguments, as it runs with them.
fn sglang(body: &[u8], facts: &mut EngineFacts) {
    #[derive(Deserialize)]
    struct Info {
        #[serde(default)]
        disaggregation_mode: Value,
        #[serde(default)]
        served_model_name: Value,
        #[serde(default)]
        revision: Value,
        #[serde(default)]
        version: Value,
        #[serde(default)]
        disaggregation_transfer_backend: Value,
        #[serde(default)]
        page_size: Value,
        #[serde(default)]
        kv_cache_dtype: Value,
    }
    let Some(info) = object::<Info>(body) else { return };
    let mode = info.disaggregation_mode.as_str();
    let role = mode.and_then(|mode| match mode {
        "null" => Some("mixed"),
        "prefill" | "decode" => Some(mode),
        _ => None,
    });
    facts.set(Fact::Role, role.unwrap_or_default());
    set(facts, Fact::Model, &info.served_model_name);
    set(facts, Fact::ModelRevision, &info.revision);
    set(facts, Fact::Version, &info.version);
    // It has a default, which says nothing of a server that serves alone.
    if matches!(role, Some("prefill" | "decode")) {
        set(facts, Fact::TransferBackend, &info.disaggregation_transfer_backend);
    }
    set(facts, Fact::PageSize, &info.page_size);
    set(facts, Fact::KvCacheDtype, &info.kv_cache_dtype);
}

fn vllm_version(body: &[u8], facts: &mut EngineFacts) {
    #[derive(Deserialize)]
    struct Answer {
        version: Value,
    }
    if let Some(answer) = object::<Answer>(body) {
        set(facts, Fact::Version, &answer.version);
    }
}

/// The first model that is no adapter of another: its `root` is what the engine was told to load.
fn vllm_models(body: &[u8], facts: &mut EngineFacts) {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        #[serde(default)]
        root: Value,
        #[serde(default)]
        parent: Value,
    }
    let base = object::<List>(body).and_then(|list| list.data.into_iter().find(|m| m.parent.is_null()));
    if let Some(model) = base {
        set(facts, Fact::Model, &model.root);
    }
}

/// Labels of two gauges. Of several engines in one server the first: they have one configuration.
fn vllm_metrics(body: &[u8], facts: &mut EngineFacts) {
    let Ok(page) = std::str::from_utf8(body) else { return };
    let mut set = |gauge: &str, name: &str, fact: Fact| {
        let labels = page.lines().find_map(|line| line.strip_prefix(gauge)?.strip_prefix('{'));
        let mut parts = labels.into_iter().flat_map(|labels| labels.split("\","));
        let value = parts.find_map(|part| part.strip_prefix(name)?.strip_prefix("=\""));
        let value = value.and_then(|value| value.split('"').next()).filter(|value| *value != "None");
        facts.set(fact, value.unwrap_or_default());
    };
    set("vllm:cache_config_info", "block_size", Fact::PageSize);
    set("vllm:cache_config_info", "cache_dtype", Fact::KvCacheDtype);
    set("vllm:nixl_config_info", "compatibility_hash", Fact::KvCompatibility);
}

/// vLLM's whole configuration, of which this is its own.
fn vllm_config(body: &[u8], facts: &mut EngineFacts) {
    #[derive(Deserialize)]
    struct Answer {
        vllm_config: Config,
    }
    #[derive(Deserialize)]
    struct Config {
        #[serde(default)]
        model_config: Value,
        #[serde(default)]
        kv_transfer_config: Value,
    }
    let Some(Answer { vllm_config: config }) = object(body) else { return };
    set(facts, Fact::ModelRevision, &config.model_config["revision"]);
    // One that takes both parts says nothing of which it is used for.
    let role = match config.kv_transfer_config["kv_role"].as_str() {
        Some("kv_producer") => "prefill",
        Some("kv_consumer") => "decode",
        _ => "",
    };
    facts.set(Fact::Role, role);
    let connector = &config.kv_transfer_config["kv_connector"];
    // It holds several, and works with each of them.
    if connector != "MultiConnector" {
        set(facts, Fact::TransferBackend, connector);
    }
}

fn object<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}

/// Words and whole numbers; anything else is not known.
fn set(facts: &mut EngineFacts, fact: Fact, value: &Value) {
    match value {
        Value::String(word) => facts.set(fact, word),
        Value::Number(number) => facts.set(fact, &number.to_string()),
        _ => {}
    }
}

#[cfg(test)]
#[path = "tests/facts.rs"]
mod tests;
