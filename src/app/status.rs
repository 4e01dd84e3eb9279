//! What `GET /status` says.

use std::borrow::Cow;
use std::sync::Arc;

use crate::admin::{DiscoveryStatus, Readiness, RoleStatus, RouterStatus, ServiceStatus};
use crate::proxy::context::Shared;
use crate::registry::{Endpoint, Role, Service, Snapshot, Synced};
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
        services: snapshot.services.iter().map(|s| service(s, &snapshot)).collect(),
    }
}

fn service(service: &Service, snapshot: &Snapshot) -> ServiceStatus {
    let roles = Role::ALL.into_iter().map(|role| of_role(service, snapshot, role));
    ServiceStatus {
        name: service.config.name.clone(),
        engine: service.config.engine.as_str().to_owned(),
        models: service.config.models.clone(),
        discovery: discovery(service.sync.now()),
        lacks: service.lacks().map(|role| role.as_str().to_owned()),
        roles: roles.filter(|role| role.total > 0 || role.in_flight > 0 || role.handoffs > 0).collect(),
    }
}

fn discovery(sync: Synced) -> DiscoveryStatus {
    let (state, status) = match sync {
        Synced::Waiting => ("waiting", None),
        Synced::Listed => ("listed", None),
        Synced::Ready => ("ready", None),
        Synced::Refused(status) => ("refused", Some(status)),
    };
    DiscoveryStatus { state: Cow::Borrowed(state), status }
}

/// What has left is counted by what it still carries.
fn of_role(service: &Service, snapshot: &Snapshot, role: Role) -> RoleStatus {
    let all = service.of(role);
    let left = snapshot.departed.iter().filter(|gone| gone.service == service.index);
    let left = left.map(|gone| &gone.endpoint).filter(|e| e.role == role);
    let carrying: Vec<&Arc<Endpoint>> = all.iter().chain(left).collect();
    RoleStatus {
        role: Cow::Borrowed(role.as_str()),
        selectable: all.iter().filter(|e| e.is_selectable()).count() as u64,
        total: all.len() as u64,
        ejected: all.iter().filter(|e| e.is_selectable() && e.ejection.is_ejected()).count() as u64,
        in_flight: carrying.iter().map(|e| e.holds()).sum(),
        handoffs: carrying.iter().map(|e| e.handoffs.count()).sum(),
    }
}
