//! What the scripted engine and the raw clients share: transports, heads, framing, splits.
//!
//! Everything here is strict on purpose. The engine judges what a router writes, the client judges what it
//! answers, so leniency would hide the very faults that the tests are for.

pub mod body;
pub mod chunked;
pub mod head;
pub mod pipe;
pub mod split;

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpStream;

use super::memory::MemoryStream;

/// A transport whose close can be turned into a reset.
pub trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// After this, dropping the transport resets the connection instead of closing it in order.
    fn arm_reset(&self);
}

impl Wire for TcpStream {
    /// `SO_LINGER` with zero seconds: the kernel answers `close` with RST and drops unsent bytes.
    fn arm_reset(&self) {
        socket2::SockRef::from(self).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
}

impl Wire for MemoryStream {
    fn arm_reset(&self) {
        MemoryStream::arm_reset(self);
    }
}

/// A bare duplex pipe knows no reset: the peer sees the end of the stream, and `BrokenPipe` when it writes.
impl Wire for DuplexStream {
    fn arm_reset(&self) {}
}

/// How the other side went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerEnd {
    /// An orderly end of stream: closed, or only its write side was.
    Fin,
    /// Reset.
    Rst,
}

impl PeerEnd {
    /// `BrokenPipe` counts as a reset: the peer answers our bytes with one.
    pub fn from_error(_: &io::Error) -> Self {
        Self::Rst
    }
}
