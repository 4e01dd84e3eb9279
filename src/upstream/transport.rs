//! The byte stream under an upstream connection, and how it is dialled.
//!
//! TCP is the common case and stays a plain enum arm, so reads and writes are direct calls. Everything else (in-memory
//! pipes in tests on a paused clock) goes through one boxed arm.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::resolve::Names;

/// Any other byte stream.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// One connected byte stream.
pub enum Io {
    Tcp(TcpStream),
    Boxed(Box<dyn Duplex>),
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(stream) => stream.fmt(f),
            Self::Boxed(_) => f.write_str("Io::Boxed"),
        }
    }
}

impl Io {
    /// Moves the stream to the runtime of the calling thread: its readiness is then delivered here and wakes no
    /// other core. Two system calls on TCP, nothing elsewhere.
    pub fn rehome(self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => Ok(Self::Tcp(TcpStream::from_std(stream.into_std()?)?)),
            Self::Boxed(_) => Ok(self),
        }
    }

    /// True when nothing waits to be read: neither bytes nor an end. An idle HTTP/1.1 connection on which something
    /// is readable is closed or broken. `ask_kernel` looks at the socket itself; without it the runtime's last
    /// readiness is trusted, which costs no system call but can be a few microseconds old.
    pub(super) fn quiet(&mut self, ask_kernel: bool) -> bool {
        match self {
            Self::Tcp(stream) => {
                if ask_kernel {
                    let mut byte = [std::mem::MaybeUninit::uninit()];
                    matches!(socket2::SockRef::from(&*stream).peek(&mut byte),
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock)
                } else {
                    matches!(stream.try_read(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
                }
            }
            Self::Boxed(stream) => {
                let mut byte = [0];
                let mut buf = ReadBuf::new(&mut byte);
                let mut cx = Context::from_waker(std::task::Waker::noop());
                Pin::new(stream).poll_read(&mut cx, &mut buf).is_pending()
            }
        }
    }
}

/// Gathering writes of at most this many bytes are copied together first.
const COALESCE: usize = 1024;

/// All of `bufs` in `space`, if they fit and there are at least two.
#[inline]
fn coalesced<'a>(bufs: &[io::IoSlice<'_>], space: &'a mut [u8; COALESCE]) -> Option<&'a [u8]> {
    let mut len = 0;
    for buf in bufs {
        space.get_mut(len..len + buf.len())?.copy_from_slice(buf);
        len += buf.len();
    }
    (bufs.len() > 1).then_some(&space[..len])
}

impl AsyncRead for Io {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Boxed(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Boxed(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            // A plain send of a small copy is cheaper than a gathering write: no vector to bring into the kernel.
            Self::Tcp(stream) => match coalesced(bufs, &mut [0; COALESCE]) {
                Some(small) => Pin::new(stream).poll_write(cx, small),
                None => Pin::new(stream).poll_write_vectored(cx, bufs),
            },
            Self::Boxed(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Boxed(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Boxed(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Boxed(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A dial in progress. Boxed: dialling is rare and slow beside an allocation.
pub type DialFuture = Pin<Box<dyn Future<Output = io::Result<Io>> + Send>>;

/// How connections to engines are made.
pub trait Dial: Send + Sync + fmt::Debug {
    /// Connects to `host` (a name or an IP address, IPv6 without brackets) at `port`. No time limit of its own.
    fn dial(&self, host: &str, port: u16) -> DialFuture;
}

/// TCP, with `TCP_NODELAY`. Every address of a name is tried, beginning with any of them: a resolver that always answers in
/// the same order must not give all connections to the first.
#[derive(Debug, Clone, Default)]
pub struct TcpDial {
    names: Arc<Names>,
}

impl Dial for TcpDial {
    fn dial(&self, host: &str, port: u16) -> DialFuture {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Box::pin(async move { connected(TcpStream::connect((ip, port)).await?) });
        }
        let (names, host) = (Arc::clone(&self.names), host.to_owned());
        Box::pin(async move {
            let mut addresses = names.resolve(&host, port).await?;
            begin_anywhere(&mut addresses);
            connected(TcpStream::connect(addresses.as_slice()).await?)
        })
    }
}

/// Among those of the family that the system prefers.
fn begin_anywhere(addresses: &mut [SocketAddr]) {
    let first = addresses.first().map(SocketAddr::is_ipv4);
    let same = addresses.iter().take_while(|at| Some(at.is_ipv4()) == first).count();
    if let (Some(preferred), 2..) = (addresses.get_mut(..same), same) {
        preferred.rotate_left(fastrand::usize(..same));
    }
}

fn connected(stream: TcpStream) -> io::Result<Io> {
    stream.set_nodelay(true)?;
    Ok(Io::Tcp(stream))
}

#[cfg(test)]
#[path = "tests/transport.rs"]
mod tests;
