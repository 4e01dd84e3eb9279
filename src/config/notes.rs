//! What is allowed and perhaps not meant: said by `tandem check` and once at the start of the router.

use super::router::{EngineKind, RouterConfig, Service};

/// One line each; none for most configurations.
pub fn notes(config: &RouterConfig) -> Vec<String> {
    config.services.iter().enumerate().filter_map(|(i, service)| only_mixed(i, service)).collect()
}

fn only_mixed(i: usize, service: &Service) -> Option<String> {
    let kind = service.engine.as_str();
    (service.engine != EngineKind::Plain && !service.has_pairs()).then(|| {
        format!(
            "services[{i}] ({}): engine.kind is {kind} and every endpoint is mixed: each serves whole requests \
             alone, none is split into prefill and decode",
            service.name
        )
    })
}
