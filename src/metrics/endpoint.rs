//! Families labelled by endpoint URL: series that live exactly as long as an endpoint does.
//!
//! [`EndpointFamilies::for_endpoint`] resolves every child once and gives a guard. Guards of one (url, role) share
//! their series and are counted, because an endpoint that is removed and added again may overlap its predecessor,
//! which lives until its last request is over; the last guard removes the series. Beyond [`MAX_ENDPOINTS`] an endpoint
//! gets handles that are not exported, and a counter says so (I12).
//!
//! Exactly two histograms here, of at most ten buckets each, `+Inf` included: they are most of what a scrape costs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry, Result};

use super::load::{EndpointLoad, LoadGauges, LoadVecs};
use super::revision::{Revision, RevisionFamilies, RevisionMetrics};
use super::{build, names};
use crate::types::outcome::LegOutcome;

/// Most endpoints with series of their own.
pub const MAX_ENDPOINTS: usize = 4096;

/// Nine edges and `+Inf`, seconds. 100 ms, 250 ms, 500 ms and 1 s are usual objectives and stay edges.
const FIRST_BYTE: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
const DURATION: &[f64] = &[0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];

/// The vecs and who uses them. One per process.
#[derive(Debug, Clone)]
pub struct EndpointFamilies(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    vecs: Vecs,
    max: usize,
    dropped: IntCounter,
    /// Taken when endpoints come and go, never on the request path.
    live: Mutex<HashMap<Key, Live>>,
    /// What endpoints beyond the bound share: counted into, never exported.
    hidden: Arc<Children>,
    revisions: Arc<RevisionFamilies>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    url: Box<str>,
    role: &'static str,
}

#[derive(Debug)]
struct Live {
    children: Arc<Children>,
    guards: usize,
}

#[derive(Debug, Clone)]
struct Vecs {
    first_byte: HistogramVec,
    duration: HistogramVec,
    requests: IntCounterVec,
    dials: IntCounterVec,
    reused: IntCounterVec,
    ejections: IntCounterVec,
    forced: IntCounterVec,
    load: LoadVecs,
}

#[derive(Debug)]
struct Children {
    first_byte: Histogram,
    duration: Histogram,
    /// By leg outcome, resolved on first use.
    requests: [OnceLock<IntCounter>; LegOutcome::ALL.len()],
    requests_vec: IntCounterVec,
    dials: IntCounter,
    reused: IntCounter,
    ejections: IntCounter,
    forced: IntCounter,
    load: LoadGauges,
}

impl EndpointFamilies {
    pub(super) fn new(
        registry: &Registry,
        max: usize,
        dropped: IntCounter,
        revisions: Arc<RevisionFamilies>,
    ) -> Result<Self> {
        let vecs = Vecs::new(registry)?;
        // A registry that nobody scrapes: the same code path, invisible.
        let hidden = Arc::new(Vecs::new(&Registry::new())?.children("", "")?);
        Ok(Self(Arc::new(Shared { vecs, max, dropped, live: Mutex::default(), hidden, revisions })))
    }

    /// The guard of one endpoint's series. `url` is the origin, never with user information; `role` is
    /// `prefill`, `decode` or `mixed`.
    pub fn for_endpoint(&self, url: &str, role: &'static str) -> EndpointMetrics {
        let key = Key { url: url.into(), role };
        let mut live = self.0.live.lock();
        let full = live.len() >= self.0.max;
        let children = match live.entry(key.clone()) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().guards += 1;
                Some(Arc::clone(&entry.get().children))
            }
            Entry::Vacant(_) if full => None,
            Entry::Vacant(entry) => self.0.vecs.children(url, role).ok().map(|children| {
                let children = Arc::new(children);
                entry.insert(Live { children: Arc::clone(&children), guards: 1 });
                children
            }),
        };
        drop(live);
        if let Some(children) = children {
            return EndpointMetrics { children, key, exported: Some(Arc::clone(&self.0)), revision: None };
        }
        self.0.dropped.inc();
        EndpointMetrics { children: Arc::clone(&self.0.hidden), key, exported: None, revision: None }
    }

    /// The same, counting into its revision's series too.
    pub fn for_revision(&self, url: &str, role: &'static str, revision: Revision) -> EndpointMetrics {
        let mut metrics = self.for_endpoint(url, role);
        metrics.revision = self.0.revisions.of(revision);
        metrics
    }

    /// Endpoints that have series now.
    pub fn len(&self) -> usize {
        self.0.live.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shared {
    /// One guard of `key` is gone. Where a retention time is wanted (so that the last increments are still scraped),
    /// this is the place: keep the entry with zero guards and remove it later if it still has none; `for_endpoint`
    /// then finds and revives it.
    fn release(&self, key: &Key) {
        let mut live = self.live.lock();
        let Some(entry) = live.get_mut(key) else { return };
        entry.guards -= 1;
        if entry.guards == 0 {
            live.remove(key);
            // Under the lock: a new guard of this key must not resolve children that are about to be removed.
            self.vecs.remove(key);
        }
    }
}

impl Vecs {
    fn new(registry: &Registry) -> Result<Self> {
        Ok(Self {
            first_byte: build::histogram_vec(registry, &names::ENDPOINT_TTFB, FIRST_BYTE)?,
            duration: build::histogram_vec(registry, &names::ENDPOINT_DURATION, DURATION)?,
            requests: build::counter_vec(registry, &names::ENDPOINT_REQUESTS)?,
            dials: build::counter_vec(registry, &names::ENDPOINT_DIALS)?,
            reused: build::counter_vec(registry, &names::ENDPOINT_REUSED)?,
            ejections: build::counter_vec(registry, &names::ENDPOINT_EJECTIONS)?,
            forced: build::counter_vec(registry, &names::ENDPOINT_FORCED)?,
            load: LoadVecs::new(registry)?,
        })
    }

    fn children(&self, url: &str, role: &str) -> Result<Children> {
        let labels = &[role, url];
        Ok(Children {
            first_byte: self.first_byte.get_metric_with_label_values(labels)?,
            duration: self.duration.get_metric_with_label_values(labels)?,
            requests: Default::default(),
            requests_vec: self.requests.clone(),
            dials: self.dials.get_metric_with_label_values(labels)?,
            reused: self.reused.get_metric_with_label_values(labels)?,
            ejections: self.ejections.get_metric_with_label_values(labels)?,
            forced: self.forced.get_metric_with_label_values(labels)?,
            load: self.load.children(labels)?,
        })
    }

    /// Removing what was never resolved (an outcome that did not happen) is not an error.
    fn remove(&self, key: &Key) {
        let labels = &[key.role, &*key.url];
        for vec in [&self.dials, &self.reused, &self.ejections, &self.forced] {
            let _ = vec.remove_label_values(labels);
        }
        self.load.remove(labels);
        let _ = self.first_byte.remove_label_values(labels);
        let _ = self.duration.remove_label_values(labels);
        for outcome in LegOutcome::ALL {
            let _ = self.requests.remove_label_values(&[outcome.as_str(), key.role, &key.url]);
        }
    }
}

/// The series of one endpoint: handles for as long as it lives. Keep it in the endpoint, so that requests which
/// outlive the endpoint's removal keep it too.
#[derive(Debug)]
pub struct EndpointMetrics {
    children: Arc<Children>,
    key: Key,
    exported: Option<Arc<Shared>>,
    /// `None`: it has no revision.
    pub revision: Option<RevisionMetrics>,
}

impl EndpointMetrics {
    /// A leg on this endpoint ended: `duration` from the request written to the end, `first_byte` to the first body byte.
    pub fn leg(&self, outcome: LegOutcome, duration: Duration, first_byte: Option<Duration>) {
        let slot = &self.children.requests[outcome as usize];
        match slot.get() {
            Some(counter) => counter.inc(),
            None => self.first_leg(outcome, slot),
        }
        self.children.duration.observe(duration.as_secs_f64());
        if let Some(first) = first_byte {
            self.children.first_byte.observe(first.as_secs_f64());
        }
    }

    #[cold]
    fn first_leg(&self, outcome: LegOutcome, slot: &OnceLock<IntCounter>) {
        let labels = &[outcome.as_str(), self.key.role, &*self.key.url];
        // Hidden endpoints share one set of children: no label of theirs may stand in it.
        let labels = if self.exported.is_some() { labels } else { &[outcome.as_str(), "", ""] };
        if let Ok(counter) = self.children.requests_vec.get_metric_with_label_values(labels) {
            slot.get_or_init(|| counter).inc();
        }
    }

    /// A connection is being opened.
    pub fn dialed(&self) {
        self.children.dials.inc();
    }

    /// A pooled connection was taken.
    pub fn reused(&self) {
        self.children.reused.inc();
    }

    /// The endpoint was put last for a while.
    pub fn ejected(&self) {
        self.children.ejections.inc();
    }

    /// A leg was cut because a drain's deadline asked for that.
    pub fn forced(&self) {
        self.children.forced.inc();
    }

    /// What is so now, before a scrape.
    pub fn set_load(&self, load: &EndpointLoad) {
        self.children.load.set(load);
    }
}

impl Drop for EndpointMetrics {
    fn drop(&mut self) {
        if let Some(shared) = &self.exported {
            shared.release(&self.key);
        }
    }
}
