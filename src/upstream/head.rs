//! Response heads (RFC 9112 §4, §6.3), strictly: one framing or none, no repair.
//!
//! httparse does the tokenising; the rules that decide where a message ends are here, because a wrong end means that
//! the next client on the connection reads somebody else's bytes.

use std::mem::MaybeUninit;
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, SERVER, TRANSFER_ENCODING, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use memchr::memmem::Finder;

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

static END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\r\n\r\n"));

/// Parses a head at the start of `buf` and removes it from there. `Ok(None)`: more bytes are needed.
/// Errors are [`crate::upstream::Fault::Malformed`] texts; `buf` is then not fit for anything but being dropped.
pub fn parse(buf: &mut BytesMut, method: &Method) -> Result<Option<Head>, &'static str> {
    let Some(end) = END.find(&buf[..buf.len().min(MAX_HEAD_BYTES)]) else {
        return incomplete(buf).map(|()| None);
    };
    // Cut off first, so that the values can share the head's own memory instead of being copied one by one.
    let raw = buf.split_to(end + 4).freeze();
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let (len, parsed) = tokenise(&raw, &mut slots)?;
    if len != Some(raw.len()) {
        return Err("head does not parse");
    }
    // RFC 9110 §15: a code above 599 is none, and its class would decide about retries.
    let status =
        parsed.code.filter(|code| (100..600).contains(code)).and_then(|c| StatusCode::from_u16(c).ok());
    let status = status.ok_or("status code out of range")?;
    let http11 = parsed.version == Some(1);
    let (headers, seen) = collect(&raw, parsed.headers)?;
    let (framing, announced) = framing(status, http11, method, &seen)?;
    // RFC 9110 §8.6, RFC 9112 §6.1: these never announce a body. A server that does may also send it, where nobody reads it.
    if announced && status.is_informational() {
        return Err("interim answer with a body");
    }
    let odd = announced && status == StatusCode::NO_CONTENT;
    let keep_alive = seen.keep_alive(http11) && framing != BodyFraming::Close && !odd;
    Ok(Some(Head { status, headers, framing, keep_alive }))
}

/// The tokens of a head, and its length where it is complete.
fn tokenise<'h, 'b>(
    bytes: &'b [u8],
    slots: &'h mut [MaybeUninit<httparse::Header<'b>>],
) -> Result<(Option<usize>, httparse::Response<'h, 'b>), &'static str> {
    // httparse skips empty lines in front, as a server may for requests. In front of an answer they are leftovers.
    if !bytes.starts_with(&b"HTTP/1."[..bytes.len().min(7)]) {
        return Err("not an HTTP/1 answer");
    }
    if !lines_end_in_crlf(bytes) {
        return Err("bare line feed in the head");
    }
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut parsed, bytes, slots) {
        Ok(httparse::Status::Complete(len)) => Ok((Some(len), parsed)),
        Ok(httparse::Status::Partial) => Ok((None, parsed)),
        Err(httparse::Error::TooManyHeaders) => Err("more than 128 header fields"),
        Err(_) => Err("head does not parse"),
    }
}

/// A head that has not ended is refused as soon as it cannot become a good one: the engine may never send the rest.
#[cold]
fn incomplete(buf: &[u8]) -> Result<(), &'static str> {
    if buf.len() >= MAX_HEAD_BYTES {
        return Err("head larger than 64 KiB");
    }
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    match tokenise(buf, &mut slots)? {
        (None, _) => Ok(()),
        (Some(_), _) => Err("head does not parse"),
    }
}

fn lines_end_in_crlf(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).all(|at| at > 0 && head[at - 1] == b'\r')
}

/// What the fields say about the message itself, from the one pass over them.
#[derive(Default)]
struct Seen<'a> {
    length: Option<&'a [u8]>,
    lengths: usize,
    encoding: Option<&'a [u8]>,
    encodings: usize,
    /// `Connection` options.
    close: bool,
    keep_alive: bool,
}

impl<'a> Seen<'a> {
    fn note(&mut self, name: &HeaderName, value: &'a [u8]) {
        if *name == CONTENT_LENGTH {
            (self.length, self.lengths) = (Some(value), self.lengths + 1);
        } else if *name == TRANSFER_ENCODING {
            (self.encoding, self.encodings) = (Some(value), self.encodings + 1);
        } else if *name == CONNECTION {
            for option in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                self.close |= option.eq_ignore_ascii_case(b"close");
                self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
    }

    fn keep_alive(&self, http11: bool) -> bool {
        !self.close && (http11 || self.keep_alive)
    }
}

fn collect<'a>(raw: &Bytes, fields: &[httparse::Header<'a>]) -> Result<(HeaderMap, Seen<'a>), &'static str> {
    let mut headers = HeaderMap::with_capacity(fields.len() + 2);
    let mut seen = Seen::default();
    for field in fields {
        let name = name(field.name.as_bytes()).ok_or("header name")?;
        seen.note(&name, field.value);
        let value = HeaderValue::from_maybe_shared(raw.slice_ref(field.value)).map_err(|_| "header value")?;
        headers.try_append(name, value).map_err(|_| "too many header fields")?;
    }
    Ok((headers, seen))
}

/// The names that every answer of a Python engine has, as it spells them, without the general look-up.
fn name(bytes: &[u8]) -> Option<HeaderName> {
    Some(match bytes {
        b"date" => DATE,
        b"server" => SERVER,
        b"content-type" => CONTENT_TYPE,
        b"content-length" => CONTENT_LENGTH,
        b"transfer-encoding" | b"Transfer-Encoding" => TRANSFER_ENCODING,
        b"cache-control" => CACHE_CONTROL,
        b"vary" => VARY,
        _ => return HeaderName::from_bytes(bytes).ok(),
    })
}

/// RFC 9112 §6.3, without the parts that ask a recipient to guess. Also: whether the fields announce a body.
fn framing(
    status: StatusCode,
    http11: bool,
    method: &Method,
    seen: &Seen<'_>,
) -> Result<(BodyFraming, bool), &'static str> {
    if seen.encodings > 1 {
        return Err("more than one transfer-encoding");
    }
    let (encoding, length) = (seen.encoding, content_length(seen)?);
    if encoding.is_some() && length.is_some() {
        return Err("both content-length and transfer-encoding");
    }
    if let Some(encoding) = encoding {
        if !http11 {
            return Err("transfer-encoding in HTTP/1.0");
        }
        if !encoding.eq_ignore_ascii_case(b"chunked") {
            return Err("transfer-encoding other than chunked");
        }
    }
    let bodiless = method == Method::HEAD
        || status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    let framing = match (bodiless, encoding, length) {
        (true, ..) | (false, None, Some(0)) => BodyFraming::Empty,
        (false, Some(_), _) => BodyFraming::Chunked,
        (false, None, Some(n)) => BodyFraming::Length(n),
        (false, None, None) => BodyFraming::Close,
    };
    Ok((framing, encoding.is_some() || length.is_some_and(|n| n > 0)))
}

fn content_length(seen: &Seen<'_>) -> Result<Option<u64>, &'static str> {
    let Some(digits) = seen.length else { return Ok(None) };
    if seen.lengths > 1 {
        return Err("more than one content-length");
    }
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return Err("content-length is not a number");
    }
    Ok(Some(digits.iter().fold(0u64, |n, d| n * 10 + u64::from(d - b'0'))))
}

#[cfg(test)]
#[path = "tests/head.rs"]
mod tests;
