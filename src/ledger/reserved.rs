//! Legs past their last look at the gate's bit whose first byte is not written: microseconds each. A report that calls an
//! endpoint withdrawn waits for them, so that no engine is given a request after the report.
//!
//! A leg counts itself first and looks at the bit after that; whoever withdraws sets the bit first and reads the count after
//! that. In the one order of all these (sequentially consistent) operations, one of the two sees the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reservations of one endpoint.
#[derive(Debug, Default, Clone)]
pub struct Reservations(Arc<AtomicU64>);

impl Reservations {
    /// Before the last look at the bit.
    #[inline]
    pub fn begin(&self) -> Reserved {
        self.0.fetch_add(1, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        Reserved(self.clone())
    }

    /// After the bit was set.
    pub fn count(&self) -> u64 {
        std::sync::atomic::fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst)
    }
}

/// One leg's, until its first byte is written.
#[derive(Debug)]
#[must_use = "the reservation ends when this is dropped"]
pub struct Reserved(Reservations);

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
