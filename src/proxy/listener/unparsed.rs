//! Requests whose head hyper cannot parse: their clients get the same kind of answer as everybody (I13).
//!
//! For such a head hyper calls no service: it writes a bare 400, 414 or 431 of its own and closes. The stream under it
//! can tell, because hyper then writes although no answer of ours is [owed](Downstream::owes_answer). That one write is
//! swallowed and a complete answer from the error table goes out in its place; it is counted, logged and timed like any
//! other. Where an earlier answer on the connection is still stuck in hyper's buffer both leave as one write, and
//! hyper's bare answer stays as it is.

use std::fmt::Write as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::Body;
use tokio::io::AsyncWrite;

use super::downstream::Downstream;
use crate::proxy::context::Worker;
use crate::proxy::pipeline;
use crate::proxy::relay::OutBody;

/// What one HTTP/1.1 connection keeps for that case.
#[derive(Debug)]
pub(super) struct Unparsed {
    worker: Arc<Worker>,
    answer: Option<Answer>,
}

/// The answer on its way out.
#[derive(Debug)]
struct Answer {
    bytes: Bytes,
    /// Ends, and with it its request, when all bytes have left.
    _body: OutBody,
}

impl Unparsed {
    pub(super) fn new(worker: Arc<Worker>) -> Self {
        Self { worker, answer: None }
    }

    /// Whether hyper's bytes are to be dropped, because an answer of ours now goes out instead.
    pub(super) fn replaces(&mut self, down: &Arc<Downstream>, head: &[u8], cx: &mut Context<'_>) -> bool {
        let Some((status, date)) = status_and_date(head) else { return false };
        let response = pipeline::unparsed(Arc::clone(&self.worker), down, status);
        self.answer = Some(Answer::of(response, date, cx));
        true
    }

    pub(super) fn is_sending(&self) -> bool {
        self.answer.is_some()
    }

    /// Writes what is left of the answer.
    pub(super) fn poll_send<W>(&mut self, io: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        while let Some(answer) = &mut self.answer {
            if !answer.bytes.has_remaining() {
                self.answer = None;
                break;
            }
            let n = ready!(Pin::new(&mut *io).poll_write(cx, &answer.bytes))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            answer.bytes.advance(n);
        }
        Poll::Ready(Ok(()))
    }
}

impl Answer {
    /// The response as HTTP/1.1. Its body is a complete one of ours: it never waits.
    fn of(response: Response<OutBody>, date: Option<&[u8]>, cx: &mut Context<'_>) -> Self {
        let (parts, mut body) = response.into_parts();
        let mut bytes = BytesMut::with_capacity(1024);
        let _ = write!(bytes, "HTTP/1.1 {}\r\n", parts.status);
        let lines = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        for (name, value) in lines.chain(date.map(|date| ("date", date))) {
            bytes.put_slice(name.as_bytes());
            bytes.put_slice(b": ");
            bytes.put_slice(value);
            bytes.put_slice(b"\r\n");
        }
        bytes.put_slice(b"\r\n");
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(cx) {
            if let Ok(data) = frame.into_data() {
                bytes.put(data);
            }
        }
        Self { bytes: bytes.freeze(), _body: body }
    }
}

/// Of hyper's own answer; `None` if these bytes are no such thing.
fn status_and_date(head: &[u8]) -> Option<(StatusCode, Option<&[u8]>)> {
    let mut slots = [httparse::EMPTY_HEADER; 8];
    let mut parsed = httparse::Response::new(&mut slots);
    let complete = parsed.parse(head).ok()?.is_complete();
    let status = StatusCode::from_u16(parsed.code?).ok().filter(|s| complete && s.is_client_error())?;
    let date = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case("date")).map(|h| h.value);
    Some((status, date))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_client_error_is_taken_for_hypers_own() {
        let head = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ndate: d\r\n\r\n";
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        assert_eq!(status_and_date(head), Some((status, Some(b"d".as_slice()))));
        for other in [&head[..head.len() - 1], b"HTTP/1.1 200 OK\r\n\r\n", b"0\r\n\r\n", b""] {
            assert_eq!(status_and_date(other), None);
        }
    }
}
