//! Under the HTTP server: every byte received, and the moment the peer left, go to the log as the socket gave them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::log::{Left, Log};
use super::socket::Socket;

/// Ends a connection from the inside of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Cut {
    pub(super) now: CancellationToken,
    reset: Arc<AtomicBool>,
}

impl Cut {
    /// `reset`: not a FIN but a RST.
    pub(super) fn cut(&self, reset: bool) {
        self.reset.store(reset, Ordering::Release);
        self.now.cancel();
    }
}

/// A recorded connection.
pub(super) struct Tap {
    socket: Box<dyn Socket>,
    log: Log,
    conn: u64,
    cut: Cut,
}

impl Tap {
    pub(super) fn new(socket: Box<dyn Socket>, log: Log, conn: u64, cut: Cut) -> Self {
        Self { socket, log, conn, cut }
    }

    fn failed(&self, error: &io::Error) {
        if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
            self.log.left(self.conn, Left::Reset);
        }
    }
}

impl AsyncRead for Tap {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (before, room) = (buf.filled().len(), buf.remaining());
        let result = ready!(Pin::new(&mut this.socket).poll_read(cx, buf));
        match &result {
            Ok(()) if buf.filled().len() > before => this.log.received(this.conn, &buf.filled()[before..]),
            Ok(()) if room > 0 => this.log.left(this.conn, Left::Fin),
            Ok(()) => {}
            Err(error) => this.failed(error),
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for Tap {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = ready!(Pin::new(&mut this.socket).poll_write(cx, buf));
        if let Err(error) = &result {
            this.failed(error);
        }
        Poll::Ready(result)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if self.cut.reset.load(Ordering::Acquire) {
            self.socket.arm_reset();
        }
    }
}
