//! A decode's answer up to its first token event.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::token::{Sign, sign};
use crate::proxy::dispatch::answer::{Answer, Gathered, gather, next};
use crate::proxy::relay::Leg;
use crate::proxy::request::headers::is_event_stream;
use crate::types::clock::Instant;
use crate::upstream::{self, BodyFraming, Conn, Decoder, Head, LegError};

/// How a decode began.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one per attempt, moved once or twice")]
pub(super) enum Begun {
    /// A token event, or a complete head of an answer that is no stream: nothing of it may be repeated from here.
    Good(Answer),
    /// A complete error answer, or an error event before any token made into one. The leg is over.
    Bad(Head, Bytes),
    /// After a time limit the connection is still there: an engine may have to be told before it closes.
    Failed(LegError, Option<Box<Kept>>),
}

/// A leg that ran out of time, and its connection.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) conn: Conn,
    /// Its outcome is known, its hold lasts.
    #[expect(dead_code, reason = "its drop ends the hold and records the outcome")]
    pub(super) leg: Leg,
}

/// Blames the leg; keeps what is left of it.
pub(super) fn failed(error: &LegError, conn: Conn, mut leg: Leg) -> Option<Box<Kept>> {
    leg.fail(error);
    error.is_timeout().then(|| Box::new(Kept { conn, leg }))
}

/// Time limits while a decode's answer is awaited.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    pub(super) idle: Option<Duration>,
    pub(super) deadline: Option<Instant>,
}

/// Reads `answer` until it is clear what it is.
pub(super) async fn begin(mut conn: Conn, answer: upstream::Answer, mut leg: Leg, waits: Waits) -> Begun {
    let reusable = answer.is_reusable();
    let head = answer.head;
    if head.status.as_u16() >= 400 {
        return match gather(&leg, &mut conn, &head, waits.idle, waits.deadline).await {
            Gathered::Whole(body) => {
                leg.end(super::super::retry::outcome(head.status).1);
                if reusable {
                    leg.endpoint().pool.put(conn);
                }
                Begun::Bad(head, body)
            }
            Gathered::TooLarge(prefix, decoder) => {
                Begun::Good(Answer::Stream { conn, head, prefix, decoder, reusable, leg })
            }
            Gathered::Failed(error) => {
                let kept = failed(&error, conn, leg);
                Begun::Failed(error, kept)
            }
        };
    }
    let mut decoder = Decoder::new(head.framing);
    let mut withheld = BytesMut::new();
    if is_event_stream(&head.headers) && !is_encoded(&head.headers) {
        loop {
            match next(Some(&leg), &mut conn, &mut decoder, waits.idle, waits.deadline).await {
                Ok(Some(data)) => withheld.extend_from_slice(&data),
                Ok(None) => break,
                Err(fault) => {
                    let error = LegError::in_answer(fault);
                    let kept = failed(&error, conn, leg);
                    return Begun::Failed(error, kept);
                }
            }
            match sign(&withheld) {
                Sign::Wait => {}
                Sign::Token => break,
                Sign::Error(error) => {
                    leg.end(crate::types::outcome::LegOutcome::Error);
                    let (head, body) = in_band(&error);
                    return Begun::Bad(head, body);
                }
            }
        }
    }
    Begun::Good(Answer::Stream { conn, head, prefix: withheld.freeze(), decoder, reusable, leg })
}

/// What is compressed cannot be read for tokens.
fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_some_and(|v| !v.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// An error event as the complete answer it should have been.
pub(super) fn in_band(error: &Value) -> (Head, Bytes) {
    let code = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let status =
        code.filter(|code| (400..600).contains(code)).and_then(|code| StatusCode::from_u16(code).ok());
    let body = Bytes::from(json!({ "error": error }).to_string());
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (Head { status, headers, framing: BodyFraming::Length(body.len() as u64), keep_alive: false }, body)
}
