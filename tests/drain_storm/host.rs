//! The engine behind one Pod UID: every process that ever ran there, each with its own log.

use std::sync::Arc;
use std::time::Duration;

use tandem::engine::{Dialer, EngineConfig, Role, Running, Socket, Timing, Wire, unbound};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::quiet::Site;
use tandem::testkit::task::spawn;
use tokio::task::JoinHandle;

use super::{ms, secs};

/// Where others reach an engine for KV.
pub(super) const SIDE_PORT: u16 = 8998;
/// How long vLLM keeps KV that nobody pulls.
pub(super) const LEASE: Duration = secs(1);
/// Longest that an SGLang pair without the guard is kept.
pub(super) const GRACE: Duration = secs(1);

const TIMING: Timing = Timing { ttft: ms(20), prefill_token: ms(0), token: ms(15), transfer: ms(30) };

/// What a service consists of; its name is also its model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Plain,
    /// vLLM, NIXL.
    Pull,
    /// SGLang.
    Rooms,
}

pub(super) const KINDS: [Kind; 3] = [Kind::Plain, Kind::Pull, Kind::Rooms];

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Pull => "pull",
            Self::Rooms => "rooms",
        }
    }

    fn wire(self) -> Wire {
        if self == Self::Rooms { Wire::Sglang } else { Wire::Vllm }
    }
}

/// SGLang's own guard of a cancelled decode's pages; without it the router keeps such pairs for the grace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    On,
    Off,
}

/// What does not change about an engine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Make {
    pub(super) kind: Kind,
    pub(super) role: Role,
    pub(super) guard: Guard,
    pub(super) ip: u8,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) uid: String,
    pub(super) site: Arc<Site>,
    pub(super) make: Make,
    /// Every process that ran as this Pod.
    pub(super) lives: Vec<Arc<Running>>,
    doors: Vec<JoinHandle<()>>,
}

pub(super) fn address(ip: u8) -> String {
    format!("192.0.2.{ip}")
}

fn url(ip: u8) -> String {
    format!("http://{}:8000", address(ip))
}

impl Host {
    /// Listens at its address from now on; who listened there before gets no more connections.
    pub(super) fn start(uid: String, make: Make, nets: &[MemoryNet]) -> Self {
        let wire = make.kind.wire();
        let site = Site { uid: uid.clone(), url: url(make.ip), wire, role: make.role, lease: LEASE };
        let mut host = Self { uid, site: Arc::new(site), make, lives: Vec::new(), doors: Vec::new() };
        host.open(nets);
        host
    }

    fn open(&mut self, nets: &[MemoryNet]) {
        let Make { kind, role, guard, ip } = self.make;
        let mut config = EngineConfig::new(kind.wire(), role);
        kind.name().clone_into(&mut config.model);
        config.timing = TIMING;
        config.guard = guard == Guard::On;
        (config.pages, config.log) = (1 << 14, 1 << 16);
        config.waits.lease = LEASE;
        (config.waits.bootstrap, config.waits.waiting) = (secs(3), secs(3));
        (config.waits.dead_bootstrap, config.waits.lost_prefill) = (ms(500), ms(500));
        config.waits.dead_remote = ms(500);
        // vLLM says itself where its KV is. SGLang's decode is told by the router: the Pod's address.
        let own = format!("e{}-{}", &self.uid[self.uid.len() - 6..], self.lives.len());
        config.advertise = if kind == Kind::Rooms { address(ip) } else { own.clone() };
        let side = format!("{}:{SIDE_PORT}", config.advertise);
        let kv = nets[0].clone();
        let dialer = Dialer::new(move |host, port| {
            let net = kv.clone();
            async move { Ok(Box::new(net.dial_host(&host, port).await?) as Box<dyn Socket>) }
        });
        let engine = Arc::new(unbound(config, dialer, SIDE_PORT));
        for net in nets {
            self.door(&engine, net, &address(ip), true);
            // Routers ask a bootstrap server whether it is there; engines reach each other through the first.
            self.door(&engine, net, &side, false);
        }
        self.lives.push(engine);
    }

    fn door(&mut self, engine: &Arc<Running>, net: &MemoryNet, name: &str, front: bool) {
        let (engine, mut door) = (Arc::clone(engine), net.listen(name));
        self.doors.push(spawn(async move {
            while let Ok(stream) = door.accept().await {
                let stream = Box::new(stream);
                if front {
                    spawn(engine.serve(stream));
                } else {
                    spawn(engine.serve_side(stream));
                }
            }
        }));
    }

    pub(super) fn engine(&self) -> &Running {
        self.lives.last().unwrap()
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        self.doors.drain(..).for_each(|door| door.abort());
        self.engine().kill();
    }

    /// A container that is restarted: the same Pod, another process.
    pub(super) fn restart(&mut self, nets: &[MemoryNet]) {
        self.kill();
        self.open(nets);
    }
}
