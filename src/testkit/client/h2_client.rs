//! HTTP/2 by prior knowledge.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::frames::{Frames, Tap};
use crate::testkit::task::spawn;
use crate::testkit::wire::Wire;

/// Longest wait of any one call: real seconds on TCP, virtual ones under a paused clock.
const LIMIT: Duration = Duration::from_hours(1);
const TCP_LIMIT: Duration = Duration::from_secs(20);

/// One connection. Dropping it closes the connection once its streams are over.
#[derive(Debug)]
pub struct H2Client {
    send: SendRequest<Bytes>,
    /// What the server sent.
    pub frames: Frames,
    connection: JoinHandle<Result<(), h2::Error>>,
    /// Longest wait of any one call.
    pub limit: Duration,
}

/// How an answer's body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// With END_STREAM.
    Complete,
    /// With RST_STREAM, or a GOAWAY that covers the stream.
    Reset(Reason),
    /// With the connection, and no word about the stream.
    Lost,
}

/// One whole answer.
#[derive(Debug)]
pub struct H2Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub end: BodyEnd,
    /// The stream's id, to be looked up in [`H2Client::frames`].
    pub stream: u32,
}

impl H2Client {
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self::new(stream, &Builder::new()).await;
        client.limit = TCP_LIMIT;
        client
    }

    /// Over any transport, with any settings.
    pub async fn new<IO: Wire>(io: IO, settings: &Builder) -> Self {
        let (tap, frames) = Tap::new(io);
        let (send, connection) = settings.handshake(tap).await.unwrap();
        Self { send, frames, connection: spawn(connection), limit: LIMIT }
    }

    /// Sends a request with its whole body and reads the whole answer.
    pub async fn request(&mut self, request: Request<()>, body: Bytes) -> Result<H2Response, h2::Error> {
        self.start(request, Some(body)).await?.finish().await
    }

    /// Opens a stream. `None` leaves the request body open, for [`H2Stream::send`].
    pub async fn start(&mut self, request: Request<()>, body: Option<Bytes>) -> Result<H2Stream, h2::Error> {
        let mut send = within(self.limit, self.send.clone().ready()).await?;
        let no_body = body.as_ref().is_some_and(Bytes::is_empty);
        let (response, mut upload) = send.send_request(request, no_body)?;
        let stream = upload.stream_id().into();
        if let Some(body) = body.filter(|body| !body.is_empty()) {
            upload.send_data(body, true)?;
        }
        Ok(H2Stream { response: Some(response), upload, body: None, stream, limit: self.limit })
    }

    /// Waits until the connection is over; an error is the GOAWAY or the transport's.
    pub async fn closed(self) -> Result<(), h2::Error> {
        drop(self.send);
        within(self.limit, self.connection).await.unwrap()
    }

    /// Drops the connection without a word: the transport closes.
    pub fn abort(self) {
        self.connection.abort();
    }
}

/// One open stream.
#[derive(Debug)]
pub struct H2Stream {
    response: Option<ResponseFuture>,
    upload: SendStream<Bytes>,
    body: Option<RecvStream>,
    pub stream: u32,
    limit: Duration,
}

impl H2Stream {
    /// Sends part of the body; flow control permitting, it leaves at once.
    pub fn send(&mut self, data: Bytes, end: bool) -> Result<(), h2::Error> {
        self.upload.send_data(data, end)
    }

    /// Waits for the answer's head; panics when it was taken already.
    pub async fn head(&mut self) -> Result<Response<()>, h2::Error> {
        let response = self.response.take().unwrap();
        let (parts, body) = within(self.limit, response).await?.into_parts();
        self.body = Some(body);
        Ok(Response::from_parts(parts, ()))
    }

    /// The next DATA, or `None` at the end; [`Self::head`] comes first. Its window is given back at once.
    pub async fn data(&mut self) -> Option<Result<Bytes, h2::Error>> {
        let limit = self.limit;
        let body = self.body.as_mut().unwrap();
        let data = within(limit, body.data()).await?;
        if let Ok(data) = &data {
            // The stream may be over by now; then there is no window to give back.
            let _ = body.flow_control().release_capacity(data.len());
        }
        Some(data)
    }

    /// Reads head and body to the end.
    pub async fn finish(mut self) -> Result<H2Response, h2::Error> {
        let (parts, ()) = self.head().await?.into_parts();
        let mut body = Vec::new();
        let end = loop {
            match self.data().await {
                Some(Ok(data)) => body.extend_from_slice(&data),
                Some(Err(error)) => break error.reason().map_or(BodyEnd::Lost, BodyEnd::Reset),
                None => break BodyEnd::Complete,
            }
        };
        Ok(H2Response { status: parts.status, headers: parts.headers, body, end, stream: self.stream })
    }

    /// Sends RST_STREAM with this reason.
    pub fn reset(mut self, reason: Reason) {
        self.upload.send_reset(reason);
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(limit, work).await;
    done.unwrap_or_else(|_| panic!("nothing for {limit:?}"))
}
