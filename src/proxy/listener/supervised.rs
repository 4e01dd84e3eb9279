//! The watchdog around one connection (and, on HTTP/2, around each stream's task).
//!
//! It polls the wrapped future, and beside it one timer that is armed lazily: it is moved only when it fires, so a
//! stream that makes progress never touches it. Phase changes wake the task, so that a silent stream hears of a
//! shutdown.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::futures::OwnedNotified;
use tokio::time::{Sleep, sleep_until};

use super::downstream::{Downstream, Expired};
use crate::config::Timeouts;
use crate::drain::{Phase, Phases};
use crate::types::clock::{self, Instant};

/// A connection that can be asked to finish its open requests and take no more.
pub(super) trait Graceful: Future + Unpin {
    fn finish(&mut self, phase: Phase);
}

/// Runs a connection until it ends or a limit passes.
pub(super) struct Supervised<C> {
    conn: C,
    down: Arc<Downstream>,
    timeouts: Arc<Timeouts>,
    timer: Pin<Box<Sleep>>,
    phase: PhaseChange,
}

impl<C: Graceful> Supervised<C> {
    pub(super) fn new(conn: C, down: Arc<Downstream>, timeouts: Arc<Timeouts>) -> Self {
        let phase = PhaseChange::new(&down.phases);
        let timer = Box::pin(sleep_until(clock::now() + tick(&timeouts)));
        Self { conn, down, timeouts, timer, phase }
    }
}

impl<C: Graceful> Future for Supervised<C> {
    /// Why the watchdog closed it, if it did.
    type Output = Option<Expired>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(now) = this.phase.poll(cx, &this.down.phases) {
            this.conn.finish(now);
        }
        if Pin::new(&mut this.conn).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        if this.down.has_left() || this.down.is_forced() && this.down.is_idle() {
            return Poll::Ready(None);
        }
        while this.timer.as_mut().poll(cx).is_ready() {
            let longest = clock::now() + tick(&this.timeouts);
            match this.down.verdict(&this.timeouts) {
                Err(expired) => {
                    if expired == Expired::WriteStall {
                        this.down.mark_stalled();
                    }
                    return Poll::Ready(Some(expired));
                }
                Ok(next) => this.timer.as_mut().reset(next.map_or(longest, |at| at.min(longest))),
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
        .unwrap_or(Duration::from_secs(3600))
        .max(Duration::from_millis(1))
}

/// Notices phase changes without asking a lock at each poll: the notification is polled once, when it is made, and
/// again only after the phase has moved. That is sound because the wrapped futures are whole tasks, whose waker never
/// changes.
pub(super) struct PhaseChange {
    seen: Phase,
    notified: Pin<Box<OwnedNotified>>,
    registered: bool,
}

impl PhaseChange {
    pub(super) fn new(phases: &Phases) -> Self {
        Self { seen: Phase::Running, notified: Box::pin(phases.changed()), registered: false }
    }

    /// The new phase, once per change.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, phases: &Phases) -> Option<Phase> {
        let now = phases.now();
        if self.registered && now == self.seen {
            return None;
        }
        while self.notified.as_mut().poll(cx).is_ready() {
            self.notified.set(phases.changed());
        }
        self.registered = true;
        let now = phases.now();
        let moved = now != self.seen;
        self.seen = now;
        moved.then_some(now)
    }
}

/// How far one HTTP/2 stream's response has come; shared by the stream's task and its body.
#[derive(Debug, Default)]
pub struct StreamProgress {
    /// When the body last gave a frame that hyper has not come back from: microseconds of the process clock, 0 is
    /// "it came back".
    blocked: std::sync::atomic::AtomicU64,
}

tokio::task_local! {
    /// Set while a task of one HTTP/2 stream is polled.
    pub(crate) static STREAM: Arc<StreamProgress>;
}

impl StreamProgress {
    pub(crate) fn gave_frame(&self, at_micros: u64) {
        self.blocked.store(at_micros.max(1), std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn came_back(&self) {
        self.blocked.store(0, std::sync::atomic::Ordering::Relaxed);
    }

    fn blocked_since(&self) -> u64 {
        self.blocked.load(std::sync::atomic::Ordering::Relaxed)
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
}

impl<F: Future> StreamTask<F> {
    pub(super) fn new(future: F, down: Arc<Downstream>, limit: Option<Duration>) -> Self {
        let progress = Arc::new(StreamProgress::default());
        Self {
            inner: Box::pin(STREAM.scope(Arc::clone(&progress), future)),
            progress,
            phase: PhaseChange::new(&down.phases),
            timer: limit.map(|d| Box::pin(sleep_until(clock::now() + d))),
            down,
            limit,
        }
    }

    /// Until when the client may go on taking nothing; `None` when the limit has passed.
    fn next_look(&self, limit: Duration) -> Option<Instant> {
        let now = clock::now();
        match self.progress.blocked_since() {
            0 => Some(now + limit),
            since => {
                let at = clock::from_micros(since) + limit;
                (at > now).then_some(at)
            }
        }
    }
}

impl<F: Future> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let _ = this.phase.poll(cx, &this.down.phases);
        if this.inner.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(limit) = this.limit else { return Poll::Pending };
        while this.timer.as_mut().is_some_and(|t| t.as_mut().poll(cx).is_ready()) {
            let Some(next) = this.next_look(limit) else {
                this.down.mark_stalled();
                return Poll::Ready(());
            };
            if let Some(timer) = this.timer.as_mut() {
                timer.as_mut().reset(next);
            }
        }
        Poll::Pending
    }
}
