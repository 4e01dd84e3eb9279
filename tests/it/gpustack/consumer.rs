//! A consumer that is not ours: built from requirements §2.2.5 and §2.2.6 alone, as strict as those say.
//!
//! It reads each router Pod by itself, refuses any field that it does not know, binds what is in selection to live Pods, and
//! calls whatever is missing, stale or contradictory by that name, never zero.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tandem::types::clock::{Instant, now};

/// How old a view may be, on the consumer's own clock, and how long one collection may take.
pub(super) const FRESH: Duration = Duration::from_secs(15);
pub(super) const COLLECTION: Duration = Duration::from_secs(14);
const BODY_CAP: usize = 4 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    router: Router,
    #[serde(rename = "registry_revision")]
    _registry_revision: u64,
    workers: Vec<Worker>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Router {
    boot_generation: u64,
    #[serde(rename = "now_ms")]
    _now_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Worker {
    url: String,
    port: u16,
    #[serde(rename = "role")]
    _role: WorkerRole,
    #[serde(rename = "pod_hint")]
    _pod_hint: String,
    #[serde(rename = "worker_id")]
    _worker_id: String,
    selection: Selection,
    #[serde(default, rename = "lane")]
    _lane: Option<Lane>,
    #[serde(default)]
    last_job: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum WorkerRole {
    Regular,
    Prefill,
    Decode,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, clippy::struct_field_names, reason = "the document's fields")]
struct Selection {
    #[serde(rename = "registered")]
    _registered: bool,
    healthy: bool,
    circuit_open: bool,
    in_selection: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lane {
    #[serde(rename = "busy")]
    _busy: bool,
    #[serde(rename = "waiting")]
    _waiting: u64,
}

/// What one router Pod said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    pub(super) generation: u64,
    /// UIDs that it may give a new request.
    pub(super) selected: BTreeSet<String>,
    /// Out of selection, and given a request a short time ago.
    pub(super) recent: BTreeSet<String>,
    read_at: Instant,
}

/// Reads one answer against the Pods that live now.
///
/// # Errors
/// Why the whole view is unusable.
pub(super) fn view(status: u16, body: &[u8], pods: &[Value]) -> Result<View, String> {
    if status != 200 {
        return Err(format!("status {status}"));
    }
    if body.len() > BODY_CAP {
        return Err("too large".to_owned());
    }
    let document: Document = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    if document.router.boot_generation == 0 {
        return Err("boot generation 0".to_owned());
    }
    let (mut selected, mut recent) = (BTreeSet::new(), BTreeSet::new());
    for worker in &document.workers {
        let Selection { healthy, circuit_open, in_selection, .. } = worker.selection;
        if in_selection && (!healthy || circuit_open) {
            return Err(format!("{}: in selection, and not healthy", worker.url));
        }
        match bind(worker, pods) {
            Ok(uid) if in_selection => _ = selected.insert(uid),
            Ok(uid) if worker.last_job["recent_dispatch"] == true => _ = recent.insert(uid),
            // Rows out of selection may be unplaceable.
            Err(why) if in_selection => return Err(why),
            _ => {}
        }
    }
    Ok(View { generation: document.router.boot_generation, selected, recent, read_at: now() })
}

/// The one live Pod at the worker's address.
fn bind(worker: &Worker, pods: &[Value]) -> Result<String, String> {
    let rest = worker.url.strip_prefix("http://").ok_or("no http URL")?;
    let (host, port) = rest.rsplit_once(':').ok_or("no port")?;
    if port.parse() != Ok(worker.port) {
        return Err(format!("{}: another port beside it", worker.url));
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let lives = |pod: &&Value| {
        pod["status"]["phase"] == "Running"
            && pod["metadata"]["deletionTimestamp"].is_null()
            && pod["status"]["podIP"] == host
    };
    let uids: Vec<&str> =
        pods.iter().filter(lives).filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
    match uids.as_slice() {
        [uid] => Ok((*uid).to_owned()),
        others => Err(format!("{}: {} live Pods", worker.url, others.len())),
    }
}

/// What all router Pods say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Serving {
    Confirmed(BTreeSet<String>),
    NotConverged,
    Unknown(String),
    NotConfigured,
}

/// One collection after the other.
#[derive(Default)]
pub(super) struct Observer {
    /// Boot generations of each router Pod so far.
    generations: BTreeMap<String, u64>,
}

impl Observer {
    /// `views`: by router Pod.
    pub(super) fn aggregate(&mut self, views: &BTreeMap<String, Result<View, String>>) -> Serving {
        if views.is_empty() {
            return Serving::NotConfigured;
        }
        let mut restarted = false;
        for (router, view) in views {
            let Ok(view) = view else { continue };
            let before = self.generations.insert(router.clone(), view.generation);
            restarted |= before.is_some_and(|before| before != view.generation);
        }
        let mut all = Vec::new();
        for (router, view) in views {
            match view {
                Err(why) => return Serving::Unknown(format!("{router}: {why}")),
                Ok(view) if now() - view.read_at > FRESH => {
                    return Serving::Unknown(format!("{router}: stale"));
                }
                Ok(view) => all.push(&view.selected),
            }
        }
        if restarted || all.iter().any(|selected| *selected != all[0]) {
            return Serving::NotConverged;
        }
        Serving::Confirmed(all[0].clone())
    }
}

/// Whether any router may still give `uid` a request, or just did. Only a whole set of views can say no.
pub(super) fn residual(views: &BTreeMap<String, Result<View, String>>, uid: &str) -> Option<bool> {
    let mut any = false;
    for view in views.values() {
        let view = view.as_ref().ok()?;
        any |= view.selected.contains(uid) || view.recent.contains(uid);
    }
    (!views.is_empty()).then_some(any)
}
