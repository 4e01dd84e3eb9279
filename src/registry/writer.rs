//! The one writer: applies changes in order and publishes whole snapshots.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};
use tracing::info;

use super::budget::RetryBudget;
use super::endpoint::{Endpoint, Reason};
use super::snapshot::{Service, Snapshot, View};
use crate::config;
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
        let mut endpoints = HashMap::new();
        let services = services
            .iter()
            .enumerate()
            .map(|(index, service)| {
                let list: Vec<_> = service
                    .endpoints
                    .iter()
                    .map(|at| {
                        Endpoint::new(at, threads, &service.upstream, |url, role| {
                            families.for_endpoint(url, role)
                        })
                    })
                    .collect();
                endpoints.extend(list.iter().map(|e| (e.id, Arc::clone(e))));
                Arc::new(Service {
                    index,
                    config: service.clone(),
                    endpoints: list,
                    turn: Arc::default(),
                    budget: Arc::new(RetryBudget::new(service.retries.budget, service.retries.floor)),
                })
            })
            .collect();
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
