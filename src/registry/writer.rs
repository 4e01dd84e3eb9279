//! The one writer: applies changes in order and publishes whole snapshots.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};
use tracing::info;

use super::Role;
use super::budget::RetryBudget;
use super::endpoint::{Endpoint, Reason};
use super::snapshot::{Service, Snapshot, View};
use crate::config::{self, StaticEndpoint};
use crate::metrics::EndpointFamilies;

/// Changes waiting for the writer; senders wait when it is full.
const QUEUE: usize = 256;

/// What can be asked of the writer.
#[derive(Debug)]
pub enum Change {
    /// Take no new request on this endpoint (admin; volatile). Answers whether the endpoint exists.
    Withdraw(u64, oneshot::Sender<bool>),
    /// Take new requests again.
    Restore(u64, oneshot::Sender<bool>),
    /// The services as configured now, the same ones in the same order. Endpoints that stay keep everything; others are new,
    /// or withdrawn for good.
    Services(Vec<config::Service>, oneshot::Sender<Replaced>),
}

/// What a change of the services came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    pub added: usize,
    pub removed: usize,
    /// Of the snapshot with the change.
    pub version: u64,
}

/// Senders' side.
pub type Handle = mpsc::Sender<Change>;

/// Owner of the endpoint set.
#[derive(Debug)]
pub struct Writer {
    view: View,
    endpoints: HashMap<u64, Arc<Endpoint>>,
    changes: mpsc::Receiver<Change>,
    threads: usize,
    families: EndpointFamilies,
}

impl Writer {
    /// Builds the first snapshot from the configuration's static endpoints.
    pub fn new(
        services: &[config::Service],
        threads: usize,
        families: &EndpointFamilies,
    ) -> (Self, View, Handle) {
        let services: Vec<_> =
            services.iter().enumerate().map(|(i, s)| service(i, s, None, threads, families)).collect();
        let all = services.iter().flat_map(|s| s.all());
        let endpoints = all.map(|e| (e.id, Arc::clone(e))).collect();
        let view = Arc::new(ArcSwap::from_pointee(Snapshot::new(1, services)));
        let (handle, changes) = mpsc::channel(QUEUE);
        (
            Self { view: Arc::clone(&view), endpoints, changes, threads, families: families.clone() },
            view,
            handle,
        )
    }

    /// Runs until every [`Handle`] is gone.
    pub async fn run(mut self) {
        while let Some(change) = self.changes.recv().await {
            self.apply(change);
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Withdraw(id, done) => {
                let found = self.endpoints.get(&id);
                if let Some(endpoint) = found {
                    let holds = endpoint.withdraw(Reason::AdminDrain);
                    info!(endpoint = %endpoint.url, holds, "withdrawn by an operator; volatile");
                }
                let _ = done.send(found.is_some());
            }
            Change::Restore(id, done) => {
                let found = self.endpoints.get(&id);
                if let Some(endpoint) = found {
                    endpoint.restore();
                    info!(endpoint = %endpoint.url, "restored by an operator");
                }
                let _ = done.send(found.is_some());
            }
            Change::Services(services, done) => {
                let _ = done.send(self.replace(&services));
                return;
            }
        }
        // A gate alone already decides; a new version tells readers that something changed.
        let services = self.view.load().services.clone();
        self.publish(services);
    }

    /// One snapshot has the whole change. What is gone is withdrawn after that: until then it may still be chosen, and
    /// afterwards whoever chose it from the old snapshot finds its gate shut.
    fn replace(&mut self, services: &[config::Service]) -> Replaced {
        let before = self.view.load_full();
        let next: Vec<_> = services
            .iter()
            .enumerate()
            .map(|(i, s)| service(i, s, before.services.get(i), self.threads, &self.families))
            .collect();
        let all: HashMap<u64, Arc<Endpoint>> =
            next.iter().flat_map(|s| s.all()).map(|e| (e.id, Arc::clone(e))).collect();
        let added = all.keys().filter(|id| !self.endpoints.contains_key(*id)).count();
        let gone = std::mem::replace(&mut self.endpoints, all);
        let version = self.publish(next);
        let mut removed = 0;
        for endpoint in gone.into_values().filter(|e| !self.endpoints.contains_key(&e.id)) {
            let holds = endpoint.withdraw(Reason::Removed);
            info!(endpoint = %endpoint.url, role = endpoint.role.as_str(), holds, "removed by the configuration");
            removed += 1;
        }
        Replaced { added, removed, version }
    }

    fn publish(&self, services: Vec<Arc<Service>>) -> u64 {
        let version = self.view.load().version + 1;
        self.view.store(Arc::new(Snapshot::new(version, services)));
        version
    }
}

/// A configured service; its endpoints are those of `before` where they are the same, else new.
fn service(
    index: usize,
    config: &config::Service,
    before: Option<&Arc<Service>>,
    threads: usize,
    families: &EndpointFamilies,
) -> Arc<Service> {
    let metrics = |url: &str, role| families.for_endpoint(url, role);
    let one = |at: &StaticEndpoint, role| {
        let same = before.and_then(|service| service.of(role).iter().find(|e| e.is_at(at)));
        same.map_or_else(|| Endpoint::new(at, role, threads, &config.upstream, metrics), Arc::clone)
    };
    let list = |list: &[StaticEndpoint], role| list.iter().map(|at| one(at, role)).collect();
    let budget = before.filter(|service| service.config.retries == config.retries).map(|s| &s.budget);
    Arc::new(Service {
        index,
        endpoints: list(&config.endpoints, Role::Mixed),
        prefills: list(&config.prefill, Role::Prefill),
        decodes: list(&config.decode, Role::Decode),
        config: config.clone(),
        turns: before.map_or_else(Arc::default, |service| Arc::clone(&service.turns)),
        budget: budget.map_or_else(
            || Arc::new(RetryBudget::new(config.retries.budget, config.retries.floor)),
            Arc::clone,
        ),
    })
}
