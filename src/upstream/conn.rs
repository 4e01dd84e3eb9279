//! One connection to an engine: its byte stream, its read buffer, and when it was last used.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::time::{Sleep, sleep_until};
use tokio_util::io::poll_read_buf;

use super::transport::Io;
use crate::types::clock::{self, Instant};

/// First size of a read buffer, bytes; what an idle stream keeps.
const SMALL: usize = 2 * 1024;
/// Size a read buffer grows to while reads fill it.
const LARGE: usize = 64 * 1024;

/// Small, because thousands of connections carry it. One that no pool has (a probe's) is of no thread.
fn thread_number(thread: usize) -> u32 {
    u32::try_from(thread).unwrap_or(u32::MAX)
}

/// An established connection. Dropping it closes it, which is how an engine learns of a cancellation.
#[derive(Debug)]
pub struct Conn {
    pub(super) io: Io,
    pub(super) buf: BytesMut,
    /// How much to make room for: doubled when a read fills the room there was.
    want: u32,
    /// Traffic thread whose runtime drives the stream.
    pub(super) home: u32,
    /// Milliseconds since the process began, as [`clock::ms`] has them.
    pub(super) born: u64,
    /// When it was put into the pool; `None` for a connection not used before.
    pub(super) idle_since: Option<Instant>,
    /// One timer for everything that is waited for on this connection, request after request. It is moved only when
    /// it fires or is too late, so that an answer within its limits never touches the runtime's timers.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Conn {
    /// A fresh connection, driven by the runtime of traffic thread `home`.
    pub fn new(io: Io, home: usize) -> Self {
        let (home, born) = (thread_number(home), clock::ms(clock::recent()));
        Self { io, buf: BytesMut::new(), want: SMALL as u32, home, born, idle_since: None, timer: None }
    }

    /// Bytes that were read and not yet decoded.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buf
    }

    /// Reads once into the buffer. `Ok(0)` is the end of the stream.
    ///
    /// `reserve` takes the old allocation back once every frame cut from it was written and dropped, so a steady
    /// stream allocates nothing. It is asked only when room runs out: while a frame is still on its way it would
    /// allocate anew.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buf.capacity() - self.buf.len() < SMALL / 4 {
            self.buf.reserve(self.want as usize);
        }
        let room = self.buf.capacity() - self.buf.len();
        let n = ready!(poll_read_buf(Pin::new(&mut self.io), cx, &mut self.buf))?;
        if n == room {
            self.want = (self.want * 2).min(LARGE as u32);
        }
        Poll::Ready(Ok(n))
    }

    /// [`poll_fill`](Self::poll_fill) as a future.
    pub async fn fill(&mut self) -> io::Result<usize> {
        poll_fn(|cx| self.poll_fill(cx)).await
    }

    /// Ready once `at` has passed.
    pub fn poll_until(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        loop {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if timer.deadline() > at {
                timer.as_mut().reset(at);
            }
            ready!(timer.as_mut().poll(cx));
            if clock::now() >= at {
                return Poll::Ready(());
            }
            // It was set for something that came in time.
            timer.as_mut().reset(at);
        }
    }

    /// Moves the connection to the calling thread's runtime.
    pub(super) fn rehome(mut self, thread: usize) -> io::Result<Self> {
        self.io = self.io.rehome()?;
        self.home = thread_number(thread);
        self.timer = None;
        Ok(self)
    }

    /// Readies the connection for its time in the pool: a grown buffer is not kept for an idle connection.
    pub(super) fn rest(&mut self) {
        if self.buf.capacity() > SMALL {
            self.buf = BytesMut::new();
        }
        self.want = SMALL as u32;
        self.idle_since = Some(clock::recent());
    }
}
