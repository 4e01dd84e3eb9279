//! KV that a prefill keeps for a decode to pull. Counted beside the holds, as a guard: a prefill that carries a hand-off must
//! not be deleted although its own leg is over (pd.md, "Holds and hand-offs").

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::types::clock::{self, Instant};

/// The hand-offs of one endpoint.
#[derive(Debug, Default, Clone)]
pub struct Handoffs(Arc<State>);

#[derive(Debug)]
struct State {
    open: AtomicU64,
    /// Milliseconds after `since` of the last end, and one more; 0: none ended.
    ended: AtomicU64,
    since: Instant,
}

impl Default for State {
    fn default() -> Self {
        Self { open: AtomicU64::new(0), ended: AtomicU64::new(0), since: clock::now() }
    }
}

impl Handoffs {
    pub fn begin(&self) -> Handoff {
        self.0.open.fetch_add(1, Ordering::AcqRel);
        Handoff(self.clone())
    }

    pub fn count(&self) -> u64 {
        self.0.open.load(Ordering::Acquire)
    }

    /// When the last one ended.
    pub fn last_end(&self) -> Option<Instant> {
        let ended = self.0.ended.load(Ordering::Acquire);
        ended.checked_sub(1).map(|age| self.0.since + Duration::from_millis(age))
    }
}

/// One hand-off, until dropped.
#[derive(Debug)]
#[must_use = "the hand-off ends when this is dropped"]
pub struct Handoff(Handoffs);

impl Drop for Handoff {
    fn drop(&mut self) {
        let state = &self.0.0;
        let age = clock::now().saturating_duration_since(state.since).as_millis() as u64;
        // Before the count: who sees that it ended also sees when.
        state.ended.fetch_max(age + 1, Ordering::AcqRel);
        state.open.fetch_sub(1, Ordering::AcqRel);
    }
}
