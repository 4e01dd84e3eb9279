//! 4. Where to? Pure: from the endpoints of one service at one version, what is excluded, and randomness, comes one cohort,
//!    and of it one hold of each role.
//!
//! The cohort comes first, by the operator's weights, before either leg ([`decide()`]); everything after it stays in it (I1).
//! A policy proposes; the gate decides. An endpoint that was withdrawn since the snapshot was made refuses the hold, and
//! the choice goes on without it. Ejected endpoints come last, but come.

mod decide;
mod policy;
mod sticky;

pub use decide::{Decision, NoCohort, decide};
pub use sticky::StickyKey;

use crate::ledger::Hold;
use crate::registry::{Cohort, Endpoint, Role, Service};

/// Endpoints an attempt must not use again; a request makes few attempts.
#[derive(Debug, Default, Clone)]
pub struct Excluded(Vec<u64>);

impl Excluded {
    pub fn add(&mut self, endpoint: &Endpoint) {
        self.0.push(endpoint.id);
    }

    pub fn add_id(&mut self, id: u64) {
        self.0.push(id);
    }

    pub fn contains(&self, endpoint: &Endpoint) -> bool {
        self.0.contains(&endpoint.id)
    }
}

/// What an attempt may still use.
fn usable(excluded: &Excluded) -> impl Fn(&Endpoint) -> bool + Copy + '_ {
    |e| e.is_selectable() && !excluded.contains(e)
}

/// Takes a hold on the next endpoint of this role, by the role's own policy. `None`: nothing selectable is left.
pub fn pick_role(
    service: &Service,
    cohort: &Cohort,
    role: Role,
    excluded: &Excluded,
) -> Option<Hold<Endpoint>> {
    pick_usable(service, cohort, role, usable(excluded))
}

/// Ejected ones only where there is no other.
fn pick_usable(
    service: &Service,
    cohort: &Cohort,
    role: Role,
    usable: impl Fn(&Endpoint) -> bool,
) -> Option<Hold<Endpoint>> {
    policy::choose(service, cohort, role, |e| usable(e) && !e.ejection.is_ejected())
        .or_else(|| policy::choose(service, cohort, role, usable))
}

/// Takes a hold on the prefill that serves next: one that some decode may decode for (I1).
pub fn pick_prefill(service: &Service, cohort: &Cohort, excluded: &Excluded) -> Option<Hold<Endpoint>> {
    let usable = usable(excluded);
    if !cohort.groups().are_split() {
        return pick_usable(service, cohort, Role::Prefill, usable);
    }
    pick_usable(service, cohort, Role::Prefill, |e| usable(e) && cohort.groups().has_partner(e, usable))
}

/// Takes a hold on the decode that serves next among those that pair with `prefill` (I1).
pub fn pick_decode(
    service: &Service,
    cohort: &Cohort,
    prefill: &Endpoint,
    excluded: &Excluded,
) -> Option<Hold<Endpoint>> {
    let usable = usable(excluded);
    if !cohort.groups().are_split() {
        return pick_usable(service, cohort, Role::Decode, usable);
    }
    pick_usable(service, cohort, Role::Decode, |e| usable(e) && prefill.pairs_with(e))
}

/// Another endpoint of this role could be tried, in a cohort that is given requests: decides whether a busy answer is worth
/// giving up.
pub fn has_other(service: &Service, role: Role, excluded: &Excluded) -> bool {
    let usable = usable(excluded);
    let given = service.cohorts.iter().filter(|cohort| cohort.fixed_weight() != Some(0));
    given.flat_map(|cohort| cohort.of(role)).any(|e| usable(e))
}
