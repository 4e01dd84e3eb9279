//! One small `GET` on a connection of its own: questions to engines beside the traffic.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use tokio::time::timeout;

use super::{Conn, Decoder, Dial, Frame, Limits, Outbound, exchange};
use crate::types::clock;

/// Where and what to ask.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// As it is dialled: IPv6 without brackets.
    pub host: &'a str,
    pub port: u16,
    /// Path and query.
    pub path: &'a str,
    /// Longest time for all of it.
    pub limit: Duration,
    /// Largest answer, bytes.
    pub most: usize,
}

/// Asks, and reads the whole answer.
///
/// # Errors
/// Why there is none, in words for an operator.
pub async fn get(dial: &dyn Dial, question: Question<'_>) -> Result<(StatusCode, Bytes), String> {
    match timeout(question.limit, ask(dial, question)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {:?}", question.limit)),
    }
}

async fn ask(dial: &dyn Dial, q: Question<'_>) -> Result<(StatusCode, Bytes), String> {
    clock::refresh();
    let io = dial.dial(q.host, q.port).await.map_err(|error| format!("cannot connect: {error}"))?;
    let mut conn = Conn::new(io, usize::MAX);
    let authority = if q.host.contains(':') { format!("[{}]", q.host) } else { q.host.to_owned() };
    let head =
        format!("GET {} HTTP/1.1\r\nhost: {authority}:{}\r\nconnection: close\r\n\r\n", q.path, q.port);
    let out = Outbound { method: Method::GET, segments: vec![Bytes::from(head)] };
    let deadline = Some(clock::now() + q.limit);
    clock::refresh();
    let limits = Limits { first_byte: Some(q.limit), write_stall: Some(q.limit), deadline };
    let answer = exchange(&mut conn, &out, limits, None).await.map_err(|error| error.fault.to_string())?;
    let (mut decoder, mut body) = (Decoder::new(answer.head.framing), BytesMut::new());
    loop {
        match decoder.step(conn.buffer()).map_err(str::to_owned)? {
            Frame::Data(data) if body.len() + data.len() <= q.most => body.extend_from_slice(&data),
            Frame::Data(_) => return Err(format!("an answer of more than {} bytes", q.most)),
            Frame::End => break,
            Frame::NeedMore => match conn.fill().await {
                Ok(0) if answer.head.framing == super::BodyFraming::Close => break,
                Ok(0) => return Err("the answer was cut off".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("the answer was cut off: {error}")),
            },
        }
    }
    Ok((answer.head.status, body.freeze()))
}
