//! The operator's view of endpoints, and taking one out by hand.

use std::borrow::Cow;
use std::pin::Pin;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::auth::Actor;
use super::{AdminState, answer};
use crate::telemetry::AUDIT;
use crate::types::drain_order::{self, DrainOrder};

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

    /// Withdraws the endpoint, as ordered now instead of before, or ends that (`None`), and is over once no new request can be
    /// decided otherwise.
    fn order<'a>(&'a self, id: &'a str, order: Option<DrainOrder>) -> Ordering<'a>;

    /// The same, with nothing said of why or until when.
    fn set_drain<'a>(&'a self, id: &'a str, drain: bool) -> Ordering<'a> {
        self.order(id, drain.then(DrainOrder::default))
    }
}

/// An order on its way.
pub type Ordering<'a> = Pin<Box<dyn Future<Output = DrainChange> + Send + 'a>>;

/// The parameters of an order.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    reason: Option<String>,
    deadline: Option<String>,
    force: Option<String>,
}

impl Wanted {
    /// Strict: an order that forces cuts requests, so nothing of it is guessed.
    fn order(self) -> Result<DrainOrder, String> {
        let reason = self.reason.unwrap_or_default();
        if reason.chars().count() > drain_order::REASON || reason.chars().any(char::is_control) {
            return Err(format!(
                "reason: at most {} characters, none of them for control",
                drain_order::REASON
            ));
        }
        let deadline = self.deadline.as_deref().map(|text| {
            let example = "deadline: a time such as 2026-12-01T10:30:00Z (RFC 3339, a + written as %2B)";
            drain_order::instant(text).ok_or_else(|| example.to_owned())
        });
        let deadline_ms = deadline.transpose()?;
        let force = match self.force.as_deref() {
            None | Some("false") => false,
            Some("true") if deadline_ms.is_none() => return Err("force: needs a deadline".to_owned()),
            Some("true") => true,
            Some(_) => return Err("force: true or false".to_owned()),
        };
        Ok(DrainOrder { reason, deadline_ms, force })
    }
}

pub(super) async fn list(State(state): State<AdminState>) -> Json<Fleet> {
    Json(state.endpoints.list())
}

pub(super) async fn drain(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Response {
    let order = wanted.map_err(|why| why.body_text()).and_then(|Query(wanted)| wanted.order());
    match order {
        Ok(order) => set(&state, actor, &id, Some(order)).await,
        Err(why) => answer::bad("bad_query", &why),
    }
}

pub(super) async fn undrain(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Response {
    set(&state, actor, &id, None).await
}

async fn set(state: &AdminState, actor: Actor, id: &str, order: Option<DrainOrder>) -> Response {
    let change = state.endpoints.order(id, order.clone()).await;
    match change {
        DrainChange::Changed | DrainChange::Unchanged => {
            let changed = change == DrainChange::Changed;
            let draining = order.is_some();
            audit(actor, id, order.as_ref(), changed);
            Json(json!({"id": id, "draining": draining, "changed": changed, "volatile": true}))
                .into_response()
        }
        DrainChange::Unknown => answer::error(
            StatusCode::NOT_FOUND,
            "not_found_error",
            "unknown_endpoint",
            "no endpoint has this id",
        ),
        DrainChange::Unavailable => answer::ending(),
    }
}

/// The id is one of ours here, so it is neither long nor forged; `?` quotes it, and the reason, all the same.
fn audit(Actor { by, peer }: Actor, id: &str, order: Option<&DrainOrder>, changed: bool) {
    let Some(DrainOrder { reason, deadline_ms, force }) = order else {
        tracing::info!(target: AUDIT, action = "endpoint.undrain", endpoint = ?id, changed, by, peer = ?peer);
        return;
    };
    // What was not said is not told.
    let reason = (!reason.is_empty()).then(|| tracing::field::debug(reason));
    let deadline = deadline_ms.map(drain_order::rfc3339);
    let force = force.then_some(true);
    tracing::info!(
        target: AUDIT, action = "endpoint.drain", endpoint = ?id, changed, reason, deadline, force, by, peer = ?peer
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orders_parameters_are_strict_and_named_when_wrong() {
        let read = |query: &str| {
            let uri = format!("/?{query}").parse().unwrap();
            let wanted: Result<Query<Wanted>, _> = Query::try_from_uri(&uri);
            wanted.map_err(|why| why.body_text()).and_then(|Query(wanted)| wanted.order())
        };
        assert_eq!(read(""), Ok(DrainOrder::default()));
        let order = read("reason=new+disk&deadline=2026-12-01T11:30:00%2B01:00&force=true").unwrap();
        assert_eq!(order.to_string(), "new disk; deadline=2026-12-01T10:30:00Z; force");
        assert!(!read("deadline=2026-12-01T10:30:00Z&force=false").unwrap().force);
        let long = format!("reason={}", "x".repeat(201));
        for (query, named) in [
            ("until=x", "until"),
            ("force=true", "force"),
            ("force=yes&deadline=2026-12-01T10:30:00Z", "force"),
            ("force=", "force"),
            ("deadline=tomorrow", "deadline"),
            ("deadline=2026-12-01T11:30:00+01:00", "deadline"),
            ("deadline=", "deadline"),
            ("force=false&force=true", "force"),
            ("reason=a%0Ab", "reason"),
            (&long, "reason"),
        ] {
            let why = read(query).unwrap_err();
            assert!(why.contains(named), "{query}: {why}");
        }
    }
}
