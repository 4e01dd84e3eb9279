//! `tandem engine`: a mock engine as a process.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use super::exit::{Exit, fail, show};
use super::help;
use crate::drain::Signals;
use crate::engine::{self, Connector, DuplicateRoom, EngineConfig, LoadFailure, Role, Rule, Wire};

/// Run a mock engine that speaks the SGLang or vLLM wire
#[derive(Debug, Args)]
#[command(after_help = help::ENGINE, after_long_help = help::ENGINE)]
pub(super) struct Engine {
    /// Whose HTTP it speaks
    #[arg(long, value_enum, value_name = "WIRE")]
    wire: WireName,
    /// What it does of a request
    #[arg(long, value_enum, default_value_t = RoleName::Plain, value_name = "ROLE")]
    role: RoleName,
    /// Front door; port 0: any free one, printed
    #[arg(long, default_value = "127.0.0.1:0", value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Port of an SGLang prefill's bootstrap server, or that vLLM's blocks are pulled from; 0: any free one
    #[arg(long, visible_alias = "kv-port", default_value_t = 0, value_name = "PORT")]
    bootstrap_port: u16,
    /// Host that it tells other engines for that port [default: the one it listens on]
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Model name it answers to
    #[arg(long, default_value = "tiny", value_name = "NAME")]
    model: String,
    /// Part of every text: engines that must say the same need the same
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,

    #[command(flatten)]
    time: Time,
    #[command(flatten)]
    size: Size,
    #[command(flatten)]
    kv: KvFlags,

    /// Fault for requests to come, TIMES*WORDS or WORDS, such as `3*status=503`; may be repeated
    #[arg(long, value_name = "RULE", value_parser = Rule::parse)]
    script: Vec<Rule>,
    /// Most requests that the log keeps; 0: no log
    #[arg(long, default_value_t = 4096, value_name = "N")]
    log: usize,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Time")]
struct Time {
    /// Fixed time of a prefill, such as 50ms
    #[arg(long, default_value = "0s", value_parser = super::time, value_name = "TIME")]
    ttft: Duration,
    /// Prefill time per prompt token, on top
    #[arg(long, default_value = "0s", value_parser = super::time, value_name = "TIME")]
    prefill_per_token: Duration,
    /// Between two output tokens
    #[arg(long, default_value = "0s", value_parser = super::time, value_name = "TIME")]
    per_token: Duration,
    /// Moving one request's KV
    #[arg(long, default_value = "0s", value_parser = super::time, value_name = "TIME")]
    transfer: Duration,
    /// Factor on every wait of the real engines: 300 s for a missing half, 4 s until SGLang sees a closed socket, 30 s of
    /// vLLM's lease, …
    #[arg(long, default_value_t = 1.0, value_parser = factor, value_name = "FACTOR")]
    scale: f64,
    /// vLLM's lease alone, in place of 30 s × scale
    #[arg(long, value_parser = super::time, value_name = "TIME")]
    lease: Option<Duration>,
    /// Until a closed socket is noticed alone, in place of 4 s (SGLang) or 0 s (vLLM) × scale
    #[arg(long, value_parser = super::time, value_name = "TIME")]
    disconnect: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Size")]
struct Size {
    /// KV pages, or blocks
    #[arg(long, default_value_t = 4096, value_name = "N")]
    pages: u32,
    /// Tokens in each [default: 16 (SGLang), 128 (vLLM)]
    #[arg(long = "page-size", value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    page: Option<u32>,
    /// Requests that compute at the same time
    #[arg(long, default_value_t = 256, value_name = "N")]
    max_running: usize,
    /// Output tokens of a request that names no limit
    #[arg(long, default_value_t = 16, value_name = "N")]
    tokens: u32,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Hand-over of KV")]
struct KvFlags {
    /// vLLM's connector
    #[arg(long, value_enum, default_value_t = ConnectorName::Nixl, value_name = "NAME")]
    connector: ConnectorName,
    /// With `--connector store`: HOST:PORT of the prefill's --kv-port
    #[arg(long, value_name = "HOST:PORT")]
    store: Option<String>,
    /// SGLang decode: give pages back at once when a request is aborted, as before 0.5.23. The next request that gets them
    /// answers text marked as corrupted
    #[arg(long)]
    guard_off: bool,
    /// SGLang: what becomes of a room that is in use
    #[arg(long, value_enum, default_value_t = DuplicateName::Hang, value_name = "WHAT")]
    duplicate_room: DuplicateName,
    /// vLLM decode: what becomes of a request whose blocks cannot be pulled
    #[arg(long, value_enum, default_value_t = LoadFailureName::Fail, value_name = "WHAT")]
    load_failure: LoadFailureName,
    /// Live on after a request that kills the real engine
    #[arg(long)]
    sturdy: bool,
}

/// A flag's words for an enum of the engine.
macro_rules! words {
    ($name:ident => $target:ident { $($word:ident),* }) => {
        #[derive(Debug, Clone, Copy, ValueEnum)]
        pub(super) enum $name { $($word),* }

        impl From<$name> for $target {
            fn from(name: $name) -> Self {
                match name { $($name::$word => Self::$word),* }
            }
        }
    };
}

words!(WireName => Wire { Sglang, Vllm });
words!(RoleName => Role { Plain, Prefill, Decode });
words!(ConnectorName => Connector { Nixl, Store });
words!(DuplicateName => DuplicateRoom { Hang, Fail });
words!(LoadFailureName => LoadFailure { Fail, Recompute });

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| (0.0..=1e6).contains(factor));
    factor.ok_or_else(|| "no factor such as 0.01".to_owned())
}

impl Engine {
    pub(super) fn run(&self) -> Exit {
        let served = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("runtime")
            .and_then(|runtime| runtime.block_on(serve(self.config())));
        served.unwrap_or_else(|error| fail(&error))
    }

    fn config(&self) -> EngineConfig {
        let (wire, time) = (self.wire.into(), &self.time);
        let mut config = EngineConfig::new(wire, self.role.into()).scaled(time.scale);
        config.listen = self.listen;
        config.side_listen = SocketAddr::new(self.listen.ip(), self.bootstrap_port);
        config.advertise = self.advertise.clone().unwrap_or_else(|| self.listen.ip().to_string());
        config.model.clone_from(&self.model);
        config.seed = self.seed;
        config.timing.ttft = time.ttft;
        config.timing.prefill_token = time.prefill_per_token;
        config.timing.token = time.per_token;
        config.timing.transfer = time.transfer;
        config.waits.lease = time.lease.unwrap_or(config.waits.lease);
        config.waits.disconnect = time.disconnect.unwrap_or(config.waits.disconnect);
        config.pages = self.size.pages.max(1);
        config.page_size = self.size.page.unwrap_or(config.page_size);
        config.max_running = self.size.max_running.max(1);
        config.default_tokens = self.size.tokens;
        config.connector = self.kv.connector.into();
        config.store.clone_from(&self.kv.store);
        config.guard = !self.kv.guard_off;
        config.duplicate_room = self.kv.duplicate_room.into();
        config.load_failure = self.kv.load_failure.into();
        config.fragile = !self.kv.sturdy;
        config.script.clone_from(&self.script);
        config.log = self.log;
        config
    }
}

/// Until a signal, or until the engine meets what kills the real one.
async fn serve(config: EngineConfig) -> anyhow::Result<Exit> {
    let mut signals = Signals::new().context("signal handlers")?;
    let (wire, role, listen) = (config.wire.as_str(), config.role.as_str(), config.listen);
    let engine = engine::start(config).await.with_context(|| format!("listen {listen}"))?;
    let side = engine.side_addr.map(|side| format!(" side={side}")).unwrap_or_default();
    show(&format!("serving wire={wire} role={role} addr={}{side}\n", engine.addr));
    tokio::select! {
        () = engine.died() => Ok(Exit::Failure),
        _ = signals.next() => {
            tokio::select! {
                () = engine.stop() => {}
                _ = signals.next() => engine.kill(),
            }
            Ok(Exit::Ok)
        }
    }
}
