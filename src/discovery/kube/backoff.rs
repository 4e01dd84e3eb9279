//! How long to wait after a failure: 1 s, doubling to 30 s, each shortened by up to a fifth at random, so that the replicas of
//! a router do not return all at once. A server that says `Retry-After` is not asked before that.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Longest `Retry-After` that is followed.
const MOST_ASKED: Duration = Duration::from_mins(2);

#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// After one more failure; at most `cap`, unless the server asks for more.
    pub(super) fn next(&mut self, asked: Option<Duration>, cap: Duration) -> Duration {
        let step = (FIRST * 2u32.pow(self.failures.min(5))).min(LONGEST).min(cap);
        self.failures = self.failures.saturating_add(1);
        let wait = jittered(step);
        wait.max(asked.unwrap_or_default().min(MOST_ASKED))
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Up to a fifth shorter.
pub(super) fn jittered(time: Duration) -> Duration {
    time.mul_f64(1.0 - 0.2 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_stays_bounded_and_follows_the_server() {
        let mut backoff = Backoff::default();
        for step in [1, 2, 4, 8, 16, 30, 30] {
            let wait = backoff.next(None, LONGEST).as_secs_f64();
            assert!(wait <= f64::from(step) && wait >= 0.8 * f64::from(step), "{wait} for {step}");
        }
        assert!(backoff.next(Some(Duration::from_mins(1)), LONGEST) >= Duration::from_mins(1));
        assert!(backoff.next(Some(Duration::from_hours(1)), LONGEST) <= MOST_ASKED);
        assert!(backoff.next(None, Duration::from_secs(15)) <= Duration::from_secs(15));
        backoff.reset();
        assert!(backoff.next(None, LONGEST) <= FIRST);
    }
}
