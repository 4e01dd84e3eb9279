//! vLLM's NIXL pull: the prefill answers with parameters, the decode pulls the KV they name.
//!
//! The parameters are a lease on the prefill's blocks. They are written to one decode only (any answer spends them), never
//! sent when older than `handoff_max_age`, and passed on word for word. A decode to which nothing was written may be replaced.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::sleep_until;

use super::super::answer::{Answer, Gathered, gather, next};
use super::super::attempt::{Attempt, attempt as exchange};
use super::super::retry::{self, Reason};
use super::super::run::{EngineId, outbound_with};
use super::start::{Begun, Waits, begin};
use super::{PairJob, Side, Verdict, bodies, rejected};
use crate::config::{EngineKind, VllmConnector};
use crate::ledger::Handoff;
use crate::proxy::context::Worker;
use crate::proxy::error::Failure;
use crate::proxy::relay::{Leg, Ticket};
use crate::proxy::request::headers::is_event_stream;
use crate::proxy::request::splice::without_owned;
use crate::proxy::route::{self, Excluded};
use crate::registry::{Role, Service};
use crate::types::clock::{self, Instant};
use crate::types::outcome::LegOutcome;
use crate::upstream::{Conn, Decoder, Fault, LegError, Written};

/// Largest prefill answer that is read for its parameters, bytes.
const MOST_ANSWER: usize = 8 << 20;

/// What a prefill hands over.
struct Params {
    /// `None` where both sides share a store.
    raw: Option<Box<RawValue>>,
    at: Instant,
    lease: Lease,
}

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
    let id = EngineId::new(&ticket.id);
    let params = match prefilled(worker, ticket, job, service, prefill, &id, fresh).await {
        Ok(params) => params,
        Err(verdict) => return *verdict,
    };
    decoded(worker, ticket, job, service, decode, &id, params).await
}

/// The prefill leg, to its end.
async fn prefilled(
    worker: &Arc<Worker>,
    ticket: &Ticket,
    job: &PairJob<'_>,
    service: &Arc<Service>,
    mut leg: Leg,
    id: &EngineId,
    fresh: bool,
) -> Result<Params, Box<Verdict>> {
    let timeouts = &worker.shared.timeouts;
    let connector = match service.config.engine {
        EngineKind::Vllm(connector) => connector,
        EngineKind::Plain | EngineKind::Sglang => VllmConnector::Nixl,
    };
    let body = bodies::vllm_prefill(job.body, job.peek, job.route, connector);
    let out = outbound_with(ticket, job.parts, service, leg.endpoint(), Some(&body), id, true);
    let (mut conn, answer) = match exchange(worker, &leg, &out, timeouts, job.deadline, fresh).await {
        Attempt::Answered(conn, answer) => (conn, answer),
        Attempt::Withdrawn => return Err(Box::new(Verdict::Withdrawn(Side::Prefill))),
        Attempt::Failed(error) => {
            leg.fail(&error);
            return Err(Box::new(prefill_lost(&error)));
        }
    };
    leg.answered(clock::recent());
    let reusable = answer.sent_all && answer.head.keep_alive;
    if answer.head.status.as_u16() >= 400 {
        return Err(Box::new(match gather(&mut conn, &answer.head, timeouts.idle, job.deadline).await {
            Gathered::Whole(body) => {
                leg.end(retry::outcome(answer.head.status).1);
                if reusable && conn.buffer().is_empty() {
                    leg.endpoint().pool.put(conn);
                }
                rejected(Side::Prefill, answer.head, body)
            }
            Gathered::TooLarge(prefix, decoder) => {
                Verdict::Relay(Answer::Stream { conn, head: answer.head, prefix, decoder, reusable, leg })
            }
            Gathered::Failed(error) => {
                leg.fail(&error);
                prefill_lost(&error)
            }
        }));
    }
    let waits = Waits { idle: timeouts.idle, deadline: job.deadline };
    let mut decoder = Decoder::new(answer.head.framing);
    let body = match whole(&mut conn, &mut decoder, waits).await {
        Ok(body) => body,
        Err(fault) => {
            let error = LegError { fault, written: Written::All, answered: true, reused: None };
            leg.fail(&error);
            return Err(Box::new(prefill_lost(&error)));
        }
    };
    if reusable && conn.buffer().is_empty() {
        leg.endpoint().pool.put(conn);
    }
    let raw = (connector == VllmConnector::Nixl).then(|| params_of(&body));
    if let Some(None) = raw {
        leg.end(LegOutcome::Error);
        return Err(Box::new(Verdict::Refuse(Failure::PrefillNoKv)));
    }
    leg.end(LegOutcome::Ok);
    let lease = Lease {
        handoff: Some(leg.endpoint().handoffs.begin()),
        until: clock::recent() + service.config.upstream.kv_lease,
        worker: Arc::clone(worker),
    };
    Ok(Params { raw: raw.flatten(), at: clock::recent(), lease })
}

/// The decode leg, to its first token event. A decode to which nothing was written is replaced while the parameters
/// are young.
async fn decoded(
    worker: &Arc<Worker>,
    ticket: &Ticket,
    job: &PairJob<'_>,
    service: &Arc<Service>,
    mut leg: Leg,
    id: &EngineId,
    params: Params,
) -> Verdict {
    let timeouts = &worker.shared.timeouts;
    let body = match &params.raw {
        Some(raw) => bodies::vllm_decode(job.body, job.peek, raw),
        None => without_owned(job.body, job.peek),
    };
    let mut refused = Excluded::default();
    loop {
        if clock::now().saturating_duration_since(params.at) > service.config.upstream.handoff_max_age {
            let failure = Failure::Upstream(LegError::before_write(Fault::FirstByteTimeout));
            return Verdict::Failed(Side::Decode, Reason::KvTooOld, Err(failure));
        }
        let out = outbound_with(ticket, job.parts, service, leg.endpoint(), Some(&body), id, false);
        match exchange(worker, &leg, &out, timeouts, job.deadline, false).await {
            Attempt::Answered(conn, answer) => {
                leg.answered(clock::recent());
                return begun(conn, answer, leg, worker, job, params).await;
            }
            Attempt::Withdrawn => refused.add(leg.endpoint()),
            Attempt::Failed(error)
                if error.written == Written::Nothing && error.fault != Fault::TotalTimeout =>
            {
                leg.fail(&error);
                refused.add(leg.endpoint());
                let failure = Err(Failure::Upstream(error));
                let Some(other) = other(worker, service, &refused) else {
                    return Verdict::Failed(Side::Decode, Reason::Connect, failure);
                };
                leg = other;
                continue;
            }
            Attempt::Failed(error) => {
                leg.fail(&error);
                return decode_lost(&error);
            }
        }
        // Withdrawn while it waited.
        match other(worker, service, &refused) {
            Some(other) => leg = other,
            None => return Verdict::Withdrawn(Side::Decode),
        }
    }
}

async fn begun(
    conn: Conn,
    answer: crate::upstream::Answer,
    leg: Leg,
    worker: &Arc<Worker>,
    job: &PairJob<'_>,
    mut params: Params,
) -> Verdict {
    let waits = Waits { idle: worker.shared.timeouts.idle, deadline: job.deadline };
    if !is_event_stream(&answer.head.headers) || answer.head.status.as_u16() >= 400 {
        // The engine's own word about the whole request: it has pulled the KV, or its front end has freed it.
        params.lease.end();
    }
    match begin(conn, answer, leg, waits).await {
        Begun::Good(answer) => {
            params.lease.end();
            Verdict::Relay(answer)
        }
        Begun::Bad(head, body) => rejected(Side::Decode, head, body),
        Begun::Failed(error) => Verdict::Refuse(Failure::Upstream(error)),
    }
}

fn other(worker: &Worker, service: &Service, refused: &Excluded) -> Option<Leg> {
    let hold = route::pick_role(service, Role::Decode, refused)?;
    Some(Leg::new(hold, Arc::clone(&worker.shared.services[service.index])))
}

/// P failed before it answered: it did prefill work at most, which may be repeated on another.
fn prefill_lost(error: &LegError) -> Verdict {
    let reason = match error.fault {
        Fault::TotalTimeout => return Verdict::Refuse(Failure::Upstream(*error)),
        Fault::Connect | Fault::ConnectTimeout => Reason::Connect,
        _ if error.is_reuse_race() => Reason::ReuseRace,
        _ => Reason::PrefillLost,
    };
    Verdict::Failed(Side::Prefill, reason, Err(Failure::Upstream(*error)))
}

/// D was lost: repeated only where it cannot have run the request; its parameters are spent in any case.
fn decode_lost(error: &LegError) -> Verdict {
    match retry::after_error(error) {
        Some(reason) => Verdict::Failed(Side::Decode, reason, Err(Failure::Upstream(*error))),
        None => Verdict::Refuse(Failure::Upstream(*error)),
    }
}

async fn whole(conn: &mut Conn, decoder: &mut Decoder, waits: Waits) -> Result<Bytes, Fault> {
    let mut body = BytesMut::new();
    while let Some(data) = next(conn, decoder, waits.idle, waits.deadline).await? {
        body.extend_from_slice(&data);
        if body.len() > MOST_ANSWER {
            return Err(Fault::Malformed("prefill answer larger than 8 MiB"));
        }
    }
    Ok(body.freeze())
}

/// The parameters, if there are any to speak of.
fn params_of(body: &[u8]) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Answer {
        kv_transfer_params: Option<Box<RawValue>>,
    }
    let params = serde_json::from_slice::<Answer>(body).ok()?.kv_transfer_params?;
    params.get().starts_with('{').then_some(params).filter(|p| p.get() != "{}")
}

/// A hand-off, held to the end of its lease unless somebody knows better: a lost or cancelled decode may still be reading.
struct Lease {
    handoff: Option<Handoff>,
    until: Instant,
    worker: Arc<Worker>,
}

impl Lease {
    /// The KV was pulled, or given up by the engine itself.
    fn end(&mut self) {
        self.handoff = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(handoff) = self.handoff.take() {
            let until = self.until;
            self.worker.background.spawn_light(async move {
                sleep_until(until).await;
                drop(handoff);
            });
        }
    }
}
