//! 4. Where to? Pure: the endpoints of one role and service at one version, what is excluded, and randomness, to one hold.
//!
//! A policy proposes; the gate decides. An endpoint that was withdrawn since the snapshot was made refuses the hold, and
//! the choice goes on without it. Ejected endpoints come last, but come.

mod policy;

use crate::ledger::Hold;
use crate::registry::{Endpoint, Role, Service};

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

/// Takes a hold on the mixed endpoint that serves next. `None`: nothing selectable is left.
pub fn pick(service: &Service, excluded: &Excluded) -> Option<Hold<Endpoint>> {
    pick_role(service, Role::Mixed, excluded)
}

/// Takes a hold on the next endpoint of this role, by the role's own policy. `None`: nothing selectable is left.
pub fn pick_role(service: &Service, role: Role, excluded: &Excluded) -> Option<Hold<Endpoint>> {
    pick_usable(service, role, |e| e.is_selectable() && !excluded.contains(e))
}

/// Ejected ones only where there is no other.
fn pick_usable(service: &Service, role: Role, usable: impl Fn(&Endpoint) -> bool) -> Option<Hold<Endpoint>> {
    policy::choose(service, role, |e| usable(e) && !e.ejection.is_ejected())
        .or_else(|| policy::choose(service, role, usable))
}

/// Takes a hold on the prefill that serves next: one that some decode may decode for (I1).
pub fn pick_prefill(service: &Service, excluded: &Excluded) -> Option<Hold<Endpoint>> {
    if !service.groups.are_split() {
        return pick_role(service, Role::Prefill, excluded);
    }
    let usable = |e: &Endpoint| e.is_selectable() && !excluded.contains(e);
    pick_usable(service, Role::Prefill, |e| usable(e) && service.groups.has_partner(e, usable))
}

/// Takes a hold on the decode that serves next among those that pair with `prefill` (I1).
pub fn pick_decode(service: &Service, prefill: &Endpoint, excluded: &Excluded) -> Option<Hold<Endpoint>> {
    if !service.groups.are_split() {
        return pick_role(service, Role::Decode, excluded);
    }
    let usable = |e: &Endpoint| e.is_selectable() && !excluded.contains(e);
    pick_usable(service, Role::Decode, |e| usable(e) && prefill.pairs_with(e))
}

/// Another mixed endpoint could be tried: decides whether a busy answer is worth giving up.
pub fn has_other(service: &Service, excluded: &Excluded) -> bool {
    has_other_role(service, Role::Mixed, excluded)
}

/// Another endpoint of this role could be tried.
pub fn has_other_role(service: &Service, role: Role, excluded: &Excluded) -> bool {
    service.of(role).iter().any(|e| e.is_selectable() && !excluded.contains(e))
}
