//! Response heads (RFC 9112 §4, §6.3), strictly: one framing or none, no repair.
//!
//! httparse does the tokenising; the rules that decide where a message ends are here, because a wrong end means that
//! the next client on the connection reads somebody else's bytes.

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

/// Most header fields of an engine's answer.
pub const MAX_HEADERS: usize = 128;
/// Largest head of an engine's answer, bytes.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Where the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// No body: HEAD, 204, 304, or a length of 0.
    Empty,
    /// `Content-Length`, bytes.
    Length(u64),
    Chunked,
    /// Ends with the connection.
    Close,
}

/// One parsed head.
#[derive(Debug)]
pub struct Head {
    pub status: StatusCode,
    /// As received, hop-by-hop fields included. Values share the read buffer.
    pub headers: HeaderMap,
    pub framing: BodyFraming,
    /// The engine will keep the connection open after this message.
    pub keep_alive: bool,
}

/// Parses a head at the start of `buf` and removes it from there. `Ok(None)`: more bytes are needed.
/// Errors are [`crate::upstream::Fault::Malformed`] texts.
pub fn parse(buf: &mut BytesMut, method: &Method) -> Result<Option<Head>, &'static str> {
    let mut slots = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut slots);
    let len = match parsed.parse(buf) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if buf.len() >= MAX_HEAD_BYTES => return Err("head larger than 64 KiB"),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err("more than 128 header fields"),
        Err(_) => return Err("head does not parse"),
    };
    if len > MAX_HEAD_BYTES {
        return Err("head larger than 64 KiB");
    }
    if !lines_end_in_crlf(&buf[..len]) {
        return Err("bare line feed in the head");
    }
    let status = parsed.code.and_then(|c| StatusCode::from_u16(c).ok()).ok_or("status code out of range")?;
    let http11 = parsed.version == Some(1);

    // Positions first, so that the values can share the head's own buffer instead of being copied one by one.
    let base = buf.as_ptr() as usize;
    let mut spans = [(0usize, 0usize, 0usize, 0usize); MAX_HEADERS];
    let count = parsed.headers.len();
    for (span, header) in spans.iter_mut().zip(parsed.headers.iter()) {
        let name = header.name.as_ptr() as usize - base;
        let value = header.value.as_ptr() as usize - base;
        *span = (name, name + header.name.len(), value, value + header.value.len());
    }
    let raw = buf.split_to(len).freeze();
    let headers = collect(&raw, &spans[..count])?;
    let framing = framing(status, http11, method, &headers)?;
    let keep_alive = keep_alive(http11, &headers) && framing != BodyFraming::Close;
    Ok(Some(Head { status, headers, framing, keep_alive }))
}

fn lines_end_in_crlf(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).all(|at| at > 0 && head[at - 1] == b'\r')
}

fn collect(raw: &Bytes, spans: &[(usize, usize, usize, usize)]) -> Result<HeaderMap, &'static str> {
    let mut headers = HeaderMap::with_capacity(spans.len() + 2);
    for &(name, name_end, value, value_end) in spans {
        let name = HeaderName::from_bytes(&raw[name..name_end]).map_err(|_| "header name")?;
        // An empty value points to no place in the buffer worth sharing.
        let value = if value == value_end {
            HeaderValue::from_static("")
        } else {
            HeaderValue::from_maybe_shared(raw.slice(value..value_end)).map_err(|_| "header value")?
        };
        headers.try_append(name, value).map_err(|_| "too many header fields")?;
    }
    Ok(headers)
}

/// RFC 9112 §6.3, without the parts that ask a recipient to guess.
fn framing(
    status: StatusCode,
    http11: bool,
    method: &Method,
    headers: &HeaderMap,
) -> Result<BodyFraming, &'static str> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let encoding = encodings.next();
    if encodings.next().is_some() {
        return Err("more than one transfer-encoding");
    }
    let length = content_length(headers)?;
    if encoding.is_some() && length.is_some() {
        return Err("both content-length and transfer-encoding");
    }
    if let Some(encoding) = encoding {
        if !http11 {
            return Err("transfer-encoding in HTTP/1.0");
        }
        if !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err("transfer-encoding other than chunked");
        }
    }
    let bodiless = method == Method::HEAD
        || status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    Ok(match (bodiless, encoding, length) {
        (true, ..) | (false, None, Some(0)) => BodyFraming::Empty,
        (false, Some(_), _) => BodyFraming::Chunked,
        (false, None, Some(n)) => BodyFraming::Length(n),
        (false, None, None) => BodyFraming::Close,
    })
}

fn content_length(headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err("more than one content-length");
    }
    let digits = value.as_bytes();
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return Err("content-length is not a number");
    }
    Ok(Some(digits.iter().fold(0u64, |n, d| n * 10 + u64::from(d - b'0'))))
}

fn keep_alive(http11: bool, headers: &HeaderMap) -> bool {
    let has = |token: &str| {
        headers.get_all(CONNECTION).iter().any(|value| {
            value.as_bytes().split(|b| *b == b',').any(|t| t.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
        })
    };
    if http11 { !has("close") } else { has("keep-alive") && !has("close") }
}
