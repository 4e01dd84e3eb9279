//! What a mock engine is: wire, role, sizes, and every delay of the real engines it stands for.
//!
//! Defaults are the real engines' values as measured; [`EngineConfig::scaled`] shrinks the long ones together, so that a
//! test waits milliseconds for what takes minutes in production and the order of events stays the same.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::script::Rule;

/// Whose HTTP and whose hand-over of KV it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wire {
    /// SGLang 0.5.23.
    Sglang,
    /// vLLM 0.32.
    Vllm,
}

impl Wire {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
        }
    }
}

/// What it does of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Plain,
    Prefill,
    Decode,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// How vLLM's KV gets from prefill to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connector {
    /// Decode pulls blocks that the prefill leases to it, named in `kv_transfer_params`.
    Nixl,
    /// Both use a store; nothing is on the wire of a request.
    Store,
}

/// What an SGLang prefill does with a room that is already in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuplicateRoom {
    /// Silence until the bootstrap time-out.
    Hang,
    /// Fails at once.
    Fail,
}

/// vLLM's `kv_load_failure_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadFailure {
    Fail,
    Recompute,
}

/// How long work takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Fixed part of a prefill.
    pub ttft: Duration,
    /// Per prompt token, on top.
    pub prefill_token: Duration,
    /// Between two output tokens.
    pub token: Duration,
    /// Moving the KV of one request: SGLang's write, vLLM's pull.
    pub transfer: Duration,
}

/// The engines' own waits. Not part of [`Timing`]: these are limits, not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// SGLang: from a request's arrival until its rid can be aborted; an earlier abort is lost.
    pub register: Duration,
    /// From a peer's leaving until its request ends. SGLang looks every 4 s, vLLM at once.
    pub disconnect: Duration,
    /// SGLang prefill without its decode.
    pub bootstrap: Duration,
    /// SGLang decode without its KV.
    pub waiting: Duration,
    /// SGLang decode whose bootstrap server cannot be reached.
    pub dead_bootstrap: Duration,
    /// SGLang decode whose prefill went away under it.
    pub lost_prefill: Duration,
    /// SGLang decode without `bootstrap_host`: until the process is gone.
    pub die: Duration,
    /// vLLM decode whose remote cannot be reached or is another engine.
    pub dead_remote: Duration,
    /// vLLM: how long a prefill keeps blocks that nobody pulls.
    pub lease: Duration,
    /// After SIGTERM: how long running requests may take (SGLang); vLLM ends them at once.
    pub stop: Duration,
}

/// Everything that one mock engine is started with.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    pub wire: Wire,
    pub role: Role,
    /// vLLM only.
    pub connector: Connector,
    /// Port 0: any.
    pub listen: SocketAddr,
    /// SGLang prefill: its bootstrap server. vLLM prefill and decode: where blocks are pulled from.
    pub side_listen: SocketAddr,
    /// Host that the engine tells others for its side port.
    pub advertise: String,
    /// vLLM store connector: `HOST:PORT` of the side port that has the store. `None`: its own.
    pub store: Option<String>,
    pub model: String,
    pub timing: Timing,
    pub waits: Waits,
    /// SGLang decode: an aborted request keeps its pages until the write into them is over
    /// (`SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE`).
    pub guard: bool,
    pub duplicate_room: DuplicateRoom,
    pub load_failure: LoadFailure,
    /// Whether what kills a real engine kills this one.
    pub fragile: bool,
    /// KV pages (SGLang) or blocks (vLLM), and tokens in each.
    pub pages: u32,
    pub page_size: u32,
    /// Requests that compute at the same time; more wait.
    pub max_running: usize,
    /// Output tokens where a request names no limit; it then ends with `stop`.
    pub default_tokens: u32,
    /// Part of every text and id: a pair and what it is compared with must share it.
    pub seed: u64,
    /// Most requests and connections that the log keeps; the oldest go first. 0: no log.
    pub log: usize,
    pub script: Vec<Rule>,
}

impl EngineConfig {
    /// The engine with the real waits, on free ports of loopback, working in no time.
    pub fn new(wire: Wire, role: Role) -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sglang = wire == Wire::Sglang;
        Self {
            wire,
            role,
            connector: Connector::Nixl,
            listen: any,
            side_listen: any,
            advertise: "127.0.0.1".to_owned(),
            store: None,
            model: "tiny".to_owned(),
            timing: Timing {
                ttft: Duration::ZERO,
                prefill_token: Duration::ZERO,
                token: Duration::ZERO,
                transfer: Duration::ZERO,
            },
            waits: Waits {
                register: if sglang { Duration::from_millis(50) } else { Duration::ZERO },
                disconnect: if sglang { Duration::from_secs(4) } else { Duration::ZERO },
                bootstrap: Duration::from_mins(5),
                waiting: Duration::from_mins(5),
                dead_bootstrap: Duration::from_secs(14),
                lost_prefill: Duration::from_millis(7600),
                die: Duration::from_secs(5),
                dead_remote: Duration::from_secs(5),
                lease: Duration::from_secs(30),
                stop: Duration::from_secs(12),
            },
            guard: true,
            duplicate_room: DuplicateRoom::Hang,
            load_failure: LoadFailure::Fail,
            fragile: true,
            pages: 4096,
            page_size: if sglang { 16 } else { 128 },
            max_running: 256,
            default_tokens: 16,
            seed: 0,
            log: 4096,
            script: Vec::new(),
        }
    }

    /// Every engine wait multiplied by `factor`; the work's timing stays.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.waits = self.waits.scaled(factor);
        self
    }
}

impl Waits {
    fn scaled(self, factor: f64) -> Self {
        let by = |wait: Duration| Duration::try_from_secs_f64(wait.as_secs_f64() * factor).unwrap_or(wait);
        Self {
            register: by(self.register),
            disconnect: by(self.disconnect),
            bootstrap: by(self.bootstrap),
            waiting: by(self.waiting),
            dead_bootstrap: by(self.dead_bootstrap),
            lost_prefill: by(self.lost_prefill),
            die: by(self.die),
            dead_remote: by(self.dead_remote),
            lease: by(self.lease),
            stop: by(self.stop),
        }
    }
}
