//! Splits and cohorts: what is in force, what was observed, and another split by hand (`docs/canary.md`).

use std::collections::BTreeMap;
use std::pin::Pin;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::auth::Actor;
use super::{AdminState, answer};
use crate::config::{SplitEntry, mistakes};
use crate::telemetry::AUDIT;

/// `GET /observer/split`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitView {
    pub schema: u32,
    pub services: Vec<ServiceSplit>,
}

/// One service's split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceSplit {
    pub service: String,
    /// Grows with each split that is applied; 0: none was.
    pub version: u64,
    /// `file`, `admin`, `ome`, or `none`: cohorts are weighted by what they can carry.
    pub source: String,
    /// The rollout object that has its weights, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutView>,
    /// This router's alone, and forgotten at its restart.
    pub volatile: bool,
    pub cohorts: Vec<CohortShare>,
}

/// A rollout object, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutView {
    /// `namespace/name`; without a namespace the router's own.
    pub object: String,
    /// Its `resourceVersion` when its weights were followed last; 0: never.
    pub version: u64,
    /// It was read, or is known not to be there.
    pub known: bool,
    /// Why its newest word is not followed.
    pub problem: Option<String>,
}

/// A cohort's weight, and what it got.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CohortShare {
    pub cohort: String,
    pub weight: u64,
    /// 0 to 1; of weights that are all 0, 0.
    pub target_share: f64,
    /// Shares of the requests over the last minute, five minutes, and since this split; `null`: there were none.
    pub share_1m: Option<f64>,
    pub share_5m: Option<f64>,
    pub share_since_version: Option<f64>,
    pub requests_since_version: u64,
    /// Can take a request now.
    pub covered: bool,
    /// Why not: `no_endpoint`, `no_prefill`, `no_decode` or `no_pair`.
    pub lacks: Option<String>,
    /// Requests that fell to it and went to another, by why.
    pub passed_on: BTreeMap<String, u64>,
    /// The split's own entry, as `PUT /split` takes it back; `null` without a split.
    #[serde(default)]
    pub entry: Option<SplitEntry>,
}

/// `GET /observer/cohorts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CohortView {
    pub schema: u32,
    pub registry_version: u64,
    pub services: Vec<ServiceCohorts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCohorts {
    pub service: String,
    pub cohorts: Vec<CohortMembers>,
}

/// Who serves together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CohortMembers {
    pub cohort: String,
    pub prefill: Members,
    pub decode: Members,
    pub mixed: Members,
    pub tokens: Vec<TokenPairs>,
}

/// Endpoints of one role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    pub selectable: u64,
    pub total: u64,
    pub revisions: Vec<String>,
}

/// Selectable endpoints of one pairing token; an empty one pairs with each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenPairs {
    pub token: String,
    pub prefill: u64,
    pub decode: u64,
    /// Prefills and decodes that may serve together, those without a token included.
    pub pairs: u64,
}

/// `PUT /split`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    service: String,
    weights: Vec<SplitEntry>,
    /// Only over this version.
    #[serde(default)]
    expected_version: Option<u64>,
}

/// `DELETE /split`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    service: String,
}

/// What an order came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitChange {
    /// In force with this version.
    Applied(u64),
    /// This version is in force, and not the expected one.
    Conflict(u64),
    UnknownService,
    Unavailable,
}

/// The registry, as far as splits reach it.
pub trait SplitControl: Send + Sync {
    fn split(&self) -> SplitView;

    fn cohorts(&self) -> CohortView;

    /// Another split, or with `None` the file's again; over once new requests are decided by it.
    fn set_split<'a>(
        &'a self,
        service: &'a str,
        entries: Option<Vec<SplitEntry>>,
        expected: Option<u64>,
    ) -> Pin<Box<dyn Future<Output = SplitChange> + Send + 'a>>;
}

pub(super) async fn split(State(state): State<AdminState>) -> Json<SplitView> {
    Json(state.splits.split())
}

pub(super) async fn cohorts(State(state): State<AdminState>) -> Json<CohortView> {
    Json(state.splits.cohorts())
}

pub(super) async fn put(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    wanted: Result<Json<Wanted>, JsonRejection>,
) -> Response {
    let wanted = match wanted {
        Ok(Json(wanted)) => wanted,
        Err(why) => return wrong(&why.body_text()),
    };
    let mut bad: Vec<String> = mistakes(&wanted.weights).iter().map(said).collect();
    if wanted.weights.is_empty() {
        bad.push("weights: at least one entry is needed".to_owned());
    }
    if !bad.is_empty() {
        return wrong(&bad.join("; "));
    }
    let Wanted { service, weights, expected_version } = wanted;
    set(&state, actor, &service, Some(weights), expected_version).await
}

pub(super) async fn delete(
    State(state): State<AdminState>,
    Extension(actor): Extension<Actor>,
    named: Result<Query<Named>, QueryRejection>,
) -> Response {
    match named {
        Ok(Query(Named { service })) => set(&state, actor, &service, None, None).await,
        Err(why) => wrong(&why.body_text()),
    }
}

fn said((n, key, what): &(usize, &'static str, String)) -> String {
    let dot = if key.is_empty() { "" } else { "." };
    format!("weights[{n}]{dot}{key}: {what}")
}

async fn set(
    state: &AdminState,
    actor: Actor,
    service: &str,
    entries: Option<Vec<SplitEntry>>,
    expected: Option<u64>,
) -> Response {
    let action = if entries.is_some() { "split.set" } else { "split.reset" };
    let weights = entries.as_ref().map(|entries| {
        let each = entries.iter().map(|entry| format!("{}={}", entry.name(), entry.weight));
        each.collect::<Vec<_>>().join(",")
    });
    match state.splits.set_split(service, entries, expected).await {
        SplitChange::Applied(version) => {
            let weights = weights.unwrap_or_default();
            tracing::info!(target: AUDIT, action, ?service, version, ?weights, by = actor.by, peer = ?actor.peer);
            Json(json!({"service": service, "version": version, "volatile": action == "split.set"}))
                .into_response()
        }
        SplitChange::Conflict(version) => {
            let message =
                format!("version {version} is in force, not the expected one; read /observer/split again");
            answer::error(StatusCode::CONFLICT, "invalid_request_error", "split_version_conflict", &message)
        }
        SplitChange::UnknownService => {
            let message = "no service has this name";
            answer::error(StatusCode::NOT_FOUND, "not_found_error", "unknown_service", message)
        }
        SplitChange::Unavailable => answer::ending(),
    }
}

fn wrong(why: &str) -> Response {
    answer::bad("bad_split", why)
}
