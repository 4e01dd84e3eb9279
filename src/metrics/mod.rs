//! Numbers about the process, for Prometheus.
//!
//! [`names`] is the one list of families; every family below is built from it and `docs/metrics.md` is checked against it.
//! Two registries, because they are scraped differently: [`Metrics::render`] is small and bounded by the vocabulary
//! and the services; [`Metrics::render_endpoints`] grows with the fleet (`/metrics/endpoints`).
//!
//! Rules that hold everywhere here:
//! * Children are resolved once and the handle is kept: the hot path is one index and one atomic addition.
//! * Label values are words of a bounded [`Vocabulary`], service names, or the URL of a live endpoint. Never a model
//!   name, a path or an error text.
//! * What is labelled by URL belongs to a guard ([`EndpointMetrics`]) and vanishes with it. A handle that outlives its
//!   series would count into nothing for ever, also when the same URL comes back.

mod build;
mod cohort;
mod discovery;
mod endpoint;
mod gap;
mod load;
pub mod names;
mod process;
mod request;
mod revision;
mod router;
mod source;
mod tasks;
mod vocabulary;

pub use cohort::{CohortFamilies, CohortState, UNCOVERED};
pub use discovery::{DiscoveryFamilies, DiscoveryMetrics, DriftMetrics, LaneMetrics};
pub use endpoint::{EndpointFamilies, EndpointMetrics, MAX_ENDPOINTS};
pub use gap::GapStats;
pub use load::{EndpointLoad, KINDS};
pub use request::{NO_SERVICE, Observed, RequestFamilies, ServiceMetrics};
pub use revision::{MAX_REVISIONS, Revision, RevisionMetrics, component};
pub use router::{AccessLogMetrics, Held, ReloadMetrics, RouterMetrics};
pub use source::{SourceFamilies, SourceMetrics};
pub use tasks::RuntimeTasks;
pub use vocabulary::Vocabulary;

use std::sync::Arc;

use prometheus::{Encoder, Registry, TextEncoder};
use revision::RevisionFamilies;

/// `Content-Type` of both renderings.
pub const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Every family of the process and the two registries they stand in.
#[derive(Debug)]
pub struct Metrics {
    main: Registry,
    fleet: Registry,
    /// Gauges and counters without a service.
    pub router: RouterMetrics,
    /// Families by service; take one [`ServiceMetrics`] per service at start.
    pub requests: RequestFamilies,
    /// Families by endpoint; take one [`EndpointMetrics`] per endpoint, whose life is that of its series.
    pub endpoints: EndpointFamilies,
    /// What the API server told; take one handle per service that has Pods.
    pub discovery: DiscoveryFamilies,
    /// Families by cohort, read from state before a scrape.
    pub cohorts: CohortFamilies,
    /// Rollout objects; take one handle per service whose split comes from one.
    pub sources: SourceFamilies,
    /// Tasks by runtime; whoever starts one says so.
    pub tasks: RuntimeTasks,
}

impl Metrics {
    /// Registers everything. Fails only on a mistake in [`names`] or a [`Vocabulary`] that could confuse two series.
    pub fn new(words: &Vocabulary) -> prometheus::Result<Arc<Self>> {
        words.check()?;
        let (main, fleet) = (Registry::new(), Registry::new());
        main.register(Box::new(process::ProcessCollector::new()?))?;
        build::info(&main)?;
        let router = RouterMetrics::new(&main, words)?;
        let requests = RequestFamilies::new(&main, words)?;
        let dropped = build::counter(&main, &names::ENDPOINT_SERIES_DROPPED)?;
        let revisions = RevisionFamilies::new(&main)?;
        let endpoints = EndpointFamilies::new(&fleet, MAX_ENDPOINTS, dropped, revisions)?;
        let discovery = DiscoveryFamilies::new(&main)?;
        let cohorts = CohortFamilies::new(&main)?;
        let sources = SourceFamilies::new(&main)?;
        let tasks = RuntimeTasks::new(&main)?;
        Ok(Arc::new(Self { main, fleet, router, requests, endpoints, discovery, cohorts, sources, tasks }))
    }

    /// Text format 0.0.4 of everything that is not labelled by endpoint.
    pub fn render(&self) -> String {
        render(&self.main)
    }

    /// Text format 0.0.4 of everything labelled by endpoint URL. About 40 lines per endpoint.
    pub fn render_endpoints(&self) -> String {
        render(&self.fleet)
    }
}

/// A family that cannot be encoded is left out with a warning, never a reason to lose the whole scrape.
fn render(registry: &Registry) -> String {
    let mut out = Vec::new();
    for family in registry.gather() {
        let start = out.len();
        if let Err(error) = TextEncoder::new().encode(std::slice::from_ref(&family), &mut out) {
            out.truncate(start);
            tracing::warn!(family = family.name(), %error, "metric family left out of the scrape");
        }
    }
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests;
