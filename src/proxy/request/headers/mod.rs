//! Which headers cross the router, and the upstream request head as bytes.
//!
//! The head is written anew for every leg: origin-form target with the client's query verbatim, one `Host`, our own
//! `Content-Length`. What framed the client's request therefore cannot frame ours. End-to-end headers pass with their
//! bytes untouched; hop-by-hop ones, everything named in `Connection`, and everything that steers engines (I11) stay
//! here. One pass, no allocation for ordinary requests.

use bytes::{BufMut, BytesMut};
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Uri, Version};

use super::class::{self, Class};
use super::id::{self, RequestId};
use super::media;
use super::trace::{self, SpanId};

/// What happens to the client's `Authorization`, `x-api-key` and `api-key`.
#[derive(Debug, Clone, Copy)]
pub enum Credentials<'a> {
    Pass,
    Strip,
    /// Strip, and send this as `Authorization`.
    Replace(&'a HeaderValue),
}

/// What the router knows and says about a request to its upstream.
#[derive(Debug, Clone, Copy)]
pub struct Forward<'a> {
    /// `host:port` of the endpoint.
    pub authority: &'a str,
    /// The client's address as text (once per connection).
    pub peer: &'a str,
    /// The client came over TLS.
    pub tls: bool,
    pub credentials: Credentials<'a>,
    pub cookies: bool,
    /// Leave `Accept-Encoding` out: the router reads the answer itself.
    pub plain_answer: bool,
    /// The leg's own span, in place of the parent in a `traceparent` that is known to be valid.
    pub span: Option<&'a SpanId>,
    /// `X-Request-Id` as the engine sees it.
    pub request_id: &'a [u8],
    /// The cohort's name and the split's version, where engines are told.
    pub cohort: Option<(&'a str, u64)>,
}

/// The cohort of an attempt, and the version of the split under which it was decided (0: none).
pub const COHORT: &str = "x-tandem-cohort";
pub const SPLIT_VERSION: &str = "x-tandem-split-version";

/// Appends the whole HTTP/1.1 request head for one leg to `out`. `content_length`: of the body that follows, bytes;
/// `None`: no body.
pub fn write_head(out: &mut BytesMut, parts: &Parts, forward: &Forward<'_>, content_length: Option<u64>) {
    out.reserve(1024);
    request_line(out, parts);
    line(out, b"host", forward.authority.as_bytes());
    let found = passing(out, &parts.headers, forward);
    if found.forwarded_for {
        joined(out, b"x-forwarded-for", &parts.headers, b", ", Some(forward.peer));
    } else {
        line(out, b"x-forwarded-for", forward.peer.as_bytes());
    }
    line(out, b"x-forwarded-proto", if forward.tls { b"https" } else { b"http" });
    if let Some(host) = client_host(parts) {
        line(out, b"x-forwarded-host", host);
    }
    if found.cookie {
        joined(out, b"cookie", &parts.headers, b"; ", None);
    }
    if let Credentials::Replace(value) = forward.credentials {
        line(out, b"authorization", value.as_bytes());
    }
    line(out, b"x-request-id", forward.request_id);
    if let Some((cohort, version)) = forward.cohort {
        line(out, COHORT.as_bytes(), cohort.as_bytes());
        line(out, SPLIT_VERSION.as_bytes(), itoa::Buffer::new().format(version).as_bytes());
    }
    line(out, b"via", via(parts.version));
    if let Some(length) = content_length {
        line(out, b"content-length", itoa::Buffer::new().format(length).as_bytes());
    }
    out.put_slice(b"\r\n");
}

fn request_line(out: &mut BytesMut, parts: &Parts) {
    out.put_slice(parts.method.as_str().as_bytes());
    out.put_slice(b" ");
    out.put_slice(parts.uri.path_and_query().map_or(b"/", |target| target.as_str().as_bytes()));
    out.put_slice(b" HTTP/1.1\r\n");
}

#[inline]
fn line(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.put_slice(name);
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

/// What [`passing`] met and left to its caller.
#[derive(Default)]
struct Found {
    forwarded_for: bool,
    cookie: bool,
}

/// Writes the end-to-end headers.
fn passing(out: &mut BytesMut, headers: &HeaderMap, forward: &Forward<'_>) -> Found {
    let mut found = Found::default();
    let named = names_headers(headers);
    for (name, value) in headers {
        let text = name.as_str();
        let class = class::class(text);
        let passes = match class {
            Class::Pass if forward.plain_answer && text == "accept-encoding" => false,
            // A name that imitates one of ours is dropped; one that imitates a credential goes where that goes.
            Class::Pass => match class::folded(text) {
                None | Some(Class::Pass) => true,
                Some(Class::Credential) => matches!(forward.credentials, Credentials::Pass),
                Some(_) => false,
            },
            Class::ContentType | Class::ContentEncoding | Class::ForwardedFor => true,
            Class::Credential => matches!(forward.credentials, Credentials::Pass),
            Class::Cookie => forward.cookies,
            _ => false,
        };
        if !passes || (named && is_named(headers, text)) {
            continue;
        }
        match class {
            Class::ForwardedFor => found.forwarded_for = true,
            Class::Cookie => found.cookie = true,
            _ => match forward.span.filter(|_| text == trace::HEADER) {
                Some(span) => child_of(out, value.as_bytes(), span),
                None => line(out, text.as_bytes(), value.as_bytes()),
            },
        }
    }
    found
}

/// The leg's `traceparent`.
fn child_of(out: &mut BytesMut, value: &[u8], span: &SpanId) {
    out.put_slice(trace::HEADER.as_bytes());
    out.put_slice(b": ");
    for piece in trace::child(value, span) {
        out.put_slice(piece);
    }
    out.put_slice(b"\r\n");
}

/// One line from all of a header's values: h2 clients split cookies, and a chain of addresses must end with ours.
fn joined(out: &mut BytesMut, name: &'static [u8], headers: &HeaderMap, between: &[u8], last: Option<&str>) {
    out.put_slice(name);
    out.put_slice(b": ");
    let name = std::str::from_utf8(name).unwrap_or_default();
    let values = headers.get_all(name).iter().map(HeaderValue::as_bytes).chain(last.map(str::as_bytes));
    let mut first = true;
    for value in values.filter(|v| !v.is_empty()) {
        if !std::mem::take(&mut first) {
            out.put_slice(between);
        }
        out.put_slice(value);
    }
    out.put_slice(b"\r\n");
}

/// The host that the client asked for: the target's, else its `Host`.
fn client_host(parts: &Parts) -> Option<&[u8]> {
    let target = Uri::authority(&parts.uri).map(|a| a.as_str().as_bytes());
    target.or_else(|| parts.headers.get(HOST).map(HeaderValue::as_bytes))
}

/// RFC 9110 §7.6.3: the version in which the message came to us.
fn via(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_10 => b"1.0 tandem",
        Version::HTTP_2 => b"2 tandem",
        _ => b"1.1 tandem",
    }
}

/// `Connection` names a header that would otherwise pass: rare, and the only case that costs a look per header.
fn names_headers(headers: &HeaderMap) -> bool {
    options(headers).any(|o| !o.eq_ignore_ascii_case(b"keep-alive") && !o.eq_ignore_ascii_case(b"close"))
}

fn is_named(headers: &HeaderMap, name: &str) -> bool {
    options(headers).any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
}

fn options(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|v| v.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii))
}

/// Whether a response header (lower-case name) is about one connection only; for a parser that need not even store
/// it.
pub fn is_hop_by_hop(name: &str) -> bool {
    matches!(class::class(name), Class::Connection | Class::Hop | Class::TransferEncoding)
}

/// Removes what a response says about its own connection. `Content-Length` stays: it is the body's.
pub fn strip_response(headers: &mut HeaderMap) {
    let named = names_headers(headers);
    let goes =
        |name: &&HeaderName| is_hop_by_hop(name.as_str()) || (named && is_named(headers, name.as_str()));
    let going: Vec<HeaderName> = headers.keys().filter(goes).cloned().collect();
    for name in going {
        headers.remove(name);
    }
}

/// Whether a response is a stream of server-sent events.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| media::is_event_stream(value.as_bytes()))
}

/// Adds what clients get from us: the request id in place of an engine's own, and for event streams what keeps caches
/// and nginx from holding events back, unless the engine said otherwise.
pub fn add_response(headers: &mut HeaderMap, request_id: &RequestId, cohort: Option<(&str, u64)>) {
    const ID: HeaderName = HeaderName::from_static(id::HEADER);
    const ACCEL: HeaderName = HeaderName::from_static("x-accel-buffering");
    headers.insert(ID, request_id.header_value());
    if let Some((cohort, version)) = cohort
        && let Ok(name) = HeaderValue::from_bytes(cohort.as_bytes())
    {
        headers.insert(HeaderName::from_static(COHORT), name);
        headers.insert(HeaderName::from_static(SPLIT_VERSION), HeaderValue::from(version));
    }
    if is_event_stream(headers) {
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
        headers.entry(ACCEL).or_insert(HeaderValue::from_static("no"));
    }
}

#[cfg(test)]
mod tests;
