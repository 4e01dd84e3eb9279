//! What dispatch hands to the relay, and reading error answers whole, so that they can be given up for another attempt
//! or made presentable.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::timeout_at;

use crate::proxy::relay::Leg;
use crate::types::clock::{self, Instant};
use crate::upstream::{BodyFraming, Conn, Decoder, Fault, Frame, Head, LegError};

/// Largest error body that is read whole; a larger one is streamed.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// An engine's answer to be relayed.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "moved a few times; the common variant is the large one")]
pub enum Answer {
    /// The head is here, the body is to be streamed: `prefix` was read already, `decoder` stands behind it.
    Stream { conn: Conn, head: Head, prefix: Bytes, decoder: Decoder, reusable: bool, leg: Leg },
    /// A complete error answer; its leg is over.
    Whole { head: Head, body: Bytes },
}

/// How reading an error body went.
pub(super) enum Gathered {
    Whole(Bytes),
    /// Larger than the bound: what was read, and the decoder behind it.
    TooLarge(Bytes, Decoder),
    Failed(LegError),
}

/// Reads an error body to its end, waiting at most `idle` for each part, and until `deadline` for all of it.
pub(super) async fn gather(
    leg: &Leg,
    conn: &mut Conn,
    head: &Head,
    idle: Option<Duration>,
    deadline: Option<Instant>,
) -> Gathered {
    let mut decoder = Decoder::new(head.framing);
    if matches!(head.framing, BodyFraming::Length(n) if n > MAX_ERROR_BODY as u64) {
        return Gathered::TooLarge(Bytes::new(), decoder);
    }
    let mut body = BytesMut::new();
    while body.len() <= MAX_ERROR_BODY {
        match next(Some(leg), conn, &mut decoder, idle, deadline).await {
            Ok(Some(data)) => body.extend_from_slice(&data),
            Ok(None) => return Gathered::Whole(body.freeze()),
            Err(fault) => return Gathered::Failed(LegError::in_answer(fault)),
        }
    }
    Gathered::TooLarge(body.freeze(), decoder)
}

/// The next payload, or `None` at the end. Of a leg that a drain cuts there is none.
pub(super) async fn next(
    leg: Option<&Leg>,
    conn: &mut Conn,
    decoder: &mut Decoder,
    idle: Option<Duration>,
    deadline: Option<Instant>,
) -> Result<Option<Bytes>, Fault> {
    loop {
        match decoder.step(conn.buffer()).map_err(Fault::Malformed)? {
            Frame::Data(data) => return Ok(Some(data)),
            Frame::End => return Ok(None),
            Frame::NeedMore => {}
        }
        let read = poll_fn(|cx| match conn.poll_fill(cx) {
            Poll::Pending if leg.is_some_and(Leg::ends_cut) => Poll::Ready(Err(Fault::Cut)),
            polled => polled.map_err(|_| Fault::Lost),
        });
        let until = idle.map(|limit| clock::now() + limit).into_iter().chain(deadline).min();
        let read = match until {
            Some(at) if deadline == Some(at) => {
                timeout_at(at, read).await.map_err(|_| Fault::TotalTimeout)?
            }
            Some(at) => timeout_at(at, read).await.map_err(|_| Fault::IdleTimeout)?,
            None => read.await,
        };
        if read? == 0 {
            return decoder.eof().map(|()| None).map_err(|()| Fault::Lost);
        }
    }
}
