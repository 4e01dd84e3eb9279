//! Families labelled as canary analysis asks for them (requirements §2.1.2, section 3): by namespace, inferenceservice, component
//! and revision hash. Endpoints of one revision share their series, which live as long as the last of them; at most
//! [`MAX_REVISIONS`] have some (I12).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry, Result};

use super::{build, names};
use crate::types::outcome::Outcome;
use crate::types::role::Role;

/// Most revisions with series, of all services together.
pub const MAX_REVISIONS: usize = 512;

/// Seconds; usual objectives are edges.
const FIRST_BYTE: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// What a series is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revision {
    /// Of its Pods; empty: they are none.
    pub namespace: String,
    pub inferenceservice: String,
    /// [`component`].
    pub component: &'static str,
    pub hash: String,
}

/// OME's word for what an endpoint of this role is part of.
pub const fn component(role: Role) -> &'static str {
    match role {
        Role::Prefill | Role::Mixed => "engine",
        Role::Decode => "decoder",
    }
}

/// The vecs and who uses them. One per process.
#[derive(Debug)]
pub(super) struct RevisionFamilies {
    vecs: Vecs,
    /// Taken when endpoints come and go, never on the request path.
    live: Mutex<HashMap<Revision, (Arc<Children>, usize)>>,
}

#[derive(Debug)]
struct Vecs {
    requests: IntCounterVec,
    errors: IntCounterVec,
    first_byte: HistogramVec,
}

#[derive(Debug)]
struct Children {
    requests: IntCounter,
    errors: IntCounter,
    first_byte: Histogram,
}

impl RevisionFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Arc<Self>> {
        let vecs = Vecs {
            requests: build::counter_vec(registry, &names::REVISION_REQUESTS)?,
            errors: build::counter_vec(registry, &names::REVISION_ERRORS)?,
            first_byte: build::histogram_vec(registry, &names::REVISION_TTFB, FIRST_BYTE)?,
        };
        Ok(Arc::new(Self { vecs, live: Mutex::default() }))
    }

    /// The guard of one endpoint. `None`: there are too many.
    pub(super) fn of(self: &Arc<Self>, revision: Revision) -> Option<RevisionMetrics> {
        let mut live = self.live.lock();
        if live.len() >= MAX_REVISIONS && !live.contains_key(&revision) {
            return None;
        }
        let children = if let Some((children, guards)) = live.get_mut(&revision) {
            *guards += 1;
            Arc::clone(children)
        } else {
            let children = Arc::new(self.vecs.children(&revision).ok()?);
            live.insert(revision.clone(), (Arc::clone(&children), 1));
            children
        };
        drop(live);
        Some(RevisionMetrics { children, revision, families: Arc::clone(self) })
    }
}

impl Vecs {
    fn children(&self, of: &Revision) -> Result<Children> {
        let labels = &labels(of);
        Ok(Children {
            requests: self.requests.get_metric_with_label_values(labels)?,
            errors: self.errors.get_metric_with_label_values(labels)?,
            first_byte: self.first_byte.get_metric_with_label_values(labels)?,
        })
    }
}

/// In the order of their names in `names`.
fn labels(of: &Revision) -> [&str; 4] {
    [&of.namespace, &of.inferenceservice, of.component, &of.hash]
}

/// The series of an endpoint's revision, for as long as it lives.
#[derive(Debug)]
pub struct RevisionMetrics {
    children: Arc<Children>,
    revision: Revision,
    families: Arc<RevisionFamilies>,
}

impl RevisionMetrics {
    /// An attempt that another one follows: whatever comes of that, this one failed.
    pub fn failed(&self) {
        self.children.requests.inc();
        self.children.errors.inc();
    }

    /// The last attempt of a request ended. `first_byte`: from its head to the first byte of the answer.
    pub fn ended(&self, outcome: Outcome, first_byte: Option<Duration>) {
        self.children.requests.inc();
        if matches!(outcome, Outcome::UpstreamError | Outcome::UpstreamTimeout | Outcome::UpstreamBusy) {
            self.children.errors.inc();
        }
        if let Some(first_byte) = first_byte {
            self.children.first_byte.observe(first_byte.as_secs_f64());
        }
    }
}

impl Drop for RevisionMetrics {
    fn drop(&mut self) {
        let mut live = self.families.live.lock();
        let Some((_, guards)) = live.get_mut(&self.revision) else { return };
        *guards -= 1;
        if *guards == 0 {
            live.remove(&self.revision);
            // Under the lock: a new guard must not resolve children that are about to be removed.
            let labels = &labels(&self.revision);
            let _ = self.families.vecs.requests.remove_label_values(labels);
            let _ = self.families.vecs.errors.remove_label_values(labels);
            let _ = self.families.vecs.first_byte.remove_label_values(labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(hash: &str) -> Revision {
        let (namespace, inferenceservice) = ("n".to_owned(), "i".to_owned());
        Revision { namespace, inferenceservice, component: "engine", hash: hash.to_owned() }
    }

    #[test]
    fn series_live_as_long_as_the_last_endpoint_and_are_bounded() {
        let registry = Registry::new();
        let families = RevisionFamilies::new(&registry).unwrap();
        let (one, two) = (families.of(revision("a")).unwrap(), families.of(revision("a")).unwrap());
        one.ended(Outcome::Ok, Some(Duration::from_millis(70)));
        two.ended(Outcome::UpstreamError, None);
        two.failed();
        drop(one);
        let sum = |name: &str| {
            let found = registry.gather().into_iter().find(|family| family.name() == name);
            found.map(|family| family.get_metric()[0].get_counter().value())
        };
        assert_eq!(sum("tandem_revision_requests_total"), Some(3.0));
        assert_eq!(sum("tandem_revision_errors_total"), Some(2.0));
        drop(two);
        assert_eq!(registry.gather().len(), 0);
        let all: Vec<_> = (0..2 * MAX_REVISIONS).map(|n| families.of(revision(&n.to_string()))).collect();
        assert_eq!(all.iter().flatten().count(), MAX_REVISIONS);
        assert!(families.of(revision("0")).is_some(), "one that has series shares them");
    }
}
