//! SGLang: both legs at once, meeting in a bootstrap room on the prefill.
//!
//! The client gets the decode's answer; the prefill's is read to its end and thrown away, unless it is an error, which always
//! wins: the decode's KV would be garbage. An attempt that ends before the decode's first token event ends both legs, and how
//! gently depends on the engine: without its own guard, aborting a decode into which the prefill still writes gives the next
//! user's request wrong KV. So such legs live on without their client, see [`Pair::drop`].

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::timeout;

use super::super::answer::next;
use super::super::attempt::connect;
use super::super::retry::{self, Reason};
use super::super::run::{EngineId, outbound_with};
use super::abort::{AGAIN, Abort};
use super::bodies::{self, Bootstrap};
use super::start::{Begun, Waits, begin, in_band};
use super::token::{Sign, sign};
use super::{PairJob, Side, Verdict, rejected};
use crate::config::Timeouts;
use crate::ledger::Handoff;
use crate::proxy::context::Worker;
use crate::proxy::error::Failure;
use crate::proxy::relay::{Leg, Ticket};
use crate::proxy::request::headers::is_event_stream;
use crate::registry::{Endpoint, Service};
use crate::types::clock::{self, Instant};
use crate::upstream::{self, Conn, Decoder, Fault, Head, LegError, Limits, Outbound, Written};

/// Where SGLang's bootstrap server listens unless it is told otherwise.
const BOOTSTRAP_PORT: u16 = 8998;
/// Most bytes of a prefill's answer that are read, and kept of an error.
const MOST_ANSWER: usize = 8 << 20;
const MOST_ERROR: usize = 64 * 1024;
/// `cancel_decode_grace: auto` for an engine that is not known to have the guard.
const GRACE: Duration = Duration::from_secs(5);

/// How a prefill's leg ended.
enum Prefilled {
    Done,
    Rejected(Head, Bytes),
    Failed(LegError),
}

type LegFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One pair.
pub(super) async fn attempt(
    worker: &Arc<Worker>,
    ticket: &Ticket,
    job: &PairJob<'_>,
    service: &Arc<Service>,
    prefill: Leg,
    decode: Leg,
    fresh: bool,
) -> Verdict {
    let timeouts = &worker.shared.timeouts;
    let id = EngineId::new(&ticket.id);
    let dial = |leg: &Leg| {
        let endpoint = Arc::clone(leg.endpoint());
        async move { connect(worker, &endpoint, timeouts.connect, job.deadline, fresh).await }
    };
    // Both connections before either leg's first byte: a pair that cannot be sent whole is not sent at all.
    let (to_prefill, to_decode) = tokio::join!(dial(&prefill), dial(&decode));
    let (to_prefill, to_decode) = match (to_prefill, to_decode) {
        (Ok(p), Ok(d)) => (p, d),
        (Err(fault), _) => return undialled(Side::Prefill, prefill, fault),
        (_, Err(fault)) => return undialled(Side::Decode, decode, fault),
    };
    // Both bits before either leg's first byte (I3).
    for (side, leg) in [(Side::Prefill, &prefill), (Side::Decode, &decode)] {
        if !leg.may_start() {
            return Verdict::Withdrawn(side);
        }
    }
    let at = prefill.endpoint();
    let host = at.authority.rsplit_once(':').map_or(at.host.as_str(), |(host, _)| host).to_owned();
    let bootstrap = Bootstrap { host: &host, port: at.bootstrap_port.unwrap_or(BOOTSTRAP_PORT) };
    let prompts = bodies::prompts(job.body, job.peek);
    let rooms: Vec<u64> = (0..prompts.max(1)).map(|_| bodies::room()).collect();
    let body = bodies::sglang(job.body, job.peek, id.as_bytes(), bootstrap, &rooms);
    let out =
        |leg: &Leg, side| outbound_with(ticket, job.parts, service, leg.endpoint(), Some(&body), &id, side);
    let (prefill_out, decode_out) = (out(&prefill, true), out(&decode, false));
    let mut pair = Pair::start(
        worker,
        service,
        Abort::new(worker, bodies::rids(id.as_bytes(), prompts)),
        job.deadline,
        (prefill, to_prefill, prefill_out),
        (decode, to_decode, decode_out),
    );
    pair.until_decided().await
}

fn undialled(side: Side, mut leg: Leg, fault: Fault) -> Verdict {
    let error = LegError::before_write(fault);
    leg.fail(&error);
    match fault {
        Fault::TotalTimeout => Verdict::Refuse(Failure::Upstream(error)),
        _ => Verdict::Failed(side, Reason::Connect, Err(Failure::Upstream(error))),
    }
}

/// Two legs on their way. Dropping it before it is decided ends both, as gently as the engine needs.
struct Pair {
    worker: Arc<Worker>,
    prefill: Option<LegFuture<Prefilled>>,
    decode: Option<LegFuture<Begun>>,
    engines: (Arc<Endpoint>, Arc<Endpoint>),
    abort: Abort,
    /// How long both legs are kept for the prefill's sake when the attempt ends early.
    grace: Duration,
    /// The prefill keeps KV from the start of the attempt to the later of its answer and the decode's first token.
    handoff: Option<Handoff>,
}

type Start = (Leg, (Conn, Option<Duration>), Outbound);

impl Pair {
    fn start(
        worker: &Arc<Worker>,
        service: &Service,
        abort: Abort,
        deadline: Option<Instant>,
        (prefill, to_prefill, prefill_out): Start,
        (mut decode, to_decode, decode_out): Start,
    ) -> Self {
        let engines = (Arc::clone(prefill.endpoint()), Arc::clone(decode.endpoint()));
        let handoff = Some(engines.0.handoffs.begin());
        let timeouts = Arc::clone(&worker.shared.timeouts);
        let guarded = engines.1.kv_guard.load(std::sync::atomic::Ordering::Relaxed);
        let auto = if guarded { Duration::ZERO } else { GRACE };
        decode.abort_with(abort.clone());
        Self {
            worker: Arc::clone(worker),
            prefill: Some(Box::pin(prefill_leg(
                prefill,
                to_prefill,
                prefill_out,
                Arc::clone(&timeouts),
                deadline,
            ))),
            decode: Some(Box::pin(decode_leg(decode, to_decode, decode_out, timeouts, deadline))),
            engines,
            abort,
            grace: service.config.upstream.cancel_decode_grace.unwrap_or(auto),
            handoff,
        }
    }

    /// Until the client's answer is clear.
    async fn until_decided(&mut self) -> Verdict {
        loop {
            match self.next().await {
                Event::Prefill(Prefilled::Done) => {}
                Event::Prefill(Prefilled::Rejected(head, body)) => {
                    return rejected(Side::Prefill, head, body);
                }
                Event::Prefill(Prefilled::Failed(error)) => return prefill_lost(&error),
                Event::Decode(Begun::Good(answer)) => {
                    self.settle();
                    return Verdict::Relay(answer);
                }
                Event::Decode(Begun::Bad(head, body)) => return rejected(Side::Decode, head, body),
                Event::Decode(Begun::Failed(error)) => return decode_lost(&error),
            }
        }
    }

    /// The next leg to come to something. The prefill first: its error decides.
    async fn next(&mut self) -> Event {
        poll_fn(|cx| {
            if let Some(prefill) = &mut self.prefill
                && let Poll::Ready(end) = prefill.as_mut().poll(cx)
            {
                self.prefill = None;
                return Poll::Ready(Event::Prefill(end));
            }
            if let Some(decode) = &mut self.decode
                && let Poll::Ready(begun) = decode.as_mut().poll(cx)
            {
                self.decode = None;
                return Poll::Ready(Event::Decode(begun));
            }
            Poll::Pending
        })
        .await
    }

    /// The decode has its KV. A prefill that has not answered yet is read to its end beside the stream; what becomes of it is
    /// its own affair.
    fn settle(&mut self) {
        let handoff = self.handoff.take();
        if let Some(prefill) = self.prefill.take() {
            self.worker.tracker.spawn_light(async move {
                let _ = prefill.await;
                drop(handoff);
            });
        }
    }
}

enum Event {
    Prefill(Prefilled),
    Decode(Begun),
}

impl Drop for Pair {
    /// The attempt is over before the decode had its KV: the client left, a leg failed, time ran out. With the engine's guard
    /// both legs end now. Without it they are kept, apart from the client, until the prefill has answered or the decode has a
    /// token, at most for the grace; holds and hand-off last as long.
    fn drop(&mut self) {
        let (prefill, decode, handoff) = (self.prefill.take(), self.decode.take(), self.handoff.take());
        if prefill.is_none() && decode.is_none() {
            return;
        }
        let (abort, engines, grace) = (self.abort.clone(), self.engines.clone(), self.grace);
        self.worker.tracker.spawn_light(async move {
            let (mut prefill, mut decode) = (prefill, decode);
            if !grace.is_zero() && decode.is_some() {
                let _ = timeout(grace, kv_is_over(&mut prefill, &mut decode)).await;
            }
            tokio::join!(end(&abort, &engines.0, prefill), end(&abort, &engines.1, decode));
            drop(handoff);
        });
    }
}

/// The prefill's own complete answer, or the decode's first token. A prefill that was lost is not over: what it had begun to write
/// may still arrive.
async fn kv_is_over(prefill: &mut Option<LegFuture<Prefilled>>, decode: &mut Option<LegFuture<Begun>>) {
    poll_fn(|cx| {
        if let Some(leg) = prefill
            && let Poll::Ready(end) = leg.as_mut().poll(cx)
        {
            *prefill = None;
            if !matches!(end, Prefilled::Failed(_)) {
                return Poll::Ready(());
            }
        }
        if let Some(leg) = decode
            && let Poll::Ready(begun) = leg.as_mut().poll(cx)
        {
            // Dropping what began closes the connection; its leg sends the abort.
            *decode = None;
            drop(begun);
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// Ends one leg: an abort, a little time for it to work, another abort, and the socket is closed.
async fn end<T>(abort: &Abort, engine: &Arc<Endpoint>, leg: Option<LegFuture<T>>) {
    let Some(leg) = leg else { return };
    abort.send(engine).await;
    if timeout(AGAIN, leg).await.is_err() {
        abort.send(engine).await;
    }
}

async fn prefill_leg(
    mut leg: Leg,
    (mut conn, idle): (Conn, Option<Duration>),
    out: Outbound,
    timeouts: Arc<Timeouts>,
    deadline: Option<Instant>,
) -> Prefilled {
    let limits = Limits { first_byte: timeouts.first_byte, write_stall: timeouts.write_stall, deadline };
    let answer = match upstream::exchange(&mut conn, &out, limits, idle).await {
        Ok(answer) => answer,
        Err(error) => {
            leg.fail(&error);
            return Prefilled::Failed(error);
        }
    };
    leg.answered(clock::recent());
    let upstream::Answer { head, sent_all } = answer;
    match drained(&mut conn, &head, timeouts.idle, deadline).await {
        Ok(body) => {
            // A prefill that fails later says so in its stream.
            let (head, body) = match sign(&body) {
                Sign::Error(error) if is_event_stream(&head.headers) => in_band(&error),
                _ => (head, body),
            };
            leg.end(retry::outcome(head.status).1);
            if sent_all && head.keep_alive && conn.buffer().is_empty() {
                leg.endpoint().pool.put(conn);
            }
            if head.status.as_u16() >= 400 { Prefilled::Rejected(head, body) } else { Prefilled::Done }
        }
        Err(fault) => {
            let error = LegError { fault, written: Written::All, answered: true, reused: None };
            leg.fail(&error);
            Prefilled::Failed(error)
        }
    }
}

/// Reads an answer to its end and keeps the beginning.
async fn drained(
    conn: &mut Conn,
    head: &Head,
    idle: Option<Duration>,
    deadline: Option<Instant>,
) -> Result<Bytes, Fault> {
    let mut decoder = Decoder::new(head.framing);
    let (mut kept, mut total) = (BytesMut::new(), 0);
    while let Some(data) = next(conn, &mut decoder, idle, deadline).await? {
        total += data.len();
        if total > MOST_ANSWER {
            return Err(Fault::Malformed("prefill answer larger than 8 MiB"));
        }
        let room = MOST_ERROR.saturating_sub(kept.len()).min(data.len());
        kept.extend_from_slice(&data[..room]);
    }
    Ok(kept.freeze())
}

async fn decode_leg(
    mut leg: Leg,
    (mut conn, idle): (Conn, Option<Duration>),
    out: Outbound,
    timeouts: Arc<Timeouts>,
    deadline: Option<Instant>,
) -> Begun {
    let limits = Limits { first_byte: timeouts.first_byte, write_stall: timeouts.write_stall, deadline };
    match upstream::exchange(&mut conn, &out, limits, idle).await {
        Ok(answer) => {
            leg.answered(clock::recent());
            begin(conn, answer, leg, Waits { idle: timeouts.idle, deadline }).await
        }
        Err(error) => {
            leg.fail(&error);
            Begun::Failed(error)
        }
    }
}

/// P failed before D's first token event: prefill work may be repeated, on another P.
fn prefill_lost(error: &LegError) -> Verdict {
    let reason = match error.fault {
        Fault::TotalTimeout => return Verdict::Refuse(Failure::Upstream(*error)),
        _ if error.is_reuse_race() => Reason::ReuseRace,
        _ => Reason::PrefillLost,
    };
    Verdict::Failed(Side::Prefill, reason, Err(Failure::Upstream(*error)))
}

/// D was lost: it may have run the request, except where it cannot have read it whole.
fn decode_lost(error: &LegError) -> Verdict {
    match retry::after_error(error) {
        Some(reason) => Verdict::Failed(Side::Decode, reason, Err(Failure::Upstream(*error))),
        None => Verdict::Refuse(Failure::Upstream(*error)),
    }
}
