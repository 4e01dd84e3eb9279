//! The rules a request head must meet before anything is done with it: strict where hyper's parser is lenient.
//!
//! hyper accepts a missing or doubled `Host`, `Content-Length: 003`, two `Transfer-Encoding: chunked`, `gzip,
//! chunked` and `Transfer_Encoding`. Each is harmless to hyper and dangerous between two servers that read it
//! differently (request smuggling), so nothing ambiguous is repaired here: it is refused, and after a framing fault
//! the connection closes. One pass over the headers, no allocation.

use http::StatusCode;
use http::Version;
use http::request::Parts;

use super::class::{self, Class};
use super::host;
use super::media;
use super::route::{BodyKind, Route};

/// A connection option list longer than this has no purpose but work.
const MAX_CONNECTION_OPTIONS: usize = 32;

/// A refused request head. All text is static: nothing of the request is echoed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    /// The `code` of the error body.
    pub code: &'static str,
    pub message: &'static str,
    /// The `Allow` header of a 405.
    pub allow: Option<&'static str>,
    /// Where the next request begins is in doubt: close after the answer.
    pub close: bool,
}

impl Refusal {
    /// There is no such route, or none here.
    pub fn unknown_route() -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_route", "there is no such route")
    }

    const fn new(status: StatusCode, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message, allow: None, close: false }
    }

    const fn framing(message: &'static str) -> Self {
        Self { close: true, ..Self::new(StatusCode::BAD_REQUEST, "invalid_framing", message) }
    }

    const fn method(allow: &'static str, message: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        }
    }
}

/// What a good head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub route: Route,
    /// Declared body length, bytes; `None` when chunked (h2: not declared) or without a body.
    pub content_length: Option<u64>,
    /// The client waits for `100 Continue` before it sends its body.
    pub expects_continue: bool,
}

/// Judges a head. `max_url`: longest path and query, bytes (`limits.url`).
///
/// # Errors
/// The first rule that is broken, in this order: framing and `Host` (400), CONNECT and TRACE (405), length (414),
/// path (404), method (405), a doubled credential (400), `Expect` (417), `Content-Encoding` and `Content-Type` (415).
pub fn check(parts: &Parts, max_url: usize) -> Result<Head, Refusal> {
    let seen = Seen::gather(parts)?;
    let content_length = seen.length(parts.version)?;
    host::check(&parts.uri, seen.hosts, seen.host, parts.version).map_err(|why| Refusal {
        close: true,
        ..Refusal::new(StatusCode::BAD_REQUEST, "invalid_host", why)
    })?;
    let route = route(parts, max_url)?;
    seen.one_credential_each()?;
    seen.expectations()?;
    if route.body() != BodyKind::None {
        seen.media(route.body())?;
    }
    Ok(Head { route, content_length, expects_continue: seen.expects > 0 })
}

fn route(parts: &Parts, max_url: usize) -> Result<Route, Refusal> {
    if parts.method == http::Method::CONNECT || parts.method == http::Method::TRACE {
        return Err(Refusal::method("GET, HEAD, POST", "CONNECT and TRACE are not served"));
    }
    if parts.uri.path_and_query().is_some_and(|p| p.as_str().len() > max_url) {
        return Err(Refusal::new(StatusCode::URI_TOO_LONG, "uri_too_long", "the request target is too long"));
    }
    let Some(route) = Route::find(parts.uri.path()) else {
        return Err(Refusal::unknown_route());
    };
    if !route.allows(&parts.method) {
        return Err(Refusal::method(route.allow(), "this route does not take this method"));
    }
    Ok(route)
}

/// The headers that the rules are about, from one pass.
#[derive(Default)]
struct Seen<'a> {
    hosts: usize,
    host: Option<&'a [u8]>,
    lengths: usize,
    length: Option<&'a [u8]>,
    codings: usize,
    coding: Option<&'a [u8]>,
    expects: usize,
    expect_ok: bool,
    encoded: bool,
    types: usize,
    media: Option<&'a [u8]>,
    /// Credential headers met, a bit each, and whether one of them stood twice.
    credentials: u8,
    doubled: bool,
}

impl<'a> Seen<'a> {
    fn gather(parts: &'a Parts) -> Result<Self, Refusal> {
        let mut seen = Self { expect_ok: true, ..Self::default() };
        let mut options = 0;
        for (name, value) in &parts.headers {
            let bytes = value.as_bytes();
            match class::class(name.as_str()) {
                Class::Host => (seen.hosts, seen.host) = (seen.hosts + 1, Some(bytes)),
                Class::ContentLength => (seen.lengths, seen.length) = (seen.lengths + 1, Some(bytes)),
                Class::TransferEncoding => (seen.codings, seen.coding) = (seen.codings + 1, Some(bytes)),
                Class::ContentType => (seen.types, seen.media) = (seen.types + 1, Some(bytes)),
                Class::Expect => {
                    seen.expects += 1;
                    seen.expect_ok &= bytes.eq_ignore_ascii_case(b"100-continue");
                }
                Class::ContentEncoding => seen.encoded |= !bytes.eq_ignore_ascii_case(b"identity"),
                Class::Connection => options += bytes.split(|b| *b == b',').count(),
                Class::Credential => seen.credential(name.as_str()),
                Class::Pass => match class::folded(name.as_str()) {
                    None => {}
                    Some(Class::Credential) => seen.credential(name.as_str()),
                    Some(imitated) => imitation(imitated)?,
                },
                _ => {}
            }
        }
        if options > MAX_CONNECTION_OPTIONS {
            return Err(Refusal::framing("too many connection options"));
        }
        Ok(seen)
    }

    /// The body's declared length, if its framing is beyond doubt.
    fn length(&self, version: Version) -> Result<Option<u64>, Refusal> {
        if self.codings > 0 {
            if version != Version::HTTP_11 {
                return Err(Refusal::framing("Transfer-Encoding belongs to HTTP/1.1"));
            }
            if self.lengths > 0 {
                return Err(Refusal::framing("both Content-Length and Transfer-Encoding"));
            }
            if self.codings > 1 || !self.coding.is_some_and(|c| c.eq_ignore_ascii_case(b"chunked")) {
                return Err(Refusal::framing("Transfer-Encoding must be exactly one chunked"));
            }
        }
        if self.lengths > 1 {
            return Err(Refusal::framing("more than one Content-Length"));
        }
        match self.length {
            None => Ok(None),
            Some(digits) => match parse_length(digits) {
                Some(length) => Ok(Some(length)),
                None => Err(Refusal::framing("Content-Length is not a plain decimal number")),
            },
        }
    }

    /// In any spelling that some server reads as it.
    fn credential(&mut self, name: &str) {
        let bit = match name.len() {
            7 => 1,
            9 => 2,
            _ => 4,
        };
        self.doubled |= self.credentials & bit != 0;
        self.credentials |= bit;
    }

    /// Which of two an engine would go by, nobody knows.
    fn one_credential_each(&self) -> Result<(), Refusal> {
        if !self.doubled {
            return Ok(());
        }
        let why = "Authorization, X-Api-Key and Api-Key may each stand once";
        Err(Refusal::new(StatusCode::BAD_REQUEST, "duplicate_header", why))
    }

    fn expectations(&self) -> Result<(), Refusal> {
        if self.expect_ok {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::EXPECTATION_FAILED,
            "expectation_failed",
            "only Expect: 100-continue is understood",
        ))
    }

    fn media(&self, body: BodyKind) -> Result<(), Refusal> {
        const STATUS: StatusCode = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        if self.encoded {
            let why = "request bodies must not be compressed: Content-Encoding must be absent or identity";
            return Err(Refusal::new(STATUS, "unsupported_content_encoding", why));
        }
        let (fits, why) = match body {
            BodyKind::Multipart => {
                (self.media.is_some_and(media::is_multipart), "this route takes multipart/form-data")
            }
            _ => (self.media.is_none_or(media::is_json), "this route takes application/json"),
        };
        if self.types > 1 || !fits {
            return Err(Refusal::new(STATUS, "unsupported_content_type", why));
        }
        Ok(())
    }
}

/// A name with `_` that some servers read as a header which frames, steers or vouches for the request.
fn imitation(imitated: Class) -> Result<(), Refusal> {
    match imitated {
        // Dropped or passed later; no one frames or trusts by these.
        Class::Pass | Class::Conditional | Class::Cookie | Class::RequestId => Ok(()),
        _ => Err(Refusal::framing("a header name with '_' imitates one that the router owns")),
    }
}

/// Plain decimal digits without a leading zero.
fn parse_length(digits: &[u8]) -> Option<u64> {
    match digits {
        [] | [b'0', _, ..] => None,
        _ if !digits.iter().all(u8::is_ascii_digit) => None,
        _ => std::str::from_utf8(digits).ok()?.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
