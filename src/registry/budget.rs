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
            if second.wrapping_sub(at) & 0xffff < CELLS as u64 {
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

    fn second(&self) -> u64 {
        // Second 0 is the value of an untouched cell, so counting starts at 1.
        (clock::recent().saturating_duration_since(self.born).as_secs() + 1) & 0xffff
    }

    fn add(&self, amount: u64) {
        let second = self.second();
        let cell = &self.cells[second as usize % CELLS];
        let mut word = cell.load(Ordering::Relaxed);
        loop {
            let base = if split(word).0 == second { word } else { second << (RETRY_BITS + REQUEST_BITS) };
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
    async fn the_share_governs_when_it_is_more_than_the_floor() {
        let budget = RetryBudget::new(0.2, 3);
        for _ in 0..1000 {
            budget.request();
        }
        assert_eq!((0..1000).filter(|_| budget.take()).count(), 200);
    }
}
