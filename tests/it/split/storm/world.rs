//! A router, the Pods of its services, and what befalls them.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use tandem::config::{
    Dialect, EngineKind, Labels, PodDiscovery, Policies, Policy, Probe, RouterConfig, Service,
};
use tandem::testkit::kube::{FakeKube, PodSpec, set_ready};
use tandem::testkit::memory::{DialFault, MemoryNet};
use tandem::testkit::router::{TestRouter, config};
use tandem::types::clock::{Instant, now};

use super::host::{Facts, Host, KINDS, Kind, RELEASES};
use super::ms;
use super::splits::{OF_FILE, entries};
use crate::split::rig::NIXL;

/// Engines of one role, release and service.
const EACH: usize = 2;
const MARK: &str = "tandem.dev/endpoint-eligible";

/// A place for a Pod. The next one there has another address, and perhaps another release.
struct Slot {
    kind: Kind,
    prefill: bool,
    home: usize,
    /// Position of its host.
    pod: Option<usize>,
    back: Instant,
}

/// How often what was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    withdrawals: u64,
    restores: u64,
    pub(super) deletions: u64,
    restarts: u64,
    dials: u64,
    events: u64,
}

pub(super) struct World {
    api: FakeKube,
    pub(super) net: MemoryNet,
    pub(super) router: TestRouter,
    pub(super) hosts: Vec<Host>,
    slots: Vec<Slot>,
    random: fastrand::Rng,
    /// Processes that end, and dials that are well again.
    due: Vec<(Instant, Due)>,
    /// Engines that nothing is wrong with, as the router sees it and as it is, at each tick.
    pub(super) well: Vec<(Instant, HashSet<usize>)>,
    pub(super) done: Done,
}

enum Due {
    Ends(usize),
    Dials(usize),
    /// Its connections broke a moment ago.
    Restarted(usize),
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let (api, net) = (FakeKube::new(), MemoryNet::new());
        let router = TestRouter::in_memory_with_pods(settings(), &net, Arc::new(api.entry()));
        let random = fastrand::Rng::with_seed(seed);
        let (slots, done) = (slots(), Done::default());
        let mut world = Self {
            api,
            net,
            router,
            hosts: Vec::new(),
            slots,
            random,
            due: Vec::new(),
            well: Vec::new(),
            done,
        };
        (0..world.slots.len()).for_each(|slot| world.create(slot));
        world
    }

    pub(super) fn selectable(&self) -> usize {
        self.router.admin.endpoints.list().endpoints.iter().filter(|e| e.selectable).count()
    }

    pub(super) fn places(&self) -> usize {
        self.slots.len()
    }

    fn create(&mut self, at: usize) {
        let random = &mut self.random;
        let slot = &mut self.slots[at];
        // Half of them are what they were at first, so that no release dies out.
        let release = if random.bool() { slot.home } else { random.usize(..RELEASES.len()) };
        // Two tokens in the third release: in a cohort too only equal ones pair.
        let token = if release == 2 { at % 2 } else { release };
        let facts = Facts {
            kind: slot.kind,
            prefill: slot.prefill,
            release: RELEASES[release],
            token: ["kv-v1", "kv-v2"][token],
            number: self.hosts.len(),
        };
        self.hosts.push(Host::start(facts, &self.net, random.fork()));
        slot.pod = Some(facts.number);
        let pod = PodSpec::new(&name(facts.number)).ip(&facts.ip()).port("http", 8000).labels(&[
            ("app", facts.kind.name()),
            (MARK, "true"),
            ("tandem.dev/role", if facts.prefill { "prefill" } else { "decode" }),
            ("tandem.dev/revision", facts.release),
            ("tandem.dev/pairing-token", facts.token),
        ]);
        self.api.create(pod);
    }

    /// One random step.
    pub(super) fn step(&mut self) {
        let at = self.random.usize(..self.slots.len());
        let Some(number) = self.slots[at].pod else { return };
        let pod = self.api.pod("default", &name(number)).unwrap();
        let well = is_well(&pod);
        if !well && self.random.u8(..10) < 7 {
            self.done.restores += 1;
            return self.change(number, true, true);
        }
        self.done.withdrawals += u64::from(well);
        match self.random.u8(..20) {
            0..5 => self.change(number, false, true),
            5..9 => self.change(number, true, false),
            9..12 => {
                self.done.deletions += 1;
                self.api.force_delete("default", &name(number));
                self.slots[at].pod = None;
                self.slots[at].back = now() + ms(self.random.u64(20..900));
                self.due.push((now() + ms(self.random.u64(0..300)), Due::Ends(number)));
            }
            12..15 => {
                self.done.restarts += 1;
                self.hosts[number].engine.reset_connections();
                self.due.push((now() + ms(20), Due::Restarted(number)));
            }
            15..18 => {
                self.done.dials += 1;
                let fault = match self.random.u8(..3) {
                    0 => DialFault::Refuse,
                    _ => DialFault::Delay(ms(self.random.u64(5..60))),
                };
                self.net.set_fault(&self.hosts[number].facts.ip(), fault);
                self.due.push((now() + ms(self.random.u64(20..400)), Due::Dials(number)));
            }
            _ => self.mischief(),
        }
    }

    fn change(&self, number: usize, marked: bool, ready: bool) {
        self.api.update("default", &name(number), |pod| {
            pod["metadata"]["labels"][MARK] = if marked { "true" } else { "false" }.into();
            set_ready(pod, if ready { "True" } else { "False" }, None);
        });
    }

    /// News are late, doubled, overtaken or lost.
    fn mischief(&mut self) {
        self.done.events += 1;
        let late = ms(self.random.u64(5..200));
        match self.random.u8(..6) {
            0 => self.api.lose_next(1),
            1 => self.api.overtake_next(1, late),
            2 => self.api.duplicate_next(2),
            3 => self.api.delay_next(2, late),
            4 => self.api.reverse_next(2),
            _ => self.api.cut_watches(),
        }
    }

    /// What is due by now.
    pub(super) async fn tick(&mut self) {
        let over = self.due.extract_if(.., |(at, _)| *at <= now()).collect::<Vec<_>>();
        for (_, due) in over {
            match due {
                Due::Restarted(_) => {}
                Due::Dials(number) => self.net.set_fault(&self.hosts[number].facts.ip(), DialFault::None),
                Due::Ends(number) => {
                    let engine = &mut self.hosts[number].engine;
                    engine.refuse().await;
                    engine.reset_connections();
                }
            }
        }
        for at in 0..self.slots.len() {
            if self.slots[at].pod.is_none() && self.slots[at].back <= now() {
                self.create(at);
            }
        }
        self.look();
    }

    fn look(&mut self) {
        let snapshot = self.router.shared.view.load();
        let all = snapshot.services.iter().flat_map(|service| service.all());
        let given: HashSet<&str> = all.filter(|e| e.is_selectable()).map(|e| e.host.as_str()).collect();
        let wrong: HashSet<usize> = self.due.iter().map(|(_, due)| due.number()).collect();
        let pods = self.slots.iter().filter_map(|slot| slot.pod);
        let well = pods.filter(|n| given.contains(self.hosts[*n].facts.ip().as_str()) && !wrong.contains(n));
        let well = well.collect();
        self.well.push((now(), well));
    }
}

impl Due {
    fn number(&self) -> usize {
        let (Self::Ends(number) | Self::Dials(number) | Self::Restarted(number)) = self;
        *number
    }
}

fn name(number: usize) -> String {
    format!("e{number}")
}

fn is_well(pod: &Value) -> bool {
    pod["metadata"]["labels"][MARK] == "true" && pod["status"]["conditions"][0]["status"] == "True"
}

fn slots() -> Vec<Slot> {
    let mut slots = Vec::new();
    for kind in KINDS {
        for prefill in [true, false] {
            for home in 0..RELEASES.len() {
                for _ in 0..EACH {
                    slots.push(Slot { kind, prefill, home, pod: None, back: now() });
                }
            }
        }
    }
    slots
}

fn settings() -> RouterConfig {
    let service = |kind: Kind| {
        let selector: Labels = [("app".to_owned(), kind.name().to_owned())].into();
        let pods = PodDiscovery {
            relist: ms(3000),
            probe: Probe::Off,
            bootstrap_port: (kind == Kind::Rooms).then_some(8998),
            ..PodDiscovery::of(Dialect::Tandem, selector)
        };
        let mut service = Service {
            models: vec![kind.name().to_owned()],
            engine: if kind == Kind::Pull { NIXL } else { EngineKind::Sglang },
            pods: Some(pods),
            split: Some(entries(OF_FILE)),
            cohort_headers: true,
            policy: Policies::all(Policy::PowerOfTwo),
            ..Service::plain(kind.name(), Vec::new())
        };
        service.sticky.headers = vec!["x-session-id".to_owned()];
        // Many requests of a storm fail: with the usual budget hardly any would be tried again.
        service.retries.floor = 100_000;
        service.upstream.cancel_decode_grace = Some(ms(0));
        (service.upstream.kv_lease, service.upstream.handoff_max_age) = (ms(1000), ms(500));
        service
    };
    let mut config = RouterConfig { services: KINDS.map(service).into(), ..config(&[]) };
    config.timeouts.first_byte = Some(ms(500));
    config.timeouts.connect = Some(ms(300));
    config
}
