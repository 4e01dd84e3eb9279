//! `GET /observer/inflight`: what a drain protocol reads (`docs/drain.md`).

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::{AdminState, answer};
use crate::registry::Reporter;
use crate::registry::report::Filter;

/// Most answers that wait at one time (I12).
pub(super) const MOST_WAITS: usize = 64;
/// Longest wait.
const LONGEST: Duration = Duration::from_mins(5);
/// How often a waiting answer looks: reading costs the request path nothing, and a drain takes seconds.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    uid: Option<String>,
    namespace: Option<String>,
    pod: Option<String>,
    service: Option<String>,
    url: Option<String>,
    wait: Option<String>,
    until: Option<String>,
}

pub(super) async fn report(
    State(state): State<AdminState>,
    asked: Result<Query<Asked>, QueryRejection>,
    waits: Arc<Semaphore>,
) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(why) => return wrong(&why.body_text()),
    };
    let wait = match asked.wait() {
        Ok(wait) => wait,
        Err(why) => return wrong(why),
    };
    let filter = match asked.filter() {
        Ok(filter) => filter,
        Err(why) => return wrong(&why),
    };
    if let Some(wait) = wait {
        let Ok(_place) = waits.try_acquire() else { return busy() };
        // Whichever way it ends: the report says what is so then.
        let _ = timeout(wait, quiesced(&state.reporter, &filter)).await;
    }
    Json(state.reporter.report(&filter)).into_response()
}

async fn quiesced(reporter: &Reporter, filter: &Filter) {
    while !reporter.is_quiesced(filter) {
        sleep(LOOK).await;
    }
}

impl Asked {
    fn wait(&self) -> Result<Option<Duration>, &'static str> {
        match (self.wait.as_deref(), self.until.as_deref()) {
            (None, None) => Ok(None),
            (Some(wait), Some("quiesced")) => {
                let wait = crate::config::duration(wait).ok().filter(|wait| *wait <= LONGEST);
                wait.map(Some).ok_or("wait: a time such as 30s, at most 5m")
            }
            (_, Some(_)) => Err("until: only quiesced, together with wait"),
            (Some(_), None) => Err("wait: needs until=quiesced"),
        }
    }

    /// An empty value would be taken for "all" by one side and for "none" by the other (GPU-55).
    fn filter(self) -> Result<Filter, String> {
        let Self { uid, namespace, pod, service, url, .. } = self;
        let all =
            [("uid", &uid), ("namespace", &namespace), ("pod", &pod), ("service", &service), ("url", &url)];
        let empty = all.iter().find(|(_, value)| value.as_ref().is_some_and(String::is_empty));
        match empty.map(|(name, _)| format!("{name}: it is empty")) {
            Some(why) => Err(why),
            None => Ok(Filter { uid, namespace, pod, service, url }),
        }
    }
}

fn wrong(why: &str) -> Response {
    answer::error(StatusCode::BAD_REQUEST, "invalid_request_error", "bad_query", why)
}

fn busy() -> Response {
    let message = "too many answers wait already; ask without wait";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    ([(RETRY_AFTER, "1")], answer::error(status, "service_unavailable", "too_many_waits", message))
        .into_response()
}
