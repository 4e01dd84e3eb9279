//! 4. Where to? Pure: the endpoints of one service at one version, what is excluded, and randomness, to one hold.
//!
//! A policy proposes; the gate decides. An endpoint that was withdrawn since the snapshot was made refuses the hold, and
//! the choice goes on without it. Ejected endpoints come last, but come.

mod policy;

use crate::ledger::Hold;
use crate::registry::{Endpoint, Service};

/// Endpoints an attempt must not use again; a request makes few attempts.
#[derive(Debug, Default)]
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

/// Takes a hold on the endpoint that serves next. `None`: nothing selectable is left.
pub fn pick(service: &Service, excluded: &Excluded) -> Option<Hold<Endpoint>> {
    let usable = |e: &Endpoint| e.is_selectable() && !excluded.contains(e);
    policy::choose(service, |e| usable(e) && !e.ejection.is_ejected())
        .or_else(|| policy::choose(service, usable))
}

/// Something else could be tried: decides whether a busy answer is worth giving up.
pub fn has_other(service: &Service, excluded: &Excluded) -> bool {
    service.endpoints.iter().any(|e| e.is_selectable() && !excluded.contains(e))
}
