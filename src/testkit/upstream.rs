//! The product's upstream client over scripted bytes, without a runtime: what it makes of an answer, byte for byte.
//!
//! Shared by the property tests and the fuzz target, which hold it against their own idea of the answer.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::upstream::{Conn, Decoder, Fault, Frame, Io, Limits, Outbound, exchange};

/// What became of one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// `None`: no final head was read.
    pub status: Option<StatusCode>,
    pub headers: HeaderMap,
    /// All payload that was handed out, also before a fault.
    pub body: Vec<u8>,
    /// The clean end and whether the connection could go back to its pool, or what was wrong.
    pub end: Result<bool, Fault>,
    /// Bytes of the script behind the last byte used, read or not.
    pub left: usize,
}

/// Sends a request and plays `script` as the answer, in pieces of the lengths in `cuts` and then the rest, then the end
/// of the stream.
pub fn receive(script: &[u8], cuts: &[u8], method: &Method) -> Received {
    let mut pieces = VecDeque::new();
    let mut rest = Bytes::copy_from_slice(script);
    for &length in cuts {
        pieces.push_back(rest.split_to(usize::from(length).min(rest.len())));
    }
    pieces.push_back(rest);
    let unread = Arc::new(AtomicUsize::new(script.len()));
    let stream = Scripted { pieces, unread: Arc::clone(&unread), waited: false };
    let mut conn = Conn::new(Io::Boxed(Box::new(stream)), 0);
    let mut received =
        Received { status: None, headers: HeaderMap::new(), body: Vec::new(), end: Ok(false), left: 0 };
    received.end = run(read(&mut conn, method, &mut received));
    received.left = unread.load(Ordering::Relaxed) + conn.buffer().len();
    received
}

/// As dispatch and relay do it.
async fn read(conn: &mut Conn, method: &Method, into: &mut Received) -> Result<bool, Fault> {
    let request = Bytes::from_static(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let out = Outbound { method: method.clone(), segments: vec![request] };
    let limits = Limits { first_byte: None, write_stall: None, deadline: None };
    let answer = exchange(conn, &out, limits, None).await.map_err(|error| error.fault)?;
    into.status = Some(answer.head.status);
    into.headers = answer.head.headers;
    let mut decoder = Decoder::new(answer.head.framing);
    loop {
        match decoder.step(conn.buffer()).map_err(Fault::Malformed)? {
            Frame::Data(data) => {
                assert!(!data.is_empty(), "a frame without payload");
                into.body.extend_from_slice(&data);
            }
            Frame::End => return Ok(answer.sent_all && answer.head.keep_alive && conn.buffer().is_empty()),
            Frame::NeedMore => match conn.fill().await {
                Ok(n) if n > 0 => {}
                Ok(_) if decoder.eof().is_ok() => return Ok(false),
                _ => return Err(Fault::Lost),
            },
        }
    }
}

/// Polls to the end; the script never leaves anybody waiting for good.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
}

#[derive(Debug)]
struct Scripted {
    pieces: VecDeque<Bytes>,
    unread: Arc<AtomicUsize>,
    waited: bool,
}

impl AsyncRead for Scripted {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Every piece is waited for, so that each one is a read of its own.
        this.waited = !this.waited;
        if this.waited {
            return Poll::Pending;
        }
        while let Some(piece) = this.pieces.front_mut() {
            let n = piece.len().min(buf.remaining());
            buf.put_slice(&piece[..n]);
            piece.advance(n);
            this.unread.fetch_sub(n, Ordering::Relaxed);
            if piece.is_empty() {
                this.pieces.pop_front();
            }
            if n > 0 {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Scripted {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
