//! How the router is, in one document.

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::AdminState;

/// `GET /status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterStatus {
    pub version: String,
    pub revision: String,
    /// Word of the shutdown phase.
    pub phase: String,
    pub ready: bool,
    /// What readiness waits for.
    pub awaiting: Vec<String>,
    pub uptime_s: u64,
    /// Requests whose answer has not ended.
    pub in_flight: u64,
    /// Client connections.
    pub connections: u64,
    /// Whether the configuration file was good when it was last read.
    pub config_ok: bool,
    /// Keys of it whose new values wait for a restart.
    pub restart_needed: u64,
    /// Version of the snapshot that requests are decided on.
    pub snapshot: u64,
    pub services: Vec<ServiceStatus>,
}

/// One service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    pub name: String,
    /// `plain`, `sglang` or `vllm`.
    pub engine: String,
    /// Names it answers to; none: any.
    pub models: Vec<String>,
    /// Whether its endpoints are known.
    pub discovery: DiscoveryStatus,
    /// The role without which it answers 503 now.
    pub lacks: Option<String>,
    pub roles: Vec<RoleStatus>,
}

/// How far a service's source has come; listed endpoints are ready from the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryStatus {
    /// `waiting` for a first complete list, `listed` but engines have to answer first, `ready`, or `refused` by the source.
    pub state: Cow<'static, str>,
    /// What it refuses with: 401, 403 or 404.
    pub status: Option<u16>,
}

/// Its endpoints of one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleStatus {
    pub role: Cow<'static, str>,
    pub selectable: u64,
    /// Without those that have left.
    pub total: u64,
    /// Those of the selectable ones that are put last after failures.
    pub ejected: u64,
    /// Requests they carry, those that have left included.
    pub in_flight: u64,
    /// KV that they keep for decodes to pull, likewise.
    pub handoffs: u64,
}

pub(super) async fn status(State(state): State<AdminState>) -> Json<RouterStatus> {
    Json((state.status)())
}
