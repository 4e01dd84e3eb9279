//! An endpoint as the writer sees it: everything that has a say in whether it is selectable. Each keeps its own word, so that
//! none undoes another: an operator's drain outlives a flap of readiness, a lost label outlives a probe.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::info;

use super::endpoint::Endpoint;
use super::lanes::{Facts, Job, Lanes};
use super::orders::{From, Orders};
use super::reason::Reason;
use crate::config::{EngineKind, Probe, Service};
use crate::types::drain_order::DrainOrder;
use crate::types::role::Role;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) endpoint: Arc<Endpoint>,
    /// Position of its service.
    pub(super) service: usize,
    /// Its source withdraws it.
    pub(super) source: Option<Reason>,
    /// A later Pod has its address.
    pub(super) taken: bool,
    /// Its Pod's annotation, which `source` knows of too, and an operator's order, which withdraws it.
    pub(super) orders: Orders,
    probing: Probing,
}

#[derive(Debug)]
enum Probing {
    /// Nothing has to be asked, or it was answered.
    Passed,
    Needed,
    Running {
        job: u64,
        cancel: CancellationToken,
        /// There was a verdict, and why it was none to begin with.
        failed: bool,
    },
}

impl Member {
    pub(super) fn new(endpoint: Arc<Endpoint>, config: &Service, service: usize) -> Self {
        let probing = if must_answer(config, &endpoint) { Probing::Needed } else { Probing::Passed };
        Self { endpoint, service, source: None, taken: false, orders: Orders::default(), probing }
    }

    /// What withdraws it now.
    fn reason(&self) -> Option<Reason> {
        let operator = self.orders.of(From::Operator).map(|_| Reason::AdminDrain);
        let probe = (!matches!(self.probing, Probing::Passed)).then_some(Reason::Probing);
        self.source.or(self.taken.then_some(Reason::AddressTaken)).or(operator).or(probe)
    }

    /// Whether its first verdict is still awaited.
    pub(super) fn is_pending(&self) -> bool {
        let asked = matches!(self.probing, Probing::Needed | Probing::Running { failed: false, .. });
        asked && self.source.is_none() && !self.taken
    }

    /// Brings the gate in line. Whether that changed anything.
    pub(super) fn settle(&self) -> bool {
        let endpoint = &self.endpoint;
        let before = endpoint.reason();
        let after = self.reason();
        if after == Some(Reason::AdminDrain) {
            let words = self.orders.of(From::Operator).map(DrainOrder::to_string);
            endpoint.explain(words.filter(|words| !words.is_empty()));
        }
        if after.unwrap_or(Reason::Selectable) == before {
            return false;
        }
        let (url, role) = (&endpoint.url, endpoint.role.as_str());
        if let Some(reason) = after {
            let holds = endpoint.withdraw(reason);
            if before == Reason::Selectable && reason != Reason::Probing {
                info!(endpoint = %url, role, reason = reason.as_str(), holds, "endpoint withdrawn");
            }
        } else {
            endpoint.explain(None);
            endpoint.restore();
            info!(endpoint = %url, role, before = before.as_str(), "endpoint selectable");
        }
        true
    }

    /// The newest word of one side. Whether it was another.
    pub(super) fn order(&mut self, from: From, order: Option<DrainOrder>) -> bool {
        let changed = self.orders.set(from, order);
        if changed {
            self.endpoint.set_deadline(self.orders.deadline());
        }
        changed
    }

    /// What was learnt of the engine counts no more.
    pub(super) fn forget(&mut self, config: &Service) {
        if must_answer(config, &self.endpoint) {
            self.stop();
            self.probing = Probing::Needed;
        }
    }

    /// Asks the engine, if that is needed, not done yet and of use.
    pub(super) fn probe(&mut self, config: &Service, number: &mut u64, lanes: &dyn Lanes) {
        let idle = matches!(self.probing, Probing::Needed);
        if !idle || self.source.is_some() || self.taken {
            return;
        }
        *number += 1;
        let cancel = CancellationToken::new();
        self.probing = Probing::Running { job: *number, cancel: cancel.clone(), failed: false };
        let models = config.pods.as_ref().filter(|pods| pods.probe == Probe::Models);
        lanes.submit(Job {
            endpoint: Arc::clone(&self.endpoint),
            number: *number,
            bootstrap: has_bootstrap(config, &self.endpoint),
            models: models.map(|_| config.models.clone()),
            cancel,
        });
    }

    /// A verdict. Of an older job: nothing.
    pub(super) fn judge(&mut self, number: u64, result: Result<Facts, String>) {
        let Probing::Running { job, failed, .. } = &mut self.probing else { return };
        if *job != number {
            return;
        }
        match result {
            Ok(facts) => {
                if let Some(port) = facts.bootstrap_port {
                    self.endpoint.learn_bootstrap(port);
                }
                self.probing = Probing::Passed;
            }
            Err(why) => {
                *failed = true;
                if self.source.is_none() {
                    self.endpoint.explain(Some(why));
                }
            }
        }
    }

    /// Ends a probe that is under way; it will be needed again.
    pub(super) fn stop(&mut self) {
        if let Probing::Running { cancel, .. } = &self.probing {
            cancel.cancel();
            self.probing = Probing::Needed;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop();
    }
}

fn has_bootstrap(config: &Service, endpoint: &Endpoint) -> bool {
    config.engine == EngineKind::Sglang && endpoint.role == Role::Prefill
}

/// Only engines behind Pods: those of the configuration are taken at its word.
fn must_answer(config: &Service, endpoint: &Endpoint) -> bool {
    let models = config.pods.as_ref().is_some_and(|pods| pods.probe == Probe::Models);
    endpoint.pod.is_some() && (models || has_bootstrap(config, endpoint))
}
