//! The operator's view of endpoints, and taking one out by hand.

use std::borrow::Cow;
use std::pin::Pin;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::auth::Actor;
use super::{AdminState, answer};
use crate::telemetry::AUDIT;

/// `GET /endpoints`: everything that is known, and why each gets no requests (I14).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// Version of the snapshot that requests are decided on.
    #[serde(default)]
    pub snapshot: u64,
    pub endpoints: Vec<EndpointStatus>,
    /// Known Pods that give no endpoint.
    #[serde(default)]
    pub pods: Vec<PodStatus>,
}

/// A Pod that gives no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStatus {
    pub service: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub reason: Cow<'static, str>,
    pub detail: Option<String>,
    /// For so long, seconds.
    pub since_s: u64,
}

/// The lane of an endpoint's URL: what its engine is being asked before its first request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneStatus {
    pub busy: bool,
    pub waiting: usize,
}

/// One endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "a document's fields, each a fact of its own")]
pub struct EndpointStatus {
    /// What the `drain` route takes; percent-encoded there if need be.
    pub id: String,
    /// Name of its service.
    pub service: String,
    pub url: String,
    pub role: Cow<'static, str>,
    /// Whether the request path would give it a new request now.
    pub selectable: bool,
    /// Why not, when it is not.
    pub reason: Option<Cow<'static, str>>,
    pub in_flight: u64,
    /// KV that it keeps for decodes to pull.
    pub handoffs: u64,
    /// Put last for a while after failures.
    pub ejected: bool,
    /// Taken out by `PUT …/drain`.
    pub draining: bool,
    /// Left every list: takes no orders, and is shown until its last request is over and for 15 s.
    #[serde(default)]
    pub gone: bool,
    /// More of the reason, in words.
    #[serde(default)]
    pub detail: Option<String>,
    /// Since the reason changed last, seconds.
    #[serde(default)]
    pub since_s: u64,
    /// `namespace/name` of its Pod.
    #[serde(default)]
    pub pod: Option<String>,
    #[serde(default)]
    pub pod_uid: Option<String>,
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub revision: Option<String>,
    #[serde(default)]
    pub pairing_token: Option<String>,
    #[serde(default)]
    pub lane: LaneStatus,
}

/// What a drain order did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainChange {
    Changed,
    /// It was so before.
    Unchanged,
    /// No endpoint has this id.
    Unknown,
    /// The owner of the endpoints takes no orders any more: the process is ending.
    Unavailable,
}

/// The registry, as far as operators reach it.
pub trait EndpointControl: Send + Sync {
    /// Everything known, sorted as it should be shown. Reading changes nothing.
    fn list(&self) -> Fleet;

    /// Withdraws the endpoint (`true`) or ends that (`false`), and is over once no new request can be decided otherwise.
    fn set_drain<'a>(
        &'a self,
        id: &'a str,
        drain: bool,
    ) -> Pin<Box<dyn Future<Output = DrainChange> + Send + 'a>>;
}

pub(super) async fn list(State(state): State<AdminState>) -> Json<Fleet> {
    Json(state.endpoints.list())
}

pub(super) async fn drain(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Response {
    set(&state, actor, &id, true).await
}

pub(super) async fn undrain(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Response {
    set(&state, actor, &id, false).await
}

async fn set(state: &AdminState, actor: Actor, id: &str, draining: bool) -> Response {
    let change = state.endpoints.set_drain(id, draining).await;
    match change {
        DrainChange::Changed | DrainChange::Unchanged => {
            let changed = change == DrainChange::Changed;
            let action = if draining { "endpoint.drain" } else { "endpoint.undrain" };
            // The id is one of ours here, so it is neither long nor forged; `?` quotes it all the same.
            tracing::info!(target: AUDIT, action, endpoint = ?id, changed, by = actor.by, peer = ?actor.peer);
            Json(json!({"id": id, "draining": draining, "changed": changed})).into_response()
        }
        DrainChange::Unknown => answer::error(
            StatusCode::NOT_FOUND,
            "not_found_error",
            "unknown_endpoint",
            "no endpoint has this id",
        ),
        DrainChange::Unavailable => {
            let message = "the process is ending and takes no changes";
            answer::error(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", "shutting_down", message)
        }
    }
}
