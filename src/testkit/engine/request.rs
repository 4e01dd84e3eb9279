//! One request as the engine received it.

use crate::testkit::wire::PeerEnd;
use crate::testkit::wire::head::{Framing, Headers, declared, parse};
use crate::types::clock::Instant;

/// How far the body came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyState {
    /// More is expected.
    Partial,
    Complete,
    /// Its framing broke; see [`RecordedRequest::malformed`].
    Malformed,
}

/// How far the scripted answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseState {
    /// The status of the final answer, where its head was scripted in one step.
    pub status: Option<u16>,
    /// When the first byte was written.
    pub first_byte_at: Option<Instant>,
    /// Bytes handed to the transport, framing included.
    pub written: u64,
    /// When the last step had been played in full; `None` if the peer left, or the script stalls or cuts it.
    pub done_at: Option<Instant>,
}

/// A request, byte-exact. What the log returns is a copy as of that moment.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The connection's number in this log, from 0.
    pub conn: usize,
    /// Which request of its connection, from 0.
    pub ordinal: usize,
    pub method: String,
    /// Request target exactly as sent.
    pub target: String,
    /// `HTTP/1.1` or what came instead.
    pub version: String,
    pub headers: Headers,
    pub framing: Framing,
    /// The head's exact bytes, its blank line included.
    pub head: Vec<u8>,
    /// The body's exact bytes, chunk framing included.
    pub raw_body: Vec<u8>,
    /// The body's payload.
    pub body: Vec<u8>,
    pub body_state: BodyState,
    /// Why it was refused with 400, if it was.
    pub malformed: Option<String>,
    /// When its head was complete.
    pub head_at: Instant,
    /// When its body was complete.
    pub body_at: Option<Instant>,
    /// The peer's end, if it was seen while this request was being read or answered.
    pub peer_left: Option<(PeerEnd, Instant)>,
    pub response: ResponseState,
}

impl RecordedRequest {
    pub(super) fn from_head(conn: usize, ordinal: usize, head: &[u8], at: Instant) -> Self {
        let mut request = Self::empty(conn, ordinal, head, at);
        if let Err(reason) = request.read_head(head) {
            request.malformed = Some(reason);
            request.body_state = BodyState::Malformed;
        }
        request
    }

    fn empty(conn: usize, ordinal: usize, head: &[u8], at: Instant) -> Self {
        Self {
            conn,
            ordinal,
            method: String::new(),
            target: String::new(),
            version: String::new(),
            headers: Headers::default(),
            framing: Framing::Empty,
            head: head.to_vec(),
            raw_body: Vec::new(),
            body: Vec::new(),
            body_state: BodyState::Partial,
            malformed: None,
            head_at: at,
            body_at: None,
            peer_left: None,
            response: ResponseState::default(),
        }
    }

    fn read_head(&mut self, head: &[u8]) -> Result<(), String> {
        let (start, headers) = parse(head)?;
        self.headers = headers;
        let words: Vec<&str> = start.split(' ').collect();
        let [method, target, version] = words[..] else {
            return Err(format!("request line {start:?}"));
        };
        (self.method, self.target, self.version) = (method.into(), target.into(), version.into());
        if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || method.is_empty() || target.is_empty() {
            return Err(format!("request line {start:?}"));
        }
        if version == "HTTP/1.1" && self.headers.all("host").len() != 1 {
            return Err("not exactly one Host".to_owned());
        }
        self.framing = declared(&self.headers)?.unwrap_or(Framing::Empty);
        Ok(())
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    pub fn is_complete(&self) -> bool {
        self.body_state == BodyState::Complete
    }

    /// The body as JSON; `Null` when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Whether the client asked to end the connection after this answer.
    pub fn wants_close(&self) -> bool {
        let close = self.headers.has_token("connection", "close");
        close || (self.version == "HTTP/1.0" && !self.headers.has_token("connection", "keep-alive"))
    }
}
