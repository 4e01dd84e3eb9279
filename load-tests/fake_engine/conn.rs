//! One connection: read a request, answer it, again, until the peer leaves.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::answer::{self, Book, Stream};
use crate::common::{ASK_HEADER, Ask, SMALL_ANSWER, body_sum, now};
use crate::pd::{Pairs, Reply, Role};

/// First read of a connection that may only hold an idle stream.
const SMALL_READ: usize = 4 * 1024;
/// Reads inside a large body.
const LARGE_READ: usize = 64 * 1024;
const MAX_HEADERS: usize = 64;

/// What routers ask an engine before they trust it, one answer for all: is it well, what is it, which model has it.
const ABOUT: &str = concat!(
    r#"{"object":"list","data":[{"id":"load","object":"model","created":1750000000,"owned_by":"sglang","root":"load","#,
    r#""max_model_len":131072}],"status":"ready","version":"0.5.23","model_path":"load","served_model_name":"load","#,
    r#""is_generation":true,"tp_size":1,"dp_size":1,"loads":[]}"#
);

/// The engine that all connections of a thread belong to.
#[derive(Debug, Default)]
pub struct Engine {
    book: Book,
    /// Of an engine that has both roles.
    pairs: Option<Pairs>,
}

impl Engine {
    /// An engine, for `pd` with a prefill listener beside the decode's.
    pub fn new(pd: bool) -> Self {
        Self { pairs: pd.then(Pairs::default), ..Self::default() }
    }
}

#[derive(Debug, PartialEq)]
enum Kind {
    Post,
    /// What [`Pairs`] counted.
    Report,
    Probe,
}

/// What the engine needs of a request head.
struct Head {
    kind: Kind,
    length: usize,
    /// None: it is in the prompt, or it is left open.
    ask: Option<Ask>,
    /// Bytes of the head itself.
    size: usize,
}

/// Serves one connection until the peer closes it.
///
/// # Errors
/// The socket's, and `InvalidData` for a request that cannot be read.
pub async fn serve(mut stream: TcpStream, engine: &Engine, role: Role) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = BytesMut::new();
    loop {
        let Some(head) = read_head(&mut stream, &mut buffer).await? else { return Ok(()) };
        let (ask, sum) = match (head.kind, &engine.pairs) {
            (Kind::Post, Some(pairs)) if head.ask.is_none() => {
                let body = keep_body(&mut stream, &mut buffer, head.length).await?;
                match pairs.take(role, &body).await {
                    Ok(Reply::Ask(ask)) => (ask, None),
                    Ok(Reply::Handoff(answer)) => {
                        stream.write_all(answer::plain(&answer, None).as_bytes()).await?;
                        continue;
                    }
                    Err(breach) => return refuse(&mut stream, "400 Bad Request", breach).await,
                }
            }
            (Kind::Post, _) => {
                (head.ask.unwrap_or_default(), Some(read_body(&mut stream, &mut buffer, head.length).await?))
            }
            (kind, pairs) => {
                let report = pairs.as_ref().filter(|_| kind == Kind::Report).map(Pairs::report);
                stream.write_all(answer::plain(report.as_deref().unwrap_or(ABOUT), None).as_bytes()).await?;
                continue;
            }
        };
        if ask.events == 0 {
            stream.write_all(answer::plain(SMALL_ANSWER, sum).as_bytes()).await?;
        } else {
            write_stream(&mut stream, &engine.book.stream(ask), ask, sum).await?;
        }
    }
}

async fn refuse(stream: &mut TcpStream, status: &str, why: &str) -> io::Result<()> {
    stream.write_all(answer::refusal(status, why).as_bytes()).await?;
    Err(io::ErrorKind::InvalidData.into())
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
                refuse(stream, status, "").await?;
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
    let kind = match (request.method, request.path) {
        (Some("POST"), _) => Kind::Post,
        (_, Some("/load-report")) => Kind::Report,
        _ => Kind::Probe,
    };
    let mut head = Head { kind, length: 0, ask: None, size };
    for header in request.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| "400 Bad Request")?;
        if header.name.eq_ignore_ascii_case("content-length") {
            head.length = value.trim().parse().map_err(|_| "400 Bad Request")?;
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("411 Length Required");
        } else if header.name.eq_ignore_ascii_case(ASK_HEADER) {
            head.ask = Some(Ask::parse(value).map_err(|_| "400 Bad Request")?);
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

/// Reads the body and keeps it.
async fn keep_body(stream: &mut TcpStream, buffer: &mut BytesMut, length: usize) -> io::Result<BytesMut> {
    while buffer.len() < length {
        buffer.reserve(length - buffer.len());
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(buffer.split_to(length))
}

/// Head and first event together, then one write per burst, as engines send tokens.
async fn write_stream(stream: &mut TcpStream, body: &Stream, ask: Ask, sum: Option<u64>) -> io::Result<()> {
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
