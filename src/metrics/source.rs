//! Rollout objects as sources of splits: what they said, and how old that is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus::{GaugeVec, IntCounterVec, Registry, Result};

use super::{build, names};
use crate::types::clock::{self, Instant};

/// What an object may say; from the start with 0.
const SAID: [&str; 5] = ["weights", "stable", "nothing", "missing", "unusable"];

/// The vecs; one per process.
#[derive(Debug)]
pub struct SourceFamilies {
    said: IntCounterVec,
    failures: IntCounterVec,
    age: GaugeVec,
    /// Every service's: ages are worked out before a scrape.
    services: Mutex<Vec<SourceMetrics>>,
}

/// One service's.
#[derive(Debug, Clone)]
pub struct SourceMetrics {
    service: Arc<str>,
    said: IntCounterVec,
    failures: IntCounterVec,
    born: Instant,
    /// Milliseconds after `born` of the last answer; 0: none came.
    read: Arc<AtomicU64>,
}

impl SourceFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        Ok(Self {
            said: build::counter_vec(registry, &names::SPLIT_SOURCE_SAID)?,
            failures: build::counter_vec(registry, &names::SPLIT_SOURCE_FAILURES)?,
            age: build::float_gauge_vec(registry, &names::SPLIT_SOURCE_AGE)?,
            services: Mutex::default(),
        })
    }

    /// Handles of a service whose split comes from a rollout object. Once for each.
    pub fn service(&self, name: &str) -> Result<SourceMetrics> {
        for word in SAID {
            self.said.get_metric_with_label_values(&[word, name])?;
        }
        let (said, failures) = (self.said.clone(), self.failures.clone());
        let metrics =
            SourceMetrics { service: name.into(), said, failures, born: clock::now(), read: Arc::default() };
        self.services.lock().push(metrics.clone());
        Ok(metrics)
    }

    /// Brings ages up to date.
    pub fn refresh_ages(&self) {
        for metrics in self.services.lock().iter() {
            if let Ok(gauge) = self.age.get_metric_with_label_values(&[&metrics.service]) {
                gauge.set(metrics.age_s());
            }
        }
    }
}

impl SourceMetrics {
    fn now(&self) -> u64 {
        clock::now().saturating_duration_since(self.born).as_millis() as u64
    }

    /// Since the last answer; since the start, if there was none.
    fn age_s(&self) -> f64 {
        self.now().saturating_sub(self.read.load(Ordering::Relaxed)) as f64 / 1000.0
    }

    /// The API server answered.
    pub fn read(&self) {
        self.read.store(self.now().max(1), Ordering::Relaxed);
    }

    pub fn failed(&self, kind: &'static str) {
        count(&self.failures, kind, &self.service);
    }

    /// A new state of the object was read.
    pub fn said(&self, word: &'static str) {
        count(&self.said, word, &self.service);
    }
}

fn count(vec: &IntCounterVec, word: &str, service: &str) {
    if let Ok(counter) = vec.get_metric_with_label_values(&[word, service]) {
        counter.inc();
    }
}
