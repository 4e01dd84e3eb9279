//! Every rule of the chunk framing, each for every split into two reads and byte by byte.

use super::*;

/// Payload handed out, and how it ended: `None` is the clean end.
type Outcome = (Vec<u8>, Option<&'static str>);

const CUT: &str = "cut short";

fn decode(pieces: &[&[u8]]) -> (Outcome, usize) {
    let mut decoder = Decoder::new(BodyFraming::Chunked);
    let (mut buf, mut body) = (BytesMut::new(), Vec::new());
    let mut pieces = pieces.iter();
    loop {
        match decoder.step(&mut buf) {
            Ok(Frame::Data(data)) => body.extend_from_slice(&data),
            Ok(Frame::End) => return ((body, None), buf.len() + pieces.map(|p| p.len()).sum::<usize>()),
            Ok(Frame::NeedMore) => match pieces.next() {
                Some(piece) => buf.extend_from_slice(piece),
                None => return ((body, Some(decoder.eof().map_or(CUT, |()| "ended by close"))), 0),
            },
            Err(rule) => {
                assert_eq!(decoder.step(&mut buf), Err(rule), "a fault stays");
                assert!(decoder.eof().is_err() && !decoder.is_done());
                return ((body, Some(rule)), 0);
            }
        }
    }
}

fn every_split(wire: &[u8]) -> Outcome {
    let (whole, _) = decode(&[wire]);
    let bytes: Vec<&[u8]> = wire.chunks(1).collect();
    assert_eq!(decode(&bytes).0, whole, "byte by byte: {}", wire.escape_ascii());
    for at in 1..wire.len() {
        assert_eq!(decode(&[&wire[..at], &wire[at..]]).0, whole, "cut at {at}: {}", wire.escape_ascii());
    }
    whole
}

fn good(wire: &[u8], body: &[u8]) {
    assert_eq!(every_split(wire), (body.to_vec(), None), "{}", wire.escape_ascii());
}

fn bad(wire: &[u8], rule: &'static str) {
    assert_eq!(every_split(wire).1, Some(rule), "{}", wire.escape_ascii());
}

#[test]
fn chunks_of_any_spelling_of_their_size_are_joined() {
    good(b"5\r\nhello\r\n0\r\n\r\n", b"hello");
    good(b"1\r\na\r\n00000000000000a\r\n0123456789\r\n000\r\n\r\n", b"a0123456789");
    good(b"A\r\n0123456789\r\nb\r\n0123456789A\r\n0\r\n\r\n", b"01234567890123456789A");
    good(b"0\r\n\r\n", b"");
    good(b"4\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n\r\n");
}

#[test]
fn extensions_and_padding_are_skipped() {
    good(b"2;a\r\nhi\r\n0;x=y\r\n\r\n", b"hi");
    good(b"2 ; a = \"b;\xff\tc\"\r\nhi\r\n0\r\n\r\n", b"hi");
    good(b"2  \r\nhi\r\n0\t\r\n\r\n", b"hi");
}

#[test]
fn trailers_are_checked_and_dropped() {
    good(b"1\r\na\r\n0\r\ngrpc-status: 0\r\nx:\r\ny: \xff z\t\r\n\r\n", b"a");
    for trailers in [
        "nocolon\r\n\r\n",
        ": v\r\n\r\n",
        " folded: v\r\n\r\n",
        "a b: c\r\n\r\n",
        "a: \0\r\n\r\n",
        "a: \x7f\r\n\r\n",
    ] {
        bad(format!("0\r\n{trailers}").as_bytes(), "malformed trailer");
    }
    for trailers in ["a: b\n\r\n", "a\n\r\n", "\n\r\n"] {
        bad(format!("0\r\n{trailers}").as_bytes(), "bare line feed in the trailers");
    }
    bad(b"0\r\na: b\rc\r\n\r\n", "bare carriage return in chunk framing");
    bad(b"0\r\n\rx", "bare carriage return in chunk framing");
}

#[test]
fn sizes_that_two_readers_could_read_differently_are_refused() {
    for size in ["", ";a", " 5", "\r\n", "-1", "+1", "x"] {
        bad(format!("{size}\r\nhello\r\n0\r\n\r\n").as_bytes(), "chunk size without digits");
    }
    for size in ["0x5", "5_0", "5,", "5 5", "5 a", "5\t5", "5\0", "5\n", "5 \n"] {
        bad(format!("{size}\r\nhello\r\n0\r\n\r\n").as_bytes(), "chunk size is not hexadecimal");
    }
    for size in ["10000000000000000", "00000000000000005", "fffffffffffffffff"] {
        bad(format!("{size}\r\nhello").as_bytes(), "chunk size out of range");
    }
    bad(b"5\rhello\r\n0\r\n\r\n", "bare carriage return in chunk framing");
    bad(b"5;a\rb\r\nhello\r\n", "bare carriage return in chunk framing");
    for byte in ["\n", "\0", "\x1b", "\x7f"] {
        bad(format!("5;a{byte}\r\nhello\r\n0\r\n\r\n").as_bytes(), "bad byte in a chunk extension");
    }
}

#[test]
fn the_largest_size_is_a_size() {
    let mut decoder = Decoder::new(BodyFraming::Chunked);
    let mut buf = BytesMut::from(&b"ffffffffffffffff\r\nabc"[..]);
    assert_eq!(decoder.step(&mut buf), Ok(Frame::Data(Bytes::from_static(b"abc"))));
    assert_eq!(decoder.state, State::Chunk(Chunk::Data(u64::MAX - 3)));
}

#[test]
fn data_must_be_exactly_as_long_as_announced() {
    for wire in ["5\r\nhello!\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello\rx0\r\n\r\n"] {
        bad(wire.as_bytes(), "chunk data longer than its size");
    }
    for wire in [
        "",
        "5",
        "5\r\n",
        "5\r\nhell",
        "5\r\nhello\r\n",
        "5\r\nhello\r\n0\r\n",
        "5\r\nhello\r\n0\r\n\r",
        "0\r\na: b\r\n",
    ] {
        bad(wire.as_bytes(), CUT);
    }
}

#[test]
fn payload_before_a_fault_is_handed_out_however_it_is_split() {
    assert_eq!(
        every_split(b"5\r\nhello\r\n2\r\nab?"),
        (b"helloab".to_vec(), Some("chunk data longer than its size"))
    );
    assert_eq!(every_split(b"5\r\nhello\r\nzz"), (b"hello".to_vec(), Some("chunk size without digits")));
}

#[test]
fn extensions_and_trailers_are_bounded() {
    for pad in [";", " "] {
        let line = |n: usize| format!("1{}\r\na\r\n0\r\n\r\n", pad.repeat(n)).into_bytes();
        assert_eq!(decode(&[&line(1000)]).0, (b"a".to_vec(), None));
        assert!(matches!(decode(&[&line(1100)]).0.1, Some("chunk extension too long")), "{pad:?}");
    }
    let trailers = |n: usize| format!("0\r\n{}\r\n", "a: b\r\n".repeat(n)).into_bytes();
    assert_eq!(decode(&[&trailers(2000)]).0.1, None);
    assert_eq!(decode(&[&trailers(4000)]).0.1, Some("trailers too long"));
    let one = format!("0\r\na: {}\r\n\r\n", "b".repeat(20_000));
    assert_eq!(decode(&[one.as_bytes()]).0.1, Some("trailers too long"));
}

#[test]
fn what_follows_the_message_stays_in_the_buffer() {
    let wire = b"5\r\nhello\r\n0\r\nt: v\r\n\r\nHTTP/1.1 200 OK\r\n";
    for at in 1..wire.len() {
        assert_eq!(decode(&[&wire[..at], &wire[at..]]), ((b"hello".to_vec(), None), 17), "cut at {at}");
    }
}

#[test]
fn a_read_full_of_chunks_is_one_frame_in_the_buffer_it_was_read_into() {
    let mut buf = BytesMut::from(&b"1\r\na\r\n2\r\nbc\r\n3\r\ndef\r\n"[..]);
    let place = buf.as_ptr();
    let mut decoder = Decoder::new(BodyFraming::Chunked);
    let Ok(Frame::Data(data)) = decoder.step(&mut buf) else { panic!("payload") };
    assert_eq!((&data[..], data.as_ptr()), (&b"abcdef"[..], place));
    assert_eq!(decoder.step(&mut buf), Ok(Frame::NeedMore));
}

#[test]
fn a_length_takes_its_bytes_and_no_more_and_a_close_takes_all() {
    let mut decoder = Decoder::new(BodyFraming::Length(5));
    let mut buf = BytesMut::from(&b"hel"[..]);
    assert_eq!(decoder.step(&mut buf), Ok(Frame::Data(Bytes::from_static(b"hel"))));
    assert_eq!((decoder.remaining(), decoder.eof(), decoder.is_done()), (Some(2), Err(()), false));
    buf.extend_from_slice(b"lo!");
    assert_eq!(decoder.step(&mut buf), Ok(Frame::Data(Bytes::from_static(b"lo"))));
    assert_eq!((decoder.is_done(), &buf[..]), (true, &b"!"[..]));
    assert_eq!(decoder.step(&mut buf), Ok(Frame::End));

    let mut decoder = Decoder::new(BodyFraming::Close);
    assert_eq!(decoder.step(&mut BytesMut::new()), Ok(Frame::NeedMore));
    assert_eq!(decoder.step(&mut BytesMut::from("x")), Ok(Frame::Data(Bytes::from_static(b"x"))));
    assert_eq!((decoder.eof(), decoder.is_done()), (Ok(()), true));

    for empty in [BodyFraming::Empty, BodyFraming::Length(0)] {
        let mut decoder = Decoder::new(empty);
        assert_eq!((decoder.step(&mut BytesMut::from("x")), decoder.remaining()), (Ok(Frame::End), Some(0)));
    }
}
