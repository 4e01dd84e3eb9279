//! Every key of the table, each by itself: read, printed, defaulted, named as a variable.

use serde_json::{Value, json};

use super::super::{KEYS, Key, RouterConfig, node, print};
use super::{ONE_SERVICE, loaded, source, with_env};

/// A value other than the default for every key, so that no key can be read and forgotten.
const OTHERS: &[(&str, &str)] = &[
    ("listen", "127.0.0.1:1"),
    ("threads", "2"),
    ("admin.listen", "127.0.0.1:2"),
    ("admin.token_file", "/t"),
    ("api_keys_file", "/k"),
    ("state_file", "/s"),
    ("observer.on_front_door", "true"),
    ("kubernetes.kubeconfig", "/k"),
    ("kubernetes.context", "c"),
    ("limits.body", "1KiB"),
    ("limits.buffered_bytes", "128MiB"),
    ("limits.headers", "10"),
    ("limits.header_bytes", "8KiB"),
    ("limits.url", "256"),
    ("limits.connections", "1"),
    ("limits.in_flight", "1"),
    ("limits.h2_streams", "1"),
    ("timeouts.header_read", "1ms"),
    ("timeouts.body_progress", "1ms"),
    ("timeouts.connect", "1ms"),
    ("timeouts.first_byte", "1ms"),
    ("timeouts.idle", "1ms"),
    ("timeouts.write_stall", "1ms"),
    ("timeouts.total", "1ms"),
    ("timeouts.downstream_idle", "0"),
    ("shutdown.delay", "0"),
    ("shutdown.grace", "0"),
    ("access_log.sink", "'off'"),
    ("access_log.format", "text"),
    ("access_log.sample", "50%"),
    ("log.level", "trace"),
    ("log.format", "json"),
    ("services[].name", "b"),
    ("services[].models", "[m]"),
    ("services[].model_match", "any"),
    ("services[].engine.kind", "sglang"),
    ("services[].engine.connector", "store"),
    ("services[].discovery.static.prefill[].url", "http://h:2"),
    ("services[].discovery.static.prefill[].bootstrap_port", "1"),
    ("services[].discovery.static.prefill[].revision", "r2"),
    ("services[].discovery.static.prefill[].token", "kv"),
    ("services[].discovery.static.decode[].url", "http://h:2"),
    ("services[].discovery.static.decode[].revision", "r2"),
    ("services[].discovery.static.decode[].token", "kv"),
    ("services[].discovery.static.mixed[].url", "http://h:2"),
    ("services[].discovery.static.mixed[].revision", "r2"),
    ("services[].discovery.static.mixed[].token", "kv"),
    ("services[].policy.mixed", "power_of_two"),
    ("services[].policy.prefill", "power_of_two"),
    ("services[].policy.decode", "power_of_two"),
    ("services[].retries.max", "0"),
    ("services[].retries.budget", "7%"),
    ("services[].retries.floor", "0"),
    ("services[].upstream.authorization", "strip"),
    ("services[].upstream.authorization.from_secret", "/s"),
    ("services[].upstream.idle", "1ms"),
    ("services[].upstream.cookies", "true"),
    ("services[].upstream.handoff_max_age", "1ms"),
    ("services[].upstream.kv_lease", "1h"),
    ("services[].upstream.cancel_decode_grace", "0"),
    ("services[].cohorts.by", "revision"),
    ("services[].cohorts.headers", "true"),
    ("services[].cohorts.guard", "off"),
    ("services[].split.weights[].name", "n"),
    ("services[].split.weights[].revision", "r2"),
    ("services[].split.weights[].prefill", "[p2]"),
    ("services[].split.weights[].decode", "[d2]"),
    ("services[].split.weights[].token", "kv"),
    ("services[].split.weights[].weight", "7"),
    ("services[].split.inferenceservice.namespace", "n"),
    ("services[].split.inferenceservice.name", "i2"),
    ("services[].sticky.headers", "[x-session-id]"),
    ("services[].sticky.body_field", "user"),
    ("services[].discovery.kubernetes.namespace", "n"),
    ("services[].discovery.kubernetes.selector", "{b: c}"),
    ("services[].discovery.kubernetes.prefill", "{b: c}"),
    ("services[].discovery.kubernetes.decode", "{b: c}"),
    ("services[].discovery.kubernetes.mixed", "{b: c}"),
    ("services[].discovery.kubernetes.dialect", "ome"),
    ("services[].discovery.kubernetes.relist", "1s"),
    ("services[].discovery.kubernetes.relist_read", "cached"),
    ("services[].discovery.kubernetes.ip_family", "ipv6"),
    ("services[].discovery.kubernetes.ports", "[http]"),
    ("services[].discovery.kubernetes.bootstrap_port", "1"),
    ("services[].discovery.kubernetes.probe", "models"),
    ("services[].discovery.kubernetes.keys.eligible", "a.b/c=d"),
    ("services[].discovery.kubernetes.keys.role", "a.b/c"),
    ("services[].discovery.kubernetes.keys.prefill_values", "[p]"),
    ("services[].discovery.kubernetes.keys.decode_values", "[d]"),
    ("services[].discovery.kubernetes.keys.mixed_values", "[m]"),
    ("services[].discovery.kubernetes.keys.model", "a.b/c"),
    ("services[].discovery.kubernetes.keys.revision", "a.b/c"),
    ("services[].discovery.kubernetes.keys.token", "a.b/c"),
    ("services[].discovery.kubernetes.keys.ports", "a.b/c"),
    ("services[].discovery.kubernetes.keys.bootstrap_port", "a.b/c"),
    ("services[].discovery.kubernetes.keys.drain", "'off'"),
    ("services[].discovery.kubernetes.keys.worker_info", "a.b/c"),
    ("services[].eligibility.mode", "observed"),
    ("services[].eligibility.prefill", "observed"),
    ("services[].eligibility.decode", "observed"),
    ("services[].eligibility.mixed", "observed"),
    ("services[].eligibility.fail_static", "true"),
];

const PODS: &str = "services[].discovery.kubernetes.";

/// A file with one service that a key may be set in: those of prefill/decode need an engine that has them.
fn base(path: &str) -> Value {
    if path.starts_with(PODS) || path.starts_with("services[].eligibility") {
        let pods = json!({"selector": {"app": "a"}});
        return json!({"services": [{"name": "a", "engine": {"kind": "sglang"}, "discovery": {"kubernetes": pods}}]});
    }
    if path.starts_with("services[].split.inferenceservice") {
        let endpoints = json!({"static": {"mixed": [{"url": "http://h:1"}]}});
        let split = json!({"inferenceservice": {"name": "i1"}});
        return json!({"services": [{"name": "a", "discovery": endpoints, "split": split}]});
    }
    if let Some(key) = path.strip_prefix("services[].split.weights[].") {
        // A side and a revision exclude each other.
        let entry = match key {
            "prefill" | "decode" => json!({"token": "t", "weight": 1}),
            _ => json!({"revision": "r1", "weight": 1}),
        };
        let endpoints = json!({"static": {"mixed": [{"url": "http://h:1"}]}});
        return json!({"services": [{"name": "a", "discovery": endpoints, "split": {"weights": [entry]}}]});
    }
    let kind = match path.strip_prefix("services[].").unwrap_or_default() {
        "engine.connector" => "vllm",
        key if key.starts_with("discovery.static.prefill") || key.starts_with("discovery.static.decode") => {
            "sglang"
        }
        _ => {
            return json!({"services": [{"name": "a", "discovery": {"static": {"mixed": [{"url": "http://h:1"}]}}}]});
        }
    };
    let pairs = json!({"prefill": [{"url": "http://p:1"}], "decode": [{"url": "http://d:1"}]});
    json!({"services": [{"name": "a", "engine": {"kind": kind}, "discovery": {"static": pairs}}]})
}

/// That file with one key set.
fn file_with(path: &str, value: &str) -> String {
    let mut file = base(path);
    let mut at = &mut file;
    for step in path.split('.') {
        at = match step.strip_suffix("[]") {
            Some(list) => &mut at[list][0],
            None => &mut at[step],
        };
    }
    // `off` is a word of ours.
    let words = serde_saphyr::options! { strict_booleans: true };
    *at = serde_saphyr::from_str_with_options(value, words).unwrap();
    let labels = at.as_object().is_some_and(|labels| !labels.is_empty());
    // Labels of a role need some of the other beside them.
    let other = [("prefill", "decode"), ("decode", "prefill")]
        .into_iter()
        .find(|(role, _)| path.strip_prefix(PODS) == Some(role));
    if let (Some((_, other)), true) = (other, labels) {
        file["services"][0]["discovery"]["kubernetes"][other] = json!({"other": "label"});
    }
    file.to_string()
}

fn without(path: &str) -> RouterConfig {
    loaded(&source(&base(path).to_string()))
}

/// What stands at a path of the table, as text; lists and labels by their first entry.
fn written(yaml: &str, path: &str) -> String {
    let root = node::parse("f", yaml).unwrap_or_else(|problem| panic!("{problem}"));
    let found = path.split('.').try_fold(&root, |node, step| match step.strip_suffix("[]") {
        Some(step) => node.get(step)?.items().first(),
        None => node.get(step),
    });
    let found = found.map(|node| node.items().first().unwrap_or(node));
    match found.map(|node| &node.value) {
        Some(node::Value::Scalar(text)) => text.clone(),
        Some(node::Value::Map(labels)) if !labels.is_empty() => {
            let node::Entry { key, node, .. } = &labels[0];
            format!("{key}={:?}", node.value)
        }
        other => panic!("{path} is {other:?} in\n{yaml}"),
    }
}

#[test]
fn every_key_of_the_table_is_read_and_printed() {
    assert_eq!(
        OTHERS.iter().map(|(path, _)| *path).collect::<Vec<_>>(),
        KEYS.iter().map(|k| k.path).collect::<Vec<_>>()
    );
    for (path, value) in OTHERS {
        let config = loaded(&source(&file_with(path, value)));
        assert_ne!(config, without(path), "{path} is not read");
        let printed = print(&config);
        assert_eq!(written(&printed, path), written(&file_with(path, value), path), "{path}");
        assert_eq!(loaded(&source(&printed)), config, "{path}");
    }
}

#[test]
fn the_table_and_the_typed_defaults_agree() {
    for key in KEYS.iter().filter(|key| !["required", "null"].contains(&key.default)) {
        assert_eq!(loaded(&source(&file_with(key.path, key.default))), without(key.path), "{}", key.path);
    }
}

#[test]
fn every_variable_sets_its_key() {
    for (path, value) in OTHERS.iter().filter(|(path, _)| !path.contains("[]")) {
        let variable = KEYS.iter().find(|key| key.path == *path).and_then(Key::variable).unwrap_or_default();
        let config = loaded(&with_env(ONE_SERVICE, &[(&variable, value.trim_matches('\''))]));
        assert_eq!(config, loaded(&source(&file_with(path, value))), "{variable}");
    }
}
