//! How a connection leaves at shutdown without failing a request that its client may already have sent.
//!
//! A client learns late that no more requests are taken, and an HTTP/1.1 client learns it only from a response. So a
//! connection without an open request is kept for [`LINGER`] after the listener closed: whatever clients had sent by
//! then is in our buffer or our socket, and the runtime has looked at both. A forced connection gets [`LAST`] to
//! deliver its error.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep_until};

use super::downstream::Downstream;
use crate::drain::Phase;
use crate::types::clock;

/// How long a connection without a request outlives the listener.
pub(super) const LINGER: Duration = Duration::from_millis(50);
/// How long ended requests may take to deliver their error; less than the process waits for them.
const LAST: Duration = Duration::from_millis(1500);

/// How far one connection is with leaving. In order.
#[derive(Debug)]
pub(super) enum Leave {
    Staying,
    /// The listener is closed and no request is open: one may be on its way until this is over.
    Lingering(Pin<Box<Sleep>>),
    /// It was told to finish.
    Finishing,
    /// Forced: what is open must be over by then.
    Ending(Pin<Box<Sleep>>),
}

/// What is to be done with the connection now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Finish,
    Drop,
}

impl Leave {
    /// The next step, when it is due. Each order but `Drop` is given once per step.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        phase: Phase,
        down: &Downstream,
        may_finish: fn(&Downstream, Phase) -> bool,
    ) -> Poll<Order> {
        if phase == Phase::Running {
            return Poll::Pending;
        }
        if phase >= Phase::Forcing {
            return self.poll_ending(cx, down);
        }
        if matches!(self, Self::Staying | Self::Lingering(_)) && may_finish(down, phase) {
            *self = Self::Finishing;
            return Poll::Ready(Order::Finish);
        }
        if matches!(self, Self::Staying) && phase >= Phase::Draining {
            *self = Self::Lingering(timer(LINGER));
        }
        let Self::Lingering(timer) = self else { return Poll::Pending };
        ready!(timer.as_mut().poll(cx));
        if down.is_reading_head() {
            // Bytes of a request are here: it is served, if it comes within its own limit.
            return Poll::Pending;
        }
        *self = Self::Finishing;
        Poll::Ready(Order::Finish)
    }

    fn poll_ending(&mut self, cx: &mut Context<'_>, down: &Downstream) -> Poll<Order> {
        let Self::Ending(timer) = self else {
            *self = Self::Ending(timer(LAST));
            return Poll::Ready(Order::Finish);
        };
        if !(down.is_idle() && down.is_flushed()) {
            ready!(timer.as_mut().poll(cx));
        }
        Poll::Ready(Order::Drop)
    }
}

fn timer(time: Duration) -> Pin<Box<Sleep>> {
    Box::pin(sleep_until(clock::now() + time))
}
