//! The byte stream under hyper: replays the bytes protocol detection read, notes reads, blocked writes and flushes
//! in [`Downstream`], answers for heads that hyper refuses, and closes so that refused clients can read why.
//!
//! hyper looks for the end of a client only while it holds no bytes of it that it has not parsed. A pipelined request,
//! or the stray line end of an old client, would hide that the client left until the engine speaks again. So while an
//! engine is awaited the stream reads ahead itself, within a bound, whenever hyper has no read pending.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::downstream::Downstream;
use super::linger::Linger;
use super::unparsed::Unparsed;
use crate::upstream::Io;

/// Most bytes that are read ahead of hyper.
const AHEAD: usize = 64 * 1024;

/// A client's stream.
#[derive(Debug)]
pub(super) struct Watched {
    io: Io,
    /// Read before hyper asked.
    ahead: BytesMut,
    /// hyper's last read found nothing: the client's next bytes, or its end, wake hyper, which reads again.
    reading: bool,
    down: Arc<Downstream>,
    /// HTTP/1.1 only: on HTTP/2 frames go out at any time, and a bad head is a stream error there.
    unparsed: Option<Box<Unparsed>>,
    /// After our FIN to a refused client.
    linger: Option<Linger>,
}

impl Watched {
    pub(super) fn new(io: Io, first: BytesMut, down: Arc<Downstream>, unparsed: Option<Unparsed>) -> Self {
        Self { io, ahead: first, reading: false, down, unparsed: unparsed.map(Box::new), linger: None }
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

    /// Looks for the client's end in hyper's stead while an engine is awaited.
    fn watch(&mut self, cx: &mut Context<'_>) {
        while self.ahead.len() < AHEAD && self.down.awaits_engine() {
            match poll_read_buf(Pin::new(&mut self.io), cx, &mut self.ahead) {
                Poll::Pending => return,
                Poll::Ready(Ok(n)) if n > 0 => {}
                Poll::Ready(_) => return self.down.mark_left(),
            }
        }
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
        if !this.ahead.is_empty() {
            let n = this.ahead.len().min(buf.remaining());
            buf.put_slice(&this.ahead[..n]);
            this.ahead.advance(n);
            if this.ahead.is_empty() {
                this.ahead = BytesMut::new();
            }
            this.down.received();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let result = Pin::new(&mut this.io).poll_read(cx, buf);
        this.reading = result.is_pending();
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
        // Asked at every turn of hyper's loop.
        if !this.reading {
            this.watch(cx);
        }
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
