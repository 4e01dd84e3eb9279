//! The policies. They read load, never write it: the hold that follows is the load.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic;

use crate::config::Policy;
use crate::ledger::Hold;
use crate::registry::{Cohort, Endpoint, Role, Service};

/// Takes a hold by the role's policy among the cohort's endpoints that are `usable`.
pub(super) fn choose(
    service: &Service,
    cohort: &Cohort,
    role: Role,
    usable: impl Fn(&Endpoint) -> bool,
) -> Option<Hold<Endpoint>> {
    let all = cohort.of(role);
    if let [only] = all {
        return usable(only).then(|| Hold::take(only).ok()).flatten();
    }
    match service.policy(role) {
        Policy::RoundRobin => by_turn(all, service.turns.of(role), &usable),
        Policy::LeastInFlight => least(all, &usable),
        Policy::PowerOfTwo => two(all, &usable),
    }
}

/// The usable one whose turn it is. Turns are counted among the usable ones only: the share of one that is out spreads
/// over all the others instead of falling to its neighbour. None usable, no turn is taken: the next choice, among the
/// ejected ones, would always skip one.
fn by_turn(
    all: &[Arc<Endpoint>],
    turns: &atomic::AtomicUsize,
    usable: &impl Fn(&Endpoint) -> bool,
) -> Option<Hold<Endpoint>> {
    let mut turn = None;
    // A refused hold (withdrawn meanwhile) makes the endpoint unusable, so this ends.
    loop {
        let count = all.iter().filter(|e| usable(e)).count();
        if count == 0 {
            return None;
        }
        let turn = *turn.get_or_insert_with(|| turns.fetch_add(1, atomic::Ordering::Relaxed));
        let next = nth(all, turn % count, usable)?;
        if let Ok(hold) = Hold::take(next) {
            return Some(hold);
        }
    }
}

/// The usable one at this position, or the last one, when some were withdrawn since they were counted.
fn nth<'a>(
    all: &'a [Arc<Endpoint>],
    n: usize,
    usable: &impl Fn(&Endpoint) -> bool,
) -> Option<&'a Arc<Endpoint>> {
    let mut found = all.iter().filter(|e| usable(e));
    found.nth(n).or_else(|| all.iter().rfind(|e| usable(e)))
}

/// One of those with the fewest holds, each with the same chance, so that idle endpoints share.
fn least(all: &[Arc<Endpoint>], usable: &impl Fn(&Endpoint) -> bool) -> Option<Hold<Endpoint>> {
    // A refused hold (withdrawn meanwhile) makes the endpoint unusable, so this ends.
    loop {
        let (mut best, mut fewest, mut ties) = (None, u64::MAX, 0u32);
        for endpoint in all.iter().filter(|e| usable(e)) {
            let holds = endpoint.holds();
            ties = match holds.cmp(&fewest) {
                Ordering::Less => 1,
                Ordering::Equal => ties + 1,
                Ordering::Greater => continue,
            };
            if ties == 1 || fastrand::u32(..ties) == 0 {
                (best, fewest) = (Some(endpoint), holds);
            }
        }
        if let Ok(hold) = Hold::take(best?) {
            return Some(hold);
        }
    }
}

/// The less loaded of two different random ones.
fn two(all: &[Arc<Endpoint>], usable: &impl Fn(&Endpoint) -> bool) -> Option<Hold<Endpoint>> {
    // A refused hold (withdrawn meanwhile) makes the endpoint unusable, so this ends.
    loop {
        let (a, b) = pair(all, usable)?;
        let best = if b.holds() < a.holds() { b } else { a };
        if let Ok(hold) = Hold::take(best) {
            return Some(hold);
        }
    }
}

/// Two different usable ones; twice the same where there is only one.
fn pair<'a>(
    all: &'a [Arc<Endpoint>],
    usable: &impl Fn(&Endpoint) -> bool,
) -> Option<(&'a Arc<Endpoint>, &'a Arc<Endpoint>)> {
    let (a, b) = two_below(all.len())?;
    if usable(&all[a]) && usable(&all[b]) {
        return Some((&all[a], &all[b]));
    }
    let (a, b) = two_below(all.iter().filter(|e| usable(e)).count())?;
    Some((nth(all, a, usable)?, nth(all, b, usable)?))
}

/// Two different numbers below `n`; `None` below 1.
fn two_below(n: usize) -> Option<(usize, usize)> {
    let a = (n > 0).then(|| fastrand::usize(..n))?;
    Some((a, if n > 1 { (a + fastrand::usize(1..n)) % n } else { a }))
}
