//! Every key of the table, each by itself: read, printed, defaulted, named as a variable.

use super::super::{KEYS, Key, node, print};
use super::{ONE_SERVICE, example, loaded, source, with_env};

/// A value other than the default for every key, so that no key can be read and forgotten.
const OTHERS: &[(&str, &str)] = &[
    ("listen", "127.0.0.1:1"),
    ("threads", "2"),
    ("admin.listen", "127.0.0.1:2"),
    ("admin.token_file", "/t"),
    ("api_keys_file", "/k"),
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
    ("services[].engine.kind", "plain"), // the only choice
    ("services[].discovery.static.mixed[].url", "http://h:2"),
    ("services[].policy.mixed", "power_of_two"),
    ("services[].retries.max", "0"),
    ("services[].retries.budget", "7%"),
    ("services[].retries.floor", "0"),
    ("services[].upstream.authorization", "strip"),
    ("services[].upstream.authorization.from_secret", "/s"),
    ("services[].upstream.idle", "1ms"),
    ("services[].upstream.cookies", "true"),
];

/// A file that sets one key, in flow style, on top of one service.
fn file_with(path: &str, value: &str) -> String {
    let (start, rest) = path.split_once("services[].").map_or((ONE_SERVICE, path), |(_, rest)| ("", rest));
    let one = |(open, close): (String, String), step: &str| match step.strip_suffix("[]") {
        Some(step) => (format!("{open}{{{step}: ["), format!("]}}{close}")),
        None => (format!("{open}{{{step}: "), format!("}}{close}")),
    };
    let (open, close) = rest.split('.').fold((String::new(), String::new()), one);
    if !start.is_empty() {
        let (section, inside) = open[1..].split_once(' ').unwrap_or((&open[1..], ""));
        return format!("{section} {inside}{value}{}\n{start}", &close[..close.len() - 1]);
    }
    let mut entry = format!("services:\n  - {}{value}{}\n", &open[1..], &close[..close.len() - 1]);
    if !rest.starts_with("name") {
        entry += "    name: a\n";
    }
    if !rest.starts_with("discovery") {
        entry += "    discovery: {static: {mixed: [{url: http://h:1}]}}\n";
    }
    entry
}

/// What stands at a path of the table, as text; lists by their first entry.
fn written(yaml: &str, path: &str) -> String {
    let root = node::parse("f", yaml).unwrap_or_else(|problem| panic!("{problem}"));
    let found = path.split('.').try_fold(&root, |node, step| match step.strip_suffix("[]") {
        Some(step) => node.get(step)?.items().first(),
        None => node.get(step),
    });
    let found = found.map(|node| node.items().first().unwrap_or(node));
    match found.map(|node| &node.value) {
        Some(node::Value::Scalar(text)) => text.clone(),
        other => panic!("{path} is {other:?} in\n{yaml}"),
    }
}

#[test]
fn every_key_of_the_table_is_read_and_printed() {
    assert_eq!(
        OTHERS.iter().map(|(path, _)| *path).collect::<Vec<_>>(),
        KEYS.iter().map(|k| k.path).collect::<Vec<_>>()
    );
    for (path, value) in OTHERS.iter().filter(|(path, _)| !path.ends_with("engine.kind")) {
        let config = loaded(&source(&file_with(path, value)));
        assert_ne!(config, example(), "{path} is not read");
        let printed = print(&config);
        assert_eq!(written(&printed, path), written(&file_with(path, value), path), "{path}");
        assert_eq!(loaded(&source(&printed)), config, "{path}");
    }
}

#[test]
fn the_table_and_the_typed_defaults_agree() {
    for key in KEYS.iter().filter(|key| !["required", "null"].contains(&key.default)) {
        assert_eq!(loaded(&source(&file_with(key.path, key.default))), example(), "{}", key.path);
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
