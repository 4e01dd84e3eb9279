//! An endpoint as the writer sees it: everything that has a say in whether it is selectable. Each keeps its own word, so that
//! none undoes another: an operator's drain outlives a flap of readiness, a lost label outlives a probe.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::info;

use super::drift::Drift;
use super::endpoint::Endpoint;
use super::facts::EngineFacts;
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
    /// What its engine said of itself.
    facts: Option<EngineFacts>,
    /// They are not yet held against its labels: until then it is given nothing.
    unjudged: bool,
    /// They contradict its labels.
    drift: Option<Drift>,
    /// The engine is asked for them once more, beside whatever it does. The number of that.
    again: Option<(u64, CancellationToken)>,
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
        Self {
            endpoint,
            service,
            source: None,
            taken: false,
            orders: Orders::default(),
            probing,
            facts: None,
            unjudged: false,
            drift: None,
            again: None,
        }
    }

    /// What withdraws it now.
    fn reason(&self) -> Option<Reason> {
        let operator = self.orders.of(From::Operator).map(|_| Reason::AdminDrain);
        let asked = !matches!(self.probing, Probing::Passed) || self.unjudged;
        let probe = asked.then_some(Reason::Probing);
        let drift = self.drift.as_ref().map(|_| Reason::EngineDrift);
        self.source.or(self.taken.then_some(Reason::AddressTaken)).or(operator).or(probe).or(drift)
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
        if let Some(drift) = self.drift.as_ref().filter(|_| after == Some(Reason::EngineDrift)) {
            endpoint.explain(Some(drift.detail.clone()));
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
        self.stop();
        if must_answer(config, &self.endpoint) {
            self.probing = Probing::Needed;
        }
        self.facts = None;
        self.drift = None;
        self.unjudged = false;
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
            facts: reports(config, &self.endpoint),
            engine: config.engine,
            cancel,
        });
    }

    /// Asks the engine once more what it says of itself, where that is of use: it contradicts its labels, or not all is known.
    pub(super) fn ask_again(&mut self, config: &Service, number: &mut u64, lanes: &dyn Lanes) {
        if !self.lacks_facts(config) {
            return;
        }
        *number += 1;
        let cancel = CancellationToken::new();
        self.again = Some((*number, cancel.clone()));
        let endpoint = Arc::clone(&self.endpoint);
        let (number, engine) = (*number, config.engine);
        lanes.submit(Job { endpoint, number, bootstrap: false, models: None, facts: true, engine, cancel });
    }

    pub(super) fn lacks_facts(&self, config: &Service) -> bool {
        let known = self.facts.as_ref().is_some_and(|facts| !facts.incomplete);
        let idle = matches!(self.probing, Probing::Passed) && self.again.is_none();
        reports(config, &self.endpoint) && idle && self.is_there() && (!known || self.drift.is_some())
    }

    fn is_there(&self) -> bool {
        self.source.is_none() && !self.taken
    }

    /// What its engine says, while it has a say: every router knows the same of it.
    pub(super) fn facts(&self) -> Option<&EngineFacts> {
        self.facts.as_ref().filter(|_| self.is_there())
    }

    /// Its source withdraws it no more. What is known of its engine is held against the labels of those that are there now.
    pub(super) fn returns(&mut self) {
        self.unjudged |= self.source.take().is_some() && self.facts.is_some();
    }

    /// Whether a later Pod has its address.
    pub(super) fn seat(&mut self, taken: bool) {
        self.unjudged |= self.taken && !taken && self.facts.is_some();
        self.taken = taken;
    }

    /// The verdict on what its engine says. The contradiction, if that is news.
    pub(super) fn convict(&mut self, drift: Option<Drift>) -> Option<Drift> {
        self.unjudged = false;
        if !self.is_there() || drift == self.drift {
            return None;
        }
        self.drift = drift;
        self.drift.clone()
    }

    fn learn(&mut self, engine: Option<EngineFacts>) {
        if let Some(engine) = engine {
            self.facts = Some(engine.over(self.facts.as_ref()));
        }
    }

    /// A verdict. Of an older job: nothing.
    pub(super) fn judge(&mut self, number: u64, result: Result<Facts, String>) {
        if self.again.take_if(|(again, _)| *again == number).is_some() {
            self.learn(result.ok().and_then(|facts| facts.engine));
            return;
        }
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
                self.unjudged = facts.engine.is_some();
                self.learn(facts.engine);
            }
            Err(why) => {
                *failed = true;
                if self.source.is_none() {
                    self.endpoint.explain(Some(why));
                }
            }
        }
    }

    /// Ends questions that are under way; they will be needed again.
    pub(super) fn stop(&mut self) {
        if let Some((_, cancel)) = self.again.take() {
            cancel.cancel();
        }
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
    endpoint.pod.is_some() && (models || has_bootstrap(config, endpoint) || reports(config, endpoint))
}

/// Whether what the engine says of itself counts. SGLang always says its role, and that is a label; vLLM's word is of use only
/// beside that of others under the same label.
fn reports(config: &Service, endpoint: &Endpoint) -> bool {
    let labelled = !endpoint.token.is_empty() || !endpoint.revision.is_empty();
    let says = match config.engine {
        EngineKind::Plain => false,
        EngineKind::Sglang => true,
        EngineKind::Vllm(_) => labelled,
    };
    config.cohorts_guard && endpoint.pod.is_some() && says
}
