//! The upstream client as a property: any valid answer under any split gives the same status, fields and payload, and
//! takes not one byte more; anything broken ends in an error, the same for every split, and never in reuse.

use http::Method;
use proptest::prelude::*;
use tandem::testkit::upstream::{Received, receive};
use tandem::upstream::Fault;

/// A valid answer and what is to be made of it.
#[derive(Debug, Clone)]
struct Valid {
    method: Method,
    wire: Vec<u8>,
    status: u16,
    body: Vec<u8>,
    fields: Vec<(String, Vec<u8>)>,
    keep_alive: bool,
    by_close: bool,
}

#[derive(Debug, Clone)]
enum Framing {
    Length,
    Chunked { sizes: Vec<usize>, spelling: Vec<u8>, trailers: Vec<(String, Vec<u8>)> },
    Close,
}

fn field() -> impl Strategy<Value = (String, Vec<u8>)> {
    let value = prop::collection::vec(prop_oneof![0x21..=0x7e_u8, 0x80..=0xff_u8], 0..12);
    ("x-[a-zA-Z0-9!#$%&'*+.^_`|~-]{0,12}", value)
}

fn fields() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    prop::collection::vec(field(), 0..6)
}

fn framing() -> impl Strategy<Value = Framing> {
    let chunked = (prop::collection::vec(1..40usize, 1..8), prop::collection::vec(any::<u8>(), 8), fields())
        .prop_map(|(sizes, spelling, trailers)| Framing::Chunked { sizes, spelling, trailers });
    prop_oneof![2 => Just(Framing::Length), 4 => chunked, 1 => Just(Framing::Close)]
}

fn write_fields(out: &mut Vec<u8>, fields: &[(String, Vec<u8>)], space: &str) {
    for (name, value) in fields {
        out.extend_from_slice(format!("{name}:{space}").as_bytes());
        out.extend_from_slice(value);
        out.extend_from_slice(format!("{space}\r\n").as_bytes());
    }
}

/// Sizes in both cases, with zeros in front, padding or extensions behind.
fn size_line(size: usize, spelling: u8) -> String {
    let digits = if spelling & 1 == 0 { format!("{size:x}") } else { format!("{size:X}") };
    let zeros = "0".repeat(usize::from(spelling >> 1 & 3));
    let behind =
        ["", ";a", "; name=\"v;\t\"", " ", "\t ;b=c", ";;", " ; x", ";\u{e9}"][usize::from(spelling >> 5)];
    format!("{zeros}{digits}{behind}\r\n")
}

fn write_chunks(out: &mut Vec<u8>, body: &[u8], sizes: &[usize], spelling: &[u8]) {
    let mut rest = body;
    for i in 0.. {
        let size = sizes[i % sizes.len()].min(rest.len());
        out.extend_from_slice(size_line(size, spelling[i % spelling.len()]).as_bytes());
        if size == 0 {
            return;
        }
        out.extend_from_slice(&rest[..size]);
        out.extend_from_slice(b"\r\n");
        rest = &rest[size..];
    }
}

fn valid() -> impl Strategy<Value = Valid> {
    let head = (
        prop::sample::select(vec![200u16, 201, 206, 204, 304, 400, 404, 429, 500, 503, 599]),
        prop::bool::weighted(0.1),
        prop::sample::select(vec!["OK", "", "a  b\tc"]),
        prop::sample::select(vec!["", " ", " \t"]),
        prop::sample::select(vec!["", "close", "keep-alive", "x, Close"]),
        prop::bool::weighted(0.15),
    );
    let interim = prop::collection::vec((prop::sample::select(vec![100u16, 102, 103, 199]), fields()), 0..3);
    (head, interim, fields(), prop::collection::vec(any::<u8>(), 0..300), framing()).prop_map(
        |((status, is_head, reason, space, connection, old), interim, fields, body, framing)| {
            let mut wire = Vec::new();
            for (status, fields) in &interim {
                wire.extend_from_slice(format!("HTTP/1.1 {status} x\r\n").as_bytes());
                write_fields(&mut wire, fields, space);
                wire.extend_from_slice(b"\r\n");
            }
            let old = old && !matches!(framing, Framing::Chunked { .. });
            let version = if old { "HTTP/1.0" } else { "HTTP/1.1" };
            wire.extend_from_slice(format!("{version} {status} {reason}\r\n").as_bytes());
            write_fields(&mut wire, &fields, space);
            if !connection.is_empty() {
                wire.extend_from_slice(format!("Connection:{space}{connection}\r\n").as_bytes());
            }
            let bodiless = is_head || status == 204 || status == 304;
            // A 204 that announces a body is valid for nobody.
            let framing = if status == 204 { Framing::Close } else { framing };
            match &framing {
                Framing::Length => {
                    let length = format!("Content-Length:{space}{}\r\n\r\n", body.len());
                    wire.extend_from_slice(length.as_bytes());
                    if !bodiless {
                        wire.extend_from_slice(&body);
                    }
                }
                Framing::Chunked { sizes, spelling, trailers } => {
                    wire.extend_from_slice(format!("transfer-encoding:{space}chunked\r\n\r\n").as_bytes());
                    if !bodiless {
                        write_chunks(&mut wire, &body, sizes, spelling);
                        write_fields(&mut wire, trailers, space);
                        wire.extend_from_slice(b"\r\n");
                    }
                }
                Framing::Close => {
                    wire.extend_from_slice(b"\r\n");
                    if !bodiless {
                        wire.extend_from_slice(&body);
                    }
                }
            }
            let by_close = matches!(framing, Framing::Close) && !bodiless;
            let closes = connection.ends_with("lose") || (old && connection != "keep-alive");
            Valid {
                method: if is_head { Method::HEAD } else { Method::GET },
                wire,
                status,
                body: if bodiless { Vec::new() } else { body },
                fields,
                keep_alive: !closes && !by_close,
                by_close,
            }
        },
    )
}

fn cuts() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        Just(vec![1; 4000]),
        prop::collection::vec(0..6u8, 0..300),
        prop::collection::vec(any::<u8>(), 0..12)
    ]
}

/// What must not depend on the split. What lies behind a fault may be read or not, and of several faults either is named.
fn essence(received: Received) -> (Option<u16>, Vec<u8>, Result<usize, Fault>) {
    let end = received.end.map(|_| received.left).map_err(|fault| match fault {
        Fault::Malformed(_) => Fault::Malformed(""),
        other => other,
    });
    (received.status.map(|s| s.as_u16()), received.body, end)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_valid_answer_is_the_same_under_any_split(answer in valid(), cuts in cuts(), extra in "[ -~\r\n]{0,30}") {
        let mut wire = answer.wire.clone();
        let extra = if answer.by_close { "" } else { &extra };
        wire.extend_from_slice(extra.as_bytes());
        let seen = receive(&wire, &cuts, &answer.method);
        prop_assert_eq!(seen.status.map(|s| s.as_u16()), Some(answer.status));
        prop_assert_eq!(&seen.body, &answer.body);
        for (name, value) in &answer.fields {
            let found = seen.headers.get_all(name.to_ascii_lowercase());
            prop_assert!(found.iter().any(|v| v.as_bytes() == value), "{}", name);
        }
        prop_assert_eq!(seen.left, extra.len(), "not a byte of what follows is used");
        if extra.is_empty() {
            prop_assert_eq!(seen.end, Ok(answer.keep_alive));
        } else {
            prop_assert!(seen.end.is_ok(), "{:?}", seen.end);
            prop_assert!(answer.keep_alive || seen.end == Ok(false));
        }
        if cuts.is_empty() && !extra.is_empty() {
            prop_assert_eq!(seen.end, Ok(false), "bytes that came with the message forbid reuse");
        }
    }

    #[test]
    fn an_answer_cut_short_is_lost_and_its_payload_is_the_beginning(answer in valid(), at in any::<prop::sample::Index>(), cuts in cuts()) {
        prop_assume!(!answer.by_close);
        let at = at.index(answer.wire.len());
        let seen = receive(&answer.wire[..at], &cuts, &answer.method);
        prop_assert_eq!(seen.end, Err(Fault::Lost));
        prop_assert!(answer.body.starts_with(&seen.body));
    }

    #[test]
    fn any_bytes_are_the_same_under_any_split(
        answer in valid(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"\r\n\0 :;0aAfF,-\x7f\xff".to_vec()), 0..3u8), 0..4),
        cuts in cuts(),
    ) {
        let mut wire = answer.wire;
        for (at, byte, how) in edits {
            let at = at.index(wire.len());
            match how {
                0 => wire[at] = byte,
                1 => wire.insert(at, byte),
                _ if wire.len() > 1 => drop(wire.remove(at)),
                _ => {}
            }
        }
        let whole = essence(receive(&wire, &[], &answer.method));
        prop_assert_eq!(essence(receive(&wire, &cuts, &answer.method)), whole, "{}", wire.escape_ascii());
    }

    #[test]
    fn a_broken_rule_is_an_upstream_error_under_any_split(broken in broken(), cuts in cuts()) {
        let seen = receive(broken.as_bytes(), &cuts, &Method::GET);
        prop_assert!(matches!(seen.end, Err(Fault::Malformed(_))), "{:?} for {:?}", seen.end, broken);
    }
}

/// Answers with one rule broken, with good parts around it.
fn broken() -> impl Strategy<Value = String> {
    let status = prop::sample::select(vec![
        "HTTP/1.1 99 x",
        "HTTP/1.1 600 x",
        "HTTP/3 200 OK",
        "\r\nHTTP/1.1 200 OK",
        "HTTP/1.1 101 Switch",
        "HTTP/1.1 100 x\r\ncontent-length: 3",
        "HTTP/1.1 200 OK\rX",
    ])
    .prop_map(|line| format!("{line}\r\ncontent-length: 2\r\n\r\nok"));
    let fields = prop::sample::select(vec![
        "a b: c",
        ": c",
        "a: b\r\n c: d",
        "a : b",
        "a: \0",
        "a: b\nc: d",
        "nocolon",
        "content-length: 3",
        "transfer-encoding: chunked",
        "content-length: 2",
    ])
    .prop_map(|line| format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n{line}\r\n\r\nok"));
    let lengths =
        prop::sample::select(vec!["", "-1", "+2", "2,2", "0x2", "18446744073709551616", "2 2", "9e9"])
            .prop_map(|n| format!("HTTP/1.1 200 OK\r\ncontent-length: {n}\r\n\r\nok"));
    let encodings =
        prop::sample::select(vec!["gzip", "gzip, chunked", "chunked, chunked", "", "identity", "xchunked"])
            .prop_map(|e| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {e}\r\n\r\n0\r\n\r\n"));
    let chunks = prop::sample::select(vec![
        "2\nok\r\n",
        "\r\nok\r\n",
        "2x\r\nok\r\n",
        "-2\r\nok\r\n",
        "2\r\nokk\r\n",
        "2\r\nok\n",
        "fffffffffffffffff\r\n",
        "2;a\n\r\nok\r\n",
        "2;\0\r\nok\r\n",
        "0\r\n bad\r\n\r\n",
        "0\r\na\r\n\r\n",
        "0\r\na: \0\r\n\r\n",
        "0\r\n\rx",
        "0\r\n:\r\n\r\n",
    ])
    .prop_map(|chunk| {
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n{chunk}0\r\n\r\n")
    });
    let interim = Just("HTTP/1.1 100 x\r\n\r\n".repeat(17) + "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    prop_oneof![status, fields, lengths, encodings, chunks, interim]
}
