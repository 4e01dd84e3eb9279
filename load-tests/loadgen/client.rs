//! One keep-alive connection and the exchange of one request on it.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::now;
use crate::decode::{Decoder, Fault};
use crate::plan::Plan;

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
    pub async fn connect(target: SocketAddr, plan: &Plan) -> Result<Self, Fault> {
        let stream = TcpStream::connect(target).await.map_err(|_| Fault::Connect)?;
        stream.set_nodelay(true).map_err(|_| Fault::Connect)?;
        Ok(Self { stream, buffer: vec![0; plan.read_buffer], filled: 0 })
    }

    /// Sends the request and reads its answer to the end. Returns when the first byte of the body was here.
    ///
    /// # Errors
    /// The first thing that was wrong; the connection is of no further use then.
    pub async fn exchange(&mut self, plan: &Plan) -> Result<Instant, Fault> {
        let mut decoder = self.send(plan).await?;
        let mut first = None;
        loop {
            self.read(&mut decoder).await?;
            if decoder.at > 0 && first.is_none() {
                first = Some(now());
            }
            if decoder.is_done() {
                // Bytes after the end belong to nobody.
                return if self.filled == 0 { first.ok_or(Fault::Body) } else { Err(Fault::Framing) };
            }
        }
    }

    /// Sends the request and reads until `bytes` of the body are here.
    ///
    /// # Errors
    /// As [`Client::exchange`].
    pub async fn begin(&mut self, plan: &Plan, bytes: usize) -> Result<(), Fault> {
        let mut decoder = self.send(plan).await?;
        while decoder.at < bytes {
            self.read(&mut decoder).await?;
        }
        Ok(())
    }

    /// True while the peer neither closed nor sent anything more.
    pub fn is_silent(&self) -> bool {
        let mut byte = [0];
        matches!(self.stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    async fn send<'a>(&mut self, plan: &'a Plan) -> Result<Decoder<'a>, Fault> {
        self.filled = 0;
        self.stream.write_all(&plan.request).await.map_err(|_| Fault::Io)?;
        Ok(Decoder::new(plan))
    }

    /// One read, decoded; an incomplete head or line stays in the buffer.
    async fn read(&mut self, decoder: &mut Decoder<'_>) -> Result<(), Fault> {
        let free = &mut self.buffer[self.filled..];
        if free.is_empty() {
            return Err(Fault::Framing);
        }
        match self.stream.read(free).await {
            Ok(0) => return Err(Fault::Closed),
            Ok(size) => self.filled += size,
            Err(_) => return Err(Fault::Io),
        }
        let used = decoder.feed(&self.buffer[..self.filled])?;
        self.buffer.copy_within(used..self.filled, 0);
        self.filled -= used;
        Ok(())
    }
}
