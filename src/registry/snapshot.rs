//! The immutable set one attempt decides on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;

use super::Role;
use super::budget::RetryBudget;
use super::endpoint::Endpoint;
use crate::config;

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
    pub turns: Arc<Turns>,
    pub budget: Arc<RetryBudget>,
}

/// Round-robin positions, one for each role, shared by every snapshot.
#[derive(Debug, Default)]
pub struct Turns([AtomicUsize; Role::ALL.len()]);

impl Turns {
    pub fn of(&self, role: Role) -> &AtomicUsize {
        &self.0[role as usize]
    }
}

impl Service {
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

    /// Requests may be split into a prefill and a decode leg.
    pub fn has_pairs(&self) -> bool {
        !self.prefills.is_empty() && !self.decodes.is_empty()
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

/// Everything routing needs, at one version.
#[derive(Debug)]
pub struct Snapshot {
    /// Grows with each change.
    pub version: u64,
    pub services: Vec<Arc<Service>>,
    /// Listed model names.
    models: HashMap<String, usize>,
    /// The service that takes any other model, if one does.
    any: Option<usize>,
}

impl Snapshot {
    pub fn new(version: u64, services: Vec<Arc<Service>>) -> Self {
        let mut models = HashMap::new();
        let mut any = None;
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
        Self { version, services, models, any }
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

    /// Some service can take a request now.
    pub fn has_selectable(&self) -> bool {
        self.services.iter().any(|s| s.lacks().is_none())
    }
}

/// Readers' side of the registry: a clone is cheap, a load is one atomic.
pub type View = Arc<ArcSwap<Snapshot>>;
