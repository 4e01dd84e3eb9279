//! Families labelled by cohort. Like an endpoint's load they are read from state before a scrape: a cohort that no split names
//! any more has no series.

use std::collections::HashSet;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGaugeVec, Registry, Result};

use super::{build, names};

/// Why what falls to a cohort is passed on.
pub const UNCOVERED: [&str; 4] = ["no_endpoint", "no_prefill", "no_decode", "no_pair"];
const ROLES: [&str; 3] = ["prefill", "decode", "mixed"];

/// One cohort as it is now.
#[derive(Debug, Clone)]
pub struct CohortState<'a> {
    pub service: &'a str,
    pub cohort: &'a str,
    /// Requests decided for it since it was first named.
    pub requests: u64,
    /// Those that fell to it and were passed on, in the order of [`UNCOVERED`].
    pub passed_on: [u64; UNCOVERED.len()],
    pub weight: u64,
    /// Prefill, decode, mixed.
    pub selectable: [u64; ROLES.len()],
}

/// The vecs. One per process.
#[derive(Debug)]
pub struct CohortFamilies {
    requests: IntCounterVec,
    passed_on: IntCounterVec,
    weight: IntGaugeVec,
    selectable: IntGaugeVec,
    split_version: IntGaugeVec,
    /// Service and cohort of the series that there are. Taken by scrapes alone.
    shown: Mutex<HashSet<(String, String)>>,
}

impl CohortFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        Ok(Self {
            requests: build::counter_vec(registry, &names::COHORT_REQUESTS)?,
            passed_on: build::counter_vec(registry, &names::COHORT_PASSED_ON)?,
            weight: build::gauge_vec(registry, &names::COHORT_WEIGHT)?,
            selectable: build::gauge_vec(registry, &names::COHORT_SELECTABLE)?,
            split_version: build::gauge_vec(registry, &names::SPLIT_VERSION)?,
            shown: Mutex::default(),
        })
    }

    /// The version of a service's split; 0: it has none.
    pub fn set_version(&self, service: &str, version: u64) {
        self.split_version.with_label_values(&[service]).set(signed(version));
    }

    /// Every cohort that there is; others lose their series.
    pub fn set(&self, cohorts: &[CohortState<'_>]) {
        let mut shown = self.shown.lock();
        let now: HashSet<(String, String)> =
            cohorts.iter().map(|c| (c.service.to_owned(), c.cohort.to_owned())).collect();
        for (service, cohort) in shown.difference(&now) {
            self.remove(service, cohort);
        }
        *shown = now;
        for state in cohorts {
            self.show(state);
        }
    }

    fn show(&self, state: &CohortState<'_>) {
        let CohortState { service, cohort, .. } = *state;
        // What is kept in the registry only grows, but a cohort that was forgotten begins anew.
        let raise = |counter: prometheus::IntCounter, to: u64| {
            if to < counter.get() {
                counter.reset();
            }
            counter.inc_by(to - counter.get());
        };
        raise(self.requests.with_label_values(&[cohort, service]), state.requests);
        for (why, n) in UNCOVERED.iter().zip(state.passed_on) {
            raise(self.passed_on.with_label_values(&[*why, cohort, service]), n);
        }
        self.weight.with_label_values(&[cohort, service]).set(signed(state.weight));
        for (role, n) in ROLES.iter().zip(state.selectable) {
            self.selectable.with_label_values(&[*role, cohort, service]).set(signed(n));
        }
    }

    fn remove(&self, service: &str, cohort: &str) {
        let _ = self.requests.remove_label_values(&[cohort, service]);
        let _ = self.weight.remove_label_values(&[cohort, service]);
        for why in UNCOVERED {
            let _ = self.passed_on.remove_label_values(&[why, cohort, service]);
        }
        for role in ROLES {
            let _ = self.selectable.remove_label_values(&[role, cohort, service]);
        }
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
