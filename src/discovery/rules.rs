//! The rules of one service for Pods, worked out from the configuration once.

use crate::config::{self, Dialect, EngineKind, Keys, Mode, PodDiscovery, Service};
use crate::types::role::Role;

/// What decides on a Pod for one service.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Position of the service.
    pub service: usize,
    pub name: String,
    pub engine: EngineKind,
    pub models: Vec<String>,
    pub pods: PodDiscovery,
    /// By the order of [`Role::ALL`].
    modes: [Mode; 3],
    pub fail_static: bool,
}

impl Rules {
    /// `None`: the service has no Pods.
    pub fn of(index: usize, service: &Service) -> Option<Self> {
        let pods = service.pods.clone()?;
        let modes = Role::ALL.map(|role| service.eligibility.mode_of(role, pods.dialect));
        Some(Self {
            service: index,
            name: service.name.clone(),
            engine: service.engine,
            models: service.models.clone(),
            pods,
            modes,
            fail_static: service.eligibility.fail_static,
        })
    }

    pub fn keys(&self) -> &Keys {
        &self.pods.keys
    }

    pub fn mode(&self, role: Role) -> Mode {
        self.modes[role as usize]
    }

    /// Roles whose mark is required once the fleet carries it.
    pub fn observed(&self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(|role| self.mode(*role) == Mode::Observed)
    }

    /// Annotations that the rules read.
    pub fn annotations(&self) -> impl Iterator<Item = &String> {
        let Keys {
            eligible, role, model, revision, token, ports, bootstrap_port, drain, worker_info, ..
        } = self.keys();
        let plain = [role, model, revision, token, ports, bootstrap_port, drain, worker_info];
        plain.into_iter().flatten().chain(eligible.as_ref().map(|eligible| &eligible.key))
    }

    /// The role that a label value means here. A plain service has whole engines only; OME calls those `engine` too.
    pub fn role_of_value(&self, value: &str) -> Option<Role> {
        let config::RoleValues { prefill, decode, mixed } = &self.keys().role_values;
        let has = |list: &[String]| list.iter().any(|word| word == value);
        let plain = self.engine == EngineKind::Plain;
        match () {
            () if has(mixed) => Some(Role::Mixed),
            () if plain && self.pods.dialect == Dialect::Ome && has(prefill) => Some(Role::Mixed),
            () if plain => None,
            () if has(prefill) => Some(Role::Prefill),
            () if has(decode) => Some(Role::Decode),
            () => None,
        }
    }
}
