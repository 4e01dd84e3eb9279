//! An HTTP/1.1 answer as a raw client saw it.

use crate::testkit::wire::PeerEnd;
use crate::testkit::wire::head::{Framing, Headers, declared, parse};
use crate::types::clock::Instant;

/// Status line and headers.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    pub version: String,
    pub status: u16,
    pub reason: String,
    pub headers: Headers,
    /// Exact bytes, the blank line included.
    pub raw: Vec<u8>,
    /// When it was complete.
    pub at: Instant,
}

impl ResponseHead {
    pub(super) fn from_bytes(raw: &[u8], at: Instant) -> Result<Self, String> {
        let (start, headers) = parse(raw)?;
        let bad = || format!("status line {start:?}");
        let (version, rest) = start.split_once(' ').ok_or_else(bad)?;
        let (status, reason) = rest.split_once(' ').unwrap_or((rest, ""));
        let digits = status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit());
        if !digits || !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
            return Err(bad());
        }
        let status = status.parse().map_err(|_| bad())?;
        let (version, reason) = (version.to_owned(), reason.to_owned());
        Ok(Self { version, status, reason, headers, raw: raw.to_vec(), at })
    }

    /// How the body that follows is delimited, given whether the request was a HEAD.
    pub fn framing(&self, to_head_request: bool) -> Result<Framing, String> {
        let stated = declared(&self.headers)?;
        let bodiless = to_head_request || self.status < 200 || matches!(self.status, 204 | 304);
        Ok(if bodiless { Framing::Empty } else { stated.unwrap_or(Framing::UntilClose) })
    }
}

/// How a body was framed, and how far it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyFraming {
    Empty,
    /// Bytes declared and received; fewer than declared means that the connection ended before.
    Length {
        declared: u64,
        received: u64,
    },
    /// With its last chunk.
    Chunked {
        chunks: Vec<u64>,
        trailers: Vec<String>,
    },
    /// The connection ended before the last chunk.
    ChunkedTruncated,
    /// Ended by the end of the connection.
    Close(PeerEnd),
}

/// One whole answer.
#[derive(Debug, Clone)]
pub struct RawResponse {
    /// 1xx answers that came before.
    pub informational: Vec<ResponseHead>,
    pub head: ResponseHead,
    /// Payload.
    pub body: Vec<u8>,
    /// Exact bytes of the body, chunk framing included.
    pub raw_body: Vec<u8>,
    pub framing: BodyFraming,
    /// When its last byte was received, or its end was seen.
    pub ended_at: Instant,
}

impl RawResponse {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// First value of a header, any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)
    }

    /// Whether the message ended by its own framing, or by an orderly close where nothing else delimits it.
    pub fn is_complete(&self) -> bool {
        match &self.framing {
            BodyFraming::Empty | BodyFraming::Chunked { .. } => true,
            BodyFraming::Length { declared, received } => declared == received,
            BodyFraming::ChunkedTruncated => false,
            BodyFraming::Close(end) => *end == PeerEnd::Fin,
        }
    }

    /// The payload as text; panics when it is none.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The payload as JSON; panics, showing it, when it is none.
    pub fn json(&self) -> serde_json::Value {
        let parsed = serde_json::from_slice(&self.body);
        parsed.unwrap_or_else(|error| panic!("{error} in {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The payload's server-sent events.
    pub fn events(&self) -> Vec<crate::testkit::sse::Event> {
        crate::testkit::sse::parse(&self.body)
    }
}
