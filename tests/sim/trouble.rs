//! What befalls the API server's answers. The truth is never touched.

use std::time::Duration;

use tandem::testkit::kube::{FakeKube, Fault, RequestKind};
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
    pub(super) counts: std::collections::BTreeMap<&'static str, usize>,
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

    fn watch_fault(&mut self, api: &FakeKube, fault: &Fault, times: usize) {
        api.push_n(RequestKind::Watch, fault, times);
        api.cut_watches();
    }

    /// One more thing goes wrong.
    pub(super) fn strike(&mut self, api: &FakeKube, random: &mut fastrand::Rng) {
        let some = |random: &mut fastrand::Rng| random.usize(1..4);
        let while_ = |random: &mut fastrand::Rng| ms(random.u64(5..4000));
        let word = match random.u8(..26) {
            0 | 1 => {
                api.lose_next(some(random));
                "lost"
            }
            2 => {
                api.duplicate_next(some(random));
                "twice"
            }
            3 => {
                api.delay_next(some(random), while_(random));
                "late"
            }
            4..=6 => {
                api.overtake_next(some(random), while_(random) * 5);
                "overtaken"
            }
            7 | 8 => {
                api.reverse_next(random.usize(2..5));
                "reversed"
            }
            9..=11 => {
                let late = while_(random);
                self.list_fault(api, &Fault::Late(late), 1);
                "late list"
            }
            12 => {
                let code = [429, 500, 503, 504, 403][random.usize(..5)];
                let fault = if code == 429 { Fault::throttled(3) } else { Fault::status(code) };
                let times = some(random);
                self.list_fault(api, &fault, times);
                "failed list"
            }
            13 => {
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
            14 => {
                let code = [410, 429, 500, 403][random.usize(..4)];
                let times = some(random);
                self.watch_fault(api, &Fault::status(code), times);
                "failed watch"
            }
            15 => {
                let fault = match random.u8(..4) {
                    0 => Fault::InStream { code: 410 },
                    1 => Fault::BlackHole,
                    2 => Fault::Silence,
                    _ => Fault::Cut { after: random.usize(..3000) },
                };
                self.watch_fault(api, &fault, 1);
                "broken watch"
            }
            16 => {
                api.cut_watches();
                "cut watch"
            }
            17 => {
                api.end_watches();
                "ended watch"
            }
            18 => {
                api.tear_watches();
                "torn watch"
            }
            19 => {
                api.fail_watches(410);
                "expired watch"
            }
            20 => {
                api.silence_watches();
                "silent watch"
            }
            21 => {
                api.compact(api.version());
                api.cut_watches();
                "compacted"
            }
            22..=24 => {
                let replica = api.replica(random.usize(..2));
                if random.bool() {
                    replica.freeze();
                } else {
                    replica.lag_to(api.version().saturating_sub(random.u64(..30)).max(100));
                }
                self.ends = Some(now() + while_(random) * 8);
                "lag"
            }
            _ => {
                api.replica(random.usize(..2)).black_hole();
                self.ends = Some(now() + while_(random) * 5 + secs(1));
                "off the network"
            }
        };
        *self.counts.entry(word).or_default() += 1;
    }
}
