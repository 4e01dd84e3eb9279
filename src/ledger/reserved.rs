//! Legs past their last look at the gate's bit whose first byte is not written: microseconds each. A report that calls an
//! endpoint withdrawn waits for them, so that no engine is given a request after the report.
//!
//! A leg counts itself first and looks at the bit after that; whoever withdraws sets the bit first and reads the count after
//! that. In the one order of all these (sequentially consistent) operations, one of the two sees the other.
//! `tests/reserved_model.rs` runs this code under loom's scheduler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::gate::{Gate, Word};

/// The reservations of one endpoint.
#[derive(Debug)]
pub struct Reservations<W = AtomicU64>(Arc<W>);

impl<W> Clone for Reservations<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: Word> Default for Reservations<W> {
    fn default() -> Self {
        Self(Arc::new(W::new(0)))
    }
}

impl<W: Word> Reservations<W> {
    /// The last look at the bit, right before a leg's first byte (I3). `None`: withdrawn.
    #[inline]
    pub fn last_look(&self, gate: &Gate<W>) -> Option<Reserved<W>> {
        let reserved = self.begin();
        (!gate.is_withdrawn()).then_some(reserved)
    }

    fn begin(&self) -> Reserved<W> {
        self.0.fetch_add(1, Ordering::SeqCst);
        W::fence();
        Reserved(self.clone())
    }

    /// After the bit was seen.
    pub fn count(&self) -> u64 {
        W::fence();
        self.0.load(Ordering::SeqCst)
    }
}

/// One leg's, until its first byte is written.
#[derive(Debug)]
#[must_use = "the reservation ends when this is dropped"]
pub struct Reserved<W: Word = AtomicU64>(Reservations<W>);

impl<W: Word> Drop for Reserved<W> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
