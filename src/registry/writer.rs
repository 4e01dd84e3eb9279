//! The one writer: applies changes in order and publishes whole snapshots.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};
use tracing::info;

use super::budget::RetryBudget;
use super::endpoint::{Endpoint, Reason, Role};
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
}

/// Senders' side.
pub type Handle = mpsc::Sender<Change>;

/// Owner of the endpoint set.
#[derive(Debug)]
pub struct Writer {
    view: View,
    endpoints: HashMap<u64, Arc<Endpoint>>,
    changes: mpsc::Receiver<Change>,
}

impl Writer {
    /// Builds the first snapshot from the configuration's static endpoints.
    pub fn new(
        services: &[config::Service],
        threads: usize,
        families: &EndpointFamilies,
    ) -> (Self, View, Handle) {
        let services: Vec<_> =
            services.iter().enumerate().map(|(i, s)| service(i, s, threads, families)).collect();
        let all = services.iter().flat_map(|s| s.all());
        let endpoints = all.map(|e| (e.id, Arc::clone(e))).collect();
        let view = Arc::new(ArcSwap::from_pointee(Snapshot::new(1, services)));
        let (handle, changes) = mpsc::channel(QUEUE);
        (Self { view: Arc::clone(&view), endpoints, changes }, view, handle)
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
        }
        self.publish();
    }

    /// A gate alone already decides; a new version tells readers that something changed.
    fn publish(&self) {
        let now = self.view.load();
        let next = Snapshot::new(now.version + 1, now.services.clone());
        self.view.store(Arc::new(next));
    }
}

/// A configured service with new endpoints.
fn service(
    index: usize,
    config: &config::Service,
    threads: usize,
    families: &EndpointFamilies,
) -> Arc<Service> {
    let metrics = |url: &str, role| families.for_endpoint(url, role);
    let new = |at: &StaticEndpoint, role| Endpoint::new(at, role, threads, &config.upstream, metrics);
    let list = |list: &[StaticEndpoint], role| list.iter().map(|at| new(at, role)).collect();
    Arc::new(Service {
        index,
        endpoints: list(&config.endpoints, Role::Mixed),
        prefills: list(&config.prefill, Role::Prefill),
        decodes: list(&config.decode, Role::Decode),
        config: config.clone(),
        turns: Arc::default(),
        budget: Arc::new(RetryBudget::new(config.retries.budget, config.retries.floor)),
    })
}
