//! The admin listener: probes, metrics and operator routes, on a port and a runtime of their own, so that no scrape can
//! slow traffic down and no traffic can starve a probe.
//!
//! Reads are open. What changes something needs [`auth`] (I11), is reached by `PUT` or `DELETE` only (a web page cannot
//! send those to another site), and leaves one audit line. `docs/admin-api.md` has each route; a test compares.

mod answer;
pub mod auth;
mod endpoints;
mod health;
mod inflight;
mod observer;
mod split;
mod status;

pub use auth::AdminToken;
pub use endpoints::{DrainChange, EndpointControl, EndpointStatus, Fleet, LaneStatus, Ordering, PodStatus};
pub use health::Readiness;
pub use split::{
    CohortMembers, CohortShare, CohortView, Members, RolloutView, ServiceCohorts, ServiceSplit, SplitChange,
    SplitControl, SplitView, TokenPairs,
};
pub use status::{DiscoveryStatus, RoleStatus, RouterStatus, ServiceStatus};

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, put};
use tokio::sync::Semaphore;

use crate::metrics::{self, Metrics};
use crate::registry::{Reporter, Unobservable};

/// What the routes show and change. Everything is owned elsewhere.
#[derive(Clone)]
pub struct AdminState {
    /// Asked at every `/readyz`; cheap.
    pub readiness: Arc<dyn Fn() -> Readiness + Send + Sync>,
    /// Asked at every `/status`.
    pub status: Arc<dyn Fn() -> RouterStatus + Send + Sync>,
    pub endpoints: Arc<dyn EndpointControl>,
    pub splits: Arc<dyn SplitControl>,
    /// Asked at every `/observer/endpoints`.
    pub observe: Arc<dyn Fn() -> Result<Vec<u8>, Unobservable> + Send + Sync>,
    /// Asked at every `/observer/inflight`.
    pub reporter: Arc<Reporter>,
    /// Brings gauges that are read from state up to date; called before each scrape.
    pub refresh: Arc<dyn Fn() + Send + Sync>,
    /// The configuration in force as YAML. Paths of secret files, never their content.
    pub config_text: Arc<ArcSwap<String>>,
    pub metrics: Arc<Metrics>,
    pub token: Arc<AdminToken>,
}

impl fmt::Debug for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminState").field("token", &self.token).finish_non_exhaustive()
    }
}

/// All routes. Serve it with `into_make_service_with_connect_info::<SocketAddr>()`: without a known peer, what changes
/// something is refused unless a token is configured.
pub fn routes(state: AdminState) -> Router {
    let drain = put(endpoints::drain)
        .delete(endpoints::undrain)
        .route_layer(axum::middleware::from_fn_with_state(Arc::clone(&state.token), auth::require));
    let splits = put(split::put)
        .delete(split::delete)
        .route_layer(axum::middleware::from_fn_with_state(Arc::clone(&state.token), auth::require));
    // One at a time: each rendering of a large fleet is tens of megabytes for a moment (I12).
    let turns = Arc::new(Semaphore::new(1));
    let waits = Arc::new(Semaphore::new(inflight::MOST_WAITS));
    Router::new()
        .route("/livez", get(health::live))
        .route("/healthz", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(main_metrics))
        .route("/metrics/endpoints", get(move |state| endpoint_metrics(state, turns)))
        .route("/status", get(status::status))
        .route("/endpoints", get(endpoints::list))
        .route("/observer/endpoints", get(observer::endpoints))
        .route("/observer/inflight", get(move |state, query| inflight::report(state, query, waits)))
        .route("/observer/split", get(split::split))
        .route("/observer/cohorts", get(split::cohorts))
        .route("/endpoints/{id}/drain", drain)
        .route("/split", splits)
        .route("/config", get(config_text))
        .fallback(answer::unknown_path)
        .method_not_allowed_fallback(answer::wrong_method)
        .with_state(state)
}

async fn main_metrics(State(state): State<AdminState>) -> impl IntoResponse {
    (state.refresh)();
    ([(CONTENT_TYPE, metrics::TEXT_FORMAT)], state.metrics.render())
}

/// Rendered beside the runtime: with thousands of endpoints it takes longer than a probe should wait.
async fn endpoint_metrics(State(state): State<AdminState>, turns: Arc<Semaphore>) -> impl IntoResponse {
    let turn = turns.acquire_owned().await;
    let rendered = tokio::task::spawn_blocking(move || {
        (state.refresh)();
        let text = state.metrics.render_endpoints();
        drop(turn);
        text
    });
    match rendered.await {
        Ok(text) => ([(CONTENT_TYPE, metrics::TEXT_FORMAT)], text).into_response(),
        Err(_) => answer::internal("the scrape could not be rendered"),
    }
}

async fn config_text(State(state): State<AdminState>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/yaml")], state.config_text.load().to_string())
}

#[cfg(test)]
mod tests;
