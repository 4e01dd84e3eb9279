//! Both directions of one exchange, in memory on a paused clock.

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use super::*;
use crate::testkit::memory::MemoryStream;
use crate::upstream::Io;

const NONE: Limits = Limits { first_byte: None, write_stall: None, deadline: None };
const SECOND: Duration = Duration::from_secs(1);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A connection that takes `room` bytes before the engine reads any.
fn pair(room: usize) -> (Conn, MemoryStream) {
    let (near, far) = MemoryStream::pair(room);
    (Conn::new(Io::Boxed(Box::new(near)), 0), far)
}

fn request(segments: &[&'static [u8]]) -> Outbound {
    Outbound { method: Method::POST, segments: segments.iter().map(|s| Bytes::from_static(s)).collect() }
}

#[tokio::test(start_paused = true)]
async fn every_segment_goes_out_once_in_order_in_any_pieces() {
    let mut many: Vec<&'static [u8]> = vec![&b""[..], b"head ", b"", b"", b"a"];
    many.extend([&b"0123456789"[..]; 40]);
    many.extend([&b""[..], b"end", b""]);
    let whole = many.concat();
    for room in [1, 3, 64, 4096] {
        let (mut conn, mut far) = pair(room);
        let out = request(&many);
        let engine = async {
            let mut seen = vec![0; whole.len()];
            far.read_exact(&mut seen).await.unwrap();
            far.write_all(OK).await.unwrap();
            seen
        };
        let (answer, seen) = tokio::join!(exchange(&mut conn, &out, NONE, None), engine);
        assert!(answer.unwrap().sent_all, "room for {room}");
        assert_eq!(seen, whole, "room for {room}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_final_answer_stops_the_upload_and_forbids_reuse() {
    let (mut conn, mut far) = pair(4);
    let engine = async {
        far.read_exact(&mut [0; 4]).await.unwrap();
        let answer = b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n";
        for part in answer.chunks(4) {
            far.write_all(part).await.unwrap();
        }
        sleep(SECOND).await;
        far
    };
    let out = request(&[b"head", b"a long body"]);
    let (answer, mut far) = tokio::join!(exchange(&mut conn, &out, NONE, None), engine);
    let answer = answer.unwrap();
    assert_eq!((answer.head.status, answer.sent_all), (StatusCode::PAYLOAD_TOO_LARGE, false));
    drop(conn);
    let mut rest = Vec::new();
    far.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() <= 8, "the upload went on: {}", rest.escape_ascii());
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_read_also_when_the_engine_takes_no_more() {
    let (mut conn, mut far) = pair(64);
    let out = request(&[b"head", &[b'x'; 1000]]);
    let engine = async {
        far.read_exact(&mut [0; 4]).await.unwrap();
        far.write_all(OK).await.unwrap();
        drop(far);
    };
    let (answer, ()) = tokio::join!(exchange(&mut conn, &out, NONE, None), engine);
    assert_eq!(answer.map(|a| a.sent_all), Ok(false));
}

#[tokio::test(start_paused = true)]
async fn interim_answers_are_skipped_and_bounded_and_101_is_refused() {
    for (count, last, expected) in [
        (0, "200", Ok(200)),
        (MAX_INTERIM, "200", Ok(200)),
        (MAX_INTERIM + 1, "200", Err("too many interim answers")),
        (1, "101", Err("101 without a request to switch")),
    ] {
        let (mut conn, mut far) = pair(4096);
        let interim = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(usize::from(count));
        let text = format!("{interim}HTTP/1.1 {last} x\r\ncontent-length: 0\r\n\r\n");
        let engine = async {
            far.read_exact(&mut [0; 4]).await.unwrap();
            far.write_all(text.as_bytes()).await.unwrap();
        };
        let out = request(&[b"head"]);
        let (answer, ()) = tokio::join!(exchange(&mut conn, &out, NONE, None), engine);
        let seen = answer.map(|a| a.head.status.as_u16()).map_err(|e| e.fault);
        assert_eq!(seen, expected.map_err(Fault::Malformed), "{count} interim, then {last}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_says_what_the_engine_can_have_read() {
    // (room for the request, what the engine sends before it leaves, written, answered)
    for (room, sends, written, answered) in [
        (4, &b""[..], Written::Part, false),
        (64, b"", Written::All, false),
        (64, b"HTTP/1.1 200 OK\r\n", Written::All, true),
        (4, b"HTTP", Written::Part, true),
    ] {
        let (mut conn, mut far) = pair(room);
        let engine = async {
            far.write_all(sends).await.unwrap();
            far.read_exact(&mut [0; 4]).await.unwrap();
            drop(far);
        };
        let out = request(&[b"head", b"a body"]);
        let (answer, ()) = tokio::join!(exchange(&mut conn, &out, NONE, Some(SECOND)), engine);
        let error = answer.expect_err("lost");
        assert_eq!((error.fault, error.written, error.answered), (Fault::Lost, written, answered));
        assert_eq!(error.reused, Some((SECOND, Duration::ZERO)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_takes_nothing_has_answered_nothing() {
    // Both ways of leaving, with and without a last word: nothing was written, so it can be tried again.
    for (word, fault) in
        [(&b""[..], Fault::Lost), (b"HTTP/1.1 408 x\r\n\r\n", Fault::Malformed("bytes before the request"))]
    {
        let (mut conn, mut far) = pair(64);
        far.write_all(word).await.unwrap();
        drop(far);
        let error = exchange(&mut conn, &request(&[b"head"]), NONE, None).await.expect_err("closed");
        assert_eq!((error.fault, error.written, error.answered), (fault, Written::Nothing, false));
    }
}

#[tokio::test(start_paused = true)]
async fn each_limit_ends_what_it_is_for() {
    let s = |n: u32| Some(SECOND * n);
    // (room for the request, first byte, write stall, total, fault, after seconds)
    for (room, first_byte, write_stall, total, fault, after) in [
        (64, s(3), s(1), None, Fault::FirstByteTimeout, 3),
        (4, s(1), s(3), None, Fault::WriteStall, 3),
        (4, s(1), s(3), s(2), Fault::TotalTimeout, 2),
        (64, None, None, s(4), Fault::TotalTimeout, 4),
    ] {
        let (mut conn, _far) = pair(room);
        let started = clock::now();
        let limits = Limits { first_byte, write_stall, deadline: total.map(|d| started + d) };
        let error =
            exchange(&mut conn, &request(&[b"head", b"body"]), limits, None).await.expect_err("silent");
        assert_eq!((error.fault, (clock::now() - started).as_secs()), (fault, after));
    }
}

#[tokio::test(start_paused = true)]
async fn progress_moves_the_limits() {
    // Ten bytes a second under a stall limit of two, then a silence counted from the last of them.
    let (mut conn, mut far) = pair(10);
    let limits = Limits { first_byte: Some(5 * SECOND), write_stall: Some(2 * SECOND), deadline: None };
    let out = request(&[b"head", &[b'x'; 96]]);
    let engine = async {
        for _ in 0..10 {
            sleep(SECOND).await;
            far.read_exact(&mut [0; 10]).await.unwrap();
        }
        sleep(60 * SECOND).await;
    };
    let started = clock::now();
    let ended = async {
        let error = exchange(&mut conn, &out, limits, None).await.expect_err("silent");
        (error.fault, (clock::now() - started).as_secs())
    };
    let (ended, ()) = tokio::join!(ended, engine);
    // The last ten fit in when the ninth second's read made room.
    assert_eq!(ended, (Fault::FirstByteTimeout, 9 + 5));
}
