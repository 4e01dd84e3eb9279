//! Which cohort a request goes to. Once for each attempt, before either leg, from one snapshot (I1, I2).

use std::sync::Arc;

use super::sticky::StickyKey;
use super::{Excluded, usable};
use crate::registry::{Cohort, Need, Service, Uncovered};

/// A cohort, and under which split.
#[derive(Debug, Clone)]
pub struct Decision {
    pub cohort: Arc<Cohort>,
    /// 0: no split is in force.
    pub split_version: u64,
    /// The cohort whose turn it was, and why it could not take the request.
    pub passed_on: Option<(Arc<Cohort>, Uncovered)>,
}

/// No cohort that is given requests can take this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoCohort {
    /// Every weight is 0.
    AllZero,
    /// Some cohort with a weight has to come back.
    Uncovered,
}

/// Decides. `stay`: the cohort of the request's earlier attempt, which is kept as long as it can take it.
///
/// A cohort at 0 is never chosen. What falls to one that cannot take it is passed on to the others by their weights. Without a
/// split, and with nothing to choose among, nothing is looked at.
///
/// # Errors
/// When nothing that has a weight can take it.
pub fn decide(
    service: &Service,
    need: Need,
    key: Option<&StickyKey>,
    excluded: &Excluded,
    stay: Option<&str>,
) -> Result<Decision, NoCohort> {
    let split_version = service.split.as_ref().map_or(0, |split| split.version);
    let decision =
        |cohort: &Arc<Cohort>| Decision { cohort: Arc::clone(cohort), split_version, passed_on: None };
    if let ([only], None) = (service.cohorts.as_slice(), &service.split) {
        return Ok(decision(only));
    }
    let weight = |cohort: &Arc<Cohort>| cohort.weight(need);
    let lacks = |cohort: &Arc<Cohort>| cohort.lacks(need, usable(excluded));
    let kept = service.cohorts.iter().find(|cohort| Some(&*cohort.name) == stay && weight(cohort) > 0);
    if let Some(cohort) = kept
        && lacks(cohort).is_none()
    {
        return Ok(decision(cohort));
    }
    let mut left: Vec<(&Arc<Cohort>, u64)> = service
        .cohorts
        .iter()
        .map(|cohort| (cohort, weight(cohort)))
        .filter(|(_, weight)| *weight > 0)
        .collect();
    // A split without entries is one that is awaited.
    let zero = left.is_empty() && service.split.as_ref().is_some_and(|split| !split.entries.is_empty());
    let none = if zero { NoCohort::AllZero } else { NoCohort::Uncovered };
    let mut passed_on = None;
    loop {
        let at = match key {
            Some(key) => key.first(left.iter().map(|(cohort, weight)| (&*cohort.name, *weight))),
            None => drawn(left.iter().map(|(_, weight)| *weight)),
        };
        let Some(at) = at else { return Err(none) };
        let (cohort, _) = left.swap_remove(at);
        match lacks(cohort) {
            None => return Ok(Decision { passed_on, ..decision(cohort) }),
            Some(why) => _ = passed_on.get_or_insert_with(|| (Arc::clone(cohort), why)),
        }
    }
}

/// One of them, each as often as its weight says. `None`: there is none.
fn drawn(weights: impl Iterator<Item = u64> + Clone) -> Option<usize> {
    let sum: u64 = weights.clone().sum();
    if sum == 0 {
        return None;
    }
    let mut point = fastrand::u64(..sum);
    for (at, weight) in weights.enumerate() {
        match point.checked_sub(weight) {
            Some(rest) => point = rest,
            None => return Some(at),
        }
    }
    None
}

#[cfg(test)]
#[path = "tests/decide.rs"]
mod tests;
