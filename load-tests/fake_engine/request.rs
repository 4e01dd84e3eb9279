//! Requests as far as the engine reads them: where they end, and what they ask for.

use std::io;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::answer;
use crate::common::{ASK_HEADER, Ask, body_sum};

/// First read of a connection that may only hold an idle stream.
const SMALL_READ: usize = 4 * 1024;
/// Reads inside a large body.
const LARGE_READ: usize = 64 * 1024;
const MAX_HEADERS: usize = 64;

#[derive(Debug, PartialEq)]
pub enum Kind {
    Post,
    /// What [`crate::pd::Pairs`] counted.
    Report,
    Probe,
}

/// What the engine needs of a request head.
#[derive(Debug)]
pub struct Head {
    pub kind: Kind,
    pub length: usize,
    /// None: it is in the prompt, or it is left open.
    pub ask: Option<Ask>,
    /// Bytes of the head itself.
    size: usize,
}

/// Says so, and ends the connection with `InvalidData`.
pub async fn refuse(stream: &mut TcpStream, status: &str, why: &str) -> io::Result<()> {
    stream.write_all(answer::refusal(status, why).as_bytes()).await?;
    Err(io::ErrorKind::InvalidData.into())
}

/// The next head; `None` when the peer has left.
pub async fn read_head(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Option<Head>> {
    loop {
        match parse(buffer) {
            Ok(Some(head)) => {
                buffer.advance(head.size);
                return Ok(Some(head));
            }
            Ok(None) => {}
            Err(status) => return refuse(stream, status, "").await.map(|()| None),
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
pub async fn read_body(stream: &mut TcpStream, buffer: &mut BytesMut, length: usize) -> io::Result<u64> {
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
pub async fn keep_body(stream: &mut TcpStream, buffer: &mut BytesMut, length: usize) -> io::Result<BytesMut> {
    while buffer.len() < length {
        buffer.reserve(length - buffer.len());
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(buffer.split_to(length))
}
