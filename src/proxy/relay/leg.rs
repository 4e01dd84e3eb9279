//! One request on one engine: the hold on it, and its one outcome (I7).

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::Hold;
use crate::metrics::ServiceMetrics;
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
}

impl Leg {
    pub fn new(hold: Hold<Endpoint>, metrics: Arc<ServiceMetrics>) -> Self {
        Self { hold, metrics, started: clock::recent(), first_byte: None, outcome: LegOutcome::Cancelled }
    }

    pub fn endpoint(&self) -> &Arc<Endpoint> {
        self.hold.endpoint()
    }

    /// The last look at the endpoint's bit, right before the first byte (I3).
    pub fn may_start(&self) -> bool {
        self.hold.still_selectable()
    }

    /// The answer's head arrived.
    pub fn answered(&mut self, now: Instant) {
        self.first_byte = Some(now.saturating_duration_since(self.started));
        self.endpoint().ejection.succeed();
    }

    pub fn end(&mut self, outcome: LegOutcome) {
        self.outcome = outcome;
    }

    /// Blames the engine for `error`, and puts it last for a while where the error says it may be down.
    pub fn fail(&mut self, error: &LegError) {
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
        let duration = clock::recent().saturating_duration_since(self.started);
        self.metrics.leg(self.outcome);
        self.endpoint().metrics.leg(self.outcome, duration, self.first_byte);
    }
}
