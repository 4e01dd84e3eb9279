//! Keys of a service, Pod discovery excepted.

use super::{Key, content, key, live};

pub(super) const KEYS: &[Key] = &[
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
