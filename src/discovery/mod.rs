//! Who is out there: Pods of a Kubernetes API server, as changes for the registry's writer.
//!
//! ```text
//! LIST, WATCH -> pod -> track (which news are news) -> source: judge, per service -> registry writer
//!                                                      engines <- lanes <-----------------+
//! ```
//!
//! * `kube` — the API server: clients, lists, watches, failures, and the loop that joins them.
//! * `pod` — the part of a Pod that is read. `track` — the version rule (I8). `judge`, `listeners` — one Pod, one service.
//! * `latch`, `state` — eligibility mode `observed`, and what of it outlives the process.
//! * `ome` — what an InferenceService says of weights.
//! * `source` — all of that for one stream. `lane`, `probe`, `facts` — questions to engines, beside it all.
//!
//! Endpoints of the configuration take the same way into the registry, without a stream: `registry::Change::Services`.
//! `docs/discovery.md` has the rules for operators.

pub mod facts;
pub mod judge;
pub mod kube;
mod lane;
pub mod latch;
mod listeners;
pub mod ome;
pub mod pod;
mod probe;
mod rules;
pub mod source;
mod state;
pub mod track;

#[cfg(test)]
#[path = "tests/fixtures.rs"]
mod fixtures;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::{InferenceService, Labels, RelistRead, RouterConfig};
use crate::drain::Tracker;
use crate::metrics::{DiscoveryFamilies, DiscoveryMetrics, SourceFamilies};
use crate::registry::{Handle, View};
use kube::{Connect, RolloutStream, Scope, Stream};
use source::Source;

pub use lane::Probers;
pub use rules::Rules;
pub use state::LatchStore;

/// Between two reads of a rollout object beside its watch.
const RELIST: Duration = Duration::from_secs(15);

/// What the streams of a process need.
#[derive(Debug)]
pub struct Discovery<'a> {
    pub sources: &'a SourceFamilies,
    pub connect: Arc<dyn Connect>,
    pub changes: Handle,
    pub view: View,
    pub metrics: DiscoveryFamilies,
}

impl Discovery<'_> {
    /// Starts a stream for each (namespace, selector) of the services.
    ///
    /// # Errors
    /// When metrics of a service cannot be made.
    pub fn start(
        self,
        config: &RouterConfig,
        tasks: &Tracker,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let latches = Arc::new(LatchStore::open(config.state_file.as_deref()));
        for (scope, rules) in scopes(config) {
            let services: Vec<(Rules, DiscoveryMetrics)> = rules
                .into_iter()
                .map(|rules| Ok((rules.clone(), self.metrics.service(&rules.name)?)))
                .collect::<anyhow::Result<_>>()?;
            // Services that share a stream share its pace, the quicker one, and read as the stricter one asks.
            let relist = services.iter().map(|(rules, _)| rules.pods.relist).min().unwrap_or_default();
            let cached = services.iter().all(|(rules, _)| rules.pods.relist_read == RelistRead::Cached);
            let read = if cached { RelistRead::Cached } else { RelistRead::Consistent };
            let mut source = Source::new(services);
            for (service, roles) in latches.get() {
                for role in roles {
                    source.restore_latch(&service, role);
                }
            }
            let stream = Stream {
                scope,
                source,
                connect: Arc::clone(&self.connect),
                changes: self.changes.clone(),
                view: Arc::clone(&self.view),
                relist,
                read,
                latches: Arc::clone(&latches),
            };
            tasks.spawn("discovery", stream.run(stop.clone()));
        }
        for (at, services) in rollouts(config) {
            let metrics = services.iter().map(|index| self.sources.service(&config.services[*index].name));
            let stream = RolloutStream {
                scope: Scope { namespace: at.namespace, selector: String::new(), object: Some(at.name) },
                connect: Arc::clone(&self.connect),
                changes: self.changes.clone(),
                metrics: metrics.collect::<Result<_, _>>()?,
                services,
                relist: RELIST,
            };
            tasks.spawn("rollout", stream.run(stop.clone()));
        }
        Ok(())
    }
}

/// Services by the rollout object that their split comes from.
fn rollouts(config: &RouterConfig) -> BTreeMap<InferenceService, Vec<usize>> {
    let mut rollouts: BTreeMap<InferenceService, Vec<usize>> = BTreeMap::new();
    for (index, service) in config.services.iter().enumerate() {
        let Some(at) = service.rollout_at() else { continue };
        rollouts.entry(at).or_default().push(index);
    }
    rollouts
}

/// Services by what they watch.
fn scopes(config: &RouterConfig) -> BTreeMap<Scope, Vec<Rules>> {
    let mut scopes: BTreeMap<Scope, Vec<Rules>> = BTreeMap::new();
    for (index, service) in config.services.iter().enumerate() {
        let Some(rules) = Rules::of(index, service) else { continue };
        let namespace = rules.pods.namespace.clone();
        let scope = Scope { namespace, selector: text(&rules.pods.selector), object: None };
        scopes.entry(scope).or_default().push(rules);
    }
    scopes
}

/// Equality terms as the API takes them.
fn text(labels: &Labels) -> String {
    let terms: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    terms.join(",")
}
