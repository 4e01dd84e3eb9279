//! Every key there is, once: what the reader accepts, what the documentation must list, how variables are named.
//!
//! A key's path uses dots for sections and `[]` for "each entry of this list". The reader refuses what is not here;
//! tests hold `docs/configuration.md`, `config/router.yaml` and the typed defaults to this table.

/// When a change of the key's value is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// At the next start of the process.
    Start,
    /// By a reload of the file: when it changes, and at SIGHUP.
    Live,
    /// The path is fixed at start; the content of the file it names is read again when it changes.
    Content,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub path: &'static str,
    /// What may be written, in the words of the documentation.
    pub kind: &'static str,
    /// As it would be written in the file; `null` is "not set", `required` has none.
    pub default: &'static str,
    pub reload: Reload,
}

impl Key {
    /// The environment variable of this key: `TANDEM_` and the path in capitals. Keys inside lists have none.
    pub fn variable(&self) -> Option<String> {
        let named = !self.path.contains("[]");
        named.then(|| format!("{PREFIX}{}", self.path.replace('.', "_").to_ascii_uppercase()))
    }
}

/// What all our environment variables start with.
pub(super) const PREFIX: &str = "TANDEM_";

/// Variables with the prefix that are no keys: read by the command line itself.
pub const OTHER_VARIABLES: &[&str] = &["TANDEM_CONFIG"];

const fn key(path: &'static str, kind: &'static str, default: &'static str) -> Key {
    Key { path, kind, default, reload: Reload::Start }
}

const fn live(path: &'static str, kind: &'static str, default: &'static str) -> Key {
    Key { path, kind, default, reload: Reload::Live }
}

const fn content(path: &'static str, default: &'static str) -> Key {
    Key { path, kind: "path", default, reload: Reload::Content }
}

/// The keys, in the order of the documentation.
pub const KEYS: &[Key] = &[
    key("listen", "IP:PORT", "0.0.0.0:8080"),
    key("threads", "auto or count", "auto"),
    key("admin.listen", "IP:PORT", "0.0.0.0:9090"),
    content("admin.token_file", "null"),
    content("api_keys_file", "null"),
    live("limits.body", "size", "64MiB"),
    live("limits.buffered_bytes", "auto or size", "auto"),
    live("limits.headers", "count", "100"),
    live("limits.header_bytes", "size", "64KiB"),
    live("limits.url", "size", "8KiB"),
    key("limits.connections", "auto or count", "auto"),
    live("limits.in_flight", "count", "0"),
    live("limits.h2_streams", "count", "100"),
    key("timeouts.header_read", "duration", "10s"),
    key("timeouts.body_progress", "duration", "30s"),
    key("timeouts.connect", "duration", "1s"),
    key("timeouts.first_byte", "duration", "600s"),
    key("timeouts.idle", "duration", "120s"),
    key("timeouts.write_stall", "duration", "30s"),
    key("timeouts.total", "duration", "0"),
    key("timeouts.downstream_idle", "duration", "75s"),
    key("shutdown.delay", "duration", "5s"),
    key("shutdown.grace", "duration", "600s"),
    key("access_log.sink", "off, stdout or path", "stdout"),
    key("access_log.format", "json or text", "json"),
    key("access_log.sample", "share", "100%"),
    key("log.level", "error, warn, info, debug or trace", "info"),
    key("log.format", "json or text", "text"),
    key("services[].name", "name", "required"),
    live("services[].models", "list of names", "[]"),
    live("services[].model_match", "auto, any or listed", "auto"),
    key("services[].engine.kind", "plain, sglang or vllm", "plain"),
    key("services[].engine.connector", "nixl or store", "nixl"),
    live("services[].discovery.static.prefill[].url", "http://HOST:PORT", "required"),
    live("services[].discovery.static.prefill[].bootstrap_port", "port", "8998"),
    live("services[].discovery.static.decode[].url", "http://HOST:PORT", "required"),
    live("services[].discovery.static.mixed[].url", "http://HOST:PORT", "required"),
    live("services[].policy.mixed", "round_robin, least_in_flight or power_of_two", "least_in_flight"),
    live("services[].policy.prefill", "round_robin, least_in_flight or power_of_two", "least_in_flight"),
    live("services[].policy.decode", "round_robin, least_in_flight or power_of_two", "least_in_flight"),
    live("services[].retries.max", "count", "2"),
    live("services[].retries.budget", "share", "20%"),
    live("services[].retries.floor", "count", "3"),
    key("services[].upstream.authorization", "auto, pass, strip or {from_secret: path}", "auto"),
    content("services[].upstream.authorization.from_secret", "null"),
    key("services[].upstream.idle", "duration", "4s"),
    live("services[].upstream.cookies", "true or false", "false"),
    live("services[].upstream.handoff_max_age", "duration", "15s"),
    live("services[].upstream.kv_lease", "duration", "30s"),
    live("services[].upstream.cancel_decode_grace", "auto or duration", "auto"),
];

/// Keys of the design that this version does not have. Refused with those words: nothing is wrong with the spelling,
/// and a key that were ignored would be worse than one that is refused.
pub(super) const UNSUPPORTED: &[&str] = &[
    "tls",
    "state_file",
    "observer",
    "services[].discovery.kubernetes",
    "services[].eligibility",
    "services[].split",
    "services[].cohorts",
    "services[].sticky",
];

/// The key at exactly this path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The key of an environment variable.
pub(super) fn find_variable(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.variable().is_some_and(|variable| variable == name))
}

/// Names allowed directly below a section, each once. The root is the empty path.
pub(super) fn children(section: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for key in KEYS {
        let below = if section.is_empty() {
            Some(key.path)
        } else {
            key.path.strip_prefix(section).and_then(|rest| rest.strip_prefix('.'))
        };
        let name = below.and_then(|below| below.split(['.', '[']).next());
        if let Some(name) = name.filter(|name| !names.contains(name)) {
            names.push(name);
        }
    }
    names
}

/// Whether the path is a list whose entries have keys of their own.
pub(super) fn is_list(path: &str) -> bool {
    KEYS.iter().any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with("[]")))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_path_and_no_variable_stands_twice() {
        let paths: HashSet<_> = KEYS.iter().map(|k| k.path).chain(UNSUPPORTED.iter().copied()).collect();
        assert_eq!(paths.len(), KEYS.len() + UNSUPPORTED.len());
        let variables: Vec<_> = KEYS.iter().filter_map(Key::variable).collect();
        assert_eq!(variables.iter().collect::<HashSet<_>>().len(), variables.len());
        assert!(OTHER_VARIABLES.iter().all(|other| find_variable(other).is_none()));
    }

    #[test]
    fn variables_are_named_mechanically() {
        assert!(find_variable("TANDEM_LISTEN").is_some_and(|k| k.path == "listen"));
        assert!(find_variable("TANDEM_TIMEOUTS_FIRST_BYTE").is_some_and(|k| k.path == "timeouts.first_byte"));
        assert_eq!(find("services[].name").and_then(Key::variable), None);
    }

    #[test]
    fn children_are_the_names_below_a_section() {
        assert_eq!(children("shutdown"), ["delay", "grace"]);
        assert_eq!(children("services[].discovery.static"), ["prefill", "decode", "mixed"]);
        assert!(children("").contains(&"services") && is_list("services"));
        assert!(children("log").len() == 2 && !is_list("log"));
    }
}
