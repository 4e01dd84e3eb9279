//! One connection: read a request, answer it, again, until the peer leaves.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::answer::{self, Book, Stream};
use crate::common::{ASK_HEADER, Ask, body_sum, now};

/// First read of a connection that may only hold an idle stream.
const SMALL_READ: usize = 4 * 1024;
/// Reads inside a large body.
const LARGE_READ: usize = 64 * 1024;
const MAX_HEADERS: usize = 64;

/// What the engine needs of a request head.
struct Head {
    post: bool,
    length: usize,
    ask: Ask,
    /// Bytes of the head itself.
    size: usize,
}

/// Serves one connection until the peer closes it.
///
/// # Errors
/// The socket's, and `InvalidData` for a request that cannot be read.
pub async fn serve(mut stream: TcpStream, book: &Book) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = BytesMut::new();
    loop {
        let Some(head) = read_head(&mut stream, &mut buffer).await? else { return Ok(()) };
        let sum = read_body(&mut stream, &mut buffer, head.length).await?;
        // Routers probe with GET; any of those is well.
        if !head.post || head.ask.events == 0 {
            stream.write_all(answer::small(sum).as_bytes()).await?;
        } else {
            write_stream(&mut stream, &book.stream(head.ask), head.ask, sum).await?;
        }
    }
}

async fn read_head(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Option<Head>> {
    loop {
        match parse(buffer) {
            Ok(Some(head)) => {
                buffer.advance(head.size);
                return Ok(Some(head));
            }
            Ok(None) => {}
            Err(status) => {
                stream.write_all(answer::refusal(status).as_bytes()).await?;
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        buffer.reserve(SMALL_READ);
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// The head at the front of `bytes`, `None` if more is needed, or the status to refuse it with.
fn parse(bytes: &[u8]) -> Result<Option<Head>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let size = match request.parse(bytes) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("400 Bad Request"),
    };
    let mut head = Head { post: request.method == Some("POST"), length: 0, ask: Ask::default(), size };
    for header in request.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| "400 Bad Request")?;
        if header.name.eq_ignore_ascii_case("content-length") {
            head.length = value.trim().parse().map_err(|_| "400 Bad Request")?;
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("411 Length Required");
        } else if header.name.eq_ignore_ascii_case(ASK_HEADER) {
            head.ask = Ask::parse(value).map_err(|_| "400 Bad Request")?;
        }
    }
    Ok(Some(head))
}

/// Reads the body and forgets it; the answer is its sum.
async fn read_body(stream: &mut TcpStream, buffer: &mut BytesMut, length: usize) -> io::Result<u64> {
    let (mut left, mut sum) = (length, 0);
    loop {
        let here = left.min(buffer.len());
        sum += body_sum(&buffer[..here]);
        buffer.advance(here);
        left -= here;
        if left == 0 {
            return Ok(sum);
        }
        buffer.reserve(if left > SMALL_READ { LARGE_READ } else { SMALL_READ });
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Head and first event together, then one write per burst, as engines send tokens.
async fn write_stream(stream: &mut TcpStream, body: &Stream, ask: Ask, sum: u64) -> io::Result<()> {
    let mut first = answer::stream_head(sum).into_bytes();
    let mut from = body.ends.first().copied().unwrap_or(0);
    first.extend_from_slice(&body.bytes[..from]);
    stream.write_all(&first).await?;
    if ask.hold {
        // Silent until the peer leaves, which a read notices.
        return stream.read_u8().await.map(drop);
    }
    let start = now() + phase(ask.gap_us);
    for (index, &end) in body.ends.iter().enumerate().skip(1) {
        if ask.gap_us == 0 {
            // The other streams get their turn: an engine's batch yields one token for each of them.
            tokio::task::yield_now().await;
        } else {
            // From the start, so that lateness does not add up.
            let due = start + Duration::from_micros(ask.gap_us * index as u64);
            tokio::time::sleep_until(due.into()).await;
        }
        stream.write_all(&body.bytes[from..end]).await?;
        from = end;
    }
    Ok(())
}

/// A part of the gap, another one for each stream: streams that begin together must not send together for ever, or a
/// router would wake up once for all of them.
fn phase(gap_us: u64) -> Duration {
    thread_local!(static STREAMS: Cell<u64> = const { Cell::new(0) });
    let number = STREAMS.replace(STREAMS.get().wrapping_add(1));
    // Steps of the golden ratio spread any number of streams evenly.
    Duration::from_micros(gap_us).mul_f64((number as f64 * 0.618_033_988_75).fract())
}
