//! Any bytes as a request head: whatever the head rules let through is written upstream as exactly one well-formed
//! head with one Host, one Content-Length, no Transfer-Encoding, an origin-form target, and none of the client's
//! control headers.
#![no_main]

use bytes::BytesMut;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Version};
use libfuzzer_sys::fuzz_target;
use tandem::proxy::request::head;
use tandem::proxy::request::headers::{Credentials, Forward, write_head};
use tandem::proxy::request::id::RequestId;

fuzz_target!(|bytes: &[u8]| {
    let Some(parts) = parse(bytes) else { return };
    let Ok(facts) = head::check(&parts, 8192) else { return };
    let id = RequestId::of(&parts.headers);
    let forward = Forward {
        authority: "10.0.0.7:8000",
        peer: "192.0.2.1",
        tls: false,
        credentials: Credentials::Strip,
        cookies: false,
        request_id: id.as_bytes(),
        plain_answer: bytes.len().is_multiple_of(2),
        span: None,
        cohort: bytes.first().map(|n| ("r 1", u64::from(*n))),
    };
    let mut out = BytesMut::new();
    write_head(&mut out, &parts, &forward, Some(7));
    check(&out, &parts, facts.route, &forward);
});

/// As hyper's server does it: httparse, then the types of `http`.
fn parse(bytes: &[u8]) -> Option<Parts> {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(bytes).ok().filter(httparse::Status::is_complete)?;
    let version = if request.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let made = Request::builder().method(request.method?).uri(request.path?).version(version).body(());
    let mut parts = made.ok()?.into_parts().0;
    for header in request.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        parts.headers.append(name, HeaderValue::from_bytes(header.value).ok()?);
    }
    Some(parts)
}

fn check(out: &[u8], parts: &Parts, route: tandem::proxy::request::route::Route, forward: &Forward<'_>) {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut sent = httparse::Request::new(&mut headers);
    assert_eq!(sent.parse(out), Ok(httparse::Status::Complete(out.len())), "one head, and nothing behind it");
    let target = sent.path.expect("complete");
    assert!(target.starts_with(parts.uri.path()), "the path that was judged is the path that is sent");
    assert_eq!(target.split_once('?').map(|t| t.1), parts.uri.query());
    assert_eq!(tandem::proxy::request::route::Route::find(parts.uri.path()), Some(route));
    let count = |name: &str| sent.headers.iter().filter(|h| h.name.replace('_', "-") == name).count();
    for once in ["host", "content-length", "x-request-id", "x-forwarded-for", "x-forwarded-proto"] {
        assert_eq!(count(once), 1, "{once}");
    }
    for never in
        ["transfer-encoding", "connection", "upgrade", "te", "expect", "authorization", "cookie", "forwarded"]
    {
        assert_eq!(count(never), 0, "{never}");
    }
    if forward.plain_answer {
        let encoded = sent.headers.iter().any(|h| h.name == "accept-encoding");
        assert!(!encoded, "an answer that the router reads is not asked for encoded");
    }
    // Ours, and nobody else's of that name.
    let steers =
        |h: &&httparse::Header<'_>| h.name.starts_with("x-override-") || h.name.starts_with("x-tandem-");
    let found: Vec<_> = sent.headers.iter().filter(steers).map(|h| (h.name, h.value)).collect();
    let version = forward.cohort.map(|(_, version)| version.to_string()).unwrap_or_default();
    let told = [("x-tandem-cohort", &b"r 1"[..]), ("x-tandem-split-version", version.as_bytes())];
    assert_eq!(found, if forward.cohort.is_some() { &told[..] } else { &[] });
}
