//! The policies. They read load, never write it: the hold that follows is the load.

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
        let idle = |e: &Endpoint| e.holds() == 0 && usable(e);
        // None has fewer than an idle one, and among these a draw is fair: most often nobody else need be looked at.
        let best = drawn(all, IDLE_DRAWS, idle).or_else(|| fewest(all, usable))?;
        if let Ok(hold) = Hold::take(best) {
            return Some(hold);
        }
    }
}

/// Draws in search of an idle endpoint.
const IDLE_DRAWS: usize = 4;
/// Ties up to here are drawn for one by one as they are met, which takes as long as looking at five more endpoints each.
const FEW_TIES: usize = 8;

/// The one to choose after a look at all of them.
fn fewest<'a>(all: &'a [Arc<Endpoint>], usable: &impl Fn(&Endpoint) -> bool) -> Option<&'a Arc<Endpoint>> {
    let (mut best, mut fewest, mut ties) = (None, u64::MAX, 0);
    for endpoint in all.iter().filter(|e| usable(e)) {
        let holds = endpoint.holds();
        if holds > fewest {
            continue;
        }
        ties = if holds < fewest { 1 } else { ties + 1 };
        if ties == 1 || (ties <= FEW_TIES && fastrand::usize(..ties) == 0) {
            (best, fewest) = (Some(endpoint), holds);
        }
    }
    if ties <= FEW_TIES {
        return best;
    }
    // So many that a draw soon meets one; that none does happens once in ten million times, or where loads have changed.
    let draws = 16 * all.len() / ties;
    drawn(all, draws, |e| e.holds() == fewest && usable(e)).or(best)
}

/// The first of some random endpoints that is right.
fn drawn(all: &[Arc<Endpoint>], draws: usize, right: impl Fn(&Endpoint) -> bool) -> Option<&Arc<Endpoint>> {
    (0..draws).filter_map(|_| all.get(fastrand::usize(..all.len().max(1)))).find(|e| right(e))
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

#[cfg(test)]
#[path = "tests/policy.rs"]
mod tests;
