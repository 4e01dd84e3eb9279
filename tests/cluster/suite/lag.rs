//! How late this machine is. A limit of 50 ms says nothing about a router that waits 80 ms for a processor; and the engines, the
//! clients and the network before the router are tasks of the test's own process. On an idle machine all of this is next to
//! nothing, and the limits are what they say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tandem::testkit::task::spawn;
use tandem::types::clock::{Instant, now};
use tokio::time::sleep;

use super::router::Router;

/// Between two looks.
const STEP: Duration = Duration::from_millis(4);
/// A sleep of ours that is longer by less than this says nothing: timers count in milliseconds.
const USUAL: Duration = Duration::from_millis(2);

/// Watches until dropped.
pub struct Lag {
    seen: Arc<Mutex<Vec<Look>>>,
    over: Arc<AtomicBool>,
}

struct Look {
    at: Instant,
    /// So much later than it wanted to.
    late: Duration,
    /// How long the router's threads have waited for a processor, all together, ever.
    waited: Duration,
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

impl Lag {
    pub fn of(router: &Router) -> Self {
        let (seen, over) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let (kept, ends, pid) = (Arc::clone(&seen), Arc::clone(&over), router.process.pid());
        spawn(async move {
            while !ends.load(Ordering::SeqCst) {
                let before = now();
                sleep(STEP).await;
                let at = now();
                let late = (at - before).saturating_sub(STEP);
                let late = if late > USUAL { late } else { Duration::ZERO };
                kept.lock().push(Look { at, late, waited: waited(pid) });
            }
        });
        Self { seen, over }
    }

    /// What may be added to a limit for what happened between these moments.
    pub fn between(&self, from: Instant, to: Instant) -> Duration {
        let seen = self.seen.lock();
        let first = seen.partition_point(|look| look.at < from).saturating_sub(1);
        let last = seen.partition_point(|look| look.at <= to).min(seen.len().saturating_sub(1));
        let looks = seen.get(first..=last).unwrap_or_default();
        let [before, .., after] = looks else { return Duration::ZERO };
        let late: Duration = looks.iter().skip(1).map(|look| look.late).sum();
        late + after.waited.saturating_sub(before.waited)
    }
}

/// The second number of each thread's `schedstat`, where the kernel counts that.
fn waited(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |path: std::path::PathBuf| -> Option<u64> {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    };
    Duration::from_nanos(threads.filter_map(|thread| of(thread.path())).sum())
}
