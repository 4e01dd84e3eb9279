//! The streaming body: reads the engine's connection in the very task that writes to the client, one frame per read.
//!
//! hyper asks for the next frame only when it has room for it, so a slow client stops the reads and, through TCP, the
//! engine: no buffer grows. A stream that makes progress costs one timestamp per frame; its timer is touched only when
//! it fires.
//!
//! When the engine fails after the first byte went out, the client of an event stream gets one error event and never
//! `[DONE]`; then the transfer is aborted (HTTP/1.1: without the last chunk; HTTP/2: RST_STREAM), so that no one takes
//! the answer for complete.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::time::{Sleep, sleep_until};

use super::leg::Leg;
use super::observe::{Observer, StreamFault};
use super::ticket::Ticket;
use crate::drain::{Moment, Phase};
use crate::metrics::GapStats;
use crate::proxy::error::Failure;
use crate::proxy::listener::{STREAM, StreamProgress};
use crate::proxy::rescue::{error_event, rescue};
use crate::types::clock::{self, Instant};
use crate::types::outcome::{LegOutcome, Outcome};
use crate::upstream::{Conn, Decoder, Fault, Frame as Step, LegError};

/// The transfer ends without its end: hyper closes or resets on it.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the response was aborted")]
pub struct Aborted;

/// How long the last bytes of a failed stream may take to leave before the transfer is aborted.
const FLUSH: Duration = Duration::from_millis(500);
/// How often it is looked whether it has left.
const FLUSH_LOOK: Duration = Duration::from_millis(5);

/// What a relay starts from.
#[derive(Debug)]
pub struct Start {
    pub conn: Conn,
    /// Payload that was read already, and the decoder behind it.
    pub prefix: Bytes,
    pub decoder: Decoder,
    /// The connection can be used again after this message.
    pub reusable: bool,
    pub leg: Leg,
    pub observer: Observer,
    /// What the status alone makes of the answer, when it is complete.
    pub outcome: (Outcome, LegOutcome),
    pub idle: Option<Duration>,
    pub deadline: Option<Instant>,
    pub ticket: Box<Ticket>,
}

#[derive(Debug)]
pub struct Relay {
    /// `None` once the message or the stream has ended.
    up: Option<Upstream>,
    observer: Observer,
    gaps: GapStats,
    idle: Option<Duration>,
    deadline: Option<Instant>,
    /// When the engine last sent something, or was last asked after the client had been slow.
    progress: Instant,
    /// While the last bytes of a failed answer leave.
    timer: Option<Pin<Box<Sleep>>>,
    /// hyper has not come back since the last frame.
    gave_frame: bool,
    /// The flush count when hyper was last given something, the answer's head included.
    handed: u64,
    state: State,
    h2: Option<Arc<StreamProgress>>,
    /// The phase and the cuts as last looked at.
    seen: Moment,
    ticket: Box<Ticket>,
}

#[derive(Debug)]
struct Upstream {
    conn: Conn,
    prefix: Bytes,
    decoder: Decoder,
    reusable: bool,
    leg: Leg,
    outcome: (Outcome, LegOutcome),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Streaming,
    /// The last frame was given to hyper when the flush count was this; it may leave until then.
    Flushing(u64, Instant),
    Aborting,
    Done,
}

impl Relay {
    pub fn new(start: Start) -> Box<Self> {
        let Start { conn, prefix, decoder, reusable, leg, observer, outcome, idle, deadline, ticket } = start;
        let over = decoder.is_done() && prefix.is_empty();
        let mut relay = Box::new(Self {
            up: Some(Upstream { conn, prefix, decoder, reusable, leg, outcome }),
            observer,
            gaps: GapStats::default(),
            idle,
            deadline,
            progress: clock::recent(),
            timer: None,
            gave_frame: false,
            handed: ticket.down().flush_count(),
            state: State::Streaming,
            h2: STREAM.try_with(Arc::clone).ok(),
            seen: Moment::NEVER,
            ticket,
        });
        let engine = relay.up.as_ref().map_or(0, |up| up.leg.endpoint().id);
        relay.relays(engine);
        if over {
            // Nothing will be asked of a body without bytes (204, HEAD, length 0): it ends here.
            relay.finish();
        }
        relay
    }

    pub(super) fn is_end(&self) -> bool {
        self.state == State::Done
    }

    /// Payload bytes still to come, where known.
    pub(super) fn remaining(&self) -> Option<u64> {
        match (&self.up, self.state) {
            (Some(up), State::Streaming) if !self.observer.is_events() => {
                up.decoder.remaining().map(|n| n + up.prefix.len() as u64)
            }
            (_, State::Done) => Some(0),
            _ => None,
        }
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let resumed = std::mem::take(&mut self.gave_frame);
        if resumed && let Some(progress) = &self.h2 {
            progress.came_back();
        }
        match self.state {
            State::Streaming => {}
            State::Done => return Poll::Ready(None),
            State::Aborting => return Poll::Ready(Some(Err(Aborted))),
            State::Flushing(count, until) => return self.poll_flushed(cx, count, until),
        }
        let moment = self.ticket.down().phases.moment();
        if self.seen != moment && self.is_cut(moment) {
            return match self.fail(&Failure::Upstream(LegError::cut())) {
                Some(event) => Poll::Ready(Some(Ok(event))),
                None => self.poll_frame(cx),
            };
        }
        match ready!(self.poll_data(cx, resumed)) {
            Ok(Some(data)) => Poll::Ready(Some(Ok(self.give(data)))),
            Ok(None) => {
                self.finish();
                Poll::Ready(None)
            }
            Err(failure) => match self.fail(&failure) {
                Some(event) => Poll::Ready(Some(Ok(event))),
                None => self.poll_frame(cx),
            },
        }
    }

    /// The next payload, or the clean end.
    fn poll_data(&mut self, cx: &mut Context<'_>, resumed: bool) -> Poll<Result<Option<Bytes>, Failure>> {
        loop {
            let Some(up) = &mut self.up else { return Poll::Ready(Ok(None)) };
            if !up.prefix.is_empty() {
                return Poll::Ready(Ok(Some(std::mem::take(&mut up.prefix))));
            }
            match up.decoder.step(up.conn.buffer()) {
                Ok(Step::Data(data)) => return Poll::Ready(Ok(Some(data))),
                Ok(Step::End) => return Poll::Ready(Ok(None)),
                Ok(Step::NeedMore) => {}
                Err(rule) => return Poll::Ready(Err(lost(Fault::Malformed(rule)))),
            }
            match up.conn.poll_fill(cx) {
                Poll::Ready(Ok(n)) if n > 0 => self.progress = clock::recent(),
                Poll::Ready(Ok(_)) => {
                    up.reusable = false;
                    return Poll::Ready(up.decoder.eof().map(|()| None).map_err(|()| lost(Fault::Lost)));
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(lost(Fault::Lost))),
                Poll::Pending => {
                    if self.seen.phase() >= Phase::Forcing {
                        return Poll::Ready(Err(Failure::Forced));
                    }
                    return self.poll_limits(cx, resumed).map(Err);
                }
            }
        }
    }

    /// Ready with what ran out.
    fn poll_limits(&mut self, cx: &mut Context<'_>, mut resumed: bool) -> Poll<Failure> {
        loop {
            let idle = self.idle.map(|limit| (self.progress + limit, Fault::IdleTimeout));
            let total = self.deadline.map(|at| (at, Fault::TotalTimeout));
            let next = [idle, total].into_iter().flatten().min_by_key(|(at, _)| *at);
            let (Some((at, fault)), Some(up)) = (next, &mut self.up) else { return Poll::Pending };
            ready!(up.conn.poll_until(cx, at));
            if resumed && fault == Fault::IdleTimeout {
                // The client was slow, so the engine was not asked: its silence counts from now.
                resumed = false;
                self.progress = clock::recent();
            } else {
                return Poll::Ready(lost(fault));
            }
        }
    }

    /// Something changed: whether a drain has cut this leg. A prefill's beside it ends here if that was cut.
    fn is_cut(&mut self, moment: Moment) -> bool {
        self.seen = moment;
        // Who cut marked the engine first, and the count of cuts after that.
        fence(Ordering::Acquire);
        let Some(up) = &mut self.up else { return false };
        up.leg.end_cut_beside();
        up.leg.is_cut()
    }

    /// Whose bytes go to the client: its task must know where hyper does not ask this body.
    fn relays(&self, engine: u64) {
        match &self.h2 {
            Some(progress) => progress.engine.set(engine),
            None => self.ticket.down().engine.set(engine),
        }
    }

    /// Accounts for payload and hands it on; at the last payload the message is already over.
    fn give(&mut self, data: Bytes) -> Frame<Bytes> {
        let last = self.up.as_ref().is_some_and(|up| up.decoder.is_done());
        let events = self.observer.see(&data, last);
        if self.ticket.first_byte.is_none() {
            self.ticket.first_byte = Some(self.progress.saturating_duration_since(self.ticket.started));
        }
        if events > 0 {
            let shared = &self.ticket.worker.shared;
            let metrics = self.ticket.service.as_ref().and_then(|s| shared.services.get(s.index));
            if let Some(metrics) = metrics {
                self.gaps.arrived(events, self.progress, metrics);
            }
        }
        if last {
            self.finish();
        }
        self.hand(data)
    }

    fn hand(&mut self, data: Bytes) -> Frame<Bytes> {
        self.handed = self.ticket.down().flush_count();
        self.ticket.bytes_out += data.len() as u64;
        self.gave_frame = true;
        if let Some(progress) = &self.h2 {
            progress.gave_frame();
        }
        Frame::data(data)
    }

    /// The message is complete: the connection goes home, the hold ends, the outcome is known.
    fn finish(&mut self) {
        self.state = State::Done;
        self.relays(0);
        let Some(up) = self.up.take() else { return };
        let Upstream { conn, reusable, mut leg, outcome, .. } = up;
        let (request, on_leg) = match self.observer.fault {
            Some(StreamFault::Error | StreamFault::Abort) => (Outcome::UpstreamError, LegOutcome::Error),
            None => outcome,
        };
        if self.observer.fault.is_some() {
            self.ticket.error.get_or_insert("upstream_in_stream_error");
        }
        leg.end(on_leg);
        if reusable {
            leg.endpoint().pool.put(conn);
        }
        self.ticket.end(request);
    }

    /// Ends the leg and the outcome. What is left to say to the client, if the answer can carry it.
    fn fail(&mut self, failure: &Failure) -> Option<Frame<Bytes>> {
        self.relays(0);
        if let Some(mut up) = self.up.take()
            && let Failure::Upstream(error) = failure
        {
            up.leg.fail(error);
        }
        let rescue = rescue(failure);
        self.ticket.rescued(&rescue);
        let event = self.observer.is_events().then(|| {
            let event = error_event(&rescue, self.ticket.id.as_str(), self.observer.mid_event());
            self.hand(event)
        });
        self.state = State::Flushing(self.handed, clock::recent() + FLUSH);
        event
    }

    /// hyper drops what it has not written when a body fails, so the abort waits until that has left: the answer's head
    /// and the last payload, or the error event.
    fn poll_flushed(
        &mut self,
        cx: &mut Context<'_>,
        count: u64,
        until: Instant,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        loop {
            if self.ticket.down().flush_count() > count || clock::recent() >= until {
                self.state = State::Aborting;
                return Poll::Ready(Some(Err(Aborted)));
            }
            let look = clock::recent() + FLUSH_LOOK;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(look)));
            ready!(timer.as_mut().poll(cx));
            timer.as_mut().reset(look);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.relays(0);
        // Cut, and its client did not even make room for the error.
        if let Some(up) = self.up.as_mut().filter(|up| up.leg.is_cut()) {
            up.leg.fail(&LegError::cut());
            self.ticket.rescued(&rescue(&Failure::Upstream(LegError::cut())));
        }
        let shared = Arc::clone(&self.ticket.worker.shared);
        if let Some(metrics) = self.ticket.service.as_ref().and_then(|s| shared.services.get(s.index)) {
            self.gaps.flush(metrics);
            if self.observer.unreadable > 0 {
                metrics.usage_unreadable();
            }
        }
        self.ticket.events = self.gaps.events;
        self.ticket.longest_gap = (self.gaps.events > 1).then_some(self.gaps.longest);
        self.ticket.usage = self.observer.usage;
    }
}

/// A failure after the engine's head arrived.
fn lost(fault: Fault) -> Failure {
    Failure::Upstream(LegError::in_answer(fault))
}
