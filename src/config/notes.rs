//! What is allowed and perhaps not meant: said by `tandem check` and once at the start of the router.

use super::discovery::Mode;
use super::router::{EngineKind, RouterConfig, Service};
use crate::types::role::Role;

/// One line each; none for most configurations.
pub fn notes(config: &RouterConfig) -> Vec<String> {
    let of_service = |(i, service)| [only_mixed(i, service), forgotten(i, service, config)];
    config.services.iter().enumerate().flat_map(of_service).flatten().collect()
}

/// What Pods will be is known later only.
fn only_mixed(i: usize, service: &Service) -> Option<String> {
    let kind = service.engine.as_str();
    let listed = service.engine != EngineKind::Plain && service.pods.is_none();
    (listed && !service.has_pairs()).then(|| {
        format!(
            "services[{i}] ({}): engine.kind is {kind} and every endpoint is mixed: each serves whole requests \
             alone, none is split into prefill and decode",
            service.name
        )
    })
}

fn forgotten(i: usize, service: &Service, config: &RouterConfig) -> Option<String> {
    let dialect = service.pods.as_ref().filter(|_| config.state_file.is_none())?.dialect;
    let observed = |role| service.eligibility.mode_of(role, dialect) == Mode::Observed;
    let roles: Vec<_> = service.roles().filter(|role| observed(*role)).map(Role::as_str).collect();
    (!roles.is_empty()).then(|| {
        format!(
            "services[{i}] ({}): eligibility of {} is observed and there is no state_file: after a restart Pods \
             without the mark take requests again, until the fleet is seen to carry it",
            service.name,
            roles.join(" and ")
        )
    })
}
