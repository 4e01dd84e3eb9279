//! Pods, the engines behind them, and what befalls both.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tandem::engine::{EngineConfig, Role, Running, Timing, Wire};
use tandem::testkit::kube::{FakeKube, PodSpec, set_ready};
use tandem::testkit::quiet::{Logs, Reports, Site};
use tandem::types::clock::{Instant, now};
use tokio::time::sleep;

use super::routers::Router;
use super::{Calm, ROUTERS, Seen, since};

/// Services, each of one kind of engine, and their models.
pub(crate) const NAMES: [&str; 3] = ["plain", "pull", "rooms"];
/// How long vLLM keeps KV that nobody pulls.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
const FRONT: u16 = 8000;
const SIDE: u16 = 8998;
const ELIGIBLE: &str = "tandem.dev/endpoint-eligible";
const TIMING: Timing = Timing {
    ttft: Duration::from_millis(2),
    prefill_token: Duration::ZERO,
    token: Duration::from_millis(1),
    transfer: Duration::from_millis(2),
};
/// Places without an engine that takes requests.
const MOST_ILL: usize = 3;
/// How long what was said of a Pod that is gone may still be asked for.
const KEPT: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) withdrawals: u64,
    pub(crate) restores: u64,
    pub(crate) deletions: u64,
    pub(crate) creations: u64,
    /// Of these, at an address that none had for long.
    pub(crate) fresh: u64,
}

/// One process that is or was the engine of a Pod.
struct Life {
    site: Arc<Site>,
    engine: Running,
    dead: Option<Instant>,
}

/// A place for a Pod: one after the other has its address.
struct Slot {
    service: usize,
    role: Role,
    ip: Ipv4Addr,
    pod: Option<Pod>,
    count: usize,
}

struct Pod {
    name: String,
    uid: String,
    well: bool,
    drained: Option<usize>,
    /// It is terminating, and gone then.
    ends: Option<Instant>,
}

pub(crate) struct Fleet {
    api: FakeKube,
    random: fastrand::Rng,
    slots: Vec<Slot>,
    lives: Vec<Life>,
    /// Replicas of the API server that are behind, and until when.
    behind: [Option<Instant>; ROUTERS],
    pub(crate) done: Done,
    taken: Cell<Option<Instant>>,
    began: Instant,
    /// Mean time between two events.
    step: Duration,
    /// Whether Pods come at fresh addresses too, and the last byte of the latest.
    fresh: bool,
    last: u8,
}

impl Fleet {
    /// Three plain engines, and for each kind of pair two prefills and three decodes.
    pub(crate) async fn new(api: &FakeKube, seed: u64, calm: Calm) -> Self {
        // Addresses of this run alone, so that a port is free again for the next Pod there.
        let own = std::process::id().to_be_bytes();
        let mut slots = Vec::new();
        for (service, role, count) in [
            (0, Role::Plain, 3),
            (1, Role::Prefill, 2),
            (1, Role::Decode, 3),
            (2, Role::Prefill, 2),
            (2, Role::Decode, 3),
        ] {
            for _ in 0..count {
                let ip = Ipv4Addr::new(127, own[2] | 128, own[3], u8::try_from(slots.len() + 1).unwrap());
                slots.push(Slot { service, role, ip, pod: None, count: 0 });
            }
        }
        let mut fleet = Self {
            api: api.clone(),
            random: fastrand::Rng::with_seed(seed),
            slots,
            lives: Vec::new(),
            behind: [None; ROUTERS],
            done: Done::default(),
            taken: Cell::new(None),
            began: now(),
            step: Duration::from_millis(calm.step),
            fresh: calm.fresh,
            last: 0,
        };
        for index in 0..fleet.slots.len() {
            fleet.create(index).await;
        }
        fleet
    }

    pub(crate) fn taken(&self) -> Option<Instant> {
        self.taken.get()
    }

    pub(crate) fn mark_taken(&self) {
        self.taken.set(Some(now()));
    }

    pub(crate) fn engines(&self) -> impl Iterator<Item = (&Arc<Site>, &Running)> + Clone {
        self.lives.iter().map(|life| (&life.site, &life.engine))
    }

    /// The address after the latest that no place has; after 254 of them they come again.
    fn move_on(&mut self, index: usize) {
        loop {
            self.last = self.last % 254 + 1;
            if self.slots.iter().all(|slot| slot.ip.octets()[3] != self.last) {
                break;
            }
        }
        let [a, b, c, _] = self.slots[index].ip.octets();
        self.slots[index].ip = Ipv4Addr::new(a, b, c, self.last);
        self.done.fresh += 1;
    }

    /// Its address is free by now.
    async fn create(&mut self, index: usize) {
        if self.fresh && self.slots[index].count > 0 && self.random.bool() {
            self.move_on(index);
        }
        let slot = &mut self.slots[index];
        slot.count += usize::from(slot.count == 0 || self.random.bool());
        let name = format!("{}-{index}-{}", NAMES[slot.service], slot.count);
        let second = self.began.elapsed().as_secs();
        let at = format!("2026-01-01T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
        let role = if slot.role == Role::Plain { "mixed" } else { slot.role.as_str() };
        let spec = PodSpec::new(&name)
            .created(&at)
            .label("app", NAMES[slot.service])
            .label("tandem.dev/role", role)
            .label(ELIGIBLE, "true")
            // For who splits by it: the storm does not, the soak does.
            .label("tandem.dev/revision", if self.random.bool() { "r1" } else { "r2" })
            .annotation("tandem.dev/ports", &FRONT.to_string())
            .annotation("tandem.dev/bootstrap-port", &SIDE.to_string())
            .at(IpAddr::V4(slot.ip));
        let wire = if slot.service == 2 { Wire::Sglang } else { Wire::Vllm };
        let engine = tandem::engine::start(config(slot, wire)).await.unwrap();
        let uid = self.api.create(spec);
        let url = format!("http://{}:{FRONT}", slot.ip);
        let site = Site { uid: uid.clone(), url, wire, role: slot.role, lease: LEASE };
        self.lives.push(Life { site: Arc::new(site), engine, dead: None });
        slot.pod = Some(Pod { name, uid, well: true, drained: None, ends: None });
        self.done.creations += 1;
    }

    /// One thing happens, and a little time passes.
    pub(crate) async fn step(&mut self, reports: &Mutex<Reports>, routers: &[Router]) {
        self.tick().await;
        let is_ill = |slot: &Slot| slot.pod.as_ref().is_none_or(|pod| !pod.well || pod.drained.is_some());
        let ill: Vec<usize> = (0..self.slots.len()).filter(|index| is_ill(&self.slots[*index])).collect();
        // Most of them serve most of the time: without engines there is nothing to be judged.
        let index = if ill.len() > MOST_ILL || (!ill.is_empty() && self.random.bool()) {
            ill[self.random.usize(..ill.len())]
        } else {
            self.random.usize(..self.slots.len())
        };
        match &self.slots[index].pod {
            None => self.create(index).await,
            Some(_) if is_ill(&self.slots[index]) => self.restore(index, routers).await,
            Some(_) => self.harm(index, reports, routers).await,
        }
        sleep(self.step.mul_f64(self.random.f64() * 2.0)).await;
    }

    async fn harm(&mut self, index: usize, reports: &Mutex<Reports>, routers: &[Router]) {
        let kind = self.random.u8(..100);
        if kind >= 96 {
            return self.trouble();
        }
        let serves = self.slots[index].pod.as_ref().is_some_and(|pod| pod.ends.is_none());
        self.done.withdrawals += u64::from(serves);
        match kind {
            0..=24 => self.change(index, |pod| _ = labels(pod).remove(ELIGIBLE)),
            25..=44 => self.change(index, |pod| set_ready(pod, "False", None)),
            45..=56 => {
                self.change(index, |pod| pod["metadata"]["annotations"]["tandem.dev/drain"] = "".into());
            }
            57..=70 => self.change(index, |pod| pod["metadata"]["labels"]["app"] = "none".into()),
            71..=80 => self.order(index, reports, routers).await,
            81..=89 if serves => {
                self.done.deletions += 1;
                let time = Duration::from_millis(self.random.u64(20..2000));
                let Some(pod) = &mut self.slots[index].pod else { return };
                pod.ends = Some(now() + time);
                self.api.delete("default", &pod.name);
            }
            _ => {
                self.done.deletions += u64::from(serves);
                let pod = self.slots[index].pod.take();
                if let Some(pod) = pod {
                    self.api.force_delete("default", &pod.name);
                    self.kill(&pod.uid).await;
                }
            }
        }
    }

    /// Events are lost or late, or one router's API server falls behind.
    fn trouble(&mut self) {
        let router = self.random.usize(..ROUTERS);
        let time = Duration::from_millis(self.random.u64(20..1500));
        match self.random.u8(..4) {
            0 => self.api.lose_next(1),
            1 => self.api.delay_next(2, time / 4),
            2 => self.api.replica(router).cut_watches(),
            _ => {
                self.api.replica(router).freeze();
                self.behind[router] = Some(now() + time);
            }
        }
    }

    fn change(&mut self, index: usize, change: impl FnOnce(&mut serde_json::Value)) {
        if let Some(pod) = &mut self.slots[index].pod {
            pod.well = false;
            self.api.update("default", &pod.name, change);
        }
    }

    async fn restore(&mut self, index: usize, routers: &[Router]) {
        self.done.restores += 1;
        let slot = &mut self.slots[index];
        let Some(pod) = &mut slot.pod else { return };
        if let Some(router) = pod.drained.take() {
            routers[router].order(&pod.uid, false).await;
        }
        pod.well = true;
        let app = NAMES[slot.service];
        self.api.update("default", &pod.name, |pod| {
            let labels = labels(pod);
            labels.insert("app".to_owned(), app.into());
            labels.insert(ELIGIBLE.to_owned(), "true".into());
            set_ready(pod, "True", None);
            if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
                annotations.remove("tandem.dev/drain");
            }
        });
    }

    /// An operator's, at one router alone.
    async fn order(&mut self, index: usize, reports: &Mutex<Reports>, routers: &[Router]) {
        let router = self.random.usize(..ROUTERS);
        let Some(pod) = &mut self.slots[index].pod else { return };
        if reports.lock().newest(router).contains_key(pod.uid.as_str())
            && routers[router].order(&pod.uid, true).await == Some(200)
        {
            pod.drained = Some(router);
        }
    }

    /// What is due by now.
    async fn tick(&mut self) {
        for (router, behind) in self.behind.iter_mut().enumerate() {
            if behind.take_if(|until| *until <= now()).is_some() {
                self.api.replica(router).catch_up();
            }
        }
        for index in 0..self.slots.len() {
            let over = self.slots[index].pod.take_if(|pod| pod.ends.is_some_and(|at| at <= now()));
            if let Some(pod) = over {
                self.api.finish_delete("default", &pod.name);
                self.kill(&pod.uid).await;
            }
        }
    }

    /// `kill -9`, until its address is free.
    async fn kill(&mut self, uid: &str) {
        for life in self.lives.iter_mut().filter(|life| life.site.uid == uid && life.dead.is_none()) {
            life.engine.kill();
            life.engine.ended().await;
            life.dead = Some(now());
        }
    }

    /// Pods that are long gone.
    pub(crate) fn forget(&mut self, reports: &Mutex<Reports>) {
        let old = |life: &Life| life.dead.is_some_and(|at| since(at) > KEPT);
        for life in self.lives.iter().filter(|life| old(life)) {
            reports.lock().forget(&life.site.uid);
        }
        self.lives.retain(|life| !old(life));
    }

    /// Waits until every router gives every Pod requests.
    pub(crate) async fn all_selectable(&self, reports: &Mutex<Reports>) -> Result<(), String> {
        let began = now();
        let is_there = |n: usize| {
            let reports = reports.lock();
            let rows = reports.newest(n);
            rows.len() == self.slots.len() && rows.values().all(|row| row.selectable)
        };
        while !(0..ROUTERS).all(is_there) {
            if since(began) > Duration::from_secs(20) {
                return Err("the routers do not know every Pod".to_owned());
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Judges the rest; engines keep nothing for anybody.
    pub(crate) async fn rest(&self, logs: &mut Logs, seen: &Seen<'_>) -> Result<(), String> {
        // SGLang looks for closed sockets every four seconds.
        sleep(Duration::from_secs(6)).await;
        for life in self.lives.iter().filter(|life| life.dead.is_none()) {
            let state = life.engine.state();
            if !state.is_idle() || state.blocks_held + state.pages_deferred > 0 {
                return Err(format!("{:?}: {state:?}", life.site));
            }
        }
        for _ in 0..3 {
            super::judge(logs, self, seen)?;
            sleep(Duration::from_millis(300)).await;
        }
        if logs.is_empty() { Ok(()) } else { Err(format!("not judged: {logs:?}")) }
    }
}

fn labels(pod: &mut serde_json::Value) -> &mut serde_json::Map<String, serde_json::Value> {
    pod["metadata"]["labels"].as_object_mut().unwrap()
}

fn config(slot: &Slot, wire: Wire) -> EngineConfig {
    let mut config = EngineConfig::new(wire, slot.role);
    NAMES[slot.service].clone_into(&mut config.model);
    config.listen = SocketAddr::from((slot.ip, FRONT));
    config.side_listen = SocketAddr::from((slot.ip, SIDE));
    config.advertise = slot.ip.to_string();
    config.timing = TIMING;
    (config.pages, config.log) = (1 << 14, 1 << 20);
    config.waits.lease = LEASE;
    config.waits.bootstrap = Duration::from_secs(3);
    config.waits.waiting = Duration::from_secs(3);
    config.waits.dead_bootstrap = Duration::from_millis(500);
    config.waits.lost_prefill = Duration::from_millis(500);
    config.waits.dead_remote = Duration::from_millis(500);
    config
}
