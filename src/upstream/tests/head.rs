//! Every rule of response heads.

use super::*;

fn parse_as(method: &Method, head: impl AsRef<[u8]>) -> Result<Option<Head>, &'static str> {
    parse(&mut BytesMut::from(head.as_ref()), method)
}

/// Status line and fields, completed with the blank line.
fn complete(head: &str) -> Head {
    match parse_as(&Method::POST, format!("{head}\r\n\r\n")) {
        Ok(Some(head)) => head,
        other => panic!("{other:?} for {head:?}"),
    }
}

fn refused(head: &str) -> &'static str {
    let text = format!("{head}\r\n\r\n");
    let rule = parse_as(&Method::POST, &text).expect_err(&text);
    // Also when the rest is still to come, at the latest when it has come.
    let seen = (1..=text.len()).find_map(|n| parse_as(&Method::POST, &text.as_bytes()[..n]).err());
    assert!(seen.is_some(), "{text:?}");
    rule
}

#[test]
fn a_head_is_taken_off_the_buffer_once_it_is_complete() {
    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX:\r\ncontent-length: 5\r\n\r\nhello";
    let end = text.len() - 5;
    for n in 0..end {
        let mut buf = BytesMut::from(&text[..n]);
        assert!(parse(&mut buf, &Method::GET).unwrap().is_none(), "{n} bytes");
        assert_eq!(&buf[..], &text.as_bytes()[..n], "nothing is consumed");
    }
    let mut buf = BytesMut::from(text);
    let memory = buf.as_ptr_range();
    let head = parse(&mut buf, &Method::GET).unwrap().unwrap();
    assert_eq!((head.status.as_u16(), head.framing, head.keep_alive), (200, BodyFraming::Length(5), true));
    assert_eq!(head.headers["content-type"], "text/plain");
    assert_eq!(head.headers["x"], "");
    assert!(
        memory.contains(&head.headers["content-type"].as_bytes().as_ptr()),
        "values share the read buffer"
    );
    assert_eq!(&buf[..], b"hello");
}

#[test]
fn status_lines_of_http_1_are_taken_and_others_refused() {
    for (line, status) in [
        ("HTTP/1.1 200 OK", 200),
        ("HTTP/1.1 404 ", 404),
        ("HTTP/1.1 503", 503),
        ("HTTP/1.0 599 a b\tc \u{e9}", 599),
        ("HTTP/1.1 100 Continue", 100),
    ] {
        assert_eq!(complete(line).status.as_u16(), status, "{line}");
    }
    for line in [
        "HTTP/1.2 200 OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 abc OK",
        "HTTP/1.1\t200 OK",
        "HTTP/1.1 200\u{0}OK",
    ] {
        assert_eq!(refused(line), "head does not parse", "{line}");
    }
    for line in [
        "SIP/2.0 200 OK",
        "http/1.1 200 OK",
        "\r\nHTTP/1.1 200 OK",
        "\r\n",
        " HTTP/1.1 200 OK",
        "HTTP/2.0 200 OK",
        "HTTP/1 200 OK",
        "ICY 200 OK",
    ] {
        assert_eq!(refused(line), "not an HTTP/1 answer", "{line:?}");
    }
    for line in ["HTTP/1.1 000 ", "HTTP/1.1 099 x", "HTTP/1.1 600 x", "HTTP/1.1 999 x"] {
        assert_eq!(refused(line), "status code out of range", "{line}");
    }
}

#[test]
fn fields_are_not_repaired() {
    for field in [
        "a b: c",
        "a : c",
        ": c",
        "no colon",
        "a: b\r\n folded",
        "a: b\r\n\tfolded",
        "a: \u{0}",
        "a: \u{7f}",
        "a: b\rc",
        "\u{e9}: b",
        "a\u{0}: b",
    ] {
        assert_eq!(refused(&format!("HTTP/1.1 200 OK\r\n{field}")), "head does not parse", "{field:?}");
    }
    for head in ["HTTP/1.1 200 OK\na: b", "HTTP/1.1 200 OK\r\na: b\nc: d", "HTTP/1.1 200 OK\n\n"] {
        assert_eq!(refused(head), "bare line feed in the head", "{head:?}");
    }
    assert_eq!(
        parse_as(&Method::GET, "HTTP/1.1 200 OK\r\na: b\r\n\n").err(),
        Some("bare line feed in the head")
    );
    let kept = complete("HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nX: \t v \u{e9} \r\nset-cookie: b");
    assert_eq!(kept.headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(kept.headers["x"].as_bytes(), "v \u{e9}".as_bytes());
}

#[test]
fn a_hopeless_head_is_refused_before_its_end() {
    for start in ["S", "HTTP/2", "HTTP/1.1 20x", "HTTP/1.1 200 OK\n", "HTTP/1.1 200 OK\r\na b", "\r"] {
        assert!(parse_as(&Method::GET, start).is_err(), "{start:?}");
    }
}

#[test]
fn heads_are_bounded_in_bytes_and_fields() {
    let fields = |n: usize| "a: b\r\n".repeat(n);
    assert_eq!(complete(&format!("HTTP/1.1 200 OK\r\n{}", fields(128).trim_end())).headers.len(), 128);
    assert_eq!(
        refused(&format!("HTTP/1.1 200 OK\r\n{}", fields(129).trim_end())),
        "more than 128 header fields"
    );
    let start = "HTTP/1.1 200 OK\r\na: ";
    let room = MAX_HEAD_BYTES - start.len() - 4;
    assert_eq!(complete(&format!("{start}{}", "x".repeat(room))).headers.len(), 1);
    let large = format!("{start}{}\r\n\r\n", "x".repeat(room + 1));
    assert_eq!(parse_as(&Method::GET, &large).err(), Some("head larger than 64 KiB"));
    assert_eq!(parse_as(&Method::GET, &large[..MAX_HEAD_BYTES]).err(), Some("head larger than 64 KiB"));
    assert!(parse_as(&Method::GET, &large[..MAX_HEAD_BYTES - 1]).unwrap().is_none());
}

#[test]
fn one_framing_or_none() {
    use BodyFraming::{Chunked, Close, Empty, Length};
    let framing = |fields: &str| complete(&format!("HTTP/1.1 200 OK{fields}")).framing;
    assert_eq!(framing(""), Close);
    assert_eq!(framing("\r\ncontent-length: 0"), Empty);
    assert_eq!(framing("\r\ncontent-length:   0012  "), Length(12));
    assert_eq!(framing("\r\ncontent-length: 9999999999999999999"), Length(9_999_999_999_999_999_999));
    assert_eq!(framing("\r\ntransfer-encoding: Chunked"), Chunked);
    let refused = |fields: &str| refused(&format!("HTTP/1.1 200 OK\r\n{fields}"));
    for value in
        ["", "-1", "+1", "1 2", "0x5", "1.0", "5, 5", "5,", "18446744073709551616", "00000000000000000005"]
    {
        assert_eq!(
            refused(&format!("content-length: {value}")),
            "content-length is not a number",
            "{value:?}"
        );
    }
    assert_eq!(refused("content-length: 5\r\ncontent-length: 5"), "more than one content-length");
    assert_eq!(
        refused("content-length: 5\r\ntransfer-encoding: chunked"),
        "both content-length and transfer-encoding"
    );
    assert_eq!(
        refused("transfer-encoding: chunked\r\ntransfer-encoding: chunked"),
        "more than one transfer-encoding"
    );
    for value in ["gzip", "gzip, chunked", "chunked, chunked", "identity", "", "chunked;q=1", "\"chunked\""] {
        assert_eq!(
            refused(&format!("transfer-encoding: {value}")),
            "transfer-encoding other than chunked",
            "{value}"
        );
    }
    let old = parse_as(&Method::GET, "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    assert_eq!(old.err(), Some("transfer-encoding in HTTP/1.0"));
}

#[test]
fn answers_without_a_body_end_with_their_head() {
    for (method, line) in [
        (Method::HEAD, "HTTP/1.1 200 OK\r\ncontent-length: 5"),
        (Method::HEAD, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked"),
        (Method::HEAD, "HTTP/1.1 200 OK"),
        (Method::POST, "HTTP/1.1 304 x\r\ncontent-length: 5"),
        (Method::POST, "HTTP/1.1 204 x"),
        (Method::POST, "HTTP/1.1 204 x\r\ncontent-length: 0"),
    ] {
        let head = parse_as(&method, format!("{line}\r\n\r\n")).unwrap().unwrap();
        assert_eq!((head.framing, head.keep_alive), (BodyFraming::Empty, true), "{method} {line}");
    }
    for odd in ["content-length: 5", "transfer-encoding: chunked"] {
        let head = complete(&format!("HTTP/1.1 204 x\r\n{odd}"));
        assert_eq!(
            (head.framing, head.keep_alive),
            (BodyFraming::Empty, false),
            "its body may follow: {odd}"
        );
        assert_eq!(refused(&format!("HTTP/1.1 100 x\r\n{odd}")), "interim answer with a body");
    }
}

#[test]
fn a_connection_is_kept_only_where_the_engine_keeps_it() {
    let keeps = |version: &str, fields: &str| {
        complete(&format!("{version} 200 OK\r\ncontent-length: 1{fields}")).keep_alive
    };
    for (version, fields, expected) in [
        ("HTTP/1.1", "", true),
        ("HTTP/1.1", "\r\nconnection: keep-alive", true),
        ("HTTP/1.1", "\r\nconnection: Close", false),
        ("HTTP/1.1", "\r\nconnection: x, close", false),
        ("HTTP/1.1", "\r\nconnection: x\r\nconnection:\tclose ,y", false),
        ("HTTP/1.1", "\r\nconnection: closed", true),
        ("HTTP/1.0", "", false),
        ("HTTP/1.0", "\r\nconnection: Keep-Alive", true),
        ("HTTP/1.0", "\r\nconnection: keep-alive, close", false),
    ] {
        assert_eq!(keeps(version, fields), expected, "{version} {fields:?}");
    }
    assert!(!complete("HTTP/1.1 200 OK").keep_alive, "the end of the connection is the end of the body");
}
