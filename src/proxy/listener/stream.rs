//! The byte stream under hyper: replays the bytes protocol detection read, and notes reads, blocked writes and flushes
//! in [`Downstream`].
//!
//! hyper looks for the end of a client only while it holds no bytes of it that it has not parsed. A pipelined request,
//! or the stray line end of an old client, would hide that the client left until the engine speaks again. So while an
//! engine is awaited the stream reads ahead itself, within a bound, whenever hyper has no read pending.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::downstream::Downstream;
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
}

impl Watched {
    pub(super) fn new(io: Io, first: BytesMut, down: Arc<Downstream>) -> Self {
        Self { io, ahead: first, reading: false, down }
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
        let result = Pin::new(&mut this.io).poll_write_vectored(cx, bufs);
        this.note(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
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
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
