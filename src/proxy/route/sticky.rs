//! Requests of one key stay with one cohort: weighted rendezvous hashing, the same at every replica without shared state.
//!
//! Each cohort gets a score from the key, its name and its weight; the best one that can take the request has it. As one
//! weight grows, keys only move towards that cohort; when a cohort cannot take requests its keys go to their next best, and
//! come back with it.

use std::hash::Hasher as _;

/// Most bytes of a value that count: a client can send megabytes.
pub(super) const LONGEST: usize = 1024;

/// A key under one service. The hash and the score are version 1: another one would move every key.
#[derive(Debug, Clone)]
pub struct StickyKey(u64);

impl StickyKey {
    /// Of a value only the first 1,024 bytes count.
    pub fn new(service: &str, value: &[u8]) -> Self {
        let value = &value[..value.len().min(LONGEST)];
        let mut hash = Fnv::default();
        // Lengths first: no two pairs of words run into each other.
        hash.word(service.as_bytes());
        hash.word(value);
        Self(mixed(hash.finish()))
    }

    /// Position of the best of these cohorts, each a name and a weight above 0.
    pub(super) fn first<'a>(&self, cohorts: impl Iterator<Item = (&'a str, u64)>) -> Option<usize> {
        let scored = cohorts.enumerate().map(|(at, (name, weight))| (self.score(name, weight), name, at));
        // Names break ties, so that no order of the list does.
        let best = scored.max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)));
        best.map(|(_, _, at)| at)
    }

    /// `-weight / ln(u)` with `u` uniform in (0, 1): the chance to be the largest is the weight's share.
    fn score(&self, name: &str, weight: u64) -> f64 {
        let mut hash = Fnv::default();
        hash.word(&self.0.to_le_bytes());
        hash.word(name.as_bytes());
        // 53 bits, and the middle of their interval: neither 0 nor 1.
        let uniform = ((mixed(hash.finish()) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        -(weight as f64) / uniform.ln()
    }
}

/// FNV-1a, 64 bits: fixed for ever, and short words are all it gets.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn word(&mut self, bytes: &[u8]) {
        self.write(&(bytes.len() as u64).to_le_bytes());
        self.write(bytes);
    }
}

impl std::hash::Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The last step of `SplitMix64`: every bit of the input counts in every bit of the output, which FNV alone does not give.
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
#[path = "tests/sticky.rs"]
mod tests;
