//! The two legs of an SGLang pair, each as a future that owns its hold and its connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::super::answer::next;
use super::super::attempt::limits;
use super::super::retry;
use super::start::{Begun, Kept, Waits, begin, failed, in_band};
use super::token::{MOST_HELD, Sign, sign};
use super::{MOST_ANSWER, TOO_LARGE};
use crate::config::Timeouts;
use crate::proxy::relay::{Leg, Observer, StreamFault};
use crate::proxy::request::headers::is_event_stream;
use crate::types::clock::{self, Instant};
use crate::types::outcome::LegOutcome;
use crate::upstream::{self, Conn, Decoder, Fault, Head, LegError, Outbound};

/// How a prefill's leg ended.
#[derive(Debug)]
pub(super) enum Prefilled {
    Done,
    /// A complete error answer, or an error event in a stream made into one.
    Rejected(Head, Bytes),
    Failed(LegError, Option<Box<Kept>>),
}

pub(super) type LegFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A leg, a connection for it with the time that had waited, and what is to be sent.
pub(super) type Start = (Leg, (Conn, Option<Duration>), Outbound);

/// `decode_over`: from then on the answer is read for no one, and only so far.
pub(super) async fn prefill_leg(
    (mut leg, (mut conn, idle), out): Start,
    timeouts: Arc<Timeouts>,
    deadline: Option<Instant>,
    decode_over: Arc<AtomicBool>,
) -> Prefilled {
    let exchange = upstream::exchange(&mut conn, &out, limits(&timeouts, deadline), idle);
    let answer = match leg.first_byte_of(exchange).await {
        Ok(answer) => answer,
        Err(error) => return Prefilled::Failed(error, failed(&error, conn, leg)),
    };
    leg.answered(clock::recent());
    let reusable = answer.is_reusable();
    let head = answer.head;
    let waits = Waits { idle: timeouts.idle, deadline };
    let (kept, fault) = match drained(&mut conn, &head, waits, &decode_over).await {
        Ok(read) => read,
        Err(fault) => {
            let error = LegError::in_answer(fault);
            return Prefilled::Failed(error, failed(&error, conn, leg));
        }
    };
    if reusable {
        leg.endpoint().pool.put(conn);
    }
    if head.status.as_u16() >= 400 {
        leg.end(retry::outcome(head.status).1);
        return Prefilled::Rejected(head, kept);
    }
    if fault.is_none() {
        leg.end(LegOutcome::Ok);
        return Prefilled::Done;
    }
    leg.end(LegOutcome::Error);
    match sign(&kept) {
        Sign::Error(error) => {
            let (head, body) = in_band(&error);
            Prefilled::Rejected(head, body)
        }
        // It gave up (SIGTERM): the same as a prefill that went away.
        _ => Prefilled::Failed(LegError::in_answer(Fault::Lost), None),
    }
}

/// Reads an answer to its end. Of an error everything is kept, of a stream the beginning, of the rest nothing.
async fn drained(
    conn: &mut Conn,
    head: &Head,
    waits: Waits,
    decode_over: &AtomicBool,
) -> Result<(Bytes, Option<StreamFault>), Fault> {
    let mut decoder = Decoder::new(head.framing);
    let stream = is_event_stream(&head.headers);
    let most = match head.status.as_u16() {
        400.. => MOST_ANSWER,
        _ if stream => MOST_HELD,
        _ => 0,
    };
    let mut observer = Observer::new(stream.then_some(b"text/event-stream".as_slice()), false);
    let (mut kept, mut unwanted) = (BytesMut::new(), 0);
    while let Some(data) = next(None, conn, &mut decoder, waits.idle, waits.deadline).await? {
        observer.see(&data, false);
        if decode_over.load(Ordering::Acquire) {
            unwanted += data.len();
        }
        if unwanted > MOST_ANSWER || (most == MOST_ANSWER && kept.len() + data.len() > most) {
            return Err(TOO_LARGE);
        }
        let room = (most - kept.len()).min(data.len());
        kept.extend_from_slice(&data[..room]);
    }
    Ok((kept.freeze(), observer.fault))
}

/// `answered` is set when the head of an answer is here.
pub(super) async fn decode_leg(
    (mut leg, (mut conn, idle), out): Start,
    timeouts: Arc<Timeouts>,
    deadline: Option<Instant>,
    answered: Arc<AtomicBool>,
) -> Begun {
    let exchange = upstream::exchange(&mut conn, &out, limits(&timeouts, deadline), idle);
    match leg.first_byte_of(exchange).await {
        Ok(answer) => {
            answered.store(true, Ordering::Release);
            leg.answered(clock::recent());
            begin(conn, answer, leg, Waits { idle: timeouts.idle, deadline }).await
        }
        Err(error) => Begun::Failed(error, failed(&error, conn, leg)),
    }
}
