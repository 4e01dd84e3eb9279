use std::sync::LazyLock;

use super::*;
use http::Request;

static ID: LazyLock<RequestId> = LazyLock::new(|| RequestId::accept(b"id-1").unwrap());

static FORWARD: LazyLock<Forward<'static>> = LazyLock::new(|| Forward {
    authority: "10.0.0.7:8000",
    peer: "192.0.2.1",
    tls: false,
    credentials: Credentials::Pass,
    plain_answer: false,
    span: None,
    cookies: false,
    request_id: b"id-1",
    cohort: None,
});

fn parts(target: &str, headers: &[(&str, &[u8])]) -> Parts {
    let mut parts = Request::post(target).body(()).unwrap().into_parts().0;
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        parts.headers.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    parts
}

fn rendered(parts: &Parts, forward: &Forward<'_>) -> String {
    let mut out = BytesMut::new();
    write_head(&mut out, parts, forward, Some(42));
    String::from_utf8(out.to_vec()).unwrap()
}

/// The values that the upstream sees under one name.
fn sent(headers: &[(&str, &[u8])], forward: &Forward<'_>, name: &str) -> Vec<String> {
    let head = rendered(&parts("/generate", headers), forward);
    head.lines()
        .filter_map(|l| l.split_once(": "))
        .filter(|(n, _)| *n == name)
        .map(|(_, v)| v.to_owned())
        .collect()
}

#[test]
fn a_whole_head_is_exactly_this() {
    let parts = parts(
        "http://Front:80/v1/chat/completions?a=%2F..&b='x'",
        &[
            ("host", b"front"),
            ("accept", b"*/*"),
            ("content-type", b"application/json"),
            ("content-length", b"7"),
            ("authorization", b"Bearer k"),
            ("traceparent", b"00-1"),
            ("connection", b"close"),
        ],
    );
    assert_eq!(
        rendered(&parts, &FORWARD),
        "POST /v1/chat/completions?a=%2F..&b='x' HTTP/1.1\r\nhost: 10.0.0.7:8000\r\naccept: */*\r\n\
         content-type: application/json\r\nauthorization: Bearer k\r\ntraceparent: 00-1\r\n\
         x-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: Front:80\r\n\
         x-request-id: id-1\r\nvia: 1.1 tandem\r\ncontent-length: 42\r\n\r\n"
    );
}

#[test]
fn a_request_without_a_body_declares_none() {
    let mut out = BytesMut::new();
    write_head(&mut out, &parts("/v1/models", &[("transfer-encoding", b"chunked")]), &FORWARD, None);
    let head = String::from_utf8(out.to_vec()).unwrap();
    assert!(!head.contains("content-length") && !head.contains("transfer-encoding"), "{head}");
}

#[test]
fn b05_hop_by_hop_headers_and_those_named_in_connection_stay_here() {
    let headers: &[(&str, &[u8])] = &[
        ("connection", b"Upgrade, HTTP2-Settings , X-Mine"),
        ("connection", b"cookie,x-forwarded-for"),
        ("upgrade", b"h2c"),
        ("http2-settings", b"AA"),
        ("keep-alive", b"timeout=5"),
        ("proxy-connection", b"keep-alive"),
        ("proxy-authorization", b"Basic x"),
        ("te", b"trailers"),
        ("trailer", b"x"),
        ("expect", b"100-continue"),
        ("range", b"bytes=0-1"),
        ("if-none-match", b"x"),
        ("x-mine", b"1"),
        ("cookie", b"c"),
        ("x-forwarded-for", b"6.6.6.6"),
        ("x-other", b"2"),
    ];
    let head = rendered(&parts("/generate", headers), &Forward { cookies: true, ..*FORWARD });
    let names: Vec<_> = head.lines().skip(1).filter_map(|l| l.split_once(": ")).map(|(n, _)| n).collect();
    let ours = ["x-forwarded-for", "x-forwarded-proto", "x-request-id", "via", "content-length"];
    assert_eq!(names, [&["host", "x-other"][..], &ours].concat());
    assert!(head.contains("x-forwarded-for: 192.0.2.1\r\n"));
}

#[test]
fn b147_what_clients_claim_is_replaced_and_what_steers_is_removed() {
    let headers: &[(&str, &[u8])] = &[
        ("host", b"front:8080"),
        ("x-forwarded-for", b"1.1.1.1, 2.2.2.2"),
        ("x-forwarded-for", b"3.3.3.3"),
        ("x-forwarded-host", b"evil"),
        ("x-forwarded-proto", b"evil"),
        ("x-forwarded-port", b"1"),
        ("forwarded", b"for=evil"),
        ("x-real-ip", b"evil"),
        ("x-serverless-authorization", b"evil"),
        ("x-gateway-destination-endpoint", b"evil:1"),
        ("x-gateway-destination-endpoint-subset", b"evil:1"),
        ("x-override-bootstrap-room", b"1"),
        ("x-prefiller-host-port", b"evil:1"),
        ("x-data-parallel-rank", b"1"),
        ("x-smg-routing-key", b"evil"),
        ("x-tandem-explain", b"evil"),
        ("x-request-id", b"evil id"),
        ("transfer_encoding", b"evil"),
        ("x_forwarded_for", b"evil"),
        ("cookie", b"evil"),
    ];
    let head = rendered(&parts("/generate", headers), &FORWARD);
    assert!(!head.contains("evil"), "{head}");
    assert_eq!(sent(headers, &FORWARD, "x-forwarded-for"), ["1.1.1.1, 2.2.2.2, 3.3.3.3, 192.0.2.1"]);
    assert_eq!(sent(headers, &Forward { tls: true, ..*FORWARD }, "x-forwarded-proto"), ["https"]);
    assert_eq!(sent(headers, &FORWARD, "x-forwarded-host"), ["front:8080"]);
    assert_eq!(sent(headers, &FORWARD, "x-request-id"), ["id-1"]);
    for gone in ["x-data-parallel-rank", "x-override-bootstrap-room", "x-forwarded-port"] {
        assert_eq!(sent(headers, &FORWARD, gone), Vec::<String>::new());
    }
}

#[test]
fn credentials_pass_or_stay_or_are_replaced() {
    let headers: &[(&str, &[u8])] =
        &[("authorization", b"Bearer c"), ("x-api-key", b"c"), ("api-key", b"c"), ("api_key", b"c")];
    let names = ["authorization", "x-api-key", "api-key", "api_key"];
    let all = |forward: &Forward<'_>| names.map(|name| sent(headers, forward, name).join("|"));
    assert_eq!(all(&FORWARD), ["Bearer c", "c", "c", "c"]);
    assert_eq!(all(&Forward { credentials: Credentials::Strip, ..*FORWARD }), ["", "", "", ""]);
    let own = HeaderValue::from_static("Bearer own");
    assert_eq!(
        all(&Forward { credentials: Credentials::Replace(&own), ..*FORWARD }),
        ["Bearer own", "", "", ""]
    );
}

#[test]
fn cookies_pass_when_configured_in_one_line() {
    let headers: &[(&str, &[u8])] = &[("cookie", b"a=1"), ("cookie", b"b=2")];
    assert_eq!(sent(headers, &FORWARD, "cookie"), Vec::<String>::new());
    assert_eq!(sent(headers, &Forward { cookies: true, ..*FORWARD }, "cookie"), ["a=1; b=2"]);
}

#[test]
fn via_is_added_behind_what_is_there_and_names_the_version_received() {
    assert_eq!(sent(&[("via", b"1.0 edge")], &FORWARD, "via"), ["1.0 edge", "1.1 tandem"]);
    let mut parts = parts("/generate", &[]);
    parts.version = Version::HTTP_2;
    assert!(rendered(&parts, &FORWARD).contains("\r\nvia: 2 tandem\r\n"));
}

#[test]
fn values_pass_as_the_bytes_they_are() {
    let mut out = BytesMut::new();
    write_head(
        &mut out,
        &parts("/generate", &[("x-a", b"\xff\xe6\x95\xb0\t x"), ("x-empty", b"")]),
        &FORWARD,
        None,
    );
    assert!(out.windows(16).any(|w| w == b"\r\nx-a: \xff\xe6\x95\xb0\t x\r\n"));
    assert!(out.windows(13).any(|w| w == b"\r\nx-empty: \r\n"));
}

#[test]
fn responses_lose_what_is_about_their_connection_only() {
    let mut headers = parts(
        "/",
        &[
            ("connection", b"keep-alive, x-hop"),
            ("keep-alive", b"timeout=5"),
            ("transfer-encoding", b"chunked"),
            ("upgrade", b"h2c"),
            ("trailer", b"x"),
            ("proxy-authenticate", b"Basic"),
            ("x-hop", b"1"),
            ("content-length", b"2"),
            ("content-encoding", b"gzip"),
            ("set-cookie", b"a"),
            ("set-cookie", b"b"),
            ("retry-after", b"1"),
        ],
    )
    .headers;
    strip_response(&mut headers);
    let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    // B12: encoding and body stay together.
    assert_eq!(left, ["content-encoding", "content-length", "retry-after", "set-cookie"]);
    assert_eq!(headers.get_all("set-cookie").iter().count(), 2);
}

#[test]
fn event_streams_are_marked_and_an_engine_s_own_marks_stay() {
    let added = |headers: &[(&str, &[u8])]| {
        let mut headers = parts("/", headers).headers;
        add_response(&mut headers, &ID, None);
        ["x-request-id", "cache-control", "x-accel-buffering"]
            .map(|n| headers.get_all(n).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>().join("|"))
    };
    let event: (&str, &[u8]) = ("content-type", b"Text/Event-Stream; charset=utf-8");
    assert_eq!(added(&[event, ("x-request-id", b"engine")]), ["id-1", "no-cache", "no"]);
    assert_eq!(added(&[event, ("cache-control", b"no-store")]), ["id-1", "no-store", "no"]);
    assert_eq!(added(&[("content-type", b"application/json")]), ["id-1", "", ""]);
}
