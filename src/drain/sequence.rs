//! The shutdown, phase by phase (R6):
//!
//! first signal → *unready* (`delay`: readiness is 503, requests are still accepted, so that load balancers can
//! notice) → *draining* (the listener is closed, `grace`) → *forcing* (what is left gets an error) → *stopped*.
//! A second signal skips to *forcing*.

use std::future::Future;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::phases::{Phase, Phases};
use crate::config::Shutdown;

/// How long ended requests may take to deliver their error to the client.
const FORCE: Duration = Duration::from_secs(2);

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Requests that were still open when the grace was over.
    pub forced: usize,
}

/// Runs after the first signal. `next_signal` completes at the second one; `idle` completes when no connection is
/// open; `open` counts open requests.
pub async fn run_sequence(
    phases: &Phases,
    config: &Shutdown,
    next_signal: impl Future<Output = ()>,
    idle: impl Future<Output = ()>,
    open: impl Fn() -> usize,
) -> Report {
    let mut next_signal = std::pin::pin!(next_signal);
    let mut idle = std::pin::pin!(idle);
    phases.advance(Phase::Unready);
    info!(phase = "unready", delay = ?config.delay, "shutting down: readiness is 503, still accepting");
    let mut hurried = tokio::select! {
        () = sleep(config.delay) => false,
        () = &mut next_signal => true,
    };
    phases.advance(Phase::Draining);
    info!(phase = "draining", grace = ?config.grace, in_flight = open(), "listener closed, open requests go on");
    if !hurried {
        tokio::select! {
            () = &mut idle => {
                phases.advance(Phase::Stopped);
                info!(phase = "stopped", forced = 0, "every request finished");
                return Report { forced: 0 };
            }
            () = sleep(config.grace) => {}
            () = &mut next_signal => hurried = true,
        }
    }
    let forced = open();
    phases.advance(Phase::Forcing);
    warn!(
        phase = "forcing",
        forced,
        second_signal = hurried,
        "ending the requests that are left with an error"
    );
    if timeout(FORCE, &mut idle).await.is_err() {
        warn!("connections still open 2 s after being ended; leaving anyway");
    }
    phases.advance(Phase::Stopped);
    info!(phase = "stopped", forced, "stopped");
    Report { forced }
}
