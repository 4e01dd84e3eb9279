//! One request on one engine: the hold on it, and its one outcome (I7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::ledger::Hold;
use crate::metrics::ServiceMetrics;
use crate::proxy::dispatch::Abort;
use crate::registry::Endpoint;
use crate::types::clock::{self, Instant};
use crate::types::outcome::LegOutcome;
use crate::upstream::{Fault, LegError};

/// Ends the hold when dropped. A leg that nobody ended was cancelled by us: neither success nor failure.
#[derive(Debug)]
pub struct Leg {
    hold: Hold<Endpoint>,
    metrics: Arc<ServiceMetrics>,
    started: Instant,
    first_byte: Option<Duration>,
    outcome: LegOutcome,
    /// Boxed: a plain engine's leg has none.
    pair: Option<Box<Paired>>,
}

/// What only a leg of a prefill/decode pair has.
#[derive(Debug, Default)]
struct Paired {
    /// How the engine is told that its work is not wanted any more, where closing the connection says so too late.
    abort: Option<Abort>,
    /// Set once we told the engine to end this leg: what it answers then is not its own doing.
    cancelled: Option<Arc<AtomicBool>>,
    /// Where the time of the leg is left, microseconds.
    time: Option<Arc<AtomicU64>>,
    /// Who waits for the end of the leg.
    told: Option<oneshot::Sender<()>>,
}

impl Leg {
    pub fn new(hold: Hold<Endpoint>, metrics: Arc<ServiceMetrics>) -> Self {
        Self {
            hold,
            metrics,
            started: clock::recent(),
            first_byte: None,
            outcome: LegOutcome::Cancelled,
            pair: None,
        }
    }

    pub fn endpoint(&self) -> &Arc<Endpoint> {
        self.hold.endpoint()
    }

    /// The last look at the endpoint's bit, right before the first byte (I3).
    pub fn may_start(&self) -> bool {
        self.hold.still_selectable()
    }

    /// From here on the engine is sent an abort when the leg ends before its time.
    pub fn abort_with(&mut self, abort: Abort) {
        self.paired().abort = Some(abort);
    }

    /// From the moment `flag` is set the leg counts as cancelled, however it ends after that.
    pub fn cancelled_by(&mut self, flag: Arc<AtomicBool>) {
        self.paired().cancelled = Some(flag);
    }

    /// Leaves its time, microseconds and at least 1, in `cell` when it ends.
    pub fn timed_in(&mut self, cell: Arc<AtomicU64>) {
        self.paired().time = Some(cell);
    }

    /// `end` is dropped with the leg.
    pub fn tell_end(&mut self, end: oneshot::Sender<()>) {
        self.paired().told = Some(end);
    }

    fn paired(&mut self) -> &mut Paired {
        self.pair.get_or_insert_default()
    }

    fn is_cancelled(&self) -> bool {
        let flag = self.pair.as_ref().and_then(|pair| pair.cancelled.as_ref());
        flag.is_some_and(|flag| flag.load(Ordering::Acquire))
    }

    /// The answer's head arrived.
    pub fn answered(&mut self, now: Instant) {
        self.first_byte = Some(now.saturating_duration_since(self.started));
        self.endpoint().ejection.succeed();
    }

    pub fn end(&mut self, outcome: LegOutcome) {
        if !self.is_cancelled() {
            self.outcome = outcome;
        }
    }

    /// Blames the engine for `error`, and puts it last for a while where the error says it may be down.
    pub fn fail(&mut self, error: &LegError) {
        if self.is_cancelled() {
            return;
        }
        self.outcome = match error.fault {
            Fault::Connect | Fault::ConnectTimeout => LegOutcome::ConnectFailed,
            Fault::TotalTimeout | Fault::Local | Fault::LocalPort => LegOutcome::Cancelled,
            _ if error.is_timeout() => LegOutcome::Timeout,
            _ => LegOutcome::Error,
        };
        if matches!(error.fault, Fault::Connect | Fault::ConnectTimeout | Fault::FirstByteTimeout)
            && let Some(time) = self.endpoint().ejection.fail()
        {
            self.endpoint().metrics.ejected();
            tracing::debug!(endpoint = %self.endpoint().url, fault = %error.fault, ?time, "endpoint put last");
        }
    }
}

impl Drop for Leg {
    fn drop(&mut self) {
        if matches!(self.outcome, LegOutcome::Cancelled | LegOutcome::Timeout)
            && let Some(abort) = self.pair.as_ref().and_then(|pair| pair.abort.as_ref())
        {
            abort.fire(self.endpoint());
        }
        let duration = clock::recent().saturating_duration_since(self.started);
        if let Some(cell) = self.pair.as_ref().and_then(|pair| pair.time.as_ref()) {
            cell.store((duration.as_micros() as u64).max(1), Ordering::Release);
        }
        self.metrics.leg(self.outcome);
        self.metrics.leg_time(self.endpoint().role.as_str(), duration, self.first_byte);
        self.endpoint().metrics.leg(self.outcome, duration, self.first_byte);
    }
}
