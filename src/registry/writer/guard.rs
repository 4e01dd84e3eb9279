//! Engines whose own word contradicts their labels are withdrawn until they say something else, or the others do.

use std::collections::HashSet;
use std::time::Duration;

use tracing::warn;

use super::super::drift::{Claim, contradictions};
use super::super::member::Member;
use super::{HashMap, Instant, Writer};
use crate::metrics::DriftMetrics;

/// Between two questions to an engine that contradicts its labels, or whose word is not known in full.
const PACE: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Services in which a claim came, went or changed.
    due: HashSet<usize>,
    /// When engines are asked again. `None`: there is none to be asked.
    asks_at: Option<Instant>,
    counters: Option<DriftMetrics>,
}

impl Guard {
    pub(super) fn suspect(&mut self, service: usize) {
        self.due.insert(service);
    }

    pub(super) fn asks_at(&self) -> Option<Instant> {
        self.asks_at
    }
}

impl Writer {
    /// Counts contradictions there.
    pub fn count_drift(&mut self, counters: DriftMetrics) {
        self.guard.counters = Some(counters);
    }

    /// Once for all changes that were taken together: each looks at all endpoints of a service.
    pub(super) fn judge_claims(&mut self, now: Instant) {
        let snapshot = self.view.load_full();
        for index in std::mem::take(&mut self.guard.due) {
            let Some(service) = snapshot.services.get(index) else { continue };
            let config = &service.config;
            let claims: Vec<_> = self
                .members
                .iter()
                .filter(|(_, m)| m.service == index)
                .filter_map(|(id, m)| self.claim_of(*id, m))
                .collect();
            let mut found = if config.cohorts_guard && !claims.is_empty() {
                contradictions(config.engine, &claims)
            } else {
                HashMap::new()
            };
            for (id, member) in self.members.iter_mut().filter(|(_, m)| m.service == index) {
                if let Some(drift) = member.convict(found.remove(id)) {
                    self.guard.counters.iter().for_each(|c| c.found(drift.fact, &config.name));
                    let (url, fact) = (&member.endpoint.url, drift.fact.as_str());
                    warn!(endpoint = %url, fact, detail = drift.detail, "an engine contradicts its labels: withdrawn");
                }
                self.dirty.any |= member.settle();
                if member.lacks_facts(config) {
                    self.guard.asks_at.get_or_insert(now + PACE);
                }
            }
        }
    }

    fn claim_of<'a>(&'a self, id: u64, member: &'a Member) -> Option<Claim<'a>> {
        let (facts, endpoint) = (member.facts()?, &*member.endpoint);
        let pod = endpoint.pod.as_ref()?;
        let age = (self.books.created(member.service, &pod.uid), pod.uid.as_str(), endpoint.port);
        let (role, revision, token) = (endpoint.role, endpoint.revision.as_str(), endpoint.token.as_str());
        Some(Claim { id, role, revision, token, age, facts })
    }

    /// Off the request path, and one question at a time to each engine.
    pub(super) fn ask_again(&mut self, now: Instant) {
        if self.guard.asks_at.is_none_or(|at| now < at) {
            return;
        }
        self.guard.asks_at = None;
        let Some(lanes) = self.lanes.clone() else { return };
        let snapshot = self.view.load_full();
        for member in self.members.values_mut() {
            if let Some(service) = snapshot.services.get(member.service) {
                member.ask_again(&service.config, &mut self.job, &*lanes);
            }
        }
    }
}
