//! The immutable set one attempt decides on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;

use super::budget::RetryBudget;
use super::endpoint::Endpoint;
use crate::config;

/// One service as the request path sees it.
#[derive(Debug)]
pub struct Service {
    /// Position in [`Snapshot::services`]; stable for the life of the process.
    pub index: usize,
    pub config: config::Service,
    pub endpoints: Vec<Arc<Endpoint>>,
    /// Round-robin position, shared by every snapshot.
    pub turn: Arc<AtomicUsize>,
    pub budget: Arc<RetryBudget>,
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

    pub fn has_selectable(&self) -> bool {
        self.services.iter().any(|s| s.endpoints.iter().any(|e| e.is_selectable()))
    }
}

/// Readers' side of the registry: a clone is cheap, a load is one atomic.
pub type View = Arc<ArcSwap<Snapshot>>;
