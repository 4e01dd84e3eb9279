//! The policies. They read load, never write it: the hold that follows is the load.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::Policy;
use crate::ledger::Hold;
use crate::registry::{Endpoint, Service};

/// Takes a hold by the service's policy among the endpoints that are `usable`.
pub(super) fn choose(service: &Service, usable: impl Fn(&Endpoint) -> bool) -> Option<Hold<Endpoint>> {
    let all = &service.endpoints;
    if let [only] = all.as_slice() {
        return usable(only).then(|| Hold::take(only).ok()).flatten();
    }
    match service.config.policy {
        Policy::RoundRobin => {
            let turn = service.turn.fetch_add(1, Ordering::Relaxed);
            first_from(all, turn, usable)
        }
        Policy::LeastInFlight => least(all, &usable),
        Policy::PowerOfTwo => {
            two(all, &usable).or_else(|| first_from(all, fastrand::usize(..all.len().max(1)), usable))
        }
    }
}

/// The first usable one at or after `start`, wrapping around.
fn first_from(
    all: &[Arc<Endpoint>],
    start: usize,
    usable: impl Fn(&Endpoint) -> bool,
) -> Option<Hold<Endpoint>> {
    let n = all.len();
    (0..n).map(|i| &all[(start.wrapping_add(i)) % n]).filter(|e| usable(e)).find_map(|e| Hold::take(e).ok())
}

/// The one with the fewest holds; ties go to a random one, so that idle endpoints share.
fn least(all: &[Arc<Endpoint>], usable: &impl Fn(&Endpoint) -> bool) -> Option<Hold<Endpoint>> {
    let n = all.len();
    // A refused hold (withdrawn meanwhile) makes the endpoint unusable, so this ends.
    loop {
        let start = fastrand::usize(..n.max(1));
        let best = (0..n).map(|i| &all[(start + i) % n]).filter(|e| usable(e)).min_by_key(|e| e.holds())?;
        if let Ok(hold) = Hold::take(best) {
            return Some(hold);
        }
    }
}

/// The less loaded of two different random ones; `None` when neither can be had.
fn two(all: &[Arc<Endpoint>], usable: &impl Fn(&Endpoint) -> bool) -> Option<Hold<Endpoint>> {
    let n = all.len();
    if n < 2 {
        return None;
    }
    let a = fastrand::usize(..n);
    let b = (a + fastrand::usize(1..n)) % n;
    let (a, b) = (&all[a], &all[b]);
    let best = match (usable(a), usable(b)) {
        (true, true) => {
            if b.holds() < a.holds() {
                b
            } else {
                a
            }
        }
        (true, false) => a,
        (false, true) => b,
        (false, false) => return None,
    };
    Hold::take(best).ok()
}
