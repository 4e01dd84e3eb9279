//! Passive ejection: a connect failure or a first-byte timeout puts an endpoint last for 1 to 30 s, growing with each
//! failure in a row. It is never out of the choice by this alone: with nothing better it is still used (pd.md).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::types::clock::{self, Instant};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// One endpoint's ejection state. Written by whoever ends a leg, read by the choice; plain atomics, no lock.
#[derive(Debug)]
pub struct Ejection {
    born: Instant,
    /// Milliseconds after `born` until which the endpoint is last.
    until_ms: AtomicU64,
    failures: AtomicU32,
}

impl Default for Ejection {
    fn default() -> Self {
        Self { born: clock::now(), until_ms: AtomicU64::new(0), failures: AtomicU32::new(0) }
    }
}

impl Ejection {
    /// A failure of the kind that ejects. Returns for how long the endpoint is put last; `None` while it is already:
    /// many requests that fail in one incident are one failure, not a streak.
    pub fn fail(&self) -> Option<Duration> {
        let now = clock::now().saturating_duration_since(self.born);
        let before = self.until_ms.load(Ordering::Relaxed);
        if now.as_millis() < u128::from(before) {
            return None;
        }
        let streak = self.failures.load(Ordering::Relaxed).min(5);
        let time = (FIRST * 2u32.pow(streak)).min(LONGEST);
        let until = (now + time).as_millis() as u64;
        // Whoever loses this race failed in the same incident.
        self.until_ms.compare_exchange(before, until, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        self.failures.fetch_add(1, Ordering::Relaxed);
        Some(time)
    }

    /// The engine answered: the streak is over and the endpoint is as good as any. Whether there was one; of several
    /// answers at once, one says so.
    #[inline]
    pub fn succeed(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) == 0 || self.failures.swap(0, Ordering::Relaxed) == 0 {
            return false;
        }
        self.until_ms.store(0, Ordering::Relaxed);
        true
    }

    /// Whether a failure that put it last for `time` was the first of its streak.
    pub fn is_first(time: Duration) -> bool {
        time == FIRST
    }

    #[inline]
    pub fn is_ejected(&self) -> bool {
        let until = self.until_ms.load(Ordering::Relaxed);
        until != 0 && clock::now().saturating_duration_since(self.born).as_millis() < u128::from(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ejection_grows_from_one_to_thirty_seconds_and_success_ends_it() {
        let ejection = Ejection::default();
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            let time = ejection.fail().unwrap();
            assert_eq!(time.as_secs(), expected);
            assert_eq!(ejection.fail(), None, "the same incident");
            tokio::time::advance(time.saturating_sub(Duration::from_millis(1))).await;
            assert!(ejection.is_ejected());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(!ejection.is_ejected());
        ejection.fail();
        ejection.succeed();
        assert!(!ejection.is_ejected());
        assert_eq!(ejection.fail(), Some(FIRST));
    }
}
