//! Blocks that a prefill keeps for a decode to pull: one pull, under a lease.
//!
//! A pull that has begun keeps its blocks past the lease (the decode's heartbeats); one that breaks off leaves them until
//! the lease is over, because the decode may still be reading. What is pulled after its end, by expiry or by an earlier
//! pull, is answered all the same, as the real engine does, and is garbage.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::types::clock::Instant;

/// How many ended leases are remembered.
const REMEMBERED: usize = 65_536;

/// Why blocks are no longer kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Expired,
    Pulled,
    /// A decode refused the request and said so.
    Released,
}

/// What a pull gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pull {
    /// The KV, kept until [`Leases::pulled`] or [`Leases::broke_off`].
    Fresh(u64),
    /// The blocks are somebody else's by now.
    Stale(u64, Ended),
    Unknown,
}

#[derive(Debug)]
struct Lease {
    blocks: Vec<u32>,
    content: u64,
    until: Instant,
    pulling: bool,
}

/// All leases of one prefill.
#[derive(Debug)]
pub(super) struct Leases {
    free: VecDeque<u32>,
    total: u32,
    held: HashMap<String, Lease>,
    ended: HashMap<String, (u64, Ended)>,
    order: VecDeque<String>,
    expired: u64,
}

impl Leases {
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            free: (1..=blocks).collect(),
            total: blocks,
            held: HashMap::new(),
            ended: HashMap::new(),
            order: VecDeque::new(),
            expired: 0,
        }
    }

    /// Keeps `count` blocks for the request; `None` when there are not enough.
    pub(super) fn grant(
        &mut self,
        request: &str,
        count: u32,
        content: u64,
        now: Instant,
        lease: Duration,
    ) -> Option<Vec<u32>> {
        self.expire(now);
        if self.free.len() < count as usize {
            return None;
        }
        let blocks: Vec<u32> = self.free.drain(..count as usize).collect();
        let kept = Lease { blocks: blocks.clone(), content, until: now + lease, pulling: false };
        self.held.insert(request.to_owned(), kept);
        Some(blocks)
    }

    /// A decode begins to read.
    pub(super) fn pull(&mut self, request: &str, now: Instant) -> Pull {
        self.expire(now);
        if let Some(lease) = self.held.get_mut(request) {
            lease.pulling = true;
            return Pull::Fresh(lease.content);
        }
        match self.ended.get(request) {
            Some(&(content, why)) => Pull::Stale(content, why),
            None => Pull::Unknown,
        }
    }

    /// It has read everything.
    pub(super) fn pulled(&mut self, request: &str) {
        self.end(request, Ended::Pulled);
    }

    /// It broke off: the blocks stay until the lease is over.
    pub(super) fn broke_off(&mut self, request: &str) {
        if let Some(lease) = self.held.get_mut(request) {
            lease.pulling = false;
        }
    }

    /// A decode's front end refused the request.
    pub(super) fn release(&mut self, request: &str) {
        self.end(request, Ended::Released);
    }

    /// Ends what nobody came for.
    pub(super) fn expire(&mut self, now: Instant) {
        let over = |lease: &Lease| !lease.pulling && lease.until <= now;
        let over: Vec<String> =
            self.held.iter().filter(|(_, lease)| over(lease)).map(|(id, _)| id.clone()).collect();
        for request in over {
            self.expired += 1;
            self.end(&request, Ended::Expired);
        }
    }

    /// Requests and blocks that are kept now.
    pub(super) fn held(&mut self, now: Instant) -> (usize, usize) {
        self.expire(now);
        (self.held.len(), self.held.values().map(|lease| lease.blocks.len()).sum())
    }

    /// Leases that nobody came for, ever.
    pub(super) fn expired(&self) -> u64 {
        self.expired
    }

    pub(super) fn total(&self) -> u32 {
        self.total
    }

    fn end(&mut self, request: &str, why: Ended) {
        let Some(lease) = self.held.remove(request) else { return };
        self.free.extend(lease.blocks);
        self.ended.insert(request.to_owned(), (lease.content, why));
        self.order.push_back(request.to_owned());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::clock::now;

    const LEASE: Duration = Duration::from_secs(30);

    fn one() -> (Leases, Instant) {
        let (mut leases, start) = (Leases::new(8), now());
        assert_eq!(leases.grant("a", 3, 77, start, LEASE), Some(vec![1, 2, 3]));
        (leases, start)
    }

    #[test]
    fn one_pull_within_the_lease_is_right_and_a_second_is_garbage() {
        let (mut leases, start) = one();
        assert_eq!(leases.pull("a", start + LEASE / 2), Pull::Fresh(77));
        leases.pulled("a");
        assert_eq!(leases.held(start), (0, 0));
        assert_eq!(leases.pull("a", start + LEASE / 2), Pull::Stale(77, Ended::Pulled));
        assert_eq!(leases.expired(), 0);
    }

    #[test]
    fn a_pull_after_the_lease_is_garbage_and_the_expiry_counts_once() {
        let (mut leases, start) = one();
        assert_eq!(leases.pull("a", start + LEASE), Pull::Stale(77, Ended::Expired));
        leases.expire(start + LEASE * 2);
        assert_eq!((leases.expired(), leases.held(start)), (1, (0, 0)));
    }

    #[test]
    fn a_pull_that_runs_outlives_the_lease_and_one_that_broke_off_does_not() {
        let (mut leases, start) = one();
        leases.pull("a", start);
        assert_eq!(leases.held(start + LEASE * 2), (1, 3));
        leases.broke_off("a");
        assert_eq!(leases.held(start + LEASE / 2), (1, 3), "it may still be reading");
        assert_eq!(leases.held(start + LEASE), (0, 0));
    }

    #[test]
    fn blocks_come_back_by_every_way_out() {
        let (mut leases, start) = one();
        assert_eq!(leases.grant("b", 6, 1, start, LEASE), None);
        leases.release("a");
        assert!(leases.grant("b", 6, 1, start, LEASE).is_some());
        assert!(leases.grant("c", 8, 1, start + LEASE, LEASE).is_some());
        assert_eq!(leases.pull("never", start), Pull::Unknown);
    }
}
