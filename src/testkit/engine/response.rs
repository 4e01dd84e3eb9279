//! Answers, written exactly as stated: nothing is added but the framing that the body kind implies.

use bytes::Bytes;

use crate::testkit::wire::chunked::{LAST_CHUNK, chunk};

/// The body of an answer and, with it, its framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// No body and no framing header: 204, 304, answers to HEAD.
    Empty,
    /// With `Content-Length`.
    Full(Bytes),
    /// With `Transfer-Encoding: chunked`, one chunk per item, ended by the last chunk.
    Chunked(Vec<Bytes>),
    /// No framing header; ended by closing the connection.
    CloseDelimited(Bytes),
    /// These bytes after the head, whatever the headers claim.
    Raw(Bytes),
}

/// A whole answer in one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// `HTTP/1.1` unless changed.
    pub version: &'static str,
    /// Name and value, in order.
    pub headers: Vec<(String, String)>,
    pub body: Body,
    /// The connection is closed after it.
    pub close: bool,
}

impl Response {
    pub fn new(status: u16, body: Body) -> Self {
        let close = matches!(body, Body::CloseDelimited(_));
        Self { status, version: "HTTP/1.1", headers: Vec::new(), body, close }
    }

    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self::new(status, Body::Full(body.into())).header("content-type", "application/json")
    }

    pub fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self::new(status, Body::Full(body.into())).header("content-type", "text/plain")
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds `Connection: close` and closes after the answer.
    #[must_use]
    pub fn connection_close(mut self) -> Self {
        self.close = true;
        self.header("connection", "close")
    }

    /// Answers as HTTP/1.0 and closes after it.
    #[must_use]
    pub fn http10(mut self) -> Self {
        self.version = "HTTP/1.0";
        self.close = true;
        self
    }

    /// The head's bytes, its blank line included.
    pub fn head(&self) -> Bytes {
        let reason = reason(self.status);
        let mut head = format!("{} {} {reason}\r\n", self.version, self.status);
        let framing = match &self.body {
            Body::Full(body) => Some(("content-length", body.len().to_string())),
            Body::Chunked(_) => Some(("transfer-encoding", "chunked".to_owned())),
            Body::Empty | Body::CloseDelimited(_) | Body::Raw(_) => None,
        };
        let stated = self.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
        for (name, value) in stated.chain(framing) {
            head.extend([name, ": ", &value, "\r\n"]);
        }
        head.push_str("\r\n");
        head.into()
    }

    /// The body's bytes on the wire.
    pub fn wire_body(&self) -> Bytes {
        match &self.body {
            Body::Empty => Bytes::new(),
            Body::Full(bytes) | Body::CloseDelimited(bytes) | Body::Raw(bytes) => bytes.clone(),
            Body::Chunked(chunks) => {
                let mut wire: Vec<Bytes> = chunks.iter().map(|data| chunk(data)).collect();
                wire.push(Bytes::from_static(LAST_CHUNK));
                wire.concat().into()
            }
        }
    }

    /// Head and body as written.
    pub fn to_bytes(&self) -> Bytes {
        [self.head(), self.wire_body()].concat().into()
    }
}

fn reason(status: u16) -> &'static str {
    let known = http::StatusCode::from_u16(status).ok();
    known.and_then(|code| code.canonical_reason()).unwrap_or("Unknown")
}
