//! The engines, at a pace that a person can follow, and the router's configuration in front of them.

use std::time::Duration;

use anyhow::Context as _;

use super::Options;
use crate::config::{EngineKind, Log, RouterConfig, Service, Shutdown, StaticEndpoint, VllmConnector};
use crate::engine::{self, EngineConfig, Role, Running, Timing, Wire};

/// The one model name that the demo answers to.
pub(super) const MODEL: &str = "demo";
/// Part of every text, the same for all four: otherwise they would not say the same.
pub(super) const SEED: u64 = 0;
/// Of each role and release.
const COUNT: usize = 2;
/// Output tokens where a request names no limit.
const TOKENS: u32 = 40;
/// Streams of others that are open at Ctrl-C get this long.
const GRACE: Duration = Duration::from_secs(1);

/// What the configuration says of an engine beside its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Release {
    pub(super) revision: &'static str,
    pub(super) token: &'static str,
}

impl Release {
    /// Where all engines are alike.
    pub(super) const ONLY: Self = Self { revision: "", token: "" };
}

/// How long work takes, and how many requests and connections each engine remembers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) timing: Timing,
    pub(super) log: usize,
}

impl Pace {
    /// A mid-sized model on one good GPU: 40 tokens a second, a prompt of 200 words read in 150 ms. Nobody asks what was
    /// sent, and a demo may run for days.
    pub(super) const GENTLE: Self = Self {
        timing: Timing {
            ttft: Duration::from_millis(50),
            prefill_token: Duration::from_micros(500),
            token: Duration::from_millis(25),
            transfer: Duration::from_millis(15),
        },
        log: 0,
    };
}

/// One engine, and what it is.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) release: Release,
    pub(super) running: Running,
}

/// Running engines; dropping them ends them at once.
#[derive(Debug)]
pub(super) struct Engines {
    wire: Wire,
    pub(super) prefills: Vec<Member>,
    pub(super) decodes: Vec<Member>,
}

impl Engines {
    pub(super) async fn start(wire: Wire, releases: &[Release], pace: &Pace) -> anyhow::Result<Self> {
        let (mut prefills, mut decodes) = (Vec::new(), Vec::new());
        for &release in releases {
            for _ in 0..COUNT {
                prefills.push(Member { release, running: start(wire, Role::Prefill, pace).await? });
                decodes.push(Member { release, running: start(wire, Role::Decode, pace).await? });
            }
        }
        Ok(Self { wire, prefills, decodes })
    }

    /// Nobody, for tests.
    #[cfg(test)]
    pub(super) fn none(wire: Wire) -> Self {
        Self { wire, prefills: Vec::new(), decodes: Vec::new() }
    }

    /// What `tandem router --engine … --prefill … --decode … --model demo` would run with.
    pub(super) fn router(&self, options: &Options) -> RouterConfig {
        let kind = match self.wire {
            Wire::Sglang => EngineKind::Sglang,
            Wire::Vllm => EngineKind::Vllm(VllmConnector::Nixl),
        };
        let prefills = self.prefills.iter().map(|engine| {
            let bootstrap = engine.running.side_addr.filter(|_| self.wire == Wire::Sglang);
            endpoint(engine, bootstrap.map(|at| at.port()))
        });
        let decodes = self.decodes.iter().map(|engine| endpoint(engine, None));
        let mut service = Service::pairs("demo", kind, prefills.collect(), decodes.collect());
        service.models = vec![MODEL.to_owned()];
        let mut config = RouterConfig::defaults();
        config.listen = options.listen;
        config.admin.listen = options.admin_listen;
        config.shutdown = Shutdown { delay: Duration::ZERO, grace: GRACE };
        // What happens to requests is in the view; here is what should not happen, and what operators do.
        config.log = Log { level: "warn".to_owned(), ..config.log };
        config.services = vec![service];
        config
    }

    /// Origins of those that were killed (`POST /mock/die`).
    pub(super) fn dead(&self) -> Vec<String> {
        let all = self.prefills.iter().chain(&self.decodes).map(|engine| &engine.running);
        all.filter(|engine| engine.is_dead()).map(|engine| format!("http://{}", engine.addr)).collect()
    }
}

async fn start(wire: Wire, role: Role, pace: &Pace) -> anyhow::Result<Running> {
    let mut config = EngineConfig::new(wire, role);
    MODEL.clone_into(&mut config.model);
    config.seed = SEED;
    config.timing = pace.timing;
    config.default_tokens = TOKENS;
    config.log = pace.log;
    engine::start(config).await.with_context(|| format!("a mock {} engine", role.as_str()))
}

fn endpoint(engine: &Member, bootstrap_port: Option<u16>) -> StaticEndpoint {
    let (at, Release { revision, token }) = (engine.running.addr, engine.release);
    StaticEndpoint {
        host: at.ip().to_string(),
        port: at.port(),
        bootstrap_port,
        revision: revision.to_owned(),
        token: token.to_owned(),
    }
}
