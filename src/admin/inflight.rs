//! `GET /observer/inflight`: what a drain protocol reads (`docs/drain.md`).

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
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

#[derive(Debug, Default, Deserialize)]
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
    match asked {
        Ok(Query(asked)) => told(&state.reporter, asked, &waits).await,
        Err(why) => wrong(&why.body_text()),
    }
}

async fn told(reporter: &Reporter, asked: Asked, waits: &Semaphore) -> Response {
    let wait = match asked.wait() {
        Ok(wait) => wait,
        Err(why) => return wrong(why),
    };
    let filter = match asked.filter() {
        Ok(filter) => filter,
        Err(why) => return wrong(&why),
    };
    if let Some(wait) = wait {
        let Ok(_place) = waits.try_acquire() else {
            return answer::later("too_many_waits", "too many answers wait already; ask without wait");
        };
        // Whichever way it ends: the report says what is so then.
        let _ = timeout(wait, quiesced(reporter, &filter)).await;
    }
    Json(reporter.report(&filter)).into_response()
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
    answer::bad("bad_query", why)
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::config::{Service, StaticEndpoint};
    use crate::ledger::Hold;
    use crate::metrics::{Metrics, Vocabulary};
    use crate::registry::{Change, Writer};
    use crate::types::boot::Boot;
    use crate::types::clock::now;
    use crate::types::drain_order::DrainOrder;

    fn asked(wait: &str) -> Asked {
        let (wait, until) = (Some(wait.to_owned()), Some("quiesced".to_owned()));
        Asked { url: Some("http://e:1".to_owned()), wait, until, ..Asked::default() }
    }

    /// Neither before everything is over nor long after it, and never longer than was asked for.
    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "a test has no tracker")]
    async fn an_answer_waits_for_rest_and_no_longer_than_it_was_asked_to() {
        let words = Vocabulary { routes: &[], error_codes: &[], retry_reasons: &[], phases: &[] };
        let metrics = Metrics::new(&words).unwrap();
        let service = Service::plain("s", vec![StaticEndpoint::parse("http://e:1").unwrap()]);
        let (writer, view, changes) = Writer::new(&[service], 1, &metrics.endpoints);
        tokio::spawn(writer.run());
        let endpoint = Arc::clone(&view.load().services[0].endpoints[0]);
        let reporter = Arc::new(Reporter::new(view, Boot::now()));
        let waits = Arc::new(Semaphore::new(1));
        let ask = |wait: &'static str| {
            let (reporter, waits) = (Arc::clone(&reporter), Arc::clone(&waits));
            async move {
                let began = now();
                let status = told(&reporter, asked(wait), &waits).await.status();
                (status.as_u16(), began.elapsed())
            }
        };
        let (status, took) = ask("30s").await;
        assert_eq!((status, took.as_secs()), (200, 30), "it takes requests all the time");
        let hold = Hold::take(&endpoint).unwrap();
        let leave = async {
            sleep(Duration::from_secs(10)).await;
            let (done, ordered) = oneshot::channel();
            changes.send(Change::Withdraw(endpoint.id, DrainOrder::default(), done)).await.unwrap();
            ordered.await.unwrap();
            assert_eq!(ask("1s").await, (503, Duration::ZERO), "one place, and it is taken");
            sleep(Duration::from_mins(1)).await;
            drop(hold);
        };
        let ((status, took), ()) = tokio::join!(ask("5m"), leave);
        assert!(status == 200 && took >= Duration::from_secs(70), "{took:?}");
        assert!(took <= Duration::from_secs(70) + LOOK, "{took:?}");
        assert_eq!(ask("5m").await, (200, Duration::ZERO), "it is so already");
    }
}
