//! The four engines, at a pace that a person can follow, and the router's configuration in front of them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;

use super::Options;
use crate::config::{EngineKind, Log, RouterConfig, Service, Shutdown, StaticEndpoint, VllmConnector};
use crate::engine::{self, EngineConfig, Role, Running, Timing, Wire};

/// The one model name that the demo answers to.
pub(super) const MODEL: &str = "demo";
/// Part of every text, the same for all four: otherwise they would not say the same.
pub(super) const SEED: u64 = 0;
/// Of each role.
const COUNT: usize = 2;
/// A mid-sized model on one good GPU: 40 tokens a second, a prompt of 200 words read in 150 ms.
const TIMING: Timing = Timing {
    ttft: Duration::from_millis(50),
    prefill_token: Duration::from_micros(500),
    token: Duration::from_millis(25),
    transfer: Duration::from_millis(15),
};
/// Output tokens where a request names no limit.
const TOKENS: u32 = 40;
/// Streams of others that are open at Ctrl-C get this long.
const GRACE: Duration = Duration::from_secs(1);

/// Running engines; dropping them ends them at once.
#[derive(Debug)]
pub(super) struct Engines {
    wire: Wire,
    prefills: Vec<Running>,
    decodes: Vec<Running>,
}

impl Engines {
    pub(super) async fn start(wire: Wire) -> anyhow::Result<Self> {
        let (mut prefills, mut decodes) = (Vec::new(), Vec::new());
        for _ in 0..COUNT {
            prefills.push(start(wire, Role::Prefill).await?);
            decodes.push(start(wire, Role::Decode).await?);
        }
        Ok(Self { wire, prefills, decodes })
    }

    /// What `tandem router --engine … --prefill … --decode … --model demo` would run with.
    pub(super) fn router(&self, options: &Options) -> RouterConfig {
        let kind = match self.wire {
            Wire::Sglang => EngineKind::Sglang,
            Wire::Vllm => EngineKind::Vllm(VllmConnector::Nixl),
        };
        let prefills = self.prefills.iter().map(|engine| {
            let bootstrap = engine.side_addr.filter(|_| self.wire == Wire::Sglang);
            endpoint(engine.addr, bootstrap.map(|at| at.port()))
        });
        let decodes = self.decodes.iter().map(|engine| endpoint(engine.addr, None));
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
        let dead = self.prefills.iter().chain(&self.decodes).filter(|engine| engine.is_dead());
        dead.map(|engine| format!("http://{}", engine.addr)).collect()
    }
}

async fn start(wire: Wire, role: Role) -> anyhow::Result<Running> {
    let mut config = EngineConfig::new(wire, role);
    MODEL.clone_into(&mut config.model);
    config.seed = SEED;
    config.timing = TIMING;
    config.default_tokens = TOKENS;
    // Nobody asks for it here, and a demo may run for days.
    config.log = 0;
    engine::start(config).await.with_context(|| format!("a mock {} engine", role.as_str()))
}

fn endpoint(at: SocketAddr, bootstrap_port: Option<u16>) -> StaticEndpoint {
    let (host, none) = (at.ip().to_string(), String::new());
    StaticEndpoint { host, port: at.port(), bootstrap_port, revision: none.clone(), token: none }
}
