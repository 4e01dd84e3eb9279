//! One keep-alive connection and the exchange of one request on it.

use std::cmp::Ordering;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::now;
use crate::decode::{Answer, Decoder, Fault, MAX_HEADERS, number};

/// Most of an answer that is kept: the blocks of a prompt of 16 MB.
const LARGEST: usize = 4 << 20;

/// When an answer came.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The first byte of its body.
    pub first: Instant,
    pub end: Instant,
}

/// A connection and what was read from it but not yet used.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Client {
    /// Connects to `target`.
    ///
    /// # Errors
    /// [`Fault::Connect`].
    pub async fn connect(target: SocketAddr, read_buffer: usize) -> Result<Self, Fault> {
        let stream = TcpStream::connect(target).await.map_err(|_| Fault::Connect)?;
        stream.set_nodelay(true).map_err(|_| Fault::Connect)?;
        Ok(Self { stream, buffer: vec![0; read_buffer], filled: 0 })
    }

    /// Sends a request, `front` and then `rest`, and reads its answer to the end.
    ///
    /// # Errors
    /// The first thing that was wrong; the connection is of no further use then.
    pub async fn exchange(&mut self, front: &[u8], rest: &[u8], answer: &Answer) -> Result<Times, Fault> {
        self.send(front, rest).await?;
        let mut decoder = Decoder::new(answer);
        let mut first = None;
        loop {
            self.read(&mut decoder).await?;
            if decoder.at > 0 && first.is_none() {
                first = Some(now());
            }
            if decoder.is_done() {
                // Bytes after the end belong to nobody.
                let first = first.filter(|_| self.filled == 0).ok_or(Fault::Framing)?;
                return Ok(Times { first, end: now() });
            }
        }
    }

    /// Sends a request and reads until `bytes` of the body are here.
    ///
    /// # Errors
    /// As [`Client::exchange`].
    pub async fn begin(&mut self, request: &[u8], answer: &Answer, bytes: usize) -> Result<(), Fault> {
        self.send(request, &[]).await?;
        let mut decoder = Decoder::new(answer);
        while decoder.at < bytes {
            self.read(&mut decoder).await?;
        }
        Ok(())
    }

    /// Sends a request and reads an answer that nobody knows beforehand, `Content-Length` bytes; it is inside the buffer.
    ///
    /// # Errors
    /// As [`Client::exchange`], and [`Fault::Framing`] for an answer over [`LARGEST`].
    pub async fn fetch(&mut self, request: &[u8]) -> Result<&[u8], Fault> {
        self.send(request, &[]).await?;
        loop {
            if let Some(body) = body_within(&self.buffer[..self.filled])? {
                self.filled = 0;
                return Ok(&self.buffer[body]);
            }
            if self.filled == self.buffer.len() {
                if self.filled >= LARGEST {
                    return Err(Fault::Framing);
                }
                self.buffer.resize(2 * self.filled, 0);
            }
            self.fill().await?;
        }
    }

    /// True while the peer neither closed nor sent anything more.
    pub fn is_silent(&self) -> bool {
        let mut byte = [0];
        matches!(self.stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    async fn send(&mut self, front: &[u8], rest: &[u8]) -> Result<(), Fault> {
        self.filled = 0;
        let mut parts = &mut [IoSlice::new(front), IoSlice::new(rest)][..];
        // Away with those that are empty.
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match self.stream.write_vectored(parts).await {
                Ok(0) | Err(_) => return Err(Fault::Io),
                Ok(written) => IoSlice::advance_slices(&mut parts, written),
            }
        }
        Ok(())
    }

    /// One read, decoded; an incomplete head or line stays in the buffer.
    async fn read(&mut self, decoder: &mut Decoder<'_>) -> Result<(), Fault> {
        if self.filled == self.buffer.len() {
            return Err(Fault::Framing);
        }
        self.fill().await?;
        let used = decoder.feed(&self.buffer[..self.filled])?;
        self.buffer.copy_within(used..self.filled, 0);
        self.filled -= used;
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), Fault> {
        match self.stream.read(&mut self.buffer[self.filled..]).await {
            Ok(0) => Err(Fault::Closed),
            Ok(size) => {
                self.filled += size;
                Ok(())
            }
            Err(_) => Err(Fault::Io),
        }
    }
}

/// Where the body of a whole answer is; `None` if some of it is still to come.
fn body_within(bytes: &[u8]) -> Result<Option<Range<usize>>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let size = match response.parse(bytes) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Fault::Head),
    };
    if response.code != Some(200) {
        return Err(Fault::Status);
    }
    let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let end = size + number(length.ok_or(Fault::Framing)?.value, 10)?;
    match bytes.len().cmp(&end) {
        Ordering::Less => Ok(None),
        Ordering::Equal => Ok(Some(size..end)),
        Ordering::Greater => Err(Fault::Framing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_answer_is_whole_at_its_length_and_no_longer() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        for cut in 0..answer.len() {
            assert_eq!(body_within(&answer[..cut]), Ok(None), "cut at {cut}");
        }
        assert_eq!(body_within(answer), Ok(Some(38..43)));
        assert_eq!(body_within(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhello"), Err(Fault::Framing));
        assert_eq!(body_within(b"HTTP/1.1 200 OK\r\n\r\n"), Err(Fault::Framing));
        assert_eq!(body_within(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Err(Fault::Status));
    }
}
