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
    /// What it is for, as the documentation says it.
    pub meaning: &'static str,
}

impl Reload {
    /// The word of the documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Live => "live",
            Self::Content => "content",
        }
    }
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
pub const OTHER_VARIABLES: &[&str] = &["TANDEM_CONFIG", "TANDEM_ADMIN", "TANDEM_ENGINE", "TANDEM_TOKEN_FILE"];

const fn key(path: &'static str, kind: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind, default, reload: Reload::Start, meaning }
}

const fn live(path: &'static str, kind: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind, default, reload: Reload::Live, meaning }
}

const fn content(path: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind: "path", default, reload: Reload::Content, meaning }
}

/// The keys, in the order of the documentation.
pub const KEYS: &[Key] = &[
    key("listen", "IP:PORT", "0.0.0.0:8080", "Front door, where clients connect. Port 0: one that is free"),
    key(
        "threads",
        "auto or count",
        "auto",
        "Traffic threads, 1 to 256; `auto`: the number of cores, at most 4",
    ),
    key(
        "admin.listen",
        "IP:PORT",
        "0.0.0.0:9090",
        "Probes, metrics and operator routes. Must not be the port of `listen`",
    ),
    content(
        "admin.token_file",
        "null",
        "Its trimmed content is the token that routes which change something require; `null`: they answer loopback peers only",
    ),
    content("api_keys_file", "null", "Front-door API keys, one a line; `null`: no key is asked for"),
    live(
        "limits.body",
        "size",
        "64MiB",
        "Largest request body, at least 1 KiB; above it 413. Raise it for images",
    ),
    live(
        "limits.buffered_bytes",
        "auto or size",
        "auto",
        "Request bytes held by the whole process, at least `limits.body`; above it 503 with `Retry-After`. `auto`: a quarter of the cgroup's memory limit, else 1 GiB",
    ),
    live("limits.headers", "count", "100", "Header fields of a request, 10 to 1000; above it 431"),
    live("limits.header_bytes", "size", "64KiB", "Request head, 8 KiB to 1 MiB; above it 431"),
    live(
        "limits.url",
        "size",
        "8KiB",
        "Request target, 256 to 65534 bytes and at most `limits.header_bytes`; above it 414",
    ),
    key(
        "limits.connections",
        "auto or count",
        "auto",
        "Client connections; `auto`: 0.4 of the descriptor limit",
    ),
    live("limits.in_flight", "count", "0", "Requests at once; above it 503 with `Retry-After`; 0: no limit"),
    live("limits.h2_streams", "count", "100", "Open streams of one HTTP/2 connection, 1 to 10000"),
    key(
        "timeouts.header_read",
        "duration",
        "10s",
        "From the first byte of a request head, or from the connection for a client that sends nothing, to the head's end",
    ),
    key("timeouts.body_progress", "duration", "30s", "Longest silence while a request body is awaited"),
    key("timeouts.connect", "duration", "1s", "TCP connection to an engine"),
    key(
        "timeouts.first_byte",
        "duration",
        "600s",
        "From the request written to the head of the engine's answer",
    ),
    key("timeouts.idle", "duration", "120s", "Longest silence of an engine inside an answer"),
    key(
        "timeouts.write_stall",
        "duration",
        "30s",
        "Longest time a client may take none of the bytes that wait for it",
    ),
    key("timeouts.total", "duration", "0", "Whole request, from its head to its last answered byte"),
    key("timeouts.downstream_idle", "duration", "75s", "A client connection between two requests"),
    key(
        "shutdown.delay",
        "duration",
        "5s",
        "After SIGTERM: not ready, but still accepting, so that load balancers can notice",
    ),
    key(
        "shutdown.grace",
        "duration",
        "600s",
        "After that: time for open requests to finish before they are ended with an error. `0`: none",
    ),
    key(
        "access_log.sink",
        "off, stdout or path",
        "stdout",
        "Where the line of each request goes. A path needs a `/` (`./access.log`)",
    ),
    key("access_log.format", "json or text", "json", "Form of these lines"),
    key(
        "access_log.sample",
        "share",
        "100%",
        "Share of successful requests that are logged; all others always are",
    ),
    key(
        "log.level",
        "error, warn, info, debug or trace",
        "info",
        "Least important diagnostics that are written to standard error",
    ),
    key("log.format", "json or text", "text", "Form of diagnostics"),
    key(
        "services[].name",
        "name",
        "required",
        "Label in metrics and logs, unique: 1 to 63 of `a-z`, `0-9`, `.`, `_`, `-`, a letter or digit at both ends",
    ),
    live(
        "services[].models",
        "list of names",
        "[]",
        "Model names it answers to, each listed by one service only",
    ),
    live(
        "services[].model_match",
        "auto, any or listed",
        "auto",
        "`any`: also what no service lists (one service at most); `listed`: its own names, 404 for others; `auto`: `any` while `models` is empty, else `listed`",
    ),
    key(
        "services[].engine.kind",
        "plain, sglang or vllm",
        "plain",
        "`plain`: any OpenAI-compatible server; `sglang`, `vllm`: engines that may be split into prefill and decode",
    ),
    key(
        "services[].engine.connector",
        "nixl or store",
        "nixl",
        "vLLM only: how a decode gets the KV. `nixl`: it pulls from the prefill; `store`: both sides share a store",
    ),
    live(
        "services[].discovery.static.prefill[].url",
        "http://HOST:PORT",
        "required",
        "An endpoint that only prefills; as for `mixed`",
    ),
    live(
        "services[].discovery.static.prefill[].bootstrap_port",
        "port",
        "8998",
        "SGLang only: its bootstrap server, on the host of `url`. Two prefills of one service never share an address",
    ),
    live(
        "services[].discovery.static.decode[].url",
        "http://HOST:PORT",
        "required",
        "An endpoint that only decodes; as for `mixed`",
    ),
    live(
        "services[].discovery.static.mixed[].url",
        "http://HOST:PORT",
        "required",
        "An endpoint that serves whole requests: scheme, host and port (80 when absent), nothing else. Two spellings of one endpoint are a mistake",
    ),
    live(
        "services[].policy.mixed",
        "round_robin, least_in_flight or power_of_two",
        "least_in_flight",
        "Choice among mixed endpoints",
    ),
    live(
        "services[].policy.prefill",
        "round_robin, least_in_flight or power_of_two",
        "least_in_flight",
        "Choice among prefill endpoints",
    ),
    live(
        "services[].policy.decode",
        "round_robin, least_in_flight or power_of_two",
        "least_in_flight",
        "Choice among decode endpoints",
    ),
    live(
        "services[].retries.max",
        "count",
        "2",
        "Further attempts after the first, at most 10; 0 or less: none. [When](request-lifecycle.md#5-dispatch)",
    ),
    live(
        "services[].retries.budget",
        "share",
        "20%",
        "Retries as a share of the service's requests over 10 s",
    ),
    live(
        "services[].retries.floor",
        "count",
        "3",
        "Retries per second that are allowed however few requests there are",
    ),
    key(
        "services[].upstream.authorization",
        "auto, pass, strip or {from_secret: path}",
        "auto",
        "The client's `Authorization` header. `auto`: strip if `api_keys_file` is set, else pass. `pass` with `api_keys_file` is a mistake: it would hand the router's keys to engines",
    ),
    content(
        "services[].upstream.authorization.from_secret",
        "null",
        "Replaces the header by `Bearer` and the trimmed content of this file",
    ),
    key(
        "services[].upstream.idle",
        "duration",
        "4s",
        "How long an unused connection to an engine is kept; engines close theirs after 5 s. `0`: not kept",
    ),
    live("services[].upstream.cookies", "true or false", "false", "Pass the client's `Cookie` header on"),
    live(
        "services[].upstream.handoff_max_age",
        "duration",
        "15s",
        "vLLM: oldest KV parameters that a decode is sent, from the prefill's answer on; older ones are not used and the prefill is done again. Less than `kv_lease`",
    ),
    live(
        "services[].upstream.kv_lease",
        "duration",
        "30s",
        "vLLM: how long a prefill keeps KV that no decode has asked for (the engine's `kv_lease_duration`)",
    ),
    live(
        "services[].upstream.cancel_decode_grace",
        "auto or duration",
        "auto",
        "SGLang: how long a pair that is given up goes on, so that a running KV write hits no other request. `auto`: 0 where the engine reports 0.5.23 or newer, else 5 s",
    ),
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
