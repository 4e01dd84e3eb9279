//! Three prefills and three decodes that work by a clock, a router before them, and what can be done to all of it.

use std::sync::Arc;
use std::time::Duration;

use tandem::config::{Policies, Policy, StaticEndpoint};
use tandem::engine::{Dialer, EngineConfig, Role, Running, Socket, Timing, Wire, unbound};
use tandem::testkit::memory::{DialFault, MemoryNet};
use tandem::testkit::router::{TestRouter, config};
use tandem::testkit::task::spawn;
use tokio::task::JoinHandle;

use super::super::rig::{NIXL, SGLANG, ms, secs};
use super::cases::{Harm, Kind, Side};

/// Engines of each role.
pub(super) const EACH: usize = 3;
/// Tokens of an answer.
pub(super) const TOKENS: u32 = 4;
/// Longest that an SGLang pair without the guard is kept, and that vLLM keeps KV.
pub(super) const GRACE: Duration = secs(1);
/// Where others reach an engine for KV.
const SIDE_PORT: u16 = 8998;

/// 100 ms of prefill, 100 ms of transfer, four tokens 50 ms apart: the first at 200 ms, the last at 350 ms.
const TIMING: Timing = Timing { ttft: ms(100), prefill_token: ms(0), token: ms(50), transfer: ms(100) };
/// A dial that takes longer than parameters may be old.
const SLOW: Duration = ms(600);

/// One address, and every engine that ever ran there.
pub(super) struct Host {
    pub(super) name: String,
    role: Role,
    pub(super) lives: Vec<Arc<Running>>,
    doors: Vec<JoinHandle<()>>,
}

pub(super) struct World {
    kind: Kind,
    pub(super) net: MemoryNet,
    pub(super) prefills: Vec<Host>,
    pub(super) decodes: Vec<Host>,
    pub(super) router: TestRouter,
}

impl World {
    pub(super) fn new(kind: Kind) -> Self {
        let net = MemoryNet::new();
        let hosts = |role: Role, letter: char| {
            let host = |n| {
                let name = format!("{letter}{n}");
                let mut host = Host { name, role, lives: Vec::new(), doors: Vec::new() };
                host.open(kind, &net);
                host
            };
            (0..EACH).map(host).collect::<Vec<_>>()
        };
        let (prefills, decodes) = (hosts(Role::Prefill, 'p'), hosts(Role::Decode, 'd'));
        let router = TestRouter::in_memory(settings(kind, &prefills, &decodes), &net);
        Self { kind, net, prefills, decodes, router }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn side(&mut self, side: Side) -> &mut Vec<Host> {
        if side == Side::Decode { &mut self.decodes } else { &mut self.prefills }
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.prefills.iter().chain(&self.decodes)
    }

    /// Does this to the engines of `side` named by the bits of `victims`.
    pub(super) async fn strike(&mut self, (side, harm): (Side, Harm), victims: u32) {
        let fault = match harm {
            Harm::Refused => DialFault::Refuse,
            Harm::Unanswered => DialFault::BlackHole,
            Harm::Slow => DialFault::Delay(SLOW),
            _ => DialFault::None,
        };
        let (net, kind) = (self.net.clone(), self.kind);
        let hit = |n: &usize| victims & (1 << n) != 0;
        for n in (0..EACH).filter(hit) {
            let host = &mut self.side(side)[n];
            net.set_fault(&host.name, fault);
            match harm {
                Harm::Killed => host.kill(),
                Harm::Drained => {
                    let name = host.name.clone();
                    self.drain(&name, true).await;
                }
                _ => {}
            }
        }
        if harm == Harm::Killed {
            tokio::time::sleep(ms(50)).await;
            (0..EACH).filter(hit).for_each(|n| self.side(side)[n].open(kind, &net));
        }
    }

    /// Good weather again. Engines that were killed are back already.
    pub(super) async fn calm(&mut self, (side, harm): (Side, Harm), victims: u32) {
        for n in (0..EACH).filter(|n| victims & (1 << n) != 0) {
            let name = self.side(side)[n].name.clone();
            self.net.set_fault(&name, DialFault::None);
            if harm == Harm::Drained {
                self.drain(&name, false).await;
            }
        }
    }

    async fn drain(&self, name: &str, drain: bool) {
        let url = format!("http://{name}:80");
        let listed = self.router.admin.endpoints.list();
        let id = listed.endpoints.iter().find(|e| e.url == url).map(|e| e.id.clone()).unwrap();
        self.router.admin.endpoints.set_drain(&id, drain).await;
    }
}

impl Host {
    /// A new engine at this address.
    fn open(&mut self, kind: Kind, net: &MemoryNet) {
        let wire = if kind == Kind::Pull { Wire::Vllm } else { Wire::Sglang };
        let mut config = EngineConfig::new(wire, self.role);
        config.advertise.clone_from(&self.name);
        config.timing = TIMING;
        config.guard = kind != Kind::Unguarded;
        config.pages = 1 << 14;
        config.log = 1 << 16;
        config.waits.lease = GRACE;
        config.waits.dead_remote = ms(500);
        let dials = net.clone();
        let dialer = Dialer::new(move |host, port| {
            let net = dials.clone();
            async move { Ok(Box::new(net.dial_host(&host, port).await?) as Box<dyn Socket>) }
        });
        let engine = Arc::new(unbound(config, dialer, SIDE_PORT));
        let side = format!("{}:{SIDE_PORT}", self.name);
        for (name, front) in [(self.name.clone(), true), (side, false)] {
            let (engine, mut door) = (Arc::clone(&engine), net.listen(&name));
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
        self.lives.push(engine);
    }

    fn kill(&mut self) {
        self.doors.drain(..).for_each(|door| door.abort());
        self.lives.last().unwrap().kill();
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}:80", self.name)
    }

    /// The engine that runs there now.
    pub(super) fn engine(&self) -> &Running {
        self.lives.last().unwrap()
    }
}

fn settings(kind: Kind, prefills: &[Host], decodes: &[Host]) -> tandem::config::RouterConfig {
    let mut config = config(&["unused:80".to_owned()]);
    config.timeouts.first_byte = Some(secs(2));
    config.timeouts.idle = Some(secs(2));
    config.timeouts.connect = Some(secs(1));
    let service = &mut config.services[0];
    let at = |hosts: &[Host]| hosts.iter().map(|h| StaticEndpoint::parse(&h.url()).unwrap()).collect();
    service.endpoints.clear();
    (service.prefill, service.decode) = (at(prefills), at(decodes));
    service.engine = if kind == Kind::Pull { NIXL } else { SGLANG };
    service.policy = Policies::all(Policy::PowerOfTwo);
    // Most requests of a storm fail: with the usual budget hardly any would be tried again.
    service.retries.floor = 100_000;
    let upstream = &mut service.upstream;
    upstream.cancel_decode_grace = Some(if kind == Kind::Unguarded { GRACE } else { Duration::ZERO });
    (upstream.kv_lease, upstream.handoff_max_age) = (GRACE, ms(500));
    upstream.idle = ms(400);
    config
}
