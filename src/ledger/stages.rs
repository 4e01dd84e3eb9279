//! How far the legs on one endpoint are: *reserved* ones are past their last look at the gate's bit and have not written their
//! first byte (microseconds each), *running* ones have. A hold that is neither *waits*.
//!
//! A report that calls an endpoint withdrawn waits for the reserved ones, so that no engine is given a request after the
//! report. A leg counts itself first and looks at the bit after that; whoever withdraws sets the bit first and reads the count
//! after that. In the one order of all these (sequentially consistent) operations, one of the two sees the other.
//! `tests/reserved_model.rs` runs this code under loom's scheduler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::gate::{Gate, Word};

/// One leg, in each half of the word.
const RESERVED: u64 = 1;
const RUNNING: u64 = 1 << 32;

/// The legs of one endpoint, both counts in one word: a leg that moves on is never missing from both.
#[derive(Debug)]
pub struct Stages<W = AtomicU64>(Arc<W>);

/// Legs by stage at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub reserved: u64,
    pub running: u64,
}

impl<W> Clone for Stages<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: Word> Default for Stages<W> {
    fn default() -> Self {
        Self(Arc::new(W::new(0)))
    }
}

impl<W: Word> Stages<W> {
    /// The last look at the bit, right before a leg's first byte (I3). `None`: withdrawn.
    #[inline]
    pub fn last_look(&self, gate: &Gate<W>) -> Option<Stage<W>> {
        let stage = self.begin();
        (!gate.is_withdrawn()).then_some(stage)
    }

    fn begin(&self) -> Stage<W> {
        self.0.fetch_add(RESERVED, Ordering::SeqCst);
        W::fence();
        Stage { of: self.clone(), counted: RESERVED }
    }

    /// After the bit was seen.
    pub fn counts(&self) -> Counts {
        W::fence();
        let word = self.0.load(Ordering::SeqCst);
        Counts { reserved: word & (RUNNING - 1), running: word / RUNNING }
    }
}

/// One leg's, until it is over.
#[derive(Debug)]
#[must_use = "the leg is over when this is dropped"]
pub struct Stage<W: Word = AtomicU64> {
    of: Stages<W>,
    counted: u64,
}

impl<W: Word> Stage<W> {
    /// The first byte is out.
    #[inline]
    pub fn written(&mut self) {
        if self.counted == RESERVED {
            self.of.0.fetch_add(RUNNING - RESERVED, Ordering::SeqCst);
            self.counted = RUNNING;
        }
    }
}

impl<W: Word> Drop for Stage<W> {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.counted, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leg_is_in_one_stage_until_it_is_over() {
        let (gate, stages) = (Gate::new(), Stages::<AtomicU64>::default());
        let counts = |reserved, running| Counts { reserved, running };
        let mut first = stages.last_look(&gate).unwrap();
        let second = stages.last_look(&gate).unwrap();
        assert_eq!(stages.counts(), counts(2, 0));
        first.written();
        first.written();
        assert_eq!(stages.counts(), counts(1, 1));
        gate.withdraw();
        assert!(stages.last_look(&gate).is_none());
        assert_eq!(stages.counts(), counts(1, 1), "one that may not start leaves nothing");
        drop(first);
        assert_eq!(stages.counts(), counts(1, 0));
        drop(second);
        assert_eq!(stages.counts(), counts(0, 0));
    }
}
