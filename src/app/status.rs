//! What `GET /status` says.

use std::borrow::Cow;

use crate::admin::{Readiness, RoleStatus, RouterStatus, ServiceStatus};
use crate::proxy::context::Shared;
use crate::registry::{Role, Service};
use crate::types::build as facts;
use crate::types::clock::{self, Instant};

/// `since`: when the process began to serve.
pub(super) fn status(shared: &Shared, readiness: &Readiness, since: Instant) -> RouterStatus {
    let count = |gauge: i64| u64::try_from(gauge).unwrap_or(0);
    let metrics = &shared.metrics.router;
    let snapshot = shared.view.load();
    RouterStatus {
        version: facts::VERSION.to_owned(),
        revision: facts::REVISION.to_owned(),
        phase: readiness.phase.to_owned(),
        ready: readiness.ready,
        awaiting: readiness.awaiting.iter().map(ToString::to_string).collect(),
        uptime_s: clock::now().saturating_duration_since(since).as_secs(),
        in_flight: count(metrics.in_flight.get()),
        connections: count(metrics.connections.get()),
        config_ok: metrics.config_ok(),
        restart_needed: count(metrics.restart_needed.get()),
        snapshot: snapshot.version,
        services: snapshot.services.iter().map(|s| service(s)).collect(),
    }
}

fn service(service: &Service) -> ServiceStatus {
    let roles = Role::ALL.into_iter().filter(|role| !service.of(*role).is_empty());
    ServiceStatus {
        name: service.config.name.clone(),
        engine: service.config.engine.as_str().to_owned(),
        models: service.config.models.clone(),
        lacks: service.lacks().map(|role| role.as_str().to_owned()),
        roles: roles.map(|role| of_role(service, role)).collect(),
    }
}

fn of_role(service: &Service, role: Role) -> RoleStatus {
    let all = service.of(role);
    RoleStatus {
        role: Cow::Borrowed(role.as_str()),
        selectable: all.iter().filter(|e| e.is_selectable()).count() as u64,
        total: all.len() as u64,
        ejected: all.iter().filter(|e| e.is_selectable() && e.ejection.is_ejected()).count() as u64,
        in_flight: all.iter().map(|e| e.holds()).sum(),
        handoffs: all.iter().map(|e| e.handoffs.count()).sum(),
    }
}
