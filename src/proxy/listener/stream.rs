//! The byte stream under hyper: replays the bytes protocol detection read, notes reads, blocked writes and flushes
//! in [`Downstream`], answers for heads that hyper refuses, and closes so that refused clients can read why.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::downstream::Downstream;
use super::linger::Linger;
use super::unparsed::Unparsed;
use crate::upstream::Io;

/// A client's stream.
#[derive(Debug)]
pub(super) struct Watched {
    io: Io,
    /// Read before hyper took over.
    first: Bytes,
    down: Arc<Downstream>,
    /// HTTP/1.1 only: on HTTP/2 frames go out at any time, and a bad head is a stream error there.
    unparsed: Option<Box<Unparsed>>,
    /// After our FIN to a refused client.
    linger: Option<Linger>,
}

impl Watched {
    pub(super) fn new(io: Io, first: Bytes, down: Arc<Downstream>, unparsed: Option<Unparsed>) -> Self {
        Self { io, first, down, unparsed: unparsed.map(Box::new), linger: None }
    }

    /// Whether a write of hyper's is its own answer to a head it could not parse, and was replaced.
    #[inline]
    fn replaced(&mut self, head: &[u8], cx: &mut Context<'_>) -> bool {
        match &mut self.unparsed {
            Some(unparsed) if !self.down.owes_answer() => unparsed.replaces(&self.down, head, cx),
            _ => false,
        }
    }

    /// What replaced hyper's bytes leaves before anything else.
    #[inline]
    fn poll_replacement(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(unparsed) = self.unparsed.as_mut().filter(|u| u.is_sending()) else {
            return Poll::Ready(Ok(()));
        };
        let sent = unparsed.poll_send(&mut self.io, cx);
        match &sent {
            Poll::Ready(_) => self.down.write_progressed(),
            Poll::Pending => self.down.write_blocked(),
        }
        sent
    }

    #[inline]
    fn note(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Ready(_) => self.down.write_progressed(),
            Poll::Pending => self.down.write_blocked(),
        }
        result
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.first.is_empty() {
            let n = this.first.len().min(buf.remaining());
            buf.put_slice(&this.first[..n]);
            this.first.advance(n);
            if this.first.is_empty() {
                this.first = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let result = Pin::new(&mut this.io).poll_read(cx, buf);
        if buf.filled().len() > before {
            this.down.received();
        }
        result
    }
}

impl AsyncWrite for Watched {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_replacement(cx))?;
        if this.replaced(buf, cx) {
            return Poll::Ready(Ok(buf.len()));
        }
        let result = Pin::new(&mut this.io).poll_write(cx, buf);
        this.note(result)
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_replacement(cx))?;
        if this.replaced(bufs.first().map_or(&[], |b| b), cx) {
            return Poll::Ready(Ok(bufs.iter().map(|b| b.len()).sum()));
        }
        let result = Pin::new(&mut this.io).poll_write_vectored(cx, bufs);
        this.note(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_replacement(cx))?;
        let result = Pin::new(&mut this.io).poll_flush(cx);
        if let Poll::Ready(Ok(())) = result {
            this.down.flushed();
        }
        result
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_replacement(cx))?;
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            if !this.down.was_refused() {
                return Poll::Ready(Ok(()));
            }
        }
        this.linger.get_or_insert_with(Linger::new).poll(&mut this.io, cx)
    }
}
