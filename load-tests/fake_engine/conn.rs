//! One connection: read a request, answer it, again, until the peer leaves.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::answer::{self, Book, Stream};
use crate::common::{Ask, SMALL_ANSWER, now};
use crate::pd::{Door, Pairs, Reply};
use crate::request::{Kind, keep_body, read_body, read_head, refuse};

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

/// Serves one connection until the peer closes it.
///
/// # Errors
/// The socket's, and `InvalidData` for a request that cannot be read.
pub async fn serve(mut stream: TcpStream, engine: &Engine, door: Door) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = BytesMut::new();
    loop {
        let Some(head) = read_head(&mut stream, &mut buffer).await? else { return Ok(()) };
        let (ask, sum) = match (head.kind, &engine.pairs) {
            (Kind::Post, Some(pairs)) if head.ask.is_none() => {
                let body = keep_body(&mut stream, &mut buffer, head.length).await?;
                match pairs.take(door, &body).await {
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
