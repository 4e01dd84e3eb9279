//! Discovery: what the API server told, how old that is, and what it took.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, Result};

use super::{build, names};
use crate::types::clock::{self, Instant};
use crate::types::fact::Fact;
use crate::types::role::Role;

/// Words of what is rare and worth an alert.
const RELISTS: [&str; 3] = ["ok", "discarded", "error"];
const SKIPPED: [&str; 4] = ["bad_object", "no_address", "no_port", "wrong_role"];
const ROLES: [&str; 3] = [Role::ALL[0].as_str(), Role::ALL[1].as_str(), Role::ALL[2].as_str()];

/// Which of two families, reason, service.
type Series = (u8, &'static str, String);

/// The vecs; one per process.
#[derive(Debug, Clone)]
pub struct DiscoveryFamilies {
    vecs: Arc<Vecs>,
    /// Every service's clocks: ages are worked out before a scrape.
    clocks: Arc<Mutex<Vec<DiscoveryMetrics>>>,
    /// Series of endpoints and Pods by reason that exist.
    seen: Arc<Mutex<HashSet<Series>>>,
    pub snapshot_version: IntGauge,
    pub lanes: LaneMetrics,
    pub engine_drift: DriftMetrics,
}

#[derive(Debug)]
struct Vecs {
    view_age: GaugeVec,
    watch_age: GaugeVec,
    relists: IntCounterVec,
    list_failures: IntCounterVec,
    watches: IntCounterVec,
    drift: IntCounterVec,
    skipped: IntCounterVec,
    latched: IntGaugeVec,
    mass: IntCounterVec,
    endpoints: IntGaugeVec,
    pods: IntGaugeVec,
}

/// One service's.
#[derive(Debug, Clone)]
pub struct DiscoveryMetrics {
    service: Arc<str>,
    vecs: Arc<Vecs>,
    drift: IntCounter,
    born: Instant,
    /// Milliseconds after `born`, 0 for never: the last applied list, the last word of the watch.
    listed: Arc<AtomicU64>,
    heard: Arc<AtomicU64>,
}

/// Lanes of all services.
#[derive(Debug, Clone)]
pub struct LaneMetrics {
    lanes: IntGauge,
    passed: IntCounter,
    failed: IntCounter,
}

/// Engines that contradict their labels, of all services.
#[derive(Debug, Clone)]
pub struct DriftMetrics(IntCounterVec);

impl DiscoveryFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let counters = |family| build::counter_vec(registry, family);
        let gauges = |family| build::gauge_vec(registry, family);
        let probes = counters(&names::PROBES)?;
        let vecs = Vecs {
            view_age: build::float_gauge_vec(registry, &names::DISCOVERY_VIEW_AGE)?,
            watch_age: build::float_gauge_vec(registry, &names::DISCOVERY_WATCH_AGE)?,
            relists: counters(&names::DISCOVERY_RELISTS)?,
            list_failures: counters(&names::DISCOVERY_LIST_FAILURES)?,
            watches: counters(&names::DISCOVERY_WATCH_ENDS)?,
            drift: counters(&names::DISCOVERY_DRIFT)?,
            skipped: counters(&names::DISCOVERY_SKIPPED)?,
            latched: gauges(&names::ELIGIBILITY_LATCHED)?,
            mass: counters(&names::MASS_WITHDRAWALS)?,
            endpoints: gauges(&names::ENDPOINTS)?,
            pods: gauges(&names::PODS_WITHOUT_ENDPOINT)?,
        };
        Ok(Self {
            vecs: Arc::new(vecs),
            clocks: Arc::default(),
            seen: Arc::default(),
            snapshot_version: build::gauge(registry, &names::SNAPSHOT_VERSION)?,
            engine_drift: DriftMetrics(counters(&names::ENGINE_DRIFT)?),
            lanes: LaneMetrics {
                lanes: build::gauge(registry, &names::LANES)?,
                passed: probes.get_metric_with_label_values(&["ok"])?,
                failed: probes.get_metric_with_label_values(&["error"])?,
            },
        })
    }

    /// Handles of a service that has Pods. Once for each.
    pub fn service(&self, name: &str) -> Result<DiscoveryMetrics> {
        super::vocabulary::check_service(name)?;
        let Vecs { relists, skipped, mass, .. } = &*self.vecs;
        // From the start with 0: an alert on their increase has to see the first one.
        for (vec, words) in [(relists, &RELISTS[..]), (skipped, &SKIPPED), (mass, &ROLES)] {
            for word in words {
                vec.get_metric_with_label_values(&[word, name])?;
            }
        }
        for fact in Fact::ALL {
            self.engine_drift.0.get_metric_with_label_values(&[fact.as_str(), name])?;
        }
        let metrics = DiscoveryMetrics {
            service: name.into(),
            vecs: Arc::clone(&self.vecs),
            drift: self.vecs.drift.get_metric_with_label_values(&[name])?,
            born: clock::now(),
            listed: Arc::default(),
            heard: Arc::default(),
        };
        self.clocks.lock().push(metrics.clone());
        Ok(metrics)
    }

    /// Brings ages up to date.
    pub fn refresh_ages(&self) {
        for metrics in self.clocks.lock().iter() {
            let labels = &[&*metrics.service];
            for (vec, at) in [(&self.vecs.view_age, &metrics.listed), (&self.vecs.watch_age, &metrics.heard)]
            {
                if let Ok(gauge) = vec.get_metric_with_label_values(labels) {
                    gauge.set(metrics.age(at));
                }
            }
        }
    }

    /// Endpoints of a service by reason, `selectable` among them; and Pods that give none.
    pub fn set_endpoints(&self, service: &str, reason: &'static str, endpoints: u64, pods: u64) {
        for (vec, count, page) in [(&self.vecs.endpoints, endpoints, 0), (&self.vecs.pods, pods, 1)] {
            // No series for what never was.
            let mut seen = self.seen.lock();
            if count > 0 {
                seen.insert((page, reason, service.to_owned()));
            } else if !seen.contains(&(page, reason, service.to_owned())) {
                continue;
            }
            drop(seen);
            if let Ok(gauge) = vec.get_metric_with_label_values(&[reason, service]) {
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }
}

impl DiscoveryMetrics {
    fn count(&self, vec: &IntCounterVec, word: &str) {
        if let Ok(counter) = vec.get_metric_with_label_values(&[word, &*self.service]) {
            counter.inc();
        }
    }

    fn touch(&self, at: &AtomicU64) {
        let age = clock::now().saturating_duration_since(self.born).as_millis() as u64;
        at.store(age.max(1), Ordering::Relaxed);
    }

    /// Seconds since then; since the start, if never.
    fn age(&self, at: &AtomicU64) -> f64 {
        let now = clock::now().saturating_duration_since(self.born).as_millis() as u64;
        now.saturating_sub(at.load(Ordering::Relaxed)) as f64 / 1000.0
    }

    /// A complete list was applied.
    pub fn list_applied(&self) {
        self.touch(&self.listed);
        self.count(&self.vecs.relists, "ok");
    }

    /// It was older than one that was applied before.
    pub fn list_discarded(&self) {
        self.count(&self.vecs.relists, "discarded");
    }

    pub fn list_failed(&self, kind: &'static str) {
        self.count(&self.vecs.relists, "error");
        self.count(&self.vecs.list_failures, kind);
    }

    pub fn watch_opened(&self) {
        self.touch(&self.heard);
    }

    /// An event or a bookmark.
    pub fn watch_heard(&self) {
        self.touch(&self.heard);
    }

    pub fn watch_ended(&self, kind: &'static str) {
        self.count(&self.vecs.watches, kind);
    }

    /// So many Pods were changed by a list and not told by the watch.
    pub fn drifted(&self, pods: u64) {
        self.drift.inc_by(pods);
    }

    pub fn skipped(&self, reason: &'static str) {
        self.count(&self.vecs.skipped, reason);
    }

    pub fn latched(&self, role: &'static str) {
        if let Ok(gauge) = self.vecs.latched.get_metric_with_label_values(&[role, &*self.service]) {
            gauge.set(1);
        }
    }

    pub fn mass_withdrawal(&self, role: &'static str) {
        self.count(&self.vecs.mass, role);
    }
}

impl DriftMetrics {
    pub fn found(&self, fact: Fact, service: &str) {
        if let Ok(counter) = self.0.get_metric_with_label_values(&[fact.as_str(), service]) {
            counter.inc();
        }
    }
}

impl LaneMetrics {
    /// A lane is open for as long as this lives.
    pub fn open(&self) -> super::Held {
        super::Held::one(&self.lanes)
    }

    pub fn probed(&self, ok: bool) {
        if ok {
            self.passed.inc();
        } else {
            self.failed.inc();
        }
    }
}
