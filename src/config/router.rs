//! The effective configuration of `tandem router`: plain values, already validated.
//!
//! `config::load` produces it from defaults, file, `TANDEM_*` environment and flags (in that order of growing
//! precedence). Nothing below this module reads files or the environment. Defaults are the table at the end of
//! `docs/configuration.md`; every duration of `None` means "no limit" (written `0` in the file).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::discovery::{Eligibility, Kubernetes, Observer, PodDiscovery};
use super::split::{CohortsBy, InferenceService, SplitEntry, Sticky};

/// Everything the router process needs to start.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterConfig {
    /// Front door, where clients connect. Key `listen`.
    pub listen: SocketAddr,
    /// Traffic threads; `None` (written `auto`) is `min(cores, 4)`. Key `threads`.
    pub threads: Option<usize>,
    /// Admin listener.
    pub admin: Admin,
    /// File with one front-door API key per line; hot-reloaded. Key `api_keys_file`.
    pub api_keys_file: Option<PathBuf>,
    /// Body, header, connection and concurrency bounds.
    pub limits: Limits,
    /// Every timer of the relay, each separate.
    pub timeouts: Timeouts,
    /// What happens between SIGTERM and exit.
    pub shutdown: Shutdown,
    /// One line per request.
    pub access_log: AccessLog,
    /// Diagnostics on standard error.
    pub log: Log,
    /// File that keeps facts over a restart: eligibility latches. Key `state_file`.
    pub state_file: Option<PathBuf>,
    pub observer: Observer,
    pub kubernetes: Kubernetes,
    /// What is served. At least one.
    pub services: Vec<Service>,
}

/// Key `admin`.
#[derive(Debug, Clone, PartialEq)]
pub struct Admin {
    /// Address of probes, metrics and operator routes.
    pub listen: SocketAddr,
    /// File whose trimmed content is the token that mutating admin routes require; none: loopback peers only (I11).
    pub token_file: Option<PathBuf>,
}

/// Key `limits`.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Largest request body, bytes; above it 413.
    pub body: u64,
    /// Request bytes buffered by the whole process, bytes; above it 503. `None` (`auto`): a quarter of the cgroup's
    /// memory limit, else 1 GiB.
    pub buffered_bytes: Option<u64>,
    /// Most header fields in a request head; above it 431.
    pub headers: usize,
    /// Largest request head, bytes; above it 431.
    pub header_bytes: usize,
    /// Longest request target, bytes; above it 414.
    pub url: usize,
    /// Most downstream connections. `None` (`auto`): 0.4 × the descriptor limit.
    pub connections: Option<usize>,
    /// Most requests in flight in the process; above it 503 with `Retry-After`. 0: no limit.
    pub in_flight: usize,
    /// Most streams one h2 connection may have open.
    pub h2_streams: u32,
}

/// Key `timeouts`. `None` is "never", written `0`.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeouts {
    /// From the first byte of a request head (or from accept, for a client that sends nothing) to its end.
    pub header_read: Option<Duration>,
    /// Longest silence while a request body is awaited.
    pub body_progress: Option<Duration>,
    /// TCP connect to an engine.
    pub connect: Option<Duration>,
    /// From the request written to the engine's response head.
    pub first_byte: Option<Duration>,
    /// Longest silence of an engine inside a response.
    pub idle: Option<Duration>,
    /// Longest time a client may take none of the bytes waiting for it.
    pub write_stall: Option<Duration>,
    /// Whole request, from its head read to its last response byte.
    pub total: Option<Duration>,
    /// A client connection between requests.
    pub downstream_idle: Option<Duration>,
}

/// Key `shutdown`.
#[derive(Debug, Clone, PartialEq)]
pub struct Shutdown {
    /// After SIGTERM: unready, but still accepting, so that load balancers can notice.
    pub delay: Duration,
    /// After that: time for open requests to finish before they are ended with an error.
    pub grace: Duration,
}

/// Key `access_log`.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessLog {
    /// Where lines go. `off`, `stdout`, or a file path.
    pub sink: LogSink,
    /// `json` or `text`.
    pub format: LogFormat,
    /// Share of requests with outcome `ok` that are logged, 0.0 to 1.0; all others are always logged.
    pub sample: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogSink {
    Off,
    Stdout,
    File(PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Json,
    Text,
}

/// Key `log`.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    pub format: LogFormat,
}

/// One entry of `services`.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Label value in metrics and logs; unique.
    pub name: String,
    /// Model names it answers to. Empty: any.
    pub models: Vec<String>,
    pub model_match: ModelMatch,
    pub engine: EngineKind,
    /// Endpoints that serve whole requests alone (`discovery.static.mixed`), as origins `http://host:port`.
    pub endpoints: Vec<StaticEndpoint>,
    /// Endpoints that only prefill (`discovery.static.prefill`). Empty exactly where `decode` is.
    pub prefill: Vec<StaticEndpoint>,
    /// Endpoints that only decode (`discovery.static.decode`).
    pub decode: Vec<StaticEndpoint>,
    /// Pods instead of listed endpoints (`discovery.kubernetes`).
    pub pods: Option<PodDiscovery>,
    pub eligibility: Eligibility,
    pub policy: Policies,
    pub retries: Retries,
    pub upstream: Upstream,
    /// What makes a cohort where no split does. Key `cohorts.by`.
    pub cohorts_by: CohortsBy,
    /// Requests to engines, and responses, name their cohort and the split's version. Key `cohorts.headers`.
    pub cohort_headers: bool,
    /// Engines whose own word contradicts their labels get no request. Key `cohorts.guard`.
    pub cohorts_guard: bool,
    /// Weights of the cohorts; `None`: no split. Key `split.weights`.
    pub split: Option<Vec<SplitEntry>>,
    /// Its status has the weights instead.
    pub rollout: Option<InferenceService>,
    pub sticky: Sticky,
}

/// Key `model_match`: what happens to a request whose `model` no service lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelMatch {
    /// `any` while `models` is empty, else `listed`.
    Auto,
    /// Serve every model name.
    Any,
    /// Only names in `models`; others are 404.
    Listed,
}

/// Key `engine.kind`: which dialect of prefill/decode its endpoints speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// One leg: any OpenAI-compatible server.
    Plain,
    /// Both legs at once, met through the prefill's bootstrap server.
    Sglang,
    /// The prefill first, then the decode.
    Vllm(VllmConnector),
}

impl EngineKind {
    /// The word of `engine.kind`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Sglang => "sglang",
            Self::Vllm(_) => "vllm",
        }
    }
}

/// Key `engine.connector`: how a vLLM decode gets the KV of its prefill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VllmConnector {
    /// The decode pulls it from the prefill; the prefill's answer carries the `kv_transfer_params` for that.
    Nixl,
    /// Both sides share a store (LMCache, shared storage); nothing has to be carried over.
    Store,
}

/// Port of an SGLang prefill's bootstrap server where none is written: the engine's own default.
pub const DEFAULT_BOOTSTRAP_PORT: u16 = 8998;

/// One static endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticEndpoint {
    /// Host name, IPv4 or bracketed IPv6 address as written.
    pub host: String,
    pub port: u16,
    /// Port of the bootstrap server on the same host. Only prefills of SGLang have one, and after `load` all of them do.
    pub bootstrap_port: Option<u16>,
    /// Version of its component; empty: none.
    pub revision: String,
    /// Pairing token; empty: pairs with any.
    pub token: String,
}

/// Key `policy`: a choice for each role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policies {
    pub mixed: Policy,
    pub prefill: Policy,
    pub decode: Policy,
}

impl Policies {
    /// The same choice for every role.
    pub const fn all(policy: Policy) -> Self {
        Self { mixed: policy, prefill: policy, decode: policy }
    }
}

/// Choice among the endpoints of one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    RoundRobin,
    LeastInFlight,
    PowerOfTwo,
}

/// Key `retries`; rules in `docs/request-lifecycle.md`.
#[derive(Debug, Clone, PartialEq)]
pub struct Retries {
    /// Further attempts after the first. 0 or less in the file: none.
    pub max: u32,
    /// Retries as a share of a service's requests over 10 s, 0.0 to 1.0 (written `20%`).
    pub budget: f64,
    /// Retries per second that are allowed however few requests there are.
    pub floor: u32,
}

/// Key `upstream`.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    pub authorization: Authorization,
    /// How long a connection to an engine may wait for its next request. Engines close theirs after 5 s.
    pub idle: Duration,
    /// Pass the client's `Cookie` header on.
    pub cookies: bool,
    /// Oldest KV parameters (vLLM) that a decode may still be sent, counted from the prefill's answer. Below `kv_lease`: a
    /// decode that pulls after the lease answers 200 with garbage.
    pub handoff_max_age: Duration,
    /// How long a prefill keeps KV that no decode has asked for (vLLM).
    pub kv_lease: Duration,
    /// How long an SGLang pair that is given up is let go on, so that no running KV write hits pages of another request.
    /// `None` (`auto`): nothing where the engine reports 0.5.23 or newer, else 5 s.
    pub cancel_decode_grace: Option<Duration>,
}

/// Key `upstream.authorization`: what happens to the client's `Authorization` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// Strip when front-door keys are set, else pass.
    Auto,
    Pass,
    Strip,
    /// Replace by `Bearer <trimmed content of this file>`, read at start and re-read when it changes.
    /// Written `{ from_secret: PATH }`.
    FromSecret(PathBuf),
}

impl Authorization {
    /// Whether the client's own header goes on to the engine. `front_keys`: the front door has keys of its own.
    pub fn passes(&self, front_keys: bool) -> bool {
        match self {
            Self::Auto => !front_keys,
            Self::Pass => true,
            Self::Strip | Self::FromSecret(_) => false,
        }
    }
}
