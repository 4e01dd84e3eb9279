//! Services as the configuration has them, and their listed endpoints.

use std::sync::Arc;

use super::super::budget::RetryBudget;
use super::super::snapshot::Kept;
use super::super::sync::Sync;
use super::{
    Endpoint, EndpointFamilies, HashMap, Member, Reason, Replaced, Service, Snapshot, Writer, config,
};
use crate::config::StaticEndpoint;
use crate::metrics::{EndpointMetrics, Revision, component};
use crate::registry::listener::Listener;
use crate::registry::rollout::Rollout;
use crate::registry::split::{Split, SplitSource};
use crate::types::role::Role;

impl Writer {
    /// One snapshot has the whole change. What is gone is withdrawn after that: until then it may still be chosen, and
    /// afterwards whoever chose it from the old snapshot finds its gate shut.
    pub(super) fn replace(&mut self, services: &[config::Service]) -> Replaced {
        let before = self.view.load_full();
        let next: Vec<_> = services
            .iter()
            .enumerate()
            .map(|(i, s)| Arc::new(service(i, s, before.services.get(i), self.threads, &self.families)))
            .collect();
        let mut stay: HashMap<u64, Member> = HashMap::new();
        let mut added = 0;
        for (id, member) in next.iter().flat_map(members) {
            let known = self.members.remove(&id);
            added += usize::from(known.is_none());
            stay.insert(id, known.unwrap_or(member));
        }
        let gone = std::mem::replace(&mut self.members, stay);
        let snapshot =
            Snapshot::with(before.version + 1, next, Arc::clone(&before.notes), Arc::clone(&before.departed));
        let version = self.publish(snapshot);
        let removed = gone.len();
        for (id, member) in gone {
            self.members.insert(id, member);
            self.depart(id, Reason::Removed);
        }
        // They are in no list any more.
        self.dirty.left.clear();
        for service in 0..services.len() {
            self.guard.suspect(service);
        }
        Replaced { added, removed, version }
    }
}

/// Its endpoints, as members that nothing withdraws.
pub(super) fn members(service: &Arc<Service>) -> impl Iterator<Item = (u64, Member)> {
    service.all().map(|e| (e.id, Member::new(Arc::clone(e), &service.config, service.index)))
}

/// A configured service; its endpoints are those of `before` where they are the same, else new.
pub(super) fn service(
    index: usize,
    config: &config::Service,
    before: Option<&Arc<Service>>,
    threads: usize,
    families: &EndpointFamilies,
) -> Service {
    let one = |at: &StaticEndpoint, role| {
        let at = Listener::listed(at, role);
        let same =
            before.and_then(|service| service.of(role).iter().find(|e| e.pod.is_none() && e.is_at(&at)));
        let metrics = |url: &str, role| series(families, config, &at, url, role);
        same.map_or_else(|| Endpoint::new(&at, threads, &config.upstream, metrics), Arc::clone)
    };
    // Pods stay: they are no part of the configuration.
    let list = |list: &[StaticEndpoint], role: Role| {
        let pods = before.into_iter().flat_map(|s| s.of(role)).filter(|e| e.pod.is_some()).cloned();
        list.iter().map(|at| one(at, role)).chain(pods).collect()
    };
    let lists = [
        list(&config.prefill, Role::Prefill),
        list(&config.decode, Role::Decode),
        list(&config.endpoints, Role::Mixed),
    ];
    let budget = before.filter(|service| service.config.retries == config.retries);
    let fresh = || Arc::new(RetryBudget::new(config.retries.budget, config.retries.floor));
    let known = before.map_or(0, |service| service.split_version);
    let changed = before.map_or(config.split.is_some(), |service| service.config.split != config.split);
    let awaited = before.is_none() && config.rollout.is_some();
    let split_version = known + u64::from(changed);
    let split = match before {
        _ if changed => of_file(config, before, split_version),
        Some(service) => service.split.clone(),
        // Nobody may take a request before the weights are known (I2).
        None => awaited.then(|| Split::new(0, SplitSource::Ome, Vec::new())),
    };
    let kept = Kept {
        turns: before.map_or_else(Arc::default, |service| Arc::clone(&service.turns)),
        budget: budget.map_or_else(fresh, |service| Arc::clone(&service.budget)),
        sync: before
            .map_or_else(|| Arc::new(Sync::new(config.pods.is_none())), |service| Arc::clone(&service.sync)),
        rollout: before
            .map_or_else(|| Arc::new(Rollout::new(awaited)), |service| Arc::clone(&service.rollout)),
        shares: before.map_or_else(Arc::default, |service| Arc::clone(&service.shares)),
        split_version,
        split,
    };
    Service::new(index, config.clone(), lists, kept)
}

/// The metrics of a new endpoint there.
pub(super) fn series(
    families: &EndpointFamilies,
    config: &config::Service,
    at: &Listener,
    url: &str,
    role: &'static str,
) -> EndpointMetrics {
    if at.revision.is_empty() {
        return families.for_endpoint(url, role);
    }
    let revision = Revision {
        namespace: at.pod.as_ref().map(|pod| pod.namespace.clone()).unwrap_or_default(),
        inferenceservice: config.inferenceservice().to_owned(),
        component: component(at.role),
        hash: at.revision.clone(),
    };
    families.for_revision(url, role, revision)
}

/// The file's split, also over an operator's.
fn of_file(config: &config::Service, before: Option<&Arc<Service>>, version: u64) -> Option<Arc<Split>> {
    if let Some(service) = before {
        service.shares.split_applied();
    }
    config.split.clone().map(|entries| Split::new(version, SplitSource::File, entries))
}
