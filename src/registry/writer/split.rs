//! Splits that come while the router runs: an operator's, and those of a rollout object.

use std::sync::Arc;

use tracing::{info, warn};

use super::super::rollout::Said;
use super::super::snapshot::Snapshot;
use super::super::split::{Split, SplitSource};
use super::Writer;
use crate::config;

/// An operator's split. Its entries were looked at already.
#[derive(Debug)]
pub struct SplitOrder {
    /// Position of the service.
    pub service: usize,
    pub entries: Option<Vec<config::SplitEntry>>,
    /// Only over this version.
    pub expected: Option<u64>,
}

/// What an operator's split came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitApplied {
    /// In force, with this version.
    Applied(u64),
    /// Another version is in force.
    Conflict(u64),
    Unknown,
}

impl Writer {
    /// Whole or not at all, and in force when this returns.
    pub(super) fn split(&mut self, order: SplitOrder) -> SplitApplied {
        let snapshot = self.view.load_full();
        let Some(service) = snapshot.services.get(order.service) else { return SplitApplied::Unknown };
        if order.expected.is_some_and(|expected| expected != service.split_version) {
            return SplitApplied::Conflict(service.split_version);
        }
        // Where the source has not said anything, nobody knows what its zeros are.
        let sourced = || match self.sourced.get(&order.service) {
            Some(entries) => entries.clone(),
            None => service.config.rollout.as_ref().map(|_| Vec::new()),
        };
        let (source, entries) = match order.entries {
            Some(entries) => (SplitSource::Admin, Some(entries)),
            None if service.config.rollout.is_some() => (SplitSource::Ome, sourced()),
            None => (SplitSource::File, service.config.split.clone()),
        };
        SplitApplied::Applied(self.apply_split(order.service, source, entries))
    }

    /// What a rollout object says. What it said before stands where this cannot be followed.
    pub(super) fn sourced(&mut self, index: usize, said: &Said, version: u64) {
        let snapshot = self.view.load_full();
        let Some(service) = snapshot.services.get(index) else { return };
        let first = !self.sourced.contains_key(&index);
        let entries = match said {
            Said::Weights(entries) => Some(Some(entries)),
            Said::Stable(entries) => first.then_some(Some(entries)),
            Said::Nothing => Some(None),
            Said::Missing => first.then_some(None),
            Said::Unusable(_) => None,
        };
        if let Some(entries) = entries.map(Option::<&Vec<_>>::cloned)
            && self.sourced.get(&index) != Some(&entries)
        {
            self.sourced.insert(index, entries.clone());
            self.apply_split(index, SplitSource::Ome, entries);
        }
        // After what it says is in force: who reads this as known may be given requests.
        let (name, rollout) = (&service.config.name, &service.rollout);
        let why = match said {
            Said::Missing => "there is no such InferenceService",
            Said::Unusable(why) => why,
            _ => return rollout.followed(version),
        };
        if rollout.problem().is_none_or(|before| *before != why) {
            warn!(service = %name, why, first, "its InferenceService gives no weights; what it said before stays in force");
        }
        rollout.not_followed(why.to_owned(), *said == Said::Missing);
    }

    /// Puts it in force, with the next version.
    fn apply_split(
        &mut self,
        index: usize,
        source: SplitSource,
        entries: Option<Vec<config::SplitEntry>>,
    ) -> u64 {
        self.flush();
        let before = self.view.load_full();
        let Some(service) = before.services.get(index) else { return 0 };
        let version = service.split_version + 1;
        let split = entries.map(|entries| Split::new(version, source, entries));
        let mut services = before.services.clone();
        services[index] = Arc::new(service.with_split(split, version));
        let (notes, departed) = (Arc::clone(&before.notes), Arc::clone(&before.departed));
        self.publish(Snapshot::with(before.version + 1, services, notes, departed));
        info!(service = %service.config.name, version, source = source.as_str(), "another split is in force");
        version
    }
}
