//! One connection seen from a test: it goes on reading while it writes, sleeps or waits.
//!
//! That is what makes "when did the peer leave?" answerable at any moment of a script, and it keeps a writer
//! and a reader that wait for each other from deadlocking. Polled by hand, so nothing is lost when a wait
//! ends early.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::ReadBuf;

use super::{PeerEnd, Wire};
use crate::types::clock::{Instant, now};

const READ_SIZE: usize = 64 * 1024;

/// What an observer is told, at the moment it happens.
#[derive(Debug, Clone, Copy)]
pub enum PipeEvent {
    Wrote(usize),
    Ended(PeerEnd, Instant),
}

type Observer = Box<dyn Fn(PipeEvent) + Send>;

pub struct Pipe<IO> {
    io: IO,
    /// Received and not yet consumed.
    pub inbuf: BytesMut,
    /// How and when the peer ended, once seen.
    pub end: Option<(PeerEnd, Instant)>,
    /// When each read returned, and how many bytes had come in all by then.
    pub arrivals: Vec<(Instant, u64)>,
    /// While false nothing is read, so the peer meets a full window, and its leaving goes unseen.
    pub reading: bool,
    scratch: Box<[u8]>,
    observer: Option<Observer>,
}

impl<IO> fmt::Debug for Pipe<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unread = String::from_utf8_lossy(&self.inbuf);
        f.debug_struct("Pipe").field("end", &self.end).field("unread", &unread).finish_non_exhaustive()
    }
}

impl<IO: Wire> Pipe<IO> {
    pub fn new(io: IO) -> Self {
        Self {
            io,
            inbuf: BytesMut::new(),
            end: None,
            arrivals: Vec::new(),
            reading: true,
            scratch: vec![0; READ_SIZE].into_boxed_slice(),
            observer: None,
        }
    }

    pub fn observe(&mut self, observer: impl Fn(PipeEvent) + Send + 'static) {
        self.observer = Some(Box::new(observer));
    }

    pub fn io(&self) -> &IO {
        &self.io
    }

    /// Reads at most `READ_SIZE` bytes per read from now on.
    pub fn set_read_size(&mut self, bytes: usize) {
        self.scratch = vec![0; bytes.max(1)].into_boxed_slice();
    }

    /// Bytes received in all.
    pub fn received(&self) -> u64 {
        self.arrivals.last().map_or(0, |(_, total)| *total)
    }

    /// Reads whatever there is and leaves the waker registered.
    fn poll_fill(&mut self, cx: &mut Context<'_>) {
        while self.reading && self.end.is_none() {
            match self.poll_read_once(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => self.ended(PeerEnd::Fin),
                Poll::Ready(Ok(n)) => self.arrivals.push((now(), self.received() + n as u64)),
                Poll::Ready(Err(error)) => self.ended(PeerEnd::from_error(&error)),
            }
        }
    }

    fn poll_read_once(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(&mut self.scratch);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
        self.inbuf.extend_from_slice(buf.filled());
        Poll::Ready(Ok(buf.filled().len()))
    }

    /// Writes and flushes all of it, reading meanwhile. With `until_end`, the peer's end stops the write.
    pub async fn write_all(&mut self, bytes: &[u8], until_end: bool) -> io::Result<()> {
        let mut at = 0;
        std::future::poll_fn(|cx| self.poll_write_all(cx, bytes, &mut at, until_end)).await
    }

    fn poll_write_all(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        at: &mut usize,
        until_end: bool,
    ) -> Poll<io::Result<()>> {
        self.poll_fill(cx);
        if until_end && self.end.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        while *at < bytes.len() {
            let wrote = ready!(Pin::new(&mut self.io).poll_write(cx, &bytes[*at..]));
            let wrote = self.note(wrote)?;
            *at += wrote;
            self.tell(PipeEvent::Wrote(wrote));
        }
        let flushed = ready!(Pin::new(&mut self.io).poll_flush(cx));
        Poll::Ready(self.note(flushed))
    }

    /// A write error is how a reset shows when nothing is being read, or after a FIN.
    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && !matches!(self.end, Some((PeerEnd::Rst, _)))
        {
            self.ended(PeerEnd::from_error(error));
        }
        result
    }

    fn ended(&mut self, how: PeerEnd) {
        let at = now();
        self.end = Some((how, at));
        self.tell(PipeEvent::Ended(how, at));
    }

    fn tell(&self, event: PipeEvent) {
        if let Some(observer) = &self.observer {
            observer(event);
        }
    }

    /// Waits for more bytes or for the peer's end.
    pub async fn more(&mut self) {
        let before = self.received();
        std::future::poll_fn(|cx| {
            self.poll_fill(cx);
            let over = self.end.is_some() || self.received() > before;
            if over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Reads what is already there, without waiting.
    pub async fn fill_now(&mut self) {
        std::future::poll_fn(|cx| {
            self.poll_fill(cx);
            Poll::Ready(())
        })
        .await;
    }

    /// Reads until the peer's end.
    pub async fn drain(&mut self) {
        while self.end.is_none() {
            self.more().await;
        }
    }

    /// Sleeps, reading meanwhile; `until_end` cuts it short at the peer's end. True when it slept in full.
    pub async fn sleep(&mut self, duration: Duration, until_end: bool) -> bool {
        let mut sleep = pin!(tokio::time::sleep(duration));
        std::future::poll_fn(|cx| {
            self.poll_fill(cx);
            if until_end && self.end.is_some() {
                return Poll::Ready(false);
            }
            sleep.as_mut().poll(cx).map(|()| true)
        })
        .await
    }

    /// Closes the write side.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| Pin::new(&mut self.io).poll_shutdown(cx)).await
    }

    /// Closes so that the peer sees a reset.
    pub fn reset(self) {
        self.io.arm_reset();
    }
}
