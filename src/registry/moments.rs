//! When things happened to an endpoint, each as milliseconds after its birth in one atomic: a store on the request path.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::types::clock::{self, Instant};

#[derive(Debug)]
pub(super) struct Moments {
    born: Instant,
    /// The last leg's start, and the last leg's end.
    pub(super) dispatched: Moment,
    pub(super) over: Moment,
    /// The last change of the reason.
    pub(super) changed: Moment,
    /// Since then it takes no new requests.
    pub(super) withdrawn: Moment,
}

/// One more than the age; 0: never.
#[derive(Debug, Default)]
pub(super) struct Moment(AtomicU64);

impl Moments {
    pub(super) fn now() -> Self {
        let never = Moment::default;
        let (dispatched, over, changed, withdrawn) = (never(), never(), never(), never());
        Self { born: clock::now(), dispatched, over, changed, withdrawn }
    }

    pub(super) fn born(&self) -> Instant {
        self.born
    }

    /// It happened at `at`.
    #[inline]
    pub(super) fn mark(&self, moment: &Moment, at: Instant) {
        let age = at.saturating_duration_since(self.born).as_millis() as u64;
        moment.0.store(age + 1, Ordering::Release);
    }

    /// It happened at `at`, unless it was marked as later already: many threads mark it.
    #[inline]
    pub(super) fn mark_latest(&self, moment: &Moment, at: Instant) {
        let age = at.saturating_duration_since(self.born).as_millis() as u64;
        moment.0.fetch_max(age + 1, Ordering::AcqRel);
    }

    pub(super) fn get(&self, moment: &Moment) -> Option<Instant> {
        let age = moment.0.load(Ordering::Acquire);
        age.checked_sub(1).map(|age| self.born + Duration::from_millis(age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_what_many_threads_mark_stays() {
        let moments = Moments::now();
        let at = |ms| moments.born() + Duration::from_millis(ms);
        for ms in [20, 5, 19] {
            moments.mark_latest(&moments.over, at(ms));
        }
        assert_eq!(moments.get(&moments.over), Some(at(20)));
    }
}
