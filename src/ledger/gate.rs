//! The one-word gate (I3): holds and the withdrawn bit in one atomic, so that no request can slip in between
//! "is it withdrawn?" and "count me in".
//!
//! The word is a type parameter only so that the model tests (`tests/gate_model.rs`, `tests/reserved_model.rs`) can run this
//! very code under loom's scheduler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::stages::{Stage, Stages};

const WITHDRAWN: u64 = 1 << 63;

/// The atomic operations the gate and the reservations need.
pub trait Word {
    fn new(value: u64) -> Self;
    fn load(&self, order: Ordering) -> u64;
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64;
    fn fetch_add(&self, n: u64, order: Ordering) -> u64;
    fn fetch_sub(&self, n: u64, order: Ordering) -> u64;
    fn compare_exchange_weak(&self, old: u64, new: u64, ok: Ordering, err: Ordering) -> Result<u64, u64>;
    /// Sequentially consistent.
    fn fence();
}

impl Word for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
    }
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_and(bits, order)
    }
    fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
        self.fetch_add(n, order)
    }
    fn fetch_sub(&self, n: u64, order: Ordering) -> u64 {
        self.fetch_sub(n, order)
    }
    fn compare_exchange_weak(&self, old: u64, new: u64, ok: Ordering, err: Ordering) -> Result<u64, u64> {
        self.compare_exchange_weak(old, new, ok, err)
    }
    #[inline]
    fn fence() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// The endpoint takes no new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint is withdrawn")]
pub struct Withdrawn;

/// One endpoint's word.
#[derive(Debug)]
pub struct Gate<W = AtomicU64> {
    word: W,
}

impl<W: Word> Default for Gate<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Word> Gate<W> {
    /// Open, with no holds.
    pub fn new() -> Self {
        Self { word: W::new(0) }
    }

    /// Counts one more hold, unless withdrawn. The caller must [`release`](Self::release) it exactly once;
    /// [`Hold`] does.
    pub fn try_hold(&self) -> Result<(), Withdrawn> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & WITHDRAWN != 0 {
                return Err(Withdrawn);
            }
            match self.word.compare_exchange_weak(word, word + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// Gives one hold back. Release order: whoever reads the lower count also sees what the leg did.
    pub fn release(&self) {
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & !WITHDRAWN > 0, "a hold was released twice");
    }

    /// From the moment this returns no new hold can be taken. Returns the holds that are still out.
    /// Only the registry's writer calls this.
    pub fn withdraw(&self) -> u64 {
        self.word.fetch_or(WITHDRAWN, Ordering::AcqRel) & !WITHDRAWN
    }

    /// Opens the gate again, on the same word, so that older holds stay counted. Registry writer only.
    pub fn restore(&self) {
        self.word.fetch_and(!WITHDRAWN, Ordering::AcqRel);
    }

    pub fn is_withdrawn(&self) -> bool {
        self.word.load(Ordering::Acquire) & WITHDRAWN != 0
    }

    /// Holds that are out now.
    pub fn holds(&self) -> u64 {
        self.word.load(Ordering::Acquire) & !WITHDRAWN
    }
}

/// Something that owns a gate: an endpoint.
pub trait Holder {
    fn gate(&self) -> &Gate;
}

/// One request's claim on one endpoint; ends when dropped, wherever that happens.
#[derive(Debug)]
pub struct Hold<E: Holder> {
    endpoint: Arc<E>,
}

impl<E: Holder> Hold<E> {
    pub fn take(endpoint: &Arc<E>) -> Result<Self, Withdrawn> {
        endpoint.gate().try_hold()?;
        Ok(Self { endpoint: Arc::clone(endpoint) })
    }

    /// The endpoint held, also when it has left every snapshot since.
    pub fn endpoint(&self) -> &Arc<E> {
        &self.endpoint
    }

    /// The last look at the bit, right before a leg's first byte (I3). `None`: withdrawn.
    #[inline]
    pub fn last_look(&self, stages: &Stages) -> Option<Stage> {
        stages.last_look(self.endpoint.gate())
    }
}

impl<E: Holder> Drop for Hold<E> {
    fn drop(&mut self) {
        self.endpoint.gate().release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withdrawn_gate_refuses_and_still_counts_down() {
        let gate: Gate = Gate::new();
        gate.try_hold().unwrap();
        gate.try_hold().unwrap();
        assert_eq!(gate.withdraw(), 2);
        assert_eq!(gate.try_hold(), Err(Withdrawn));
        gate.release();
        assert_eq!(gate.holds(), 1);
        assert!(gate.is_withdrawn());
    }

    #[test]
    fn restoring_keeps_older_holds_counted() {
        let gate: Gate = Gate::new();
        gate.try_hold().unwrap();
        gate.withdraw();
        gate.restore();
        gate.try_hold().unwrap();
        assert_eq!(gate.holds(), 2);
    }
}
