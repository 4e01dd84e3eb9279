//! The immutable set one attempt decides on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;

use super::Role;
use super::budget::RetryBudget;
use super::cohort::{Cohort, Need, cohorts};
use super::endpoint::Endpoint;
use super::listener::PodId;
use super::orders::Orders;
use super::reason::Reason;
use super::shares::Shares;
use super::split::Split;
use super::sync::Sync;
use crate::config;
use crate::types::clock::Instant;

/// One service as the request path sees it.
#[derive(Debug)]
pub struct Service {
    /// Position in [`Snapshot::services`]; stable for the life of the process.
    pub index: usize,
    pub config: config::Service,
    /// Mixed endpoints.
    pub endpoints: Vec<Arc<Endpoint>>,
    pub prefills: Vec<Arc<Endpoint>>,
    pub decodes: Vec<Arc<Endpoint>>,
    /// At least one.
    pub cohorts: Vec<Arc<Cohort>>,
    /// `None`: cohorts are weighted by what they can carry.
    pub split: Option<Arc<Split>>,
    /// Of the last split that was applied; 0: none was.
    pub split_version: u64,
    pub shares: Arc<Shares>,
    pub turns: Arc<Turns>,
    pub budget: Arc<RetryBudget>,
    pub sync: Arc<Sync>,
}

/// Round-robin positions, one for each role, shared by every snapshot.
#[derive(Debug, Default)]
pub struct Turns([AtomicUsize; Role::ALL.len()]);

impl Turns {
    pub fn of(&self, role: Role) -> &AtomicUsize {
        &self.0[role as usize]
    }
}

/// What survives every snapshot of a service.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) turns: Arc<Turns>,
    pub(super) budget: Arc<RetryBudget>,
    pub(super) sync: Arc<Sync>,
    pub(super) split: Option<Arc<Split>>,
    pub(super) split_version: u64,
    pub(super) shares: Arc<Shares>,
}

impl Service {
    /// `lists`: its endpoints, in the order of [`Role::ALL`].
    pub(super) fn new(
        index: usize,
        config: config::Service,
        lists: [Vec<Arc<Endpoint>>; 3],
        kept: Kept,
    ) -> Self {
        let Kept { turns, budget, sync, split, split_version, shares } = kept;
        let cohorts = cohorts(&lists, config.cohorts_by, split.as_deref(), &shares);
        let [prefills, decodes, endpoints] = lists;
        Self {
            index,
            config,
            endpoints,
            prefills,
            decodes,
            cohorts,
            split,
            split_version,
            shares,
            turns,
            budget,
            sync,
        }
    }

    /// The same endpoints under another split.
    pub(super) fn with_split(&self, split: Option<Arc<Split>>, version: u64) -> Self {
        let kept = Kept { split, split_version: version, ..self.kept() };
        self.shares.split_applied();
        Self::new(self.index, self.config.clone(), self.lists(), kept)
    }

    pub(super) fn kept(&self) -> Kept {
        let Self { turns, budget, sync, split, split_version, .. } = self;
        let (turns, budget, sync) = (Arc::clone(turns), Arc::clone(budget), Arc::clone(sync));
        let (split, shares) = (split.clone(), Arc::clone(&self.shares));
        Kept { turns, budget, sync, split, split_version: *split_version, shares }
    }

    pub(super) fn lists(&self) -> [Vec<Arc<Endpoint>>; 3] {
        Role::ALL.map(|role| self.of(role).to_vec())
    }

    pub fn of(&self, role: Role) -> &[Arc<Endpoint>] {
        match role {
            Role::Prefill => &self.prefills,
            Role::Decode => &self.decodes,
            Role::Mixed => &self.endpoints,
        }
    }

    /// Every endpoint, whatever its role.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        Role::ALL.into_iter().flat_map(|role| self.of(role))
    }

    pub fn policy(&self, role: Role) -> config::Policy {
        let config::Policies { mixed, prefill, decode } = self.config.policy;
        match role {
            Role::Prefill => prefill,
            Role::Decode => decode,
            Role::Mixed => mixed,
        }
    }

    pub fn has_selectable(&self, role: Role) -> bool {
        self.of(role).iter().any(|e| e.is_selectable())
    }

    /// Some cohort that is given requests can take one.
    pub fn is_covered(&self, need: Need) -> bool {
        self.cohorts
            .iter()
            .any(|cohort| cohort.weight(need) > 0 && cohort.lacks(need, Endpoint::is_selectable).is_none())
    }

    /// Some selectable prefill pairs with some selectable decode.
    pub fn has_selectable_pair(&self) -> bool {
        self.is_covered(Need::Pair)
    }

    /// Requests may be split into a prefill and a decode leg. Pods come and go: where their kind of engine can, and no mixed
    /// one is there, pairs are what is awaited.
    pub fn has_pairs(&self) -> bool {
        let awaited = self.config.pods.is_some()
            && self.config.engine != config::EngineKind::Plain
            && self.endpoints.is_empty();
        awaited || !self.prefills.is_empty() && !self.decodes.is_empty()
    }

    /// The role without which no request can be served now; `None` where one can: by a mixed endpoint, or by a pair.
    pub fn lacks(&self) -> Option<Role> {
        let needed: &[Role] = if self.has_pairs() { &[Role::Prefill, Role::Decode] } else { &[Role::Mixed] };
        if self.has_selectable(Role::Mixed) {
            return None;
        }
        needed.iter().copied().find(|role| !self.has_selectable(*role))
    }
}

/// A Pod that gives no endpoint now.
#[derive(Debug)]
pub struct PodNote {
    /// Position of the service.
    pub service: usize,
    pub pod: Arc<PodId>,
    pub reason: Reason,
    pub detail: Option<String>,
    pub since: Instant,
}

/// An endpoint that has left every list. It is kept until its last request is over, and for a while after that.
#[derive(Debug, Clone)]
pub struct Departed {
    pub service: usize,
    pub endpoint: Arc<Endpoint>,
    pub at: Instant,
    /// As they were when it left: so they are when it returns.
    pub(super) orders: Orders,
}

/// Everything routing needs, at one version.
#[derive(Debug)]
pub struct Snapshot {
    /// Grows with each change.
    pub version: u64,
    pub services: Vec<Arc<Service>>,
    /// Known Pods without an endpoint.
    pub notes: Arc<[Arc<PodNote>]>,
    pub departed: Arc<[Departed]>,
    /// Members of a body that some service's sticky requests are known by. `None`: no service has any.
    pub body_fields: Option<Arc<[String]>>,
    /// Listed model names.
    models: HashMap<String, usize>,
    /// The service that takes any other model, if one does.
    any: Option<usize>,
}

impl Snapshot {
    pub fn new(version: u64, services: Vec<Arc<Service>>) -> Self {
        Self::with(version, services, Arc::default(), Arc::default())
    }

    pub(super) fn with(
        version: u64,
        services: Vec<Arc<Service>>,
        notes: Arc<[Arc<PodNote>]>,
        departed: Arc<[Departed]>,
    ) -> Self {
        let mut models = HashMap::new();
        let mut any = None;
        let mut body_fields: Vec<String> = Vec::new();
        for service in &services {
            let field = service.config.sticky.body_field.iter();
            body_fields.extend(field.filter(|_| service.cohorts.len() > 1).cloned());
        }
        body_fields.sort();
        body_fields.dedup();
        let body_fields = (!body_fields.is_empty()).then(|| body_fields.into());
        for service in &services {
            for model in &service.config.models {
                models.insert(model.clone(), service.index);
            }
            let takes_any = match service.config.model_match {
                config::ModelMatch::Any => true,
                config::ModelMatch::Listed => false,
                config::ModelMatch::Auto => service.config.models.is_empty(),
            };
            if takes_any {
                any.get_or_insert(service.index);
            }
        }
        Self { version, services, notes, departed, body_fields, models, any }
    }

    /// The service for a model name. Without a name: the service that takes any, else the only one there is
    /// (engines answer with their default model).
    pub fn service_for(&self, model: Option<&str>) -> Option<&Arc<Service>> {
        let index = match model {
            Some(name) => self.models.get(name).copied().or(self.any),
            None => self.any.or((self.services.len() == 1).then_some(0)),
        };
        index.and_then(|i| self.services.get(i))
    }

    /// Every endpoint and its service, those that left included.
    pub fn known(&self) -> impl Iterator<Item = (&Service, &Arc<Endpoint>)> {
        let listed = self.services.iter().flat_map(|service| service.all().map(move |e| (&**service, e)));
        let departed = self.departed.iter().filter_map(|gone| {
            let service = self.services.get(gone.service)?;
            Some((&**service, &gone.endpoint))
        });
        listed.chain(departed)
    }

    /// Some service can take a request now.
    pub fn has_selectable(&self) -> bool {
        self.services.iter().any(|s| s.lacks().is_none())
    }
}

/// Readers' side of the registry: a clone is cheap, a load is one atomic.
pub type View = Arc<ArcSwap<Snapshot>>;
