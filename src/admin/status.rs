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
    /// The role without which it answers 503 now.
    pub lacks: Option<String>,
    pub roles: Vec<RoleStatus>,
}

/// Its endpoints of one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleStatus {
    pub role: Cow<'static, str>,
    pub selectable: u64,
    pub total: u64,
    /// Those of the selectable ones that are put last after failures.
    pub ejected: u64,
    /// Requests they carry.
    pub in_flight: u64,
    /// KV that they keep for decodes to pull.
    pub handoffs: u64,
}

pub(super) async fn status(State(state): State<AdminState>) -> Json<RouterStatus> {
    Json((state.status)())
}
