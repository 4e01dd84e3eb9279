//! Prefill and decode as one attempt (`docs/pd.md` is the specification, table by table).
//!
//! One attempt is one prefill, one decode and fresh ids, chosen together from one snapshot. SGLang's legs run at once and
//! meet in a bootstrap room (`sglang`); vLLM's run one after the other, and the prefill's answer carries what the
//! decode pulls (`vllm`). Both come down to a [`Verdict`], and `run` decides, here and nowhere else, whether another attempt
//! follows.

mod abort;
#[cfg(feature = "testing")]
pub mod bench;
mod bodies;
mod legs;
mod pair;
mod run;
mod sglang;
mod start;
mod token;
mod vllm;

use bytes::Bytes;
use http::request::Parts;

use super::answer::Answer;
use super::retry::{self, Reason};
use crate::proxy::error::Failure;
use crate::proxy::request::peek::Peek;
use crate::proxy::request::route::Route;
use crate::types::clock::Instant;
use crate::upstream::{Fault, Head, LegError};

pub use abort::Abort;
pub use run::{has_form, run, unsupported_key};

/// Most bytes of a prefill's answer that are kept: for its parameters, or where it is an error. So much is read, too, of one
/// whose decode is over.
const MOST_ANSWER: usize = 8 << 20;
/// What an answer above that is.
const TOO_LARGE: Fault = Fault::Malformed("prefill answer larger than 8 MiB");

/// A request for two legs.
#[derive(Debug)]
pub struct PairJob<'a> {
    pub parts: &'a Parts,
    pub route: Route,
    pub body: &'a Bytes,
    pub peek: &'a Peek,
    /// What its body says of who asks, for sticky requests.
    pub identity: Option<&'a [u8]>,
    /// Index of the service in every snapshot.
    pub service: usize,
    pub deadline: Option<Instant>,
}

/// Which engine of a pair something is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Prefill,
    Decode,
}

/// How an attempt ended.
#[derive(Debug)]
enum Verdict {
    /// The client gets this.
    Relay(Answer),
    /// The client gets this, and nothing is tried again.
    Refuse(Failure),
    /// This engine (side and id) failed in a way that the table allows to repeat; last: what the client gets if it is not.
    Failed(Side, u64, Reason, Result<Answer, Failure>),
    /// SGLang: prefill and decode (ids) were both silent. They wait for each other, so which of them hangs is not known.
    Silent(u64, u64, Failure),
    /// The engine of this id was withdrawn before its first byte: decide again, no retry is spent.
    Withdrawn(u64),
}

/// A complete error answer, by the table: P's and D's alike.
fn rejected(side: Side, engine: u64, head: Head, body: Bytes) -> Verdict {
    let status = head.status;
    let answer = Answer::Whole { head, body };
    match retry::verdict(status) {
        retry::Verdict::Busy => Verdict::Failed(side, engine, Reason::Busy, Ok(answer)),
        retry::Verdict::Failed => Verdict::Failed(side, engine, Reason::ServerError, Ok(answer)),
        retry::Verdict::Final => Verdict::Relay(answer),
    }
}

/// D was lost: repeated only where it cannot have run the request. Its room, or the parameters it was sent, is spent.
fn decode_lost(engine: u64, error: &LegError) -> Verdict {
    match retry::after_error(error) {
        Some(reason) => Verdict::Failed(Side::Decode, engine, reason, Err(Failure::Upstream(*error))),
        None => Verdict::Refuse(Failure::Upstream(*error)),
    }
}
