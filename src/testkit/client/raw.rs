//! An HTTP/1.1 client by the byte.
//!
//! It reads only when asked to, or while it writes; [`RawClient::stop_reading`] ends even that. Every wait
//! has a limit, so that a router that hangs fails the test instead of hanging it: 20 s on TCP, a virtual day
//! in memory, where the clock is expected to be paused.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};

use super::response::{BodyFraming, RawResponse, ResponseHead};
use crate::testkit::memory::MemoryStream;
use crate::testkit::wire::body::BodyReader;
use crate::testkit::wire::head::{Framing, head_len};
use crate::testkit::wire::pipe::Pipe;
use crate::testkit::wire::split::Split;
use crate::testkit::wire::{PeerEnd, Wire};
use crate::types::clock::{Instant, now};

const TCP_LIMIT: Duration = Duration::from_secs(20);
const MEMORY_LIMIT: Duration = Duration::from_hours(24);

/// Why an answer could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the server ended ({end:?}) after {received:?}")]
    Ended { end: PeerEnd, received: String },
    #[error("malformed answer: {0}")]
    Malformed(String),
    #[error("nothing for {0:?}")]
    TimedOut(Duration),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One connection.
#[derive(Debug)]
pub struct RawClient<IO> {
    pipe: Pipe<IO>,
    /// Longest wait of any one call.
    pub limit: Duration,
}

impl RawClient<TcpStream> {
    pub async fn connect(addr: SocketAddr) -> Self {
        Self::from_tcp(TcpStream::connect(addr).await.unwrap())
    }

    /// With a receive buffer of about so many bytes, so that not reading is soon felt by the server.
    pub async fn connect_small(addr: SocketAddr, receive_buffer: u32) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(receive_buffer).unwrap();
        Self::from_tcp(socket.connect(addr).await.unwrap())
    }

    fn from_tcp(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self::new(stream, TCP_LIMIT)
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.pipe.io().local_addr().unwrap()
    }
}

impl RawClient<MemoryStream> {
    pub fn in_memory(stream: MemoryStream) -> Self {
        Self::new(stream, MEMORY_LIMIT)
    }
}

impl<IO: Wire> RawClient<IO> {
    pub fn new(io: IO, limit: Duration) -> Self {
        Self { pipe: Pipe::new(io), limit }
    }

    /// Sends these bytes in one write, reading meanwhile.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), ClientError> {
        let limit = self.limit;
        Ok(within(limit, self.pipe.write_all(bytes.as_ref(), false)).await??)
    }

    /// Sends these bytes in pieces, with a pause after each but the last.
    pub async fn send_split(
        &mut self,
        bytes: impl AsRef<[u8]>,
        split: &Split,
        gap: Duration,
    ) -> Result<(), ClientError> {
        let bytes = bytes.as_ref();
        for piece in split.pieces(bytes.len()) {
            let last = piece.end == bytes.len();
            self.send(&bytes[piece]).await?;
            if !last {
                self.pause(gap).await;
            }
        }
        Ok(())
    }

    async fn pause(&mut self, gap: Duration) {
        if gap.is_zero() {
            tokio::task::yield_now().await;
        } else {
            self.pipe.sleep(gap, false).await;
        }
    }

    /// Sends a request and reads its answer.
    pub async fn request(&mut self, bytes: impl AsRef<[u8]>) -> Result<RawResponse, ClientError> {
        self.send(bytes).await?;
        self.read_response().await
    }

    /// Reads one answer to a request that was not a HEAD.
    pub async fn read_response(&mut self) -> Result<RawResponse, ClientError> {
        self.read_answer(false).await
    }

    /// Reads one answer to a HEAD.
    pub async fn read_head_response(&mut self) -> Result<RawResponse, ClientError> {
        self.read_answer(true).await
    }

    async fn read_answer(&mut self, to_head_request: bool) -> Result<RawResponse, ClientError> {
        let mut informational = Vec::new();
        let head = loop {
            let head = self.read_head().await?;
            if head.status >= 200 || head.status == 101 {
                break head;
            }
            informational.push(head);
        };
        self.read_body(informational, head, to_head_request).await
    }

    /// Reads one head, a 1xx included.
    pub async fn read_head(&mut self) -> Result<ResponseHead, ClientError> {
        loop {
            if let Some(len) = head_len(&self.pipe.inbuf) {
                let raw = self.pipe.inbuf.split_to(len);
                return ResponseHead::from_bytes(&raw, now()).map_err(ClientError::Malformed);
            }
            self.more().await?;
        }
    }

    /// Reads the body that belongs to a head from [`Self::read_head`]. A truncated one is no error: see
    /// [`BodyFraming`].
    pub async fn read_rest(&mut self, head: ResponseHead) -> Result<RawResponse, ClientError> {
        self.read_body(Vec::new(), head, false).await
    }

    async fn read_body(
        &mut self,
        informational: Vec<ResponseHead>,
        head: ResponseHead,
        to_head_request: bool,
    ) -> Result<RawResponse, ClientError> {
        let framing = head.framing(to_head_request).map_err(ClientError::Malformed)?;
        let mut reader = BodyReader::new(framing);
        let (mut raw_body, mut body) = (Vec::new(), Vec::new());
        loop {
            let taken = reader.take(&mut self.pipe.inbuf, &mut raw_body, &mut body);
            taken.map_err(ClientError::Malformed)?;
            if reader.is_done() || self.pipe.end.is_some() {
                break;
            }
            within(self.limit, self.pipe.more()).await?;
        }
        let framing = outcome(framing, &reader, self.pipe.end.map(|(end, _)| end));
        Ok(RawResponse { informational, head, body, raw_body, framing, ended_at: now() })
    }

    /// Reads until these bytes have come, and takes everything up to and with them.
    pub async fn read_until(&mut self, needle: &[u8]) -> Result<Vec<u8>, ClientError> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.pipe.inbuf, needle) {
                return Ok(self.pipe.inbuf.split_to(at + needle.len()).to_vec());
            }
            self.more().await?;
        }
    }

    /// Reads until the server ends, and takes everything; how it ended, and when that was seen.
    pub async fn read_to_end(&mut self) -> Result<(Vec<u8>, PeerEnd, Instant), ClientError> {
        within(self.limit, self.pipe.drain()).await?;
        let bytes = std::mem::take(&mut self.pipe.inbuf).to_vec();
        self.pipe.end.map(|(end, at)| (bytes, end, at)).ok_or(ClientError::TimedOut(self.limit))
    }

    /// Whatever was received and not yet consumed, after one look at the transport.
    pub async fn unread(&mut self) -> &[u8] {
        self.pipe.fill_now().await;
        &self.pipe.inbuf
    }

    /// The server's end, if it can be seen by now.
    pub async fn ended(&mut self) -> Option<(PeerEnd, Instant)> {
        self.pipe.fill_now().await;
        self.pipe.end
    }

    /// When each read returned and how many bytes had come in all by then.
    pub fn arrivals(&self) -> &[(Instant, u64)] {
        &self.pipe.arrivals
    }

    /// Closes the write side and goes on reading.
    pub async fn shutdown_write(&mut self) -> Result<(), ClientError> {
        Ok(self.pipe.shutdown().await?)
    }

    /// Leaves with a reset.
    pub fn reset(self) {
        self.pipe.reset();
    }

    /// Leaves with a FIN; with bytes left unread a kernel makes it a reset.
    pub fn close(self) {}

    /// From here on nothing is read, not even while writing.
    pub fn stop_reading(&mut self) {
        self.pipe.reading = false;
    }

    pub fn resume_reading(&mut self) {
        self.pipe.reading = true;
    }

    async fn more(&mut self) -> Result<(), ClientError> {
        if let Some((end, _)) = self.pipe.end {
            let received = String::from_utf8_lossy(&self.pipe.inbuf).into_owned();
            return Err(ClientError::Ended { end, received });
        }
        within(self.limit, self.pipe.more()).await
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, ClientError> {
    tokio::time::timeout(limit, work).await.map_err(|_| ClientError::TimedOut(limit))
}

fn outcome(framing: Framing, reader: &BodyReader, end: Option<PeerEnd>) -> BodyFraming {
    match framing {
        Framing::Empty => BodyFraming::Empty,
        Framing::Length(declared) => BodyFraming::Length { declared, received: declared - reader.missing() },
        Framing::Chunked if reader.is_done() => BodyFraming::Chunked {
            chunks: reader.chunked().sizes.clone(),
            trailers: reader.chunked().trailers.clone(),
        },
        Framing::Chunked => BodyFraming::ChunkedTruncated,
        Framing::UntilClose => BodyFraming::Close(end.unwrap_or(PeerEnd::Rst)),
    }
}
