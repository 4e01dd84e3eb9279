//! What the admin routes see of the endpoints, and how an operator takes one out.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::admin::{DrainChange, EndpointControl, EndpointStatus};
use crate::proxy::context::Shared;
use crate::registry::{Change, Endpoint, Handle, Reason};

/// The registry as operators reach it.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    changes: Handle,
}

impl Control {
    pub fn new(shared: Arc<Shared>, changes: Handle) -> Self {
        Self { shared, changes }
    }

    fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        let snapshot = self.shared.view.load();
        snapshot.services.iter().flat_map(|s| s.all().cloned()).collect()
    }

    /// Brings gauges that are read from state, rather than kept, up to date before a scrape.
    pub(super) fn refresh(&self) {
        for endpoint in self.endpoints() {
            endpoint.metrics.set_load(endpoint.holds(), endpoint.pool.len(), endpoint.is_selectable());
        }
        let buffered = i64::try_from(self.shared.buffered.used()).unwrap_or(i64::MAX);
        self.shared.metrics.router.buffered_bytes.set(buffered);
    }
}

impl EndpointControl for Control {
    fn list(&self) -> Vec<EndpointStatus> {
        let snapshot = self.shared.view.load();
        let mut list = Vec::new();
        for service in &snapshot.services {
            list.extend(service.all().map(|e| status(&service.config.name, e)));
        }
        list.sort_by(|a, b| (&a.url, &a.role).cmp(&(&b.url, &b.role)));
        list
    }

    fn set_drain<'a>(
        &'a self,
        id: &'a str,
        drain: bool,
    ) -> Pin<Box<dyn Future<Output = DrainChange> + Send + 'a>> {
        Box::pin(async move {
            let found = self.endpoints().into_iter().find(|e| e.id.to_string() == id);
            let Some(endpoint) = found else { return DrainChange::Unknown };
            if endpoint.is_selectable() != drain {
                return DrainChange::Unchanged;
            }
            let (done, answer) = oneshot::channel();
            let change =
                if drain { Change::Withdraw(endpoint.id, done) } else { Change::Restore(endpoint.id, done) };
            if self.changes.send(change).await.is_err() {
                return DrainChange::Unavailable;
            }
            match answer.await {
                Ok(true) => DrainChange::Changed,
                Ok(false) => DrainChange::Unknown,
                Err(_) => DrainChange::Unavailable,
            }
        })
    }
}

fn status(service: &str, endpoint: &Endpoint) -> EndpointStatus {
    let selectable = endpoint.is_selectable();
    EndpointStatus {
        id: endpoint.id.to_string(),
        service: service.to_owned(),
        url: endpoint.url.clone(),
        role: Cow::Borrowed(endpoint.role.as_str()),
        selectable,
        reason: (!selectable).then(|| Cow::Borrowed(endpoint.reason().as_str())),
        in_flight: endpoint.holds(),
        handoffs: endpoint.handoffs.count(),
        ejected: endpoint.ejection.is_ejected(),
        draining: endpoint.reason() == Reason::AdminDrain,
    }
}
