//! KV that a prefill keeps for a decode to pull. Counted beside the holds, as a guard: a prefill that carries a hand-off must
//! not be deleted although its own leg is over (pd.md, "Holds and hand-offs").

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The hand-offs of one endpoint.
#[derive(Debug, Default, Clone)]
pub struct Handoffs(Arc<AtomicU64>);

impl Handoffs {
    pub fn begin(&self) -> Handoff {
        self.0.fetch_add(1, Ordering::AcqRel);
        Handoff(self.clone())
    }

    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// One hand-off, until dropped.
#[derive(Debug)]
#[must_use = "the hand-off ends when this is dropped"]
pub struct Handoff(Handoffs);

impl Drop for Handoff {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
