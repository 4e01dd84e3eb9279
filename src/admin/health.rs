//! Probes. Liveness says that this runtime answers, and never looks at engines: a restart would not heal them.

use std::borrow::Cow;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;

use super::AdminState;

/// Whether the front door should be given traffic, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    pub ready: bool,
    /// The shutdown phase's word; the first one while nothing is shutting down.
    pub phase: &'static str,
    /// Checks that have not passed.
    pub awaiting: Vec<Cow<'static, str>>,
    /// Checks that have; shown by `?verbose`.
    pub passed: Vec<Cow<'static, str>>,
}

pub(super) async fn live() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(state): State<AdminState>, RawQuery(query): RawQuery) -> impl IntoResponse {
    let readiness = (state.readiness)();
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let verbose =
        query.is_some_and(|q| q.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose=")));
    (status, text(&readiness, verbose))
}

/// `ok`, or `not ready` with the phase and what is awaited; with `verbose` one line per check, as Kubernetes
/// components write them.
fn text(readiness: &Readiness, verbose: bool) -> String {
    let mut out = String::new();
    let mut line = |parts: &[&str]| {
        out.extend(parts.iter().copied());
        out.push('\n');
    };
    if verbose {
        readiness.passed.iter().for_each(|check| line(&["[+]", check, " ok"]));
        readiness.awaiting.iter().for_each(|check| line(&["[-]", check, " awaited"]));
    }
    line(&[if readiness.ready { "ok" } else { "not ready" }]);
    if verbose || !readiness.ready {
        line(&["phase: ", readiness.phase]);
    }
    if !readiness.ready && !readiness.awaiting.is_empty() {
        line(&["awaiting: ", &readiness.awaiting.join(", ")]);
    }
    out
}
