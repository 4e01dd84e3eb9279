//! What each cohort of a service was given, by name: it survives snapshots, so that observed shares can be told beside the
//! weights.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::cohort::Uncovered;
use crate::types::clock::{self, Instant};

/// How often counts are put down, and for how long they are kept.
pub const SAMPLE: Duration = Duration::from_secs(5);
const KEPT: Duration = Duration::from_secs(310);
/// Most names that are remembered; of others the oldest-named ones begin anew when they come back (I12).
const NAMES: usize = 256;

/// One cohort's counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests decided for it; a further attempt of one counts no more.
    requests: AtomicU64,
    passed_on: [AtomicU64; Uncovered::ALL.len()],
}

impl Counts {
    #[inline]
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// A request fell to it, and went to another.
    pub fn passed_on(&self, why: Uncovered) {
        self.passed_on[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// In the order of [`Uncovered::ALL`].
    pub fn all_passed_on(&self) -> [u64; Uncovered::ALL.len()] {
        self.passed_on.each_ref().map(|n| n.load(Ordering::Relaxed))
    }
}

/// Requests by cohort.
type Totals = BTreeMap<Arc<str>, u64>;

/// Of one service. Locked when cohorts are made and looked at, never by a request.
#[derive(Debug, Default)]
pub struct Shares {
    by_name: Mutex<BTreeMap<Arc<str>, Arc<Counts>>>,
    samples: Mutex<VecDeque<(Instant, Totals)>>,
    /// Requests decided under the split in force; those of another one have counters of their own.
    since_split: Mutex<BTreeMap<Arc<str>, Arc<AtomicU64>>>,
}

impl Shares {
    pub(super) fn of(&self, name: &Arc<str>) -> Arc<Counts> {
        let mut by_name = self.by_name.lock();
        if by_name.len() >= NAMES && !by_name.contains_key(name) {
            by_name.retain(|_, counts| Arc::strong_count(counts) > 1);
        }
        Arc::clone(by_name.entry(Arc::clone(name)).or_default())
    }

    fn now(&self) -> Totals {
        self.by_name.lock().iter().map(|(name, counts)| (Arc::clone(name), counts.requests())).collect()
    }

    /// The counter of a cohort under the split in force.
    pub(super) fn since(&self, name: &Arc<str>) -> Arc<AtomicU64> {
        let mut since = self.since_split.lock();
        if since.len() >= NAMES && !since.contains_key(name) {
            since.retain(|_, count| Arc::strong_count(count) > 1);
        }
        Arc::clone(since.entry(Arc::clone(name)).or_default())
    }

    /// Cohorts that are made from now on are those of another split. What is still decided under the one before counts there.
    pub(super) fn split_applied(&self) {
        self.since_split.lock().clear();
    }

    /// Puts the counts down; called every [`SAMPLE`].
    pub fn sample(&self) {
        let (at, now) = (clock::now(), self.now());
        let mut samples = self.samples.lock();
        samples.push_back((at, now));
        while samples.front().is_some_and(|(before, _)| at.saturating_duration_since(*before) > KEPT) {
            samples.pop_front();
        }
    }

    /// Requests by cohort over the last `window`, as far as it was put down.
    pub fn over(&self, window: Duration) -> Totals {
        let at = clock::now();
        let samples = self.samples.lock();
        let before = samples.iter().rev().find(|(then, _)| at.saturating_duration_since(*then) >= window);
        let before = before.or(samples.front()).map(|(_, counts)| counts);
        grown(before, self.now())
    }

    /// Requests by cohort since the split in force was applied.
    pub fn since_split(&self) -> Totals {
        let since = self.since_split.lock();
        since.iter().map(|(name, count)| (Arc::clone(name), count.load(Ordering::Relaxed))).collect()
    }
}

fn grown(before: Option<&BTreeMap<Arc<str>, u64>>, mut now: BTreeMap<Arc<str>, u64>) -> Totals {
    for (name, count) in &mut now {
        let known = before.and_then(|before| before.get(name)).copied();
        *count = count.saturating_sub(known.unwrap_or(0));
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shares_are_told_by_window_and_since_the_split() {
        let shares = Shares::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let counts = (shares.of(&a), shares.of(&b));
        let give = |n, m| {
            let since = (shares.since(&a), shares.since(&b));
            (0..n).for_each(|_| counts.0.request());
            (0..m).for_each(|_| counts.1.request());
            since.0.fetch_add(n, Ordering::Relaxed);
            since.1.fetch_add(m, Ordering::Relaxed);
        };
        let both = |n, m| BTreeMap::from([(Arc::clone(&a), n), (Arc::clone(&b), m)]);
        shares.sample();
        give(10, 0);
        assert_eq!(shares.over(Duration::from_mins(1)), both(10, 0), "as far as it was put down");
        for _ in 0..12 {
            tokio::time::advance(SAMPLE).await;
            shares.sample();
        }
        let before = shares.since(&a);
        shares.split_applied();
        give(1, 9);
        // Decided under the split before, and told late.
        before.fetch_add(5, Ordering::Relaxed);
        assert_eq!(shares.over(Duration::from_mins(1)), both(11, 9));
        tokio::time::advance(SAMPLE).await;
        assert_eq!(shares.over(Duration::from_mins(1)), both(1, 9));
        assert_eq!((shares.over(Duration::from_mins(5)), shares.since_split()), (both(11, 9), both(1, 9)));
        for _ in 0..70 {
            tokio::time::advance(SAMPLE).await;
            shares.sample();
        }
        assert_eq!(shares.over(Duration::from_mins(5)), both(0, 0));
        assert!(shares.samples.lock().len() <= 63);
    }

    #[test]
    fn names_that_nobody_uses_are_forgotten_before_there_are_too_many() {
        let shares = Shares::default();
        let kept = shares.of(&"kept".into());
        kept.request();
        for n in 0..10 * NAMES {
            shares.of(&n.to_string().into()).request();
        }
        assert!(shares.by_name.lock().len() <= NAMES);
        assert_eq!(shares.of(&"kept".into()).requests(), 1);
    }
}
