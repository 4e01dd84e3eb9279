//! One request out, one final response head back, both directions at once: an engine may answer before it has read the
//! whole request (413, 401), and then the upload stops and the connection is not used again.

use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::io::AsyncWrite;

use super::conn::Conn;
use super::error::{Fault, LegError, Written};
use super::head::{self, Head};
use crate::types::clock::{self, Instant};

/// Most interim (1xx) answers before the final one.
const MAX_INTERIM: u8 = 16;
/// Most segments of one vectored write; a request has a head and a handful of body pieces.
const MAX_SEGMENTS: usize = 16;

/// A request ready for the wire: head, then body pieces, together exactly one HTTP/1.1 message.
#[derive(Debug, Clone)]
pub struct Outbound {
    pub method: Method,
    /// Head first. Pieces share the client's body; nothing is copied.
    pub segments: Vec<Bytes>,
}

/// Time limits of one exchange. `None`: no limit.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the request written to the final head.
    pub first_byte: Option<Duration>,
    /// Longest time without progress while the request is written.
    pub write_stall: Option<Duration>,
    /// When the whole client request must be over.
    pub deadline: Option<Instant>,
}

/// A head was read.
#[derive(Debug)]
pub struct Answer {
    pub head: Head,
    /// The whole request was written, so the connection can be used again after the message.
    pub sent_all: bool,
}

impl Answer {
    /// Whether the connection can carry another request once this answer was read to its end.
    pub fn is_reusable(&self) -> bool {
        self.sent_all && self.head.keep_alive
    }
}

/// Writes `out` on `conn` and reads the final head. `idle` is how long a pooled connection had waited.
pub async fn exchange(
    conn: &mut Conn,
    out: &Outbound,
    limits: Limits,
    idle: Option<Duration>,
) -> Result<Answer, LegError> {
    let now = clock::recent();
    let mut exchange = Exchange {
        conn,
        method: &out.method,
        segments: &out.segments,
        at: 0,
        offset: 0,
        write_failed: false,
        first_write: None,
        progress: now,
        interim: 0,
        answered: false,
        limits,
        idle,
    };
    exchange.skip_empty();
    exchange.await
}

struct Exchange<'a> {
    conn: &'a mut Conn,
    method: &'a Method,
    segments: &'a [Bytes],
    /// Segment being written, and bytes of it that are out.
    at: usize,
    offset: usize,
    /// The engine refused more bytes; it may still have answered.
    write_failed: bool,
    first_write: Option<Instant>,
    progress: Instant,
    interim: u8,
    answered: bool,
    limits: Limits,
    idle: Option<Duration>,
}

impl Future for Exchange<'_> {
    type Output = Result<Answer, LegError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if !this.written_all() && !this.write_failed {
            this.poll_write(cx);
        }
        if let Some(result) = this.poll_head(cx) {
            return Poll::Ready(result);
        }
        this.poll_timer(cx)
    }
}

impl Exchange<'_> {
    fn written_all(&self) -> bool {
        self.at == self.segments.len()
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) {
        while !self.written_all() {
            let mut slices = [IoSlice::new(&[]); MAX_SEGMENTS];
            let mut count = 0;
            for (slice, segment) in slices.iter_mut().zip(&self.segments[self.at..]) {
                let skip = if count == 0 { self.offset } else { 0 };
                *slice = IoSlice::new(&segment[skip..]);
                count += 1;
            }
            match Pin::new(&mut self.conn.io).poll_write_vectored(cx, &slices[..count]) {
                Poll::Ready(Ok(n)) if n > 0 => self.advance(n),
                Poll::Ready(_) => {
                    self.write_failed = true;
                    return;
                }
                Poll::Pending => return,
            }
        }
    }

    fn advance(&mut self, mut n: usize) {
        self.progress = clock::recent();
        self.first_write.get_or_insert(self.progress);
        while n > 0 {
            let left = self.segments[self.at].len() - self.offset;
            if n < left {
                self.offset += n;
                return;
            }
            n -= left;
            self.at += 1;
            self.offset = 0;
        }
        self.skip_empty();
    }

    /// A write of nothing would look like a closed connection.
    fn skip_empty(&mut self) {
        while self.segments.get(self.at).is_some_and(Bytes::is_empty) {
            self.at += 1;
        }
    }

    /// `None`: wait.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Option<Result<Answer, LegError>> {
        loop {
            if !self.conn.buf.is_empty() {
                // Left over from before, or said on closing: no answer to a request the engine has not seen.
                if self.first_write.is_none() {
                    return Some(Err(self.error(Fault::Malformed("bytes before the request"))));
                }
                self.answered = true;
                match head::parse(&mut self.conn.buf, self.method) {
                    Ok(Some(head)) if head.status == http::StatusCode::SWITCHING_PROTOCOLS => {
                        return Some(Err(self.error(Fault::Malformed("101 without a request to switch"))));
                    }
                    Ok(Some(head)) if head.status.is_informational() => {
                        self.interim += 1;
                        if self.interim > MAX_INTERIM {
                            return Some(Err(self.error(Fault::Malformed("too many interim answers"))));
                        }
                        continue;
                    }
                    Ok(Some(head)) => return Some(Ok(Answer { head, sent_all: self.written_all() })),
                    Ok(None) => {}
                    Err(rule) => return Some(Err(self.error(Fault::Malformed(rule)))),
                }
            }
            match self.conn.poll_fill(cx) {
                Poll::Ready(Ok(n)) if n > 0 => {}
                Poll::Ready(_) => return Some(Err(self.error(Fault::Lost))),
                Poll::Pending => return None,
            }
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, LegError>> {
        let Some((deadline, fault)) = self.deadline() else { return Poll::Pending };
        self.conn.poll_until(cx, deadline).map(|()| Err(self.error(fault)))
    }

    /// What is awaited now, until when, and what it is called when it does not come.
    fn deadline(&self) -> Option<(Instant, Fault)> {
        let step = if self.written_all() || self.write_failed {
            self.limits.first_byte.map(|d| (self.progress + d, Fault::FirstByteTimeout))
        } else {
            self.limits.write_stall.map(|d| (self.progress + d, Fault::WriteStall))
        };
        let total = self.limits.deadline.map(|at| (at, Fault::TotalTimeout));
        match (step, total) {
            (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
            (a, b) => a.or(b),
        }
    }

    fn error(&self, fault: Fault) -> LegError {
        let written = match (self.written_all(), self.first_write) {
            (true, _) => Written::All,
            (false, Some(_)) => Written::Part,
            (false, None) => Written::Nothing,
        };
        let reused = self.idle.map(|idle| {
            let since =
                self.first_write.map_or(Duration::ZERO, |t| clock::recent().saturating_duration_since(t));
            (idle, since)
        });
        LegError { fault, written, answered: self.answered, reused }
    }
}

#[cfg(test)]
#[path = "tests/exchange.rs"]
mod tests;
