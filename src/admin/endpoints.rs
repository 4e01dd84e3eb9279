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

/// One endpoint as `GET /endpoints` shows it (I14).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Put last for a while after failures.
    pub ejected: bool,
    /// Taken out by `PUT …/drain`.
    pub draining: bool,
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
    /// Every endpoint, sorted as it should be shown. Reading changes nothing.
    fn list(&self) -> Vec<EndpointStatus>;

    /// Withdraws the endpoint (`true`) or ends that (`false`), and is over once no new request can be decided otherwise.
    fn set_drain<'a>(
        &'a self,
        id: &'a str,
        drain: bool,
    ) -> Pin<Box<dyn Future<Output = DrainChange> + Send + 'a>>;
}

pub(super) async fn list(State(state): State<AdminState>) -> Json<serde_json::Value> {
    Json(json!({"endpoints": state.endpoints.list()}))
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
