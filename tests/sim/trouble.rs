//! What befalls the API server's answers. The truth is never touched.

use std::collections::BTreeMap;
use std::time::Duration;

use tandem::testkit::kube::{FIRST_VERSION, FakeKube, Fault, RequestKind};
use tandem::types::clock::{Instant, now};

use super::history::Healthy;
use super::{ms, secs};

/// Trouble that is under way.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Lists are as they should be since then.
    healthy: Healthy,
    /// Lists that were promised a fault: so many have to be asked for first.
    faulty_lists: usize,
    /// When a replica that is behind catches up, or one that is off the network returns.
    ends: Option<Instant>,
    /// By word: how often.
    pub(super) counts: BTreeMap<&'static str, usize>,
}

impl Trouble {
    /// What the API server's lists were like until now.
    pub(super) fn look(&mut self, api: &FakeKube) -> Healthy {
        if self.ends.is_some_and(|at| now() >= at) {
            self.calm_replicas(api);
        }
        let well = self.ends.is_none() && api.lists() >= self.faulty_lists;
        self.healthy = if well { self.healthy.or_else(|| Some(now())) } else { None };
        self.healthy
    }

    /// Everything is as it should be; half-open watches are cut.
    pub(super) fn calm(&mut self, api: &FakeKube) {
        api.clear_faults();
        api.lose_nothing();
        api.delay_next(0, Duration::ZERO);
        api.reverse_next(0);
        api.duplicate_next(0);
        self.calm_replicas(api);
        self.faulty_lists = 0;
        api.cut_watches();
    }

    fn calm_replicas(&mut self, api: &FakeKube) {
        if self.ends.take().is_some() {
            for n in 0..2 {
                api.replica(n).catch_up();
                api.replica(n).clear_faults();
            }
        }
    }

    fn list_fault(&mut self, api: &FakeKube, fault: &Fault, times: usize) {
        api.push_n(RequestKind::List, fault, times);
        self.faulty_lists = self.faulty_lists.max(api.lists()) + times;
    }

    /// One more thing goes wrong between a change and the watches, or with a watch.
    pub(super) fn strike_watches(&mut self, api: &FakeKube, random: &mut fastrand::Rng) {
        let some = random.usize(1..4);
        let word = match random.u8(..20) {
            0..=2 => {
                api.lose_next(some);
                "lost"
            }
            3 => {
                api.duplicate_next(some);
                "twice"
            }
            4 => {
                api.delay_next(some, a_while(random));
                "late"
            }
            5..=7 => {
                api.overtake_next(some, a_while(random) * 4);
                "overtaken"
            }
            8..=9 => {
                api.reverse_next(1 + some);
                "reversed"
            }
            10..=12 => return self.strike_requests(api, random),
            13 => {
                api.cut_watches();
                "cut watch"
            }
            14 => {
                api.end_watches();
                "ended watch"
            }
            15 => {
                api.tear_watches();
                "torn watch"
            }
            16 => {
                api.fail_watches(410);
                "expired watch"
            }
            17 | 18 => {
                api.silence_watches();
                "silent watch"
            }
            _ => {
                api.compact(api.version());
                api.cut_watches();
                "compacted"
            }
        };
        self.count(word);
    }

    /// Watches that are opened now are refused, or break.
    fn strike_requests(&mut self, api: &FakeKube, random: &mut fastrand::Rng) {
        let (fault, times) = match random.u8(..8) {
            0..=3 => (Fault::status([410, 429, 500, 403][random.usize(..4)]), random.usize(1..4)),
            4 => (Fault::InStream { code: 410 }, 1),
            5 => (Fault::BlackHole, 1),
            6 => (Fault::Silence, 1),
            _ => (Fault::Cut { after: random.usize(..3000) }, 1),
        };
        api.push_n(RequestKind::Watch, &fault, times);
        api.cut_watches();
        self.count("failed watch");
    }

    /// One more thing goes wrong with lists, or with a whole replica.
    pub(super) fn strike_lists(&mut self, api: &FakeKube, random: &mut fastrand::Rng) {
        let word = match random.u8(..10) {
            0..=2 => {
                self.list_fault(api, &Fault::Late(a_while(random)), 1);
                "late list"
            }
            3 => {
                let code = [429, 500, 503, 504, 403][random.usize(..5)];
                let fault = if code == 429 { Fault::throttled(3) } else { Fault::status(code) };
                self.list_fault(api, &fault, random.usize(1..4));
                "failed list"
            }
            4 => {
                let fault = match random.u8(..5) {
                    0 => Fault::BlackHole,
                    1 => Fault::Silence,
                    2 => Fault::Cut { after: random.usize(..500) },
                    3 => Fault::Refuse,
                    _ => Fault::garbage("{\"kind\":\"PodList\",\"items\":[null]}"),
                };
                self.list_fault(api, &fault, 1);
                "broken list"
            }
            5..=8 => {
                let replica = api.replica(random.usize(..2));
                if random.bool() {
                    replica.freeze();
                } else {
                    replica.lag_to(api.version().saturating_sub(random.u64(..40)).max(FIRST_VERSION));
                }
                self.ends = Some(now() + a_while(random) * 6);
                "lag"
            }
            _ => {
                api.replica(random.usize(..2)).black_hole();
                self.ends = Some(now() + a_while(random) * 3 + secs(1));
                "off the network"
            }
        };
        self.count(word);
    }

    pub(super) fn count(&mut self, word: &'static str) {
        *self.counts.entry(word).or_default() += 1;
    }
}

/// Up to four seconds: shorter than a list may take.
fn a_while(random: &mut fastrand::Rng) -> Duration {
    ms(random.u64(5..4000))
}
