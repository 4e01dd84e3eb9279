//! What the admin routes see of cohorts and splits, and how an operator sets another one.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::admin::{
    CohortMembers, CohortShare, CohortView, Members, RolloutView, ServiceCohorts, ServiceSplit, SplitChange,
    SplitControl, SplitView, TokenPairs,
};
use crate::config::SplitEntry;
use crate::metrics::CohortState;
use crate::proxy::context::Shared;
use crate::registry::{
    Change, Cohort, Endpoint, Handle, Need, Role, SAMPLE, Service, Snapshot, SplitApplied, SplitOrder,
    SplitSource, Synced, Uncovered,
};

/// The registry as operators reach it.
#[derive(Debug)]
pub(super) struct Splits {
    shared: Arc<Shared>,
    changes: Handle,
}

impl Splits {
    pub(super) fn new(shared: Arc<Shared>, changes: Handle) -> Self {
        Self { shared, changes }
    }
}

impl SplitControl for Splits {
    fn split(&self) -> SplitView {
        let snapshot = self.shared.view.load();
        SplitView { schema: 1, services: snapshot.services.iter().map(|service| of(service)).collect() }
    }

    fn cohorts(&self) -> CohortView {
        let snapshot = self.shared.view.load();
        let service = |service: &Arc<Service>| ServiceCohorts {
            service: service.config.name.clone(),
            cohorts: service.cohorts.iter().map(|cohort| members(cohort)).collect(),
        };
        CohortView {
            schema: 1,
            registry_version: snapshot.version,
            services: snapshot.services.iter().map(service).collect(),
        }
    }

    fn set_split<'a>(
        &'a self,
        service: &'a str,
        entries: Option<Vec<SplitEntry>>,
        expected: Option<u64>,
    ) -> Pin<Box<dyn Future<Output = SplitChange> + Send + 'a>> {
        Box::pin(async move {
            let found = self.shared.view.load().services.iter().position(|s| s.config.name == service);
            let Some(service) = found else { return SplitChange::UnknownService };
            let (done, answer) = oneshot::channel();
            let order = SplitOrder { service, entries, expected };
            if self.changes.send(Change::Split(order, done)).await.is_err() {
                return SplitChange::Unavailable;
            }
            match answer.await {
                Ok(SplitApplied::Applied(version)) => SplitChange::Applied(version),
                Ok(SplitApplied::Conflict(version)) => SplitChange::Conflict(version),
                Ok(SplitApplied::Unknown) => SplitChange::UnknownService,
                Err(_) => SplitChange::Unavailable,
            }
        })
    }
}

/// What its requests need first: a pair, where the service has pairs.
fn need(service: &Service) -> Need {
    if service.has_pairs() { Need::Pair } else { Need::One(Role::Mixed) }
}

fn of(service: &Service) -> ServiceSplit {
    let need = need(service);
    let (shares, minute) = (&service.shares, Duration::from_mins(1));
    let windows = [shares.over(minute), shares.over(5 * minute), shares.since_split()];
    let sums = windows.each_ref().map(|window| window.values().sum::<u64>());
    let weights: u64 = service.cohorts.iter().map(|cohort| cohort.weight(need)).sum();
    let share = |n: u64, of: u64| n as f64 / of as f64;
    let entries = service.split.iter().flat_map(|split| &split.entries);
    let one = |cohort: &Arc<Cohort>| {
        let got = windows.each_ref().map(|window| window.get(&cohort.name).copied().unwrap_or(0));
        let observed = |at: usize| (sums[at] > 0).then(|| share(got[at], sums[at]));
        let lacks = cohort.lacks(need, Endpoint::is_selectable);
        let passed_on = Uncovered::ALL.iter().zip(cohort.counts.all_passed_on());
        CohortShare {
            cohort: cohort.name.to_string(),
            weight: cohort.weight(need),
            target_share: if weights == 0 { 0.0 } else { share(cohort.weight(need), weights) },
            share_1m: observed(0),
            share_5m: observed(1),
            share_since_version: observed(2),
            requests_since_version: got[2],
            covered: lacks.is_none(),
            lacks: lacks.map(|why| why.as_str().to_owned()),
            passed_on: passed_on
                .filter(|(_, n)| *n > 0)
                .map(|(why, n)| (why.as_str().to_owned(), n))
                .collect(),
            entry: entries.clone().find(|entry| entry.name() == *cohort.name).cloned(),
        }
    };
    let source = service.split.as_ref().map(|split| split.source);
    let rollout = service.config.rollout_at().map(|at| RolloutView {
        object: at.namespace.as_ref().map_or_else(|| at.name.clone(), |ns| format!("{ns}/{}", at.name)),
        version: service.rollout.version(),
        known: service.rollout.known() == Synced::Ready,
        problem: service.rollout.problem().map(|why| String::clone(&why)),
    });
    ServiceSplit {
        service: service.config.name.clone(),
        version: service.split_version,
        source: source.map_or("none", SplitSource::as_str).to_owned(),
        rollout,
        volatile: source == Some(SplitSource::Admin),
        cohorts: service.cohorts.iter().map(one).collect(),
    }
}

fn members(cohort: &Cohort) -> CohortMembers {
    let of = |role: Role| {
        let all = cohort.of(role);
        let revisions: BTreeSet<&String> =
            all.iter().map(|e| &e.revision).filter(|r| !r.is_empty()).collect();
        Members {
            selectable: cohort.selectable(role),
            total: all.len() as u64,
            revisions: revisions.into_iter().cloned().collect(),
        }
    };
    CohortMembers {
        cohort: cohort.name.to_string(),
        prefill: of(Role::Prefill),
        decode: of(Role::Decode),
        mixed: of(Role::Mixed),
        tokens: tokens(cohort),
    }
}

fn tokens(cohort: &Cohort) -> Vec<TokenPairs> {
    let mut by_token: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for (at, role) in [Role::Prefill, Role::Decode].into_iter().enumerate() {
        for endpoint in cohort.of(role) {
            by_token.entry(&endpoint.token).or_default()[at] += u64::from(endpoint.is_selectable());
        }
    }
    let all = by_token.values().fold([0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
    let bare = by_token.get("").copied().unwrap_or_default();
    let pairs = |token: &str, [p, d]: [u64; 2]| {
        // Without a token it pairs with all of the other side; with one, with that and with those that have none.
        if token.is_empty() { p * all[1] + d * (all[0] - p) } else { p * (d + bare[1]) + bare[0] * d }
    };
    let row = |(token, counts): (&str, [u64; 2])| TokenPairs {
        token: token.to_owned(),
        prefill: counts[0],
        decode: counts[1],
        pairs: pairs(token, counts),
    };
    by_token.into_iter().map(row).collect()
}

/// Puts the counts of every service down, for shares over time.
pub(super) async fn sample(shared: Arc<Shared>) {
    loop {
        for service in &shared.view.load_full().services {
            service.shares.sample();
        }
        sleep(SAMPLE).await;
    }
}

/// Brings the families by cohort up to date before a scrape.
pub(super) fn refresh(shared: &Shared, snapshot: &Snapshot) {
    let families = &shared.metrics.cohorts;
    let mut all = Vec::new();
    for service in &snapshot.services {
        families.set_version(&service.config.name, service.split.as_ref().map_or(0, |split| split.version));
        let need = need(service);
        all.extend(service.cohorts.iter().map(|cohort| CohortState {
            service: &service.config.name,
            cohort: &cohort.name,
            requests: cohort.counts.requests(),
            passed_on: cohort.counts.all_passed_on(),
            weight: cohort.weight(need),
            selectable: Role::ALL.map(|role| cohort.selectable(role)),
        }));
    }
    families.set(&all);
}
