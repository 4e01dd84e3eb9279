//! The watchdog around one connection (and, on HTTP/2, around each stream's task).
//!
//! It polls the wrapped future, and beside it one timer that is armed lazily: it is moved only when it fires, so a
//! stream that makes progress never touches it. Phase changes wake the task, so that a silent stream hears of a
//! shutdown.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::futures::OwnedNotified;
use tokio::time::{Sleep, sleep_until};

use super::cut::{Cut, RelayedEngine};
use super::downstream::{Downstream, Expired};
use super::leave::{Leave, Order};
use crate::config::Timeouts;
use crate::drain::{Moment, Phase, Phases};
use crate::types::clock::{self, Instant};

/// A connection that can be asked to finish its open requests and take no more.
pub(super) trait Graceful: Future + Unpin {
    /// Whether it may be asked now without failing a request that the client may already have sent.
    fn may_finish(down: &Downstream, phase: Phase) -> bool;

    fn finish(&mut self);

    /// Whether a client is told before an idle connection closes, so that a request on its way is still served.
    const SAYS_GOODBYE: bool;
}

/// How long a client may take to answer the goodbye to its idle connection.
const GOODBYE: Duration = Duration::from_secs(2);

/// Runs a connection until it ends or a limit passes.
pub(super) struct Supervised<C> {
    conn: C,
    down: Arc<Downstream>,
    timeouts: Arc<Timeouts>,
    timer: Pin<Box<Sleep>>,
    phase: PhaseChange,
    leave: Leave,
    cut: Cut,
    /// The goodbye was said, and is waited for until then.
    goodbye: Option<Instant>,
}

impl<C: Graceful> Supervised<C> {
    pub(super) fn new(conn: C, down: Arc<Downstream>, timeouts: Arc<Timeouts>) -> Self {
        let phase = PhaseChange::new(&down.phases);
        let timer = Box::pin(sleep_until(clock::now() + tick(&timeouts)));
        Self { conn, down, timeouts, timer, phase, leave: Leave::Staying, cut: Cut::default(), goodbye: None }
    }
}

impl<C: Graceful> Supervised<C> {
    /// Judges the connection, and sets the timer to the next look. Ready when it is over.
    fn look(&mut self, cx: &mut Context<'_>) -> Poll<Option<Expired>> {
        let now = clock::now();
        let longest = now + tick(&self.timeouts);
        let expired = match self.down.verdict(&self.timeouts) {
            Ok(next) => {
                self.timer.as_mut().reset(next.map_or(longest, |at| at.min(longest)));
                return Poll::Pending;
            }
            Err(expired) => expired,
        };
        if expired == Expired::Idle && C::SAYS_GOODBYE {
            if self.goodbye.is_none() {
                self.conn.finish();
                if Pin::new(&mut self.conn).poll(cx).is_ready() {
                    return Poll::Ready(Some(expired));
                }
            }
            let until = *self.goodbye.get_or_insert(now + GOODBYE);
            if now < until {
                self.timer.as_mut().reset(until);
                return Poll::Pending;
            }
        }
        if expired == Expired::WriteStall {
            self.down.mark_stalled();
        }
        Poll::Ready(Some(expired))
    }
}

impl<C: Graceful> Future for Supervised<C> {
    /// Why the watchdog closed it, if it did.
    type Output = Option<Expired>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        clock::refresh();
        let this = self.get_mut();
        let before = this.phase.poll(cx, &this.down.phases);
        loop {
            // Before the leave is looked at: a request whose bytes are here counts as open.
            if Pin::new(&mut this.conn).poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            if this.down.has_left() {
                return Poll::Ready(None);
            }
            match this.leave.poll(cx, this.phase.seen.phase(), &this.down, C::may_finish) {
                Poll::Pending => break,
                Poll::Ready(Order::Finish) => this.conn.finish(),
                Poll::Ready(Order::Drop) => return Poll::Ready(None),
            }
        }
        let engine = &this.down.engine;
        if let Some(before) = before {
            this.cut.look(&this.down.phases, before, engine);
        }
        if this.cut.poll(cx, engine).is_ready() {
            return Poll::Ready(Some(Expired::Cut));
        }
        while this.timer.as_mut().poll(cx).is_ready() {
            match this.look(cx) {
                Poll::Pending => {}
                Poll::Ready(end) => return Poll::Ready(end),
            }
        }
        Poll::Pending
    }
}

/// Longest time between two looks: no longer than the shortest limit, so that a condition that starts right after a
/// look is seen in time to be judged exactly.
fn tick(timeouts: &Timeouts) -> Duration {
    [timeouts.header_read, timeouts.write_stall, timeouts.downstream_idle]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(Duration::from_hours(1))
        .max(Duration::from_millis(1))
}

/// Notices phase changes without asking a lock at each poll: the notification is polled once, when it is made, and
/// again only after the phase has moved. That is sound because the wrapped futures are whole tasks, whose waker never
/// changes.
pub(super) struct PhaseChange {
    seen: Moment,
    notified: Pin<Box<OwnedNotified>>,
    registered: bool,
}

impl PhaseChange {
    pub(super) fn new(phases: &Phases) -> Self {
        Self { seen: phases.moment(), notified: Box::pin(phases.changed()), registered: false }
    }

    /// What was seen before, once per change.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, phases: &Phases) -> Option<Moment> {
        if self.registered && phases.moment() == self.seen {
            return None;
        }
        while self.notified.as_mut().poll(cx).is_ready() {
            self.notified.set(phases.changed());
        }
        self.registered = true;
        let before = std::mem::replace(&mut self.seen, phases.moment());
        (self.seen != before).then_some(before)
    }
}

/// How far one HTTP/2 stream's response has come; shared by the stream's task and its body.
///
/// hyper takes a frame from the body first, the last one too, and waits for room in the stream's window then: until
/// there is some it neither comes back nor ends.
#[derive(Debug)]
pub struct StreamProgress {
    born: Instant,
    /// Since when hyper has had a frame and has not come back, in microseconds after `born`; 0: it came back.
    blocked: AtomicU64,
    /// It is being given up because the client took no bytes of it.
    stalled: AtomicBool,
    /// Whose bytes it relays.
    pub(crate) engine: RelayedEngine,
}

tokio::task_local! {
    /// Set while a task of one HTTP/2 stream is polled.
    pub(crate) static STREAM: Arc<StreamProgress>;
}

impl StreamProgress {
    fn new() -> Self {
        Self {
            born: clock::now(),
            blocked: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
            engine: RelayedEngine::default(),
        }
    }

    pub(crate) fn gave_frame(&self) {
        let now = clock::now().saturating_duration_since(self.born).as_micros() as u64;
        self.blocked.store(now.max(1), Ordering::Relaxed);
    }

    pub(crate) fn came_back(&self) {
        self.blocked.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    fn blocked_since(&self) -> Option<Instant> {
        let since = self.blocked.load(Ordering::Relaxed);
        (since != 0).then(|| self.born + Duration::from_micros(since))
    }
}

/// One HTTP/2 stream's task: flow control can stall a stream while its connection makes progress, and then hyper does
/// not poll the body at all.
pub(super) struct StreamTask<F> {
    inner: Pin<Box<tokio::task::futures::TaskLocalFuture<Arc<StreamProgress>, F>>>,
    progress: Arc<StreamProgress>,
    down: Arc<Downstream>,
    limit: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
    phase: PhaseChange,
    cut: Cut,
}

impl<F: Future> StreamTask<F> {
    pub(super) fn new(future: F, down: Arc<Downstream>, limit: Option<Duration>) -> Self {
        let progress = Arc::new(StreamProgress::new());
        Self {
            inner: Box::pin(STREAM.scope(Arc::clone(&progress), future)),
            progress,
            phase: PhaseChange::new(&down.phases),
            cut: Cut::default(),
            timer: limit.map(|d| Box::pin(sleep_until(clock::now() + d))),
            down,
            limit,
        }
    }

    /// Until when the client may go on taking nothing; `None` when the limit has passed.
    fn next_look(&self, limit: Duration) -> Option<Instant> {
        let now = clock::now();
        let at = self.progress.blocked_since().unwrap_or(now) + limit;
        (at > now).then_some(at)
    }
}

impl<F: Future> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        clock::refresh();
        let this = self.get_mut();
        let before = this.phase.poll(cx, &this.down.phases);
        if this.inner.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let engine = &this.progress.engine;
        if let Some(before) = before {
            this.cut.look(&this.down.phases, before, engine);
        }
        if this.cut.poll(cx, engine).is_ready() {
            return Poll::Ready(());
        }
        let Some(limit) = this.limit else { return Poll::Pending };
        while this.timer.as_mut().is_some_and(|t| t.as_mut().poll(cx).is_ready()) {
            let Some(next) = this.next_look(limit) else {
                this.progress.stalled.store(true, Ordering::Relaxed);
                return Poll::Ready(());
            };
            if let Some(timer) = this.timer.as_mut() {
                timer.as_mut().reset(next);
            }
        }
        Poll::Pending
    }
}
