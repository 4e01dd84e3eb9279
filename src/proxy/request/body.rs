//! Reads the request body once, whole, within its limits. Bytes stay the client's own.
//!
//! A body whose length is announced is checked against the limit and against the room left in the global buffer budget
//! before the first byte is read (so that `Expect: 100-continue` gets its final answer at once). It takes of that budget
//! only what has arrived: clients that announce much and send little would shut everybody else out.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use tokio::time::{sleep_until, timeout_at};

use crate::proxy::admission::{Bound, Permit};
use crate::proxy::error::{Failure, Shed};
use crate::types::clock::{self, Instant};

/// Most room made at once for a body whose sender announced its length but has not sent it yet, bytes.
const FIRST_ROOM: usize = 256 * 1024;

/// The bounds of one body.
#[derive(Debug)]
pub struct BodyLimits<'a> {
    /// Largest body, bytes.
    pub max: u64,
    /// The process-wide budget.
    pub budget: &'a Arc<Bound>,
    /// Longest silence.
    pub progress: Option<Duration>,
    /// When the whole client request must be over.
    pub deadline: Option<Instant>,
}

/// Reads `body`. The permit stands for its bytes in the budget.
pub async fn read<B>(mut body: B, limits: &BodyLimits<'_>) -> Result<(Bytes, Permit), Failure>
where
    B: Body<Data = Bytes> + Unpin,
{
    let announced = body.size_hint().exact();
    let too_large = || Failure::BodyTooLarge { limit: limits.max };
    if announced.is_some_and(|n| n > limits.max) {
        return Err(too_large());
    }
    let shed = || Failure::Shed(Shed::Buffered);
    if !limits.budget.has_room(announced.unwrap_or(0)) {
        return Err(shed());
    }
    let mut permit = limits.budget.nothing();
    let mut gathered = Gather::new(announced);
    while let Some(frame) = next(&mut body, limits).await? {
        let Ok(data) = frame.into_data() else { continue };
        let total = gathered.len() as u64 + data.len() as u64;
        if total > limits.max {
            return Err(too_large());
        }
        if !permit.grow(data.len() as u64) {
            return Err(shed());
        }
        gathered.add(data);
    }
    Ok((gathered.into_bytes(), permit))
}

/// The next frame, within the time limits; no timer is made while frames are there already.
async fn next<B>(body: &mut B, limits: &BodyLimits<'_>) -> Result<Option<http_body::Frame<Bytes>>, Failure>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut timer = None;
    let (progress, deadline) = (limits.progress, limits.deadline);
    poll_fn(|cx| {
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
            return Poll::Ready(frame.transpose().map_err(|_| Failure::BodyBroken));
        }
        if timer.is_none() {
            let until = progress.map(|limit| clock::now() + limit).into_iter().chain(deadline).min();
            timer = until.map(|at| Box::pin(sleep_until(at)));
        }
        let Some(timer) = timer.as_mut() else { return Poll::Pending };
        timer.as_mut().poll(cx).map(|()| Err(Failure::BodyTimeout))
    })
    .await
}

/// Frames put together: a body that came as one frame is not copied.
#[derive(Debug)]
enum Gather {
    Empty(usize),
    One(Bytes, usize),
    Many(BytesMut),
}

impl Gather {
    fn new(announced: Option<u64>) -> Self {
        Self::Empty(announced.and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
    }

    fn len(&self) -> usize {
        match self {
            Self::Empty(_) => 0,
            Self::One(bytes, _) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn add(&mut self, data: Bytes) {
        match self {
            Self::Empty(announced) => *self = Self::One(data, *announced),
            Self::One(first, announced) => {
                // What was announced and not sent yet is not believed beyond a bound.
                let room = (*announced).min(FIRST_ROOM).max(first.len() + data.len());
                let mut all = BytesMut::with_capacity(room);
                all.extend_from_slice(first);
                all.extend_from_slice(&data);
                *self = Self::Many(all);
            }
            Self::Many(all) => all.extend_from_slice(&data),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Empty(_) => Bytes::new(),
            Self::One(bytes, _) => bytes,
            Self::Many(bytes) => bytes.freeze(),
        }
    }
}

/// Keeps taking what the client still sends after its request was refused, so that it can read the answer instead of
/// meeting a reset; gives up after `max` bytes or `time`.
pub async fn discard<B>(mut body: B, max: u64, time: Duration)
where
    B: Body<Data = Bytes> + Unpin,
{
    let deadline = clock::now() + time;
    let mut left = max;
    while let Ok(Some(Ok(frame))) =
        timeout_at(deadline, poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).await
    {
        let n = frame.data_ref().map_or(0, |d| d.len() as u64);
        let Some(rest) = left.checked_sub(n) else { return };
        left = rest;
    }
}
