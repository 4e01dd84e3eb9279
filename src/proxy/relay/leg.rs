//! One request on one engine: the hold on it, and its one outcome (I7).

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::ledger::{Hold, Stage};
use crate::metrics::ServiceMetrics;
use crate::proxy::dispatch::Abort;
use crate::registry::Endpoint;
use crate::types::clock::{self, Instant};
use crate::types::outcome::LegOutcome;
use crate::upstream::{Fault, LegError};

/// Ends the hold when dropped. A leg that nobody ended was cancelled by us: neither success nor failure.
#[derive(Debug)]
pub struct Leg {
    /// From the last look at the bit; over before the hold is.
    stage: Option<Stage>,
    hold: Hold<Endpoint>,
    metrics: Arc<ServiceMetrics>,
    started: Instant,
    first_byte: Option<Duration>,
    outcome: LegOutcome,
    /// How often its engine had been cut when it took its hold.
    cuts: u32,
    /// Boxed: a plain engine's leg has none.
    pair: Option<Box<Paired>>,
}

/// What only a leg of a prefill/decode pair has.
#[derive(Debug, Default)]
struct Paired {
    /// How the engine is told that its work is not wanted any more, where closing the connection says so too late.
    abort: Option<Abort>,
    ruling: Option<Arc<Ruling>>,
    /// Where the time of the leg is left, microseconds.
    time: Option<Arc<AtomicU64>>,
    beside: Option<Beside>,
}

/// A prefill's leg that goes on beside the decode's, in a task of its own.
#[derive(Debug)]
struct Beside {
    /// Sent when that is to end at once; dropped with the decode's leg.
    end: oneshot::Sender<()>,
    engine: Arc<Endpoint>,
    cuts: u32,
}

/// What the attempt says of a leg that it does not own: that counts, whatever the leg comes to afterwards.
#[derive(Debug, Default)]
pub struct Ruling(AtomicU8);

impl Ruling {
    const CANCELLED: u8 = 1;
    const FAILED: u8 = 2;

    /// We told the engine to end it: what it answers then is not its own doing.
    pub fn cancel(&self) {
        self.set(Self::CANCELLED);
    }

    /// Its engine is to blame, by what was seen elsewhere.
    pub fn blame(&self) {
        self.set(Self::FAILED);
    }

    /// The first counts.
    fn set(&self, to: u8) {
        let _ = self.0.compare_exchange(0, to, Ordering::AcqRel, Ordering::Acquire);
    }

    fn outcome(&self) -> Option<LegOutcome> {
        match self.0.load(Ordering::Acquire) {
            Self::CANCELLED => Some(LegOutcome::Cancelled),
            Self::FAILED => Some(LegOutcome::Error),
            _ => None,
        }
    }
}

impl Leg {
    pub fn new(hold: Hold<Endpoint>, metrics: Arc<ServiceMetrics>) -> Self {
        Self {
            stage: None,
            cuts: hold.endpoint().cuts(),
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
    pub fn may_start(&mut self) -> bool {
        self.stage = self.hold.last_look(&self.endpoint().stages);
        let may = self.stage.is_some();
        if may {
            self.endpoint().started();
        }
        may
    }

    /// Polls `exchange` for the first time, in which it writes its first byte; from then on the leg runs.
    pub async fn first_byte_of<T>(
        &mut self,
        exchange: impl Future<Output = Result<T, LegError>>,
    ) -> Result<T, LegError> {
        let mut exchange = pin!(exchange);
        poll_fn(|cx| {
            let polled = exchange.as_mut().poll(cx);
            if let Some(stage) = &mut self.stage {
                stage.written();
            }
            if polled.is_pending() && self.ends_cut() { Poll::Ready(Err(LegError::cut())) } else { polled }
        })
        .await
    }

    /// Waits for `future`; `None` when a drain cuts the leg meanwhile. The task is woken for that by its connection, as it is
    /// at a shutdown. The future is taken where it stands: one passed by value would have room in the caller's twice.
    pub fn unless_cut<F: Future>(&self, mut future: Pin<&mut F>) -> impl Future<Output = Option<F::Output>> {
        poll_fn(move |cx| {
            let polled = future.as_mut().poll(cx);
            if polled.is_pending() && self.ends_cut() { Poll::Ready(None) } else { polled.map(Some) }
        })
    }

    /// What was open on its engine was cut after it took its hold.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.endpoint().cuts() != self.cuts
    }

    /// How often its engine had been cut when it took its hold.
    pub fn cuts(&self) -> u32 {
        self.cuts
    }

    /// A leg of a concurrent pair is ended by its pair, as gently as its engine needs.
    pub fn ends_cut(&self) -> bool {
        self.is_cut() && self.pair.as_ref().is_none_or(|pair| pair.ruling.is_none())
    }

    /// From here on the engine is sent an abort when the leg ends before its time.
    pub fn abort_with(&mut self, abort: Abort) {
        self.paired().abort = Some(abort);
    }

    /// From the moment `ruling` says something it counts, however the leg ends after that.
    pub fn ruled_by(&mut self, ruling: Arc<Ruling>) {
        self.paired().ruling = Some(ruling);
    }

    /// Leaves its time, microseconds and at least 1, in `cell` when it ends.
    pub fn timed_in(&mut self, cell: Arc<AtomicU64>) {
        self.paired().time = Some(cell);
    }

    /// A prefill's leg on `engine` goes on beside this one. `end` is dropped with this leg, or used when that one is cut.
    pub fn goes_beside(&mut self, engine: &Arc<Endpoint>, cuts: u32, end: oneshot::Sender<()>) {
        self.paired().beside = Some(Beside { end, engine: Arc::clone(engine), cuts });
    }

    /// Ends a prefill's leg beside this one if a drain has cut it.
    pub fn end_cut_beside(&mut self) {
        let Some(pair) = &mut self.pair else { return };
        if let Some(beside) = pair.beside.take_if(|beside| beside.engine.cuts() != beside.cuts) {
            let _ = beside.end.send(());
        }
    }

    fn paired(&mut self) -> &mut Paired {
        self.pair.get_or_insert_default()
    }

    fn ruled(&self) -> Option<LegOutcome> {
        self.pair.as_ref().and_then(|pair| pair.ruling.as_ref()?.outcome())
    }

    /// The answer's head arrived.
    pub fn answered(&mut self, now: Instant) {
        self.first_byte = Some(now.saturating_duration_since(self.started));
        self.endpoint().answered();
    }

    pub fn end(&mut self, outcome: LegOutcome) {
        self.outcome = self.ruled().unwrap_or(outcome);
    }

    /// Blames the engine for `error`, and puts it last for a while where the error says it may be down.
    pub fn fail(&mut self, error: &LegError) {
        if let Some(outcome) = self.ruled() {
            self.outcome = outcome;
            return;
        }
        self.outcome = match error.fault {
            Fault::Connect | Fault::ConnectTimeout => LegOutcome::ConnectFailed,
            Fault::TotalTimeout | Fault::Local | Fault::LocalPort => LegOutcome::Cancelled,
            Fault::Cut => {
                self.endpoint().leg_forced();
                LegOutcome::Cancelled
            }
            _ if error.is_timeout() => LegOutcome::Timeout,
            _ => LegOutcome::Error,
        };
        if matches!(error.fault, Fault::Connect | Fault::ConnectTimeout | Fault::FirstByteTimeout) {
            self.endpoint().put_last(&error.fault);
        }
    }
}

impl Drop for Leg {
    fn drop(&mut self) {
        if self.outcome == LegOutcome::Cancelled {
            self.outcome = self.ruled().unwrap_or(LegOutcome::Cancelled);
        }
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
        self.endpoint().ended();
    }
}
