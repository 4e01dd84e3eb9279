//! The storm: chapters of steps under load, each followed by a rest in which everything has to come to zero.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tandem::types::clock::{Instant, now};
use tokio::time::sleep;

use super::host::{Guard, KINDS, Kind, LEASE};
use super::steps::Fleet;
use super::world::{RELIST, ROUTERS, World};
use super::{ms, secs};

/// Steps of one seed, and seeds, in CI and at full size.
const STEPS: (usize, usize) = (280, 6_000);
const SEEDS: (&[u64], u64) = (&[1, 20_261_130], 12);
/// Steps of a chapter.
const CHAPTER: usize = 140;
/// How long the answer of an SGLang prefill is read on behind its decode's.
const TAIL: Duration = secs(4);

struct Storm {
    seed: u64,
    random: fastrand::Rng,
    world: World,
    fleet: Fleet,
    began: Instant,
    judged: Instant,
    story: Vec<String>,
    /// Longest time from the last leg until every count was zero, by kind.
    zero: [Duration; 3],
}

pub(super) async fn seeds(guard: Guard) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let full = std::env::var("REPLAY_SCALE").is_ok_and(|scale| scale == "full");
    let seeds: Vec<u64> = match number("DRAIN_STORM_SEED") {
        Some(seed) => vec![seed],
        None if full => SEEDS.0.iter().copied().chain(100..100 + SEEDS.1).collect(),
        None => SEEDS.0.to_vec(),
    };
    let steps = number("DRAIN_STORM_STEPS")
        .map_or(if full { STEPS.1 } else { STEPS.0 }, |steps| usize::try_from(steps).unwrap());
    for seed in seeds {
        fastrand::seed(seed);
        let storm = Storm {
            seed,
            random: fastrand::Rng::with_seed(seed),
            world: World::new(guard, seed),
            fleet: Fleet::new(guard),
            began: now(),
            judged: now(),
            story: Vec::new(),
            zero: [Duration::ZERO; 3],
        };
        storm.play(steps).await;
    }
}

impl Storm {
    async fn play(mut self, steps: usize) {
        self.fleet.calm(&mut self.world).await;
        self.pass(secs(1)).await;
        for chapter in 0..steps.div_ceil(CHAPTER) {
            self.chapter().await;
            self.rest().await;
            if chapter % 2 == 0 {
                self.agree().await;
            }
        }
        self.agree().await;
        self.finish().await;
    }

    async fn chapter(&mut self) {
        self.world.load.pause.store(false, Ordering::Relaxed);
        for _ in 0..CHAPTER {
            let what = self.fleet.step(&mut self.world, &mut self.random).await;
            self.say(&what);
            let pause = match self.random.u8(..10) {
                0..=2 => 0,
                3..=7 => self.random.u64(1..60),
                _ => self.random.u64(60..400),
            };
            self.pass(ms(pause)).await;
        }
    }

    /// No new request: every count is zero within a second of its own end rule (R4).
    async fn rest(&mut self) {
        self.world.load.pause.store(true, Ordering::Relaxed);
        self.say("rest");
        while self.world.load.busy.load(Ordering::Relaxed) > 0 {
            self.pass(ms(5)).await;
        }
        let idle = now();
        for (n, kind) in KINDS.into_iter().enumerate() {
            let rule = match kind {
                Kind::Plain => Duration::ZERO,
                Kind::Pull => LEASE,
                // Its own grace is shorter.
                Kind::Rooms => TAIL,
            };
            while !self.world.left(&[kind]).is_empty() {
                if now() > idle + rule + secs(1) {
                    let left = self.world.left(&[kind]).join("\n");
                    self.fail(&format!("R4: {:?} after the last request:\n{left}", now() - idle));
                }
                self.pass(ms(5)).await;
            }
            self.zero[n] = self.zero[n].max(now() - idle);
        }
        for n in 0..ROUTERS {
            self.outcomes(n);
        }
    }

    /// One outcome for each request.
    #[expect(clippy::cast_precision_loss, reason = "a count of requests")]
    fn outcomes(&self, router: usize) {
        let counted = self.world.routers[router].scrape().sum("tandem_requests_total", &[]);
        let sent = self.world.load.sent[router].load(Ordering::Relaxed) as f64;
        if (counted - sent).abs() > 0.5 {
            self.fail(&format!("router {router}: {counted} outcomes of {sent} requests"));
        }
    }

    /// Good weather under load: after the next list every router shows the truth.
    async fn agree(&mut self) {
        self.world.load.pause.store(false, Ordering::Relaxed);
        self.say("good weather");
        self.fleet.calm(&mut self.world).await;
        self.pass(secs(4)).await;
        // Pods that were terminating are gone, and others there.
        self.fleet.calm(&mut self.world).await;
        self.pass(RELIST + RELIST + secs(2)).await;
        if let Err(wrong) = self.fleet.agrees(&self.world) {
            self.fail(&wrong);
        }
        // Long enough for those that left to be forgotten.
        let long = self.random.u64(1..12);
        self.pass(secs(long)).await;
    }

    /// Lets time pass, and reads every few milliseconds.
    async fn pass(&mut self, time: Duration) {
        let (began, end) = (now(), now() + time);
        loop {
            self.fleet.tick(&mut self.world);
            if let Err(wrong) = self.world.read() {
                self.fail(&wrong);
            }
            if now() - self.judged > ms(500) {
                self.judged = now();
                if let Err(wrong) = self.world.judge() {
                    self.fail(&wrong);
                }
            }
            if now() >= end {
                return;
            }
            let gap = if now() - began < ms(120) { ms(5) } else { ms(25) };
            sleep(gap.min(end - now())).await;
        }
    }

    fn say(&mut self, what: &str) {
        if self.story.len() > 400 {
            self.story.drain(..200);
        }
        self.story.push(format!("{} {what}", self.at(now())));
    }

    /// Milliseconds since the beginning; in failures every instant is shown as tokio does, with the same seconds.
    fn at(&self, at: Instant) -> String {
        format!("{} ms ({at:?})", (at - self.began).as_millis())
    }

    fn fail(&self, wrong: &str) -> ! {
        let last = self.story.iter().rev().take(80).rev().cloned().collect::<Vec<_>>().join("\n  ");
        let (step, age) = (self.fleet.done.steps, now() - self.began);
        panic!(
            "{wrong}\nDRAIN_STORM_SEED={} step {step} at {age:?} ({:?}); before that\n  {last}",
            self.seed,
            now()
        );
    }

    async fn finish(mut self) {
        self.rest().await;
        // SGLang looks for closed sockets every four seconds.
        self.pass(secs(6)).await;
        for host in self.world.hosts.iter().filter(|host| !host.engine().is_dead()) {
            let state = host.engine().state();
            if !state.is_idle() || state.blocks_held + state.pages_deferred > 0 {
                self.fail(&format!("{:?} {}: {state:?}", host.make, host.uid));
            }
        }
        self.fleet.end(&mut self.world);
        self.pass(secs(25)).await;
        for _ in 0..2 {
            self.world.read().unwrap_or_else(|wrong| self.fail(&wrong));
            self.world.judge().unwrap_or_else(|wrong| self.fail(&wrong));
        }
        for n in 0..ROUTERS {
            let rows = self.world.reports.newest(n);
            if !rows.is_empty() {
                self.fail(&format!("router {n}: still there: {rows:?}"));
            }
        }
        if !self.world.logs.is_empty() || !self.world.left(&KINDS).is_empty() {
            self.fail(&format!("left: {:?} {:?}", self.world.logs, self.world.left(&KINDS)));
        }
        for router in &self.world.routers {
            router.assert_pair_invariants(&[], &[]).await;
        }
        self.show();
    }

    fn show(&self) {
        let World { reports, logs, load, hosts, .. } = &self.world;
        let requests: u64 = load.sent.iter().map(|sent| sent.load(Ordering::Relaxed)).sum();
        println!(
            "DRAIN_STORM_SEED={}: {requests} requests {:?}, {} reports, {} rows, {} of them quiesced; {} legs and {} moves of KV \
             judged ({} by a namesake's rows, {} between, {} for no one); {:?}, {} troubles, {} Pods, {} endpoints, zero after \
             {:?}, {:?} simulated",
            self.seed,
            load.answers.lock(),
            reports.read,
            reports.rows,
            reports.quiesced,
            logs.legs,
            logs.moved,
            logs.namesakes,
            logs.between,
            logs.unwanted,
            self.fleet.done,
            self.fleet.trouble.count,
            hosts.len(),
            self.world.endpoints(),
            self.zero,
            now() - self.began,
        );
    }
}
