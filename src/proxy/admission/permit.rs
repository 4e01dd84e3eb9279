//! Bounded counts whose units are given back by dropping a guard: requests in flight, buffered request bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A count with an upper bound.
#[derive(Debug)]
pub struct Bound {
    /// 0: unbounded. Changed by a reload; what is out stays out.
    limit: AtomicU64,
    used: AtomicU64,
}

impl Bound {
    /// `limit` of 0 counts without a bound.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit: AtomicU64::new(limit), used: AtomicU64::new(0) })
    }

    /// Takes `amount`, or nothing at all.
    pub fn take(self: &Arc<Self>, amount: u64) -> Option<Permit> {
        self.add(amount).then(|| Permit { bound: Arc::clone(self), amount })
    }

    /// A permit for nothing yet, to be grown.
    pub fn nothing(self: &Arc<Self>) -> Permit {
        Permit { bound: Arc::clone(self), amount: 0 }
    }

    /// Whether `amount` would fit now. Takes nothing: it may not fit any more when it comes.
    pub fn has_room(&self, amount: u64) -> bool {
        self.allows(self.used().saturating_add(amount))
    }

    /// From now on; units that are out beyond a lower limit are waited for.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    fn allows(&self, used: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        limit == 0 || used <= limit
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn add(&self, amount: u64) -> bool {
        let before = self.used.fetch_add(amount, Ordering::AcqRel);
        if self.allows(before.saturating_add(amount)) {
            return true;
        }
        self.used.fetch_sub(amount, Ordering::AcqRel);
        false
    }
}

/// Part of a [`Bound`]; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    bound: Arc<Bound>,
    amount: u64,
}

impl Permit {
    /// Takes more under the same guard.
    pub fn grow(&mut self, more: u64) -> bool {
        let ok = self.bound.add(more);
        if ok {
            self.amount += more;
        }
        ok
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.bound.used.fetch_sub(self.amount, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_never_exceeded_and_comes_back_whole() {
        let bound = Bound::new(10);
        let mut first = bound.take(6).unwrap();
        assert!(bound.take(5).is_none());
        assert!(first.grow(4));
        assert!(!first.grow(1));
        bound.set_limit(12);
        assert!(first.grow(2));
        bound.set_limit(5);
        assert!(!bound.has_room(0) && bound.take(1).is_none());
        drop(first);
        assert_eq!(bound.used(), 0);
        assert!(bound.take(5).is_some() && bound.take(6).is_none());
    }
}
