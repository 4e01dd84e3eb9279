//! How late this machine is: threads that wanted to run and did not. A limit of 50 ms says nothing about a router while the
//! machine does nothing at all for 80.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tandem::types::clock::{Instant, now};

const STEP: Duration = Duration::from_millis(2);

/// Watches the machine until dropped.
pub struct Lag {
    late: Arc<Mutex<Vec<(Instant, Duration)>>>,
    over: Arc<AtomicBool>,
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

impl Lag {
    pub fn watch() -> Self {
        let (late, over) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let (kept, ends) = (Arc::clone(&late), Arc::clone(&over));
        std::thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                let before = now();
                std::thread::sleep(STEP);
                let by = now().saturating_duration_since(before).saturating_sub(STEP);
                if by > STEP {
                    kept.lock().push((now(), by));
                }
            }
        });
        Self { late, over }
    }

    /// All the lateness between these two moments, and just after.
    pub fn between(&self, from: Instant, to: Instant) -> Duration {
        let late = self.late.lock();
        late.iter().filter(|(at, _)| *at >= from && *at <= to + 5 * STEP).map(|(_, by)| *by).sum()
    }
}
