//! The storm itself: rounds of requests in one weather, each judged and followed by a look at everything that is held.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use tandem::testkit::task::spawn;
use tandem::types::clock::{Instant, now};
use tokio::time::{sleep, sleep_until};

use super::super::rig::{ms, secs};
use super::cases::{Case, Harm, Kind, Side, Stage, all};
use super::client::{Answer, Ask};
use super::judge::{Expect, expect, happened, judge};
use super::legs::{Leg, Legs, Once, collect};
use super::rest;
use super::world::{EACH, GRACE, World};

/// How often every variant must have happened.
const ENOUGH: usize = 100;
/// Requests of a round.
const ROUND: usize = 200;
/// Requests that fill the pools before a round of raced connections.
const WARM: usize = 60;
/// A round that adds nothing is a storm that cannot end.
const ROUNDS: usize = 3000;
/// Longest time for which a failure puts an engine last.
const EJECTED: Duration = secs(31);

struct Storm {
    seed: u64,
    random: fastrand::Rng,
    world: World,
    /// By variant.
    counts: HashMap<Case, usize>,
    /// Outcome by request id, to be found in the access lines.
    outcomes: HashMap<String, &'static str>,
    once: Once,
    /// Of prefills and of decodes, as the engines counted them.
    legs: [usize; 2],
    sent: usize,
    round: usize,
    weather: Option<(Side, Harm)>,
    victims: u32,
}

/// Runs until every variant of `kind` has happened often enough.
pub(super) async fn storm(kind: Kind) {
    let seed = std::env::var("STORM_SEED").ok().map_or(20_261_130, |seed| seed.parse().unwrap());
    fastrand::seed(seed);
    let mut storm = Storm {
        seed,
        random: fastrand::Rng::with_seed(seed),
        world: World::new(kind),
        counts: all(kind).into_iter().map(|case| (case.variant(), 0)).collect(),
        outcomes: HashMap::new(),
        once: Once::default(),
        legs: [0; 2],
        sent: 0,
        round: 0,
        weather: None,
        victims: 0,
    };
    while storm.round < ROUNDS && storm.counts.values().any(|count| *count < ENOUGH) {
        storm.round().await;
    }
    storm.finish().await;
}

impl Storm {
    async fn round(&mut self) {
        self.round += 1;
        let lacking: Vec<Case> =
            all(self.world.kind()).into_iter().filter(|case| self.lacks(*case) > 0).collect();
        let first = lacking[self.random.usize(..lacking.len())];
        self.weather = first.weather();
        let choice: Vec<Case> = lacking.into_iter().filter(|case| case.weather() == self.weather).collect();
        self.victims = self.victims(first.harm);
        // Of both stream flags, where they are one variant: so at least as many as it takes.
        let want: usize = choice.iter().map(|case| self.lacks(*case)).sum();
        let mut asks: Vec<Ask> = Vec::new();
        for _ in 0..ROUND.min(want.max(8)) {
            let case = choice[self.random.usize(..choice.len())];
            asks.push(self.ask(case));
        }
        let (seen, strike) = self.play(&asks).await;
        self.settle(&asks).await;
        let legs = collect(&mut self.world);
        for leg in legs.values().flatten() {
            self.legs[usize::from(leg.side == Side::Decode)] += 1;
        }
        for (ask, seen) in asks.iter().zip(&seen) {
            self.judge(ask, seen.as_ref(), &legs, strike);
        }
        rest::tally(&self.world, &self.outcomes).unwrap_or_else(|wrong| panic!("{wrong}\n{}", self.about()));
        self.legs_were_told(&legs);
        if let (Some((side, Harm::Drained)), Some(strike)) = (self.weather, strike) {
            self.withdrawn_is_withdrawn(&legs, side, strike);
        }
    }

    fn lacks(&self, case: Case) -> usize {
        ENOUGH.saturating_sub(self.counts[&case.variant()])
    }

    /// All three engines of a side, or two of them: then a retry can help.
    fn victims(&mut self, harm: Harm) -> u32 {
        let two = [0b110, 0b101, 0b011][self.random.usize(..3)];
        match harm {
            Harm::Killed | Harm::Drained => two,
            _ if self.random.bool() => 0b111,
            _ => two,
        }
    }

    fn ask(&mut self, case: Case) -> Ask {
        self.sent += 1;
        let victims = if case.weather().is_some() { self.victims } else { self.victims(case.harm) };
        Ask { id: format!("s{}", self.sent), case, victims, jitter: self.random.u64(..8), words: 0 }
    }

    /// Sends all of them, each so early that the weather meets it at its stage. When it came, if it did.
    async fn play(&mut self, asks: &[Ask]) -> (Vec<Option<Answer>>, Option<Instant>) {
        let Some(weather) = self.weather else {
            let starts: Vec<u64> = asks.iter().map(|_| self.random.u64(..500)).collect();
            return (self.send(asks, |n| ms(starts[n])).await, None);
        };
        if weather.1 == Harm::Raced {
            self.warm_up().await;
        }
        let at_once = matches!(weather.1, Harm::Refused | Harm::Unanswered | Harm::Slow | Harm::Raced);
        let strike = now() + if at_once { Duration::ZERO } else { ms(400) };
        if at_once {
            self.world.strike(weather, self.victims).await;
        }
        let early = asks.iter().map(Ask::offset).collect::<Vec<_>>();
        let running = self.start(asks, |n| if at_once { ms(asks[n].jitter) } else { ms(400 - early[n]) });
        sleep_until(strike).await;
        if !at_once {
            self.world.strike(weather, self.victims).await;
        }
        let seen = finish(running).await;
        self.world.calm(weather, self.victims).await;
        (seen, Some(strike))
    }

    async fn send(&self, asks: &[Ask], wait: impl Fn(usize) -> Duration) -> Vec<Option<Answer>> {
        finish(self.start(asks, wait)).await
    }

    fn start(
        &self,
        asks: &[Ask],
        wait: impl Fn(usize) -> Duration,
    ) -> Vec<tokio::task::JoinHandle<Option<Answer>>> {
        let one = |(n, ask): (usize, &Ask)| {
            let (ask, net, wait) = (ask.clone(), self.world.net.clone(), wait(n));
            spawn(async move {
                sleep(wait).await;
                ask.send(net).await
            })
        };
        asks.iter().enumerate().map(one).collect()
    }

    /// Connections that wait in the pools, for longer than a close by the engine could be an accident.
    async fn warm_up(&mut self) {
        let kind = self.world.kind();
        let whole: Vec<Case> = all(kind).into_iter().filter(|case| case.harm == Harm::Nothing).collect();
        let asks: Vec<Ask> = (0..WARM).map(|n| self.ask(whole[n % whole.len()])).collect();
        for (ask, seen) in asks.iter().zip(self.send(&asks, |_| ms(0)).await) {
            let outcome = judge(ask, Expect::Whole, seen.as_ref());
            self.outcomes.insert(ask.id.clone(), outcome.unwrap_or_else(|wrong| panic!("{wrong}: {ask:?}")));
        }
        sleep(ms(120)).await;
    }

    /// Everything is given back within a second of its own end rule, at the router and at the engines.
    async fn settle(&mut self, asks: &[Ask]) {
        let tail = |ask: &Ask| (ask.case.harm, ask.case.stage) == (Harm::Silent, Stage::Tail);
        // The answer of a prefill that is silent is awaited until its time-out.
        let rule = GRACE + if asks.iter().any(tail) { secs(2) } else { Duration::ZERO };
        sleep(rule + secs(1)).await;
        rest::router(&self.world).unwrap_or_else(|left| panic!("held: {left}\n{}", self.about()));
        // SGLang looks for closed sockets every four seconds, at those that the engine itself closed too.
        sleep(secs(4)).await;
        rest::corrupted(&self.world);
        rest::engines(&self.world).unwrap_or_else(|left| panic!("at the engines: {left}\n{}", self.about()));
        sleep(EJECTED).await;
    }

    fn judge(&mut self, ask: &Ask, answer: Option<&Answer>, legs: &Legs, strike: Option<Instant>) {
        let none = Vec::new();
        let legs = legs.get(&ask.id).unwrap_or(&none);
        let expected = expect(ask, legs, answer);
        let checked = self.once.check(legs).and_then(|()| judge(ask, expected, answer));
        let outcome = match checked {
            Ok(outcome) => outcome,
            Err(wrong) => panic!("{wrong}\n{}\n{answer:?}\n{}", self.about(), story(ask, legs)),
        };
        self.outcomes.insert(ask.id.clone(), outcome);
        if happened(ask, legs, answer, strike) {
            *self.counts.get_mut(&ask.case.variant()).unwrap() += 1;
        }
    }

    /// An SGLang engine that ends a request because a socket was closed was not told by an abort, and had worked on for
    /// seconds. Engines that cut their own connection, or died, are not told.
    fn legs_were_told(&self, legs: &Legs) {
        if self.world.kind() == Kind::Pull {
            return;
        }
        for (id, leg) in legs.iter().flat_map(|(id, legs)| legs.iter().map(move |leg| (id, leg))) {
            let left = leg.logged.ended.is_some_and(|(how, _)| how.as_str() == "peer_left");
            assert!(
                !(left && leg.logged.stopped == Some("peer_left")),
                "not told: {id} {leg:?} {}",
                self.about()
            );
        }
    }

    /// A started leg's first byte may be 50 ms under way.
    fn withdrawn_is_withdrawn(&self, legs: &Legs, side: Side, strike: Instant) {
        let late = |leg: &&Leg| {
            leg.side == side && self.victims & (1 << leg.host) != 0 && leg.logged.head_at > strike + ms(50)
        };
        let late = legs.values().flatten().find(late);
        assert!(late.is_none(), "on a withdrawn engine: {late:?} {}", self.about());
    }

    fn about(&self) -> String {
        let Self { seed, round, weather, victims, .. } = self;
        format!("STORM_SEED={seed}, round {round}, weather {weather:?} on {victims:03b}")
    }

    async fn finish(self) {
        let mut short: Vec<_> = self.counts.iter().filter(|(_, count)| **count < ENOUGH).collect();
        short.sort_by_key(|(case, _)| format!("{case:?}"));
        assert!(short.is_empty(), "hit too rarely after {} rounds: {short:#?}", self.round);
        self.world.router.assert_pair_invariants(&[], &[]).await;
        rest::outcomes(&self.world, &self.outcomes);
        rest::legs(&self.world, self.legs);
        // Shown by a runner that shows the output of what passed.
        let (rounds, sent, cases) = (self.round, self.sent, self.counts.len());
        println!("{cases} variants, {sent} requests in {rounds} rounds, STORM_SEED={}", self.seed);
    }
}

pub(super) async fn finish(running: Vec<tokio::task::JoinHandle<Option<Answer>>>) -> Vec<Option<Answer>> {
    let mut seen = Vec::with_capacity(running.len());
    for one in running {
        seen.push(one.await.unwrap());
    }
    seen
}

/// One request, leg by leg, for the message of a failure.
pub(super) fn story(ask: &Ask, legs: &[Leg]) -> String {
    let mut text = format!("{ask:?}\n");
    let Some(first) = legs.first().map(|leg| leg.logged.head_at) else { return text };
    for Leg { side, host, attempt, logged } in legs {
        let at = |at: Instant| (at - first).as_millis();
        let _ = writeln!(
            text,
            "{attempt} {side:?} {host} conn {} #{}: head {} status {:?} ended {:?} stopped {:?}",
            logged.conn,
            logged.ordinal,
            at(logged.head_at),
            logged.status.map(|(status, when)| (status, at(when))),
            logged.ended.map(|(how, when)| (how, at(when))),
            logged.stopped,
        );
    }
    text
}

const _: () = assert!(EACH == 3, "the masks of victims are of three bits");
