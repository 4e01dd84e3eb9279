//! What the admin routes see of the endpoints, and how an operator takes one out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::split;
use crate::admin::{DrainChange, EndpointControl, EndpointStatus, Fleet, LaneStatus, Ordering, PodStatus};
use crate::metrics::EndpointLoad;
use crate::proxy::context::Shared;
use crate::registry::{Change, Endpoint, Handle, LaneState, Lanes, Load, Ordered, Reason, Role, Snapshot};
use crate::types::clock::{self, Instant};
use crate::types::drain_order::DrainOrder;

/// The registry as operators reach it.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    changes: Handle,
    lanes: Arc<dyn Lanes>,
}

impl Control {
    pub fn new(shared: Arc<Shared>, changes: Handle, lanes: Arc<dyn Lanes>) -> Self {
        Self { shared, changes, lanes }
    }

    fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        let snapshot = self.shared.view.load();
        snapshot.services.iter().flat_map(|s| s.all().cloned()).collect()
    }

    /// Brings gauges that are read from state, rather than kept, up to date before a scrape.
    pub(super) fn refresh(&self) {
        let snapshot = self.shared.view.load_full();
        set_loads(&snapshot);
        count(&self.shared, &snapshot);
        split::refresh(&self.shared, &snapshot);
        let buffered = i64::try_from(self.shared.buffered.used()).unwrap_or(i64::MAX);
        self.shared.metrics.router.buffered_bytes.set(buffered);
    }
}

impl EndpointControl for Control {
    fn list(&self) -> Fleet {
        let snapshot = self.shared.view.load();
        let name = |index: usize| snapshot.services.get(index).map_or("", |s| s.config.name.as_str());
        let mut endpoints = Vec::new();
        for service in &snapshot.services {
            endpoints.extend(service.all().map(|e| self.status(&service.config.name, e)));
        }
        endpoints.extend(snapshot.departed.iter().map(|departed| EndpointStatus {
            gone: true,
            ..self.status(name(departed.service), &departed.endpoint)
        }));
        endpoints.sort_by(|a, b| (&a.url, &a.role).cmp(&(&b.url, &b.role)));
        let pods = snapshot.notes.iter().map(|note| PodStatus {
            service: name(note.service).to_owned(),
            namespace: note.pod.namespace.clone(),
            name: note.pod.name.clone(),
            uid: note.pod.uid.clone(),
            reason: Cow::Borrowed(note.reason.as_str()),
            detail: note.detail.clone(),
            since_s: age(note.since),
        });
        Fleet { snapshot: snapshot.version, endpoints, pods: pods.collect() }
    }

    fn order<'a>(&'a self, id: &'a str, order: Option<DrainOrder>) -> Ordering<'a> {
        Box::pin(async move {
            let found = self.endpoints().into_iter().find(|e| e.id.to_string() == id);
            let Some(endpoint) = found else { return DrainChange::Unknown };
            let (done, answer) = oneshot::channel();
            let change = match order {
                Some(order) => Change::Withdraw(endpoint.id, order, done),
                None => Change::Restore(endpoint.id, done),
            };
            if self.changes.send(change).await.is_err() {
                return DrainChange::Unavailable;
            }
            match answer.await {
                Ok(Ordered::Changed) => DrainChange::Changed,
                Ok(Ordered::Unchanged) => DrainChange::Unchanged,
                Ok(Ordered::Unknown) => DrainChange::Unknown,
                Err(_) => DrainChange::Unavailable,
            }
        })
    }
}

impl Control {
    fn status(&self, service: &str, endpoint: &Endpoint) -> EndpointStatus {
        let selectable = endpoint.is_selectable();
        let named = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let LaneState { busy, waiting } = self.lanes.state(&endpoint.url);
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
            draining: endpoint.is_drained(),
            gone: false,
            detail: endpoint.detail().map(|detail| String::clone(&detail)),
            since_s: age(endpoint.last_change()),
            pod: endpoint.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)),
            pod_uid: endpoint.pod.as_ref().map(|pod| pod.uid.clone()),
            model: endpoint.model.clone(),
            revision: named(&endpoint.revision),
            pairing_token: named(&endpoint.token),
            lane: LaneStatus { busy, waiting },
        }
    }
}

fn age(since: Instant) -> u64 {
    clock::now().saturating_duration_since(since).as_secs()
}

/// Those that left share their series with whoever has their URL now.
fn set_loads(snapshot: &Snapshot) {
    let mut loads: HashMap<(&str, Role), (&Endpoint, EndpointLoad)> = HashMap::new();
    for (_, endpoint) in snapshot.known() {
        let load = load(endpoint);
        let key = (endpoint.url.as_str(), endpoint.role);
        loads.entry(key).and_modify(|(_, all)| *all = all.and(load)).or_insert((&**endpoint, load));
    }
    for (endpoint, load) in loads.into_values() {
        endpoint.metrics.set_load(&load);
    }
}

fn load(endpoint: &Endpoint) -> EndpointLoad {
    let Load { withdrawn, in_flight, .. } = endpoint.load();
    let ago = |at: Instant| clock::now().saturating_duration_since(at);
    let now = clock::wall_ms() / 1000;
    EndpointLoad {
        in_flight: endpoint.holds(),
        carried: in_flight.values(),
        idle: endpoint.pool.len(),
        withdrawn: withdrawn.map(ago),
        dispatched_s: endpoint.last_dispatch().map_or(0, |at| now.saturating_sub(ago(at).as_secs())),
    }
}

/// Endpoints and Pods of each service by reason, and the ages of what the API server told.
fn count(shared: &Shared, snapshot: &Snapshot) {
    let discovery = &shared.metrics.discovery;
    for service in &snapshot.services {
        let (mut endpoints, mut pods) = ([0; Reason::ALL.len()], [0; Reason::ALL.len()]);
        for endpoint in service.all() {
            endpoints[endpoint.reason() as usize] += 1;
        }
        for note in snapshot.notes.iter().filter(|note| note.service == service.index) {
            pods[note.reason as usize] += 1;
        }
        for ((reason, endpoints), pods) in Reason::ALL.into_iter().zip(endpoints).zip(pods) {
            discovery.set_endpoints(&service.config.name, reason.as_str(), endpoints, pods);
        }
    }
    discovery.snapshot_version.set(i64::try_from(snapshot.version).unwrap_or(i64::MAX));
    discovery.refresh_ages();
    shared.metrics.sources.refresh_ages();
}
