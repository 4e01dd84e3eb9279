//! The simulation itself.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tandem::admin::DrainChange;
use tandem::registry::Reason;
use tandem::testkit::kube::Told;
use tandem::types::clock::{Instant, now};
use tokio::time::sleep;

use super::eye::{Coverage, Eye, Listed, Sight};
use super::history::{AT_ONCE, Healthy, History, RECOVERY, TICK};
use super::pods::{Key, Keys, Kind};
use super::steps::{Fleet, Made};
use super::trouble::Trouble;
use super::world::{ADDRESSES, SLOWEST_DIAL, World};
use super::{ms, secs};

/// Steps of one seed, and seeds, in CI; whatever both are, more of them at full size.
const STEPS: (usize, usize) = (900, 9_000);
const SEEDS: (&[u64], u64) = (&[20_261_201, 7], 12);

struct Sim {
    seed: u64,
    step: usize,
    random: fastrand::Rng,
    kind: Kind,
    world: World,
    fleet: Fleet,
    history: History,
    /// By UID.
    created: HashMap<String, u64>,
    trouble: Trouble,
    eye: Eye,
    /// By service.
    coverage: [Coverage; 2],
    began: Instant,
    /// The last things that happened.
    story: Vec<String>,
    changes: usize,
    looks: usize,
    shown: Option<Vec<String>>,
}

/// The seeds of a run, one after the other.
pub(super) async fn seeds(kind: Kind) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let full = std::env::var("REPLAY_SCALE").is_ok_and(|scale| scale == "full");
    let seeds: Vec<u64> = match number("SIM_SEED") {
        Some(seed) => vec![seed],
        None if full => SEEDS.0.iter().copied().chain(100..100 + SEEDS.1).collect(),
        None => SEEDS.0.to_vec(),
    };
    let steps =
        number("SIM_STEPS").map_or(if full { STEPS.1 } else { STEPS.0 }, |n| usize::try_from(n).unwrap());
    for seed in seeds {
        Sim::new(kind, seed).play(steps).await;
    }
}

impl Sim {
    fn new(kind: Kind, seed: u64) -> Self {
        fastrand::seed(seed);
        let world = World::new(kind);
        let mut random = fastrand::Rng::with_seed(seed);
        world.api.consistent_reads(random.bool());
        let eye = Eye::new(std::sync::Arc::clone(&world.router.shared.view));
        Self {
            seed,
            step: 0,
            random,
            kind,
            world,
            fleet: Fleet::new(kind),
            history: History::default(),
            created: HashMap::new(),
            trouble: Trouble::default(),
            eye,
            coverage: [Coverage::default(); 2],
            began: now(),
            story: Vec::new(),
            changes: 0,
            looks: 0,
            shown: std::env::var_os("SIM_SHOW").map(|_| Vec::new()),
        }
    }

    async fn play(mut self, steps: usize) {
        while self.step < steps {
            self.foul_weather().await;
            self.fair_weather().await;
            self.lossy_weather().await;
        }
        self.finish().await;
    }

    /// Anything goes, for some hundred steps.
    async fn foul_weather(&mut self) {
        self.say("foul weather");
        for _ in 0..self.random.usize(60..150) {
            match self.random.u8(..9) {
                0 | 1 => self.trouble.strike_watches(&self.world.api, &mut self.random),
                2 => self.trouble.strike_lists(&self.world.api, &mut self.random),
                3 => self.ghost().await,
                4 if self.random.bool() => self.mask().await,
                _ => {}
            }
            self.change();
            self.operate().await;
            let pause = self.pause();
            self.pass(pause).await;
        }
    }

    /// Lists are as they should be: what the watch does not tell is put right by the next of them.
    async fn lossy_weather(&mut self) {
        self.trouble.calm(&self.world.api);
        self.say("lossy weather");
        for _ in 0..self.random.usize(30..60) {
            match self.random.u8(..6) {
                0 | 1 => self.trouble.strike_watches(&self.world.api, &mut self.random),
                2 if self.random.bool() => self.mask().await,
                2 => self.ghost().await,
                _ => {}
            }
            self.change();
            self.operate().await;
            let pause = self.pause() * 2;
            self.pass(pause).await;
        }
    }

    /// A Pod serves and is gone, and the watch tells of its good days last of all, perhaps after lists without it.
    async fn ghost(&mut self) {
        self.trouble.count("ghost");
        self.overtake_one();
        let (api, random, second) = (&self.world.api, &mut self.random, (now() - self.began).as_secs());
        let served = self.fleet.serve(api, random, second);
        let uid = served.pod.uid.clone();
        self.note(&served);
        let pause = ms(self.random.u64(..300));
        self.pass(pause).await;
        let ended = self.fleet.end(&self.world.api, &uid);
        self.note(&ended);
        if self.random.bool() {
            // Which asks for a list at once.
            self.pass(ms(20)).await;
            self.world.api.fail_watches(410);
        }
    }

    /// A Pod stops serving and serves again, and the watch tells of its bad days last.
    async fn mask(&mut self) {
        self.trouble.count("mask");
        self.overtake_one();
        let (api, random, second) = (&self.world.api, &mut self.random, (now() - self.began).as_secs());
        let stopped = self.fleet.stop(api, random, second);
        let uid = stopped.pod.uid.clone();
        self.note(&stopped);
        let pause = ms(self.random.u64(..100));
        self.pass(pause).await;
        let restored = self.fleet.restore(&self.world.api, &mut self.random, &uid);
        self.note(&restored);
    }

    /// The next change is told late, and whatever follows is not.
    fn overtake_one(&mut self) {
        let random = &mut self.random;
        let late = if random.bool() { random.u64(20..1000) } else { random.u64(1000..20_000) };
        self.world.api.overtake_next(1, ms(late));
    }

    /// Now and then an operator takes an endpoint out, or back in; engines stop to answer what they are asked, or are slow to
    /// connect to.
    async fn operate(&mut self) {
        if self.random.u8(..4) == 0 {
            let (ip, time) = (self.random.u8(1..=ADDRESSES), SLOWEST_DIAL.mul_f64(self.random.f64()));
            self.world.slow_dials(ip, if self.random.bool() { time } else { Duration::ZERO });
        }
        if self.kind == Kind::Probed && self.random.u8(..8) == 0 {
            let (ip, time) = (self.random.u8(1..=ADDRESSES), ms(self.random.u64(..5000)));
            self.world.notes.freeze(ip, time, self.random.bool());
        }
        if self.random.u8(..16) != 0 {
            return;
        }
        let listed = self.world.router.admin.endpoints.list().endpoints;
        let Some(endpoint) = (!listed.is_empty()).then(|| &listed[self.random.usize(..listed.len())]) else {
            return;
        };
        let id: u64 = endpoint.id.parse().unwrap();
        let drain = !self.eye.drained.contains(&id);
        let changed = self.world.router.admin.endpoints.set_drain(&endpoint.id, drain).await;
        self.say(&format!("operator: drain of {id} {}: {drain}, {changed:?}", endpoint.url));
        match changed {
            DrainChange::Changed if drain => _ = self.eye.drained.insert(id),
            DrainChange::Changed => _ = self.eye.drained.remove(&id),
            DrainChange::Unknown => {}
            DrainChange::Unchanged | DrainChange::Unavailable => {
                self.fail("an order that was not given before")
            }
        }
    }

    /// The API server is well: after one recovery everything is as it should be, and stays so within an instant.
    async fn fair_weather(&mut self) {
        self.trouble.calm(&self.world.api);
        self.say("fair weather");
        let half_open = self.random.bool();
        if half_open {
            self.pass(RECOVERY).await;
            self.world.api.silence_watches();
        }
        // A group that is to be reversed is held back until all of it was made.
        for _ in 0..4 {
            let second = (now() - self.began).as_secs();
            let made = self.fleet.touch(&self.world.api, &mut self.random, second);
            self.note(&made);
        }
        self.pass(RECOVERY + TICK + TICK).await;
        if !self.history.is_synced() {
            self.pass(secs(40)).await;
        }
        for _ in 0..self.random.usize(5..30) {
            self.change();
            self.pass(AT_ONCE + ms(1)).await;
            self.history.all_due(now());
            let pause = ms(self.random.u64(1..2000));
            self.pass(pause).await;
        }
    }

    /// One step of one Pod, or a few at once.
    fn change(&mut self) {
        let times = if self.random.u8(..6) == 0 { self.random.usize(2..6) } else { 1 };
        for _ in 0..times {
            self.step += 1;
            let second = (now() - self.began).as_secs();
            for made in self.fleet.step(&self.world.api, &mut self.random, second) {
                self.note(&made);
            }
        }
    }

    fn note(&mut self, made: &Made) {
        self.changes += 1;
        let Made { pod, version, gone, what } = made;
        let keys = if *gone { Keys::new() } else { pod.implied(self.kind) };
        let why = [0, 1].map(|service| if *gone { "gone" } else { pod.why(self.kind, service) });
        self.created.insert(pod.uid.clone(), pod.created);
        let said = format!("{version} {} {} {what}: {} keys", pod.name, &pod.uid[30..], keys.len());
        self.history.note(made, keys, why);
        self.say(&said);
    }

    fn pause(&mut self) -> Duration {
        let random = &mut self.random;
        match random.u8(..100) {
            0..=29 => Duration::ZERO,
            30..=64 => ms(random.u64(1..30)),
            65..=84 => ms(random.u64(30..200)),
            85..=93 => ms(random.u64(200..2000)),
            94..=98 => ms(random.u64(2000..6000)),
            _ => secs(random.u64(5..15)),
        }
    }

    /// Lets time pass, and looks all the time: every 10 ms to begin with.
    async fn pass(&mut self, time: Duration) {
        let (began, end) = (now(), now() + time);
        self.world.notes.pace.store(if time > secs(2) { 800 } else { 60 }, Ordering::Relaxed);
        self.look();
        while now() < end {
            let gap = if now() - began < ms(300) { ms(10) } else { ms(50) };
            sleep(gap.min(end - now())).await;
            self.look();
        }
    }

    fn look(&mut self) {
        self.looks += 1;
        let healthy = self.trouble.look(&self.world.api);
        if let Err(wrong) = self.judge(healthy) {
            self.fail(&wrong);
        }
        if let Some(wrong) = self.world.notes.wrong() {
            self.fail(&wrong);
        }
    }

    fn judge(&mut self, healthy: Healthy) -> Result<(), String> {
        let told = self.world.api.told_from(self.history.told());
        for Told { version, uid, .. } in &told {
            let of = uid.as_ref().map_or("a list", |uid| &uid[30..]);
            self.say(&format!("        told: {version} of {of}"));
        }
        self.history.tell(&told);
        self.history.settle(now(), healthy);
        let notes = &self.world.notes;
        let sight = self.eye.look(&|host| notes.may_be_cold(host))?;
        self.show(&sight);
        self.judge_all(&sight)?;
        for (service, coverage) in self.coverage.iter_mut().enumerate() {
            coverage.note(&sight, service);
        }
        self.world.notes.judge_refusals(self.coverage)?;
        let fleet = &self.fleet;
        self.history.bury(|uid| fleet.pods.iter().any(|pod| pod.uid == uid));
        Ok(())
    }

    fn judge_all(&mut self, sight: &Sight) -> Result<(), String> {
        sight.judge_addresses(&self.created)?;
        let nothing = Keys::new();
        let known: Vec<String> = self.history.lives.keys().cloned().collect();
        let strange = sight.selectable.keys().filter(|uid| !self.history.lives.contains_key(*uid)).cloned();
        for uid in strange.collect::<Vec<_>>().into_iter().chain(known) {
            let shown = sight.selectable.get(&uid).unwrap_or(&nothing);
            let excused =
                |key: &Key| sight.is_excused(&uid, key) || sight.is_held(&uid, &key.at, &self.created);
            self.history.explain(&uid, shown, &excused)?;
        }
        for Listed { uid, key, reason } in &sight.listed {
            let own = [Reason::Selectable, Reason::AdminDrain, Reason::Probing, Reason::AddressTaken];
            if !own.contains(reason) {
                self.history.explain_reason(uid, key, reason.as_str())?;
            }
        }
        Ok(())
    }

    /// With `SIM_SHOW`: what is selectable, whenever it is something else.
    fn show(&mut self, sight: &Sight) {
        let Some(before) = &self.shown else { return };
        let word = |key: &Key| format!("{} {} {} {}", key.service, key.role, key.at, key.token);
        let shown: Vec<String> = sight.selectable.values().flatten().map(word).collect();
        if *before != shown {
            self.say(&format!("        shows: {shown:?}"));
            self.shown = Some(shown);
        }
    }

    fn say(&mut self, what: &str) {
        if self.story.len() > 200 {
            self.story.drain(..100);
        }
        self.story.push(format!("{:?} {what}", now() - self.began));
    }

    fn fail(&self, wrong: &str) -> ! {
        let last = self.story.iter().rev().take(60).rev().cloned().collect::<Vec<_>>().join("\n  ");
        panic!(
            "{wrong}\nSIM_SEED={} step {} at {:?} ({:?}); before that\n  {last}",
            self.seed,
            self.step,
            now() - self.began,
            now(),
        );
    }

    /// Everything comes to rest, every Pod goes, and nothing is left.
    async fn finish(mut self) {
        self.world.stop_clients().await;
        while !self.fleet.pods.is_empty() {
            let made = self.fleet.force_delete(&self.world.api, 0);
            self.note(&made);
        }
        self.pass(secs(40)).await;
        assert_eq!(self.history.unsettled(), 0);
        let snapshot = self.world.router.shared.view.load_full();
        let left: Vec<_> = snapshot.services.iter().flat_map(|s| s.all()).map(|e| e.url.clone()).collect();
        assert!(
            left.is_empty() && snapshot.departed.is_empty() && snapshot.notes.is_empty(),
            "left: {left:?}"
        );
        assert!(self.eye.held().is_empty(), "{:?}", self.eye.held());
        self.world.router.assert_invariants(&[]).await;
        let (sent, refused) = (&self.world.notes.sent, &self.world.notes.refused);
        println!(
            "SIM_SEED={}: {} steps, {} changes, {} looks, {} requests ({} refused), {} endpoints, {:?} simulated; {:?}",
            self.seed,
            self.step,
            self.changes,
            self.looks,
            sent.load(Ordering::Relaxed),
            refused.load(Ordering::Relaxed),
            self.eye.seen.len(),
            now() - self.began,
            self.trouble.counts,
        );
    }
}
