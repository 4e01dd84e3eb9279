//! Named in-memory hosts: the network of paused-clock tests.
//!
//! [`MemoryStream`] is a pair of pipes that, unlike a bare duplex stream, can be *reset*: the peer then reads
//! what was already written and gets `ConnectionReset` after it, which is what a Linux TCP socket does.
//! Two things a kernel does are missing: closing with unread bytes is a FIN here and a RST there, and writing
//! to a closed peer fails at once here instead of one write later.
//!
//! [`MemoryNet`] maps names to accept queues. The engine side and the router's listener seam both accept from
//! a [`MemoryListener`]; a dialer closure calls [`MemoryNet::dial_host`].

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;

/// Bytes that one direction of a connection holds unless [`MemoryNet::with_buffer`] says otherwise.
pub const DEFAULT_BUFFER: usize = 64 * 1024;

/// One end of an in-memory connection.
#[derive(Debug)]
pub struct MemoryStream {
    io: DuplexStream,
    /// Set by us when our drop is to be a reset.
    ours: Arc<AtomicBool>,
    theirs: Arc<AtomicBool>,
}

impl MemoryStream {
    /// Two connected ends; each direction buffers so many bytes.
    pub fn pair(buffer: usize) -> (Self, Self) {
        let (left, right) = tokio::io::duplex(buffer);
        let (a, b) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        (Self { io: left, ours: a.clone(), theirs: b.clone() }, Self { io: right, ours: b, theirs: a })
    }

    /// After this, dropping this end resets the connection.
    pub fn arm_reset(&self) {
        self.ours.store(true, Ordering::Release);
    }

    fn was_reset(&self) -> bool {
        self.theirs.load(Ordering::Acquire)
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let room = buf.remaining();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        let ended = room > 0 && buf.filled().len() == before;
        Poll::Ready(if ended && this.was_reset() {
            Err(io::ErrorKind::ConnectionReset.into())
        } else {
            Ok(())
        })
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = ready!(Pin::new(&mut this.io).poll_write(cx, buf));
        let reset = result.is_err() && this.was_reset();
        Poll::Ready(if reset { Err(io::ErrorKind::ConnectionReset.into()) } else { result })
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

/// Mock engines serve it and dial over it.
impl crate::engine::Socket for MemoryStream {
    fn arm_reset(&self) {
        Self::arm_reset(self);
    }
}

/// What dialling a name meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DialFault {
    #[default]
    None,
    /// `ConnectionRefused`, at once.
    Refuse,
    /// Never answered.
    BlackHole,
    /// This error of the operating system (`errno`), at once.
    Os(i32),
    /// Connected after this long.
    Delay(Duration),
    /// A fault of the router itself: whoever dials panics.
    Panic,
}

#[derive(Debug, Default)]
struct Host {
    queue: Option<mpsc::UnboundedSender<MemoryStream>>,
    fault: DialFault,
    dials: u64,
}

/// A set of names that can be listened on and dialled. Clones share it.
#[derive(Debug, Clone)]
pub struct MemoryNet {
    hosts: Arc<Mutex<HashMap<String, Host>>>,
    buffer: usize,
}

impl Default for MemoryNet {
    fn default() -> Self {
        Self { hosts: Arc::default(), buffer: DEFAULT_BUFFER }
    }
}

impl MemoryNet {
    pub fn new() -> Self {
        Self::default()
    }

    /// The same network with this much room per direction on connections dialled through this clone.
    #[must_use]
    pub fn with_buffer(mut self, bytes: usize) -> Self {
        self.buffer = bytes;
        self
    }

    /// Takes over the name; an earlier listener of it gets no more connections.
    pub fn listen(&self, name: &str) -> MemoryListener {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.hosts.lock().entry(name.to_owned()).or_default().queue = Some(sender);
        MemoryListener { name: name.to_owned(), queue: receiver }
    }

    /// Connects; `ConnectionRefused` when nobody listens on the name.
    pub async fn dial(&self, name: &str) -> io::Result<MemoryStream> {
        match self.begin_dial(name) {
            DialFault::None => self.connect(name),
            DialFault::Refuse => Err(io::ErrorKind::ConnectionRefused.into()),
            DialFault::Os(errno) => Err(io::Error::from_raw_os_error(errno)),
            DialFault::BlackHole => std::future::pending().await,
            DialFault::Panic => panic!("as asked for by a test"),
            DialFault::Delay(delay) => {
                tokio::time::sleep(delay).await;
                self.connect(name)
            }
        }
    }

    /// [`Self::dial`] for a URL's host and port: the name `host:port` first, then `host`.
    pub async fn dial_host(&self, host: &str, port: u16) -> io::Result<MemoryStream> {
        let full = format!("{host}:{port}");
        let name = if self.hosts.lock().contains_key(&full) { full.as_str() } else { host };
        self.dial(name).await
    }

    pub fn set_fault(&self, name: &str, fault: DialFault) {
        self.hosts.lock().entry(name.to_owned()).or_default().fault = fault;
    }

    /// How often the name was dialled, refused and unanswered dials included.
    pub fn dials(&self, name: &str) -> u64 {
        self.hosts.lock().get(name).map_or(0, |host| host.dials)
    }

    fn begin_dial(&self, name: &str) -> DialFault {
        let mut hosts = self.hosts.lock();
        let host = hosts.entry(name.to_owned()).or_default();
        host.dials += 1;
        host.fault
    }

    fn connect(&self, name: &str) -> io::Result<MemoryStream> {
        let (near, far) = MemoryStream::pair(self.buffer);
        let hosts = self.hosts.lock();
        let queue = hosts.get(name).and_then(|host| host.queue.as_ref());
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        queue.ok_or_else(refused)?.send(far).map_err(|_| refused())?;
        Ok(near)
    }
}

/// The accept queue of one name; dropping it refuses later dials.
#[derive(Debug)]
pub struct MemoryListener {
    name: String,
    queue: mpsc::UnboundedReceiver<MemoryStream>,
}

impl MemoryListener {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next connection; an error once the network is gone. Cancel-safe.
    pub async fn accept(&mut self) -> io::Result<MemoryStream> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<MemoryStream>> {
        self.queue.poll_recv(cx).map(|stream| stream.ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}
