//! The document that strict consumers read before they retire a Pod (requirements §2.2.6): which endpoints may this router
//! give a new request? Its fields are fixed: the consumer refuses unknown ones.
//!
//! Reading changes nothing that decides on requests. What cannot be said truthfully is not said: before a service has its first
//! complete list, and in the microseconds in which a leg that passed its last look at a withdrawn endpoint has not written its
//! first byte.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use super::endpoint::Endpoint;
use super::lanes::Lanes;
use super::reason::Reason;
use super::snapshot::{Snapshot, View};
use super::sync::Synced;
use crate::types::boot::Boot;
use crate::types::clock;
use crate::types::role::Role;

/// How long a withdrawn endpoint shows that it was given requests a short time ago.
const RECENT: Duration = Duration::from_secs(15);

/// Answers, one for each process.
#[derive(Debug)]
pub struct Observer {
    view: View,
    lanes: Arc<dyn Lanes>,
    boot_generation: u64,
    /// Hash of the last answer's workers, and its revision.
    last: Mutex<(u64, u64)>,
}

/// Why there is no truthful answer now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unobservable {
    #[error("the endpoints of service {0} are not known yet")]
    NotSynced(String),
    #[error("a request to a withdrawn endpoint is just being sent; ask again")]
    Unstable,
}

#[derive(Serialize)]
struct Document<'a> {
    router: Router,
    registry_revision: u64,
    workers: &'a [Worker<'a>],
}

#[derive(Serialize)]
struct Router {
    boot_generation: u64,
    now_ms: u64,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the consumer's names")]
struct Worker<'a> {
    url: &'a str,
    port: u16,
    role: &'static str,
    pod_hint: &'a str,
    worker_id: String,
    selection: Selection,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<Lane>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_job: Option<LastJob>,
}

#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, clippy::struct_field_names, reason = "the consumer's fields")]
struct Selection {
    registered: bool,
    healthy: bool,
    circuit_open: bool,
    in_selection: bool,
}

#[derive(Serialize)]
struct Lane {
    busy: bool,
    waiting: usize,
}

#[derive(Serialize)]
struct LastJob {
    recent_dispatch: bool,
}

impl Observer {
    pub fn new(view: View, lanes: Arc<dyn Lanes>, boot: &Boot) -> Self {
        Self { view, lanes, boot_generation: boot.generation, last: Mutex::new((0, 0)) }
    }

    /// The document as JSON.
    ///
    /// # Errors
    /// When nothing truthful can be said.
    pub fn endpoints(&self) -> Result<Vec<u8>, Unobservable> {
        let snapshot = self.view.load_full();
        is_known(&snapshot)?;
        let mut all: Vec<&Endpoint> = snapshot.known().map(|(_, e)| &**e).collect();
        all.sort_by(|a, b| (&a.url, a.id).cmp(&(&b.url, b.id)));
        let workers = all.into_iter().map(|e| self.worker(e)).collect::<Result<Vec<_>, _>>()?;
        let registry_revision = self.revision(&workers);
        let router = Router { boot_generation: self.boot_generation, now_ms: clock::wall_ms() };
        let document = Document { router, registry_revision, workers: &workers };
        Ok(serde_json::to_vec(&document).unwrap_or_default())
    }

    fn worker<'a>(&self, endpoint: &'a Endpoint) -> Result<Worker<'a>, Unobservable> {
        // The very predicate of the request path; after it, what it had let through before.
        let in_selection = endpoint.is_selectable();
        if !in_selection && endpoint.stages.counts().reserved > 0 {
            return Err(Unobservable::Unstable);
        }
        let reason = endpoint.reason();
        let lane = self.lanes.state(&endpoint.url);
        let age = endpoint.last_dispatch().map(|at| clock::now().saturating_duration_since(at));
        let recent = !in_selection && age.is_some_and(|age| age < RECENT);
        Ok(Worker {
            url: &endpoint.url,
            port: endpoint.port,
            role: match endpoint.role {
                Role::Mixed => "regular",
                role => role.as_str(),
            },
            pod_hint: endpoint.pod.as_ref().map_or("", |pod| pod.name.as_str()),
            worker_id: endpoint.id.to_string(),
            selection: Selection {
                registered: matches!(
                    reason,
                    Reason::Selectable | Reason::AdminDrain | Reason::Probing | Reason::EngineDrift
                ),
                healthy: reason == Reason::Selectable,
                // No breaker of ours refuses an endpoint: one that fails is the last choice, and still a choice.
                circuit_open: false,
                in_selection,
            },
            lane: Some(Lane { busy: lane.busy, waiting: lane.waiting }),
            last_job: recent.then_some(LastJob { recent_dispatch: true }),
        })
    }

    /// One more whenever the workers are others than in the last answer.
    fn revision(&self, workers: &[Worker<'_>]) -> u64 {
        let mut hasher = DefaultHasher::new();
        serde_json::to_string(workers).unwrap_or_default().hash(&mut hasher);
        let hash = hasher.finish();
        let mut last = self.last.lock();
        if last.1 == 0 || last.0 != hash {
            *last = (hash, last.1 + 1);
        }
        last.1
    }
}

fn is_known(snapshot: &Snapshot) -> Result<(), Unobservable> {
    let unknown = |sync| matches!(sync, Synced::Waiting | Synced::Refused(_));
    match snapshot.services.iter().find(|service| unknown(service.sync.now())) {
        Some(service) => Err(Unobservable::NotSynced(service.config.name.clone())),
        None => Ok(()),
    }
}
