//! Closing so that a refused client can read why.
//!
//! A kernel that closes a socket with bytes unread sends a reset, and a reset makes the client's kernel throw away what
//! it has received: the refusal itself. So after our FIN a refused client's bytes are read and dropped for a little
//! while (RFC 9112 §9.6).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

/// For how long.
const TIME: Duration = Duration::from_secs(2);
/// How much, bytes: what a client may have had under way.
const BYTES: usize = 16 << 20;

/// The wait after our FIN.
#[derive(Debug)]
pub(super) struct Linger {
    until: Pin<Box<Sleep>>,
    left: usize,
}

impl Linger {
    pub(super) fn new() -> Self {
        Self { until: Box::pin(sleep(TIME)), left: BYTES }
    }

    /// Ready when the client has closed too, or when it was waited for long enough.
    pub(super) fn poll<R>(&mut self, io: &mut R, cx: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
    {
        let mut room = [0; 4096];
        while self.until.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut *io).poll_read(cx, &mut buf))?;
            let n = buf.filled().len();
            self.left = self.left.saturating_sub(n);
            if n == 0 || self.left == 0 {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}
