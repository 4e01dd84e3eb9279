//! The retry budget of one service (pd.md): over the last 10 s, retries may be a share of the requests, or a floor per
//! second if that is more. With every engine failing the load on them grows by that share only.
//!
//! Ten one-second cells in a ring, each one atomic word holding its second and two counts; no lock, and a cell that is
//! from another second counts as empty. The counts are approximate across threads by at most the requests in the
//! same instant.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::clock::{self, Instant};

const CELLS: usize = 10;
/// Layout of a cell: second (16 bits), requests (28), retries (20).
const RETRY_BITS: u32 = 20;
const REQUEST_BITS: u32 = 28;
const SECOND_MASK: u64 = 0xffff;

#[derive(Debug)]
pub struct RetryBudget {
    born: Instant,
    share: f64,
    floor: u32,
    cells: [AtomicU64; CELLS],
}

impl RetryBudget {
    /// `share` of requests (0.2 is 20 %), or `floor` retries per second.
    pub fn new(share: f64, floor: u32) -> Self {
        Self { born: clock::recent(), share, floor, cells: Default::default() }
    }

    /// Counts one client request.
    pub fn request(&self) {
        self.add(1 << RETRY_BITS);
    }

    /// Takes one retry if the budget allows it.
    pub fn take(&self) -> bool {
        let second = self.second();
        let (mut requests, mut retries) = (0, 0);
        for cell in &self.cells {
            let (at, req, ret) = split(cell.load(Ordering::Relaxed));
            if second.wrapping_sub(at) & SECOND_MASK < CELLS as u64 {
                requests += req;
                retries += ret;
            }
        }
        let allowed = (self.share * requests as f64).max(f64::from(self.floor) * CELLS as f64);
        if retries as f64 + 1.0 > allowed {
            return false;
        }
        self.add(1);
        true
    }

    /// Seconds of life, not yet cut to what a cell holds: the place in the ring must not jump when that wraps.
    fn second(&self) -> u64 {
        clock::recent().saturating_duration_since(self.born).as_secs()
    }

    fn add(&self, amount: u64) {
        let second = self.second();
        let cell = &self.cells[second as usize % CELLS];
        let mut word = cell.load(Ordering::Relaxed);
        loop {
            let now = second & SECOND_MASK;
            let base = if split(word).0 == now { word } else { now << (RETRY_BITS + REQUEST_BITS) };
            match cell.compare_exchange_weak(word, base + amount, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}

/// (second, requests, retries)
fn split(word: u64) -> (u64, u64, u64) {
    (
        word >> (RETRY_BITS + REQUEST_BITS),
        word >> RETRY_BITS & ((1 << REQUEST_BITS) - 1),
        word & ((1 << RETRY_BITS) - 1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_floor_allows_retries_without_traffic_and_no_more() {
        let budget = RetryBudget::new(0.2, 3);
        assert_eq!((0..100).filter(|_| budget.take()).count(), 30);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(budget.take(), "cells older than 10 s no longer count");
    }

    #[tokio::test(start_paused = true)]
    async fn counts_survive_the_wrap_of_the_seconds_that_cells_hold() {
        let budget = RetryBudget::new(0.2, 0);
        tokio::time::advance(Duration::from_secs(65_530)).await;
        for _ in 0..9 {
            for _ in 0..10 {
                budget.request();
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!((0..100).filter(|_| budget.take()).count(), 18, "a fifth of the last ten seconds");
    }

    /// The same rule over a plain list of what happened.
    #[derive(Default)]
    struct Oracle {
        requests: Vec<u64>,
        retries: Vec<u64>,
    }

    impl Oracle {
        fn allows(&self, now: u64, share: f64, floor: u32) -> bool {
            let recent = |list: &[u64]| list.iter().filter(|&&at| now - at < 10).count() as f64;
            recent(&self.retries) + 1.0 <= (share * recent(&self.requests)).max(f64::from(floor) * 10.0)
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

        #[test]
        fn any_ten_seconds_stay_within_share_or_floor(
            share in 0.0..1.0f64,
            floor in 0..3u32,
            start in proptest::prop_oneof![proptest::prelude::Just(0u64), 65_500..65_540u64],
            steps in proptest::collection::vec((0..4u64, 0..20usize, 0..20usize), 1..40),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let budget = RetryBudget::new(share, floor);
                let mut oracle = Oracle::default();
                tokio::time::advance(Duration::from_secs(start)).await;
                let mut now = start;
                for (seconds, requests, retries) in steps {
                    tokio::time::advance(Duration::from_secs(seconds)).await;
                    now += seconds;
                    for _ in 0..requests {
                        budget.request();
                        oracle.requests.push(now);
                    }
                    for _ in 0..retries {
                        let allowed = oracle.allows(now, share, floor);
                        assert_eq!(budget.take(), allowed);
                        if allowed {
                            oracle.retries.push(now);
                        }
                    }
                }
            });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_share_governs_when_it_is_more_than_the_floor() {
        let budget = RetryBudget::new(0.2, 3);
        for _ in 0..1000 {
            budget.request();
        }
        assert_eq!((0..1000).filter(|_| budget.take()).count(), 200);
    }
}
