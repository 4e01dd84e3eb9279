use super::*;
use http::{HeaderName, HeaderValue, Request};

/// A request as hyper hands it over: `METHOD target`, then `name: value` lines.
fn parts(version: Version, line: &str, headers: &[(&str, &str)]) -> Parts {
    let (method, target) = line.split_once(' ').unwrap();
    let mut parts =
        Request::builder().method(method).uri(target).version(version).body(()).unwrap().into_parts().0;
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        parts.headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    parts
}

fn judge(line: &str, headers: &[(&str, &str)]) -> Result<Head, Refusal> {
    check(&parts(Version::HTTP_11, line, headers), 8192)
}

fn chat(more: &[(&str, &str)]) -> Result<Head, Refusal> {
    judge("POST /v1/chat/completions", &[&[("host", "a")], more].concat())
}

fn status(result: Result<Head, Refusal>) -> u16 {
    result.map_or_else(|r| r.status.as_u16(), |_| 200)
}

/// A framing refusal: 400, and the connection is closed.
fn framing(result: Result<Head, Refusal>) -> &'static str {
    let refusal = result.unwrap_err();
    assert_eq!((refusal.status.as_u16(), refusal.close), (400, true), "{refusal:?}");
    refusal.message
}

#[test]
fn an_ordinary_request_passes_with_its_facts() {
    let head =
        chat(&[("content-length", "2600"), ("content-type", "application/json"), ("expect", "100-continue")]);
    assert_eq!(
        head,
        Ok(Head { route: Route::ChatCompletions, content_length: Some(2600), expects_continue: true })
    );
    let head = chat(&[("transfer-encoding", "Chunked")]).unwrap();
    assert_eq!((head.content_length, head.expects_continue), (None, false));
    assert_eq!(judge("GET /v1/models?x=%2f..", &[("host", "a")]).unwrap().route, Route::Models);
    assert_eq!(judge("HEAD /health", &[("host", "a")]).unwrap().route, Route::Health);
    assert_eq!(chat(&[("content-length", "0")]).unwrap().content_length, Some(0));
}

#[test]
fn b01_ambiguous_framing_is_refused_and_the_connection_closed() {
    let both = [("content-length", "6"), ("transfer-encoding", "chunked")];
    assert!(framing(chat(&both)).contains("both"));
    assert!(framing(chat(&[both[1], both[0]])).contains("both"));
    for coding in [
        "chunked, identity",
        "chunked, chunked",
        "gzip, chunked",
        "xchunked",
        ",chunked",
        "chunked;a",
        "",
        "identity",
    ] {
        framing(chat(&[("transfer-encoding", coding)]));
    }
    framing(chat(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]));
    framing(chat(&[("content-length", "6"), ("content-length", "6")]));
    framing(chat(&[("content-length", "6"), ("content-length", "7")]));
}

#[test]
fn b03_a_length_that_is_not_plain_digits_is_refused() {
    for length in ["+5", "-5", "003", "00", "0x5", "5 5", "5,5", "", "5.0", "５", "18446744073709551616"] {
        framing(chat(&[("content-length", length)]));
    }
}

#[test]
fn names_that_imitate_framing_or_trusted_headers_are_refused() {
    for name in [
        "transfer_encoding",
        "content_length",
        "x_forwarded_for",
        "x-forwarded_host",
        "proxy_connection",
        "x_override_rid",
    ] {
        framing(chat(&[(name, "x")]));
    }
    assert_eq!(status(chat(&[("my_header", "x"), ("api_key", "x"), ("x_request_id", "x")])), 200);
}

#[test]
fn http_1_0_may_omit_the_host_and_may_not_be_chunked() {
    let old = |headers: &[_]| check(&parts(Version::HTTP_10, "POST /generate", headers), 8192);
    assert_eq!(status(old(&[("content-length", "2")])), 200);
    framing(old(&[("transfer-encoding", "chunked")]));
    framing(old(&[("host", "a"), ("host", "a")]));
}

#[test]
fn exactly_one_valid_host_is_demanded() {
    for hosts in
        [&[][..], &["a", "a"], &["a", "b"], &[""], &["a/b"], &["u@a"], &["a:b"], &["a b"], &["a,b"], &["數"]]
    {
        let headers: Vec<_> = hosts.iter().map(|h| ("host", *h)).collect();
        let refusal = judge("POST /generate", &headers).unwrap_err();
        assert_eq!(
            (refusal.status.as_u16(), refusal.code, refusal.close),
            (400, "invalid_host", true),
            "{hosts:?}"
        );
    }
    assert_eq!(status(judge("POST /generate", &[("host", "[::1]:8080")])), 200);
}

#[test]
fn b182_an_absolute_target_wins_but_must_agree_with_the_host() {
    let absolute = |target: &str, host: &str| status(judge(&format!("POST {target}"), &[("host", host)]));
    assert_eq!(absolute("http://Tandem:8080/generate", "tandem:8080"), 200);
    assert_eq!(absolute("http://tandem/generate", "tandem:80"), 200);
    assert_eq!(absolute("https://tandem:443/generate?q", "tandem"), 200);
    for (target, host) in [
        ("http://tandem/generate", "other"),
        ("http://tandem/generate", "tandem:81"),
        ("http://tandem:443/generate", "tandem"),
        ("http://user@tandem/generate", "tandem"),
        ("ftp://tandem/generate", "tandem"),
    ] {
        assert_eq!(absolute(target, host), 400, "{target} {host}");
    }
    assert_eq!(absolute("http://tandem/workers", "tandem"), 404);
    assert_eq!(absolute("http://tandem", "tandem"), 404);
    framing(judge("POST http://tandem/generate", &[("host", "tandem"), ("host", "tandem")]));
    // RFC 9112 §3.2: whatever the target, HTTP/1.1 has a Host.
    assert_eq!(status(judge("POST http://tandem/generate", &[])), 400);
    let old = parts(Version::HTTP_10, "POST http://tandem/generate", &[]);
    assert_eq!(status(check(&old, 8192)), 200);
}

#[test]
fn h2_takes_an_authority_or_an_agreeing_host() {
    let h2 = |target: &str, headers: &[_]| status(check(&parts(Version::HTTP_2, target, headers), 8192));
    assert_eq!(h2("POST http://a/generate", &[]), 200);
    assert_eq!(h2("POST http://a/generate", &[("host", "a")]), 200);
    assert_eq!(h2("POST http://a/generate", &[("host", "b")]), 400);
    assert_eq!(h2("POST /generate", &[("host", "a")]), 200);
    assert_eq!(h2("POST /generate", &[]), 400);
    assert_eq!(h2("POST http://a/generate", &[("transfer-encoding", "chunked")]), 400);
}

#[test]
fn b182_unknown_paths_are_404_and_known_ones_with_a_wrong_method_405() {
    let host = [("host", "a")];
    for path in [
        "/v1/../workers",
        "/v1/%2e%2e/workers",
        "//workers",
        "/v1//chat/completions",
        "/workers%2fx",
        "/WORKERS",
        "*",
    ] {
        assert_eq!(status(judge(&format!("POST {path}"), &host)), 404, "{path}");
    }
    assert_eq!(status(judge("POST /v1/chat/completions;x", &host)), 404);
    for (line, allow) in [
        ("GET /v1/chat/completions", "POST"),
        ("DELETE /generate", "POST"),
        ("OPTIONS /v1/audio/translations", "POST"),
        ("POST /v1/models", "GET, HEAD"),
        ("TRACE /health", "GET, HEAD, POST"),
        ("TRACE /nowhere", "GET, HEAD, POST"),
        ("CONNECT a", "GET, HEAD, POST"),
        ("get /health", "GET, HEAD"),
    ] {
        let refusal = judge(line, &host).unwrap_err();
        assert_eq!((refusal.status.as_u16(), refusal.allow), (405, Some(allow)), "{line}");
    }
}

#[test]
fn a_target_beyond_the_limit_is_414_before_it_is_looked_up() {
    let at = |n| judge(&format!("GET /health?{}", "a".repeat(n - "/health?".len())), &[("host", "a")]);
    assert_eq!(status(at(8192)), 200);
    assert_eq!(status(at(8193)), 414);
    assert_eq!(status(judge(&format!("GET /{}", "a".repeat(9000)), &[("host", "a")])), 414);
}

#[test]
fn only_expect_100_continue_is_met() {
    assert_eq!(status(chat(&[("expect", "100-Continue")])), 200);
    for expect in ["", "200-ok", "100-continue, x"] {
        assert_eq!(status(chat(&[("expect", expect)])), 417, "{expect}");
    }
    assert_eq!(status(chat(&[("expect", "100-continue"), ("expect", "x")])), 417);
}

#[test]
fn encoded_bodies_and_foreign_types_are_415() {
    for (name, value) in [
        ("content-encoding", "gzip"),
        ("content-encoding", "identity, br"),
        ("content-encoding", ""),
        ("content-type", "text/plain"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("content-type", ""),
    ] {
        assert_eq!(status(chat(&[(name, value)])), 415, "{name}: {value}");
    }
    assert_eq!(status(chat(&[("content-encoding", "Identity")])), 200);
    assert_eq!(status(chat(&[("content-type", "application/json; charset=utf-8")])), 200);
    assert_eq!(
        status(chat(&[("content-type", "application/json"), ("content-type", "application/json")])),
        415
    );
    let audio =
        |value| status(judge("POST /v1/audio/transcriptions", &[("host", "a"), ("content-type", value)]));
    assert_eq!(audio("multipart/form-data; boundary=x"), 200);
    assert_eq!(audio("application/json"), 415);
    assert_eq!(status(judge("POST /v1/audio/transcriptions", &[("host", "a")])), 415);
}

#[test]
fn b05_upgrades_are_ordinary_requests() {
    for upgrade in ["h2c", "websocket", "foo"] {
        let head = chat(&[
            ("connection", "Upgrade, HTTP2-Settings"),
            ("upgrade", upgrade),
            ("http2-settings", "AAMAAABk"),
        ]);
        assert_eq!(head.unwrap().route, Route::ChatCompletions);
    }
}

#[test]
fn a_connection_list_made_for_work_is_refused() {
    assert_eq!(status(chat(&[("connection", &"a,".repeat(31))])), 200);
    framing(chat(&[("connection", &"a,".repeat(32))]));
    framing(chat(&vec![("connection", "a"); 33]));
}

#[test]
fn b127_non_ascii_anywhere_does_not_panic() {
    for n in 0..40 {
        let text = format!("{}数─", "a".repeat(n));
        for name in
            ["host", "content-length", "transfer-encoding", "content-type", "expect", "connection", "x-a"]
        {
            let _ = chat(&[(name, &text)]);
        }
        assert_eq!(status(judge(&format!("GET /health?{text}"), &[("host", "a")])), 200);
    }
}
