//! vLLM's NIXL pull: the prefill answers with parameters, the decode pulls the KV they name.
//!
//! The parameters are a lease on the prefill's blocks. They are written to one decode only (any answer spends them), never
//! sent when older than `handoff_max_age`, and passed on word for word. A decode to which nothing was written may be replaced.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::time::sleep_until;

use super::super::answer::{Answer, Gathered, gather, next};
use super::super::attempt::{Attempt as Sent, attempt as exchange, connect, send};
use super::super::retry::{self, Reason};
use super::super::run::{EngineId, outbound_with};
use super::start::{Begun, Waits, begin};
use super::{MOST_ANSWER, PairJob, Side, TOO_LARGE, Verdict, bodies, decode_lost, rejected};
use crate::config::{EngineKind, VllmConnector};
use crate::ledger::Handoff;
use crate::proxy::context::Worker;
use crate::proxy::error::Failure;
use crate::proxy::relay::{Leg, Ticket};
use crate::proxy::request::headers::is_event_stream;
use crate::proxy::request::splice::without_owned;
use crate::proxy::route::{self, Excluded};
use crate::registry::{Cohort, Endpoint, Service};
use crate::types::clock::{self, Instant};
use crate::types::outcome::LegOutcome;
use crate::upstream::{Conn, Decoder, Fault, LegError, Outbound, Written};

/// What a prefill hands over.
struct Params {
    /// Key and all, as the prefill wrote them; `None` where both sides share a store.
    raw: Option<Bytes>,
    at: Instant,
    lease: Lease,
}

/// One pair.
pub(super) struct Attempt<'a, 'j> {
    pub(super) worker: &'a Arc<Worker>,
    pub(super) job: &'a PairJob<'j>,
    pub(super) service: &'a Arc<Service>,
    /// A decode that is replaced is replaced by one of it.
    pub(super) cohort: &'a Arc<Cohort>,
    /// Every decode has to pair with it.
    pub(super) prefill: Arc<Endpoint>,
    /// On new connections only.
    pub(super) fresh: bool,
    /// What later choices of this request must leave out; a decode that is replaced is added.
    pub(super) excluded: &'a mut Excluded,
}

impl Attempt<'_, '_> {
    pub(super) async fn run(&mut self, ticket: &mut Ticket, prefill: Leg, decode: Leg) -> Verdict {
        let id = EngineId::new(&ticket.id);
        let chosen = decode.endpoint().id;
        let (params, decode) = {
            let mut waiting = Some(decode);
            let prefilled = pin!(self.prefilled(ticket, prefill, &id));
            let params = self.beside(&mut waiting, prefilled).await;
            match params {
                Ok(params) => (params, waiting),
                Err(verdict) => return *verdict,
            }
        };
        self.decoded(ticket, (chosen, decode), &id, params).await
    }

    /// Drives the prefill while the decode waits. A decode that is withdrawn meanwhile is let go at once: nothing is on it.
    async fn beside<T>(
        &self,
        waiting: &mut Option<Leg>,
        mut prefilled: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        loop {
            let Some(endpoint) = waiting.as_ref().map(|leg| Arc::clone(leg.endpoint())) else {
                return prefilled.await;
            };
            tokio::select! {
                biased;
                params = &mut prefilled => return params,
                () = endpoint.withdrawn() => *waiting = self.other(),
            }
        }
    }

    /// The prefill leg, to its end.
    async fn prefilled(&self, ticket: &Ticket, mut leg: Leg, id: &EngineId) -> Result<Params, Box<Verdict>> {
        let Self { worker, job, service, fresh, .. } = self;
        let timeouts = &worker.shared.timeouts;
        let engine = leg.endpoint().id;
        let connector = match service.config.engine {
            EngineKind::Vllm(connector) => connector,
            EngineKind::Plain | EngineKind::Sglang => VllmConnector::Nixl,
        };
        let body = bodies::vllm_prefill(job.body, job.peek, job.route, connector);
        let out = outbound_with(ticket, job.parts, service, leg.endpoint(), Some(&body), id);
        let (mut conn, answer) = match exchange(worker, &mut leg, &out, timeouts, job.deadline, *fresh).await
        {
            Sent::Answered(conn, answer) => (conn, answer),
            Sent::Withdrawn => return Err(Box::new(Verdict::Withdrawn(engine))),
            Sent::Failed(error) => {
                leg.fail(&error);
                return Err(Box::new(prefill_lost(engine, &error)));
            }
        };
        leg.answered(clock::recent());
        let reusable = answer.is_reusable();
        if answer.head.status.as_u16() >= 400 {
            let gathered = gather(&leg, &mut conn, &answer.head, timeouts.idle, job.deadline).await;
            return Err(Box::new(match gathered {
                Gathered::Whole(body) => {
                    leg.end(retry::outcome(answer.head.status).1);
                    if reusable {
                        leg.endpoint().pool.put(conn);
                    }
                    rejected(Side::Prefill, engine, answer.head, body)
                }
                Gathered::TooLarge(prefix, decoder) => {
                    Verdict::Relay(Answer::Stream { conn, head: answer.head, prefix, decoder, reusable, leg })
                }
                Gathered::Failed(error) => {
                    leg.fail(&error);
                    prefill_lost(engine, &error)
                }
            }));
        }
        let waits = Waits { idle: timeouts.idle, deadline: job.deadline };
        let mut decoder = Decoder::new(answer.head.framing);
        let body = match whole(&leg, &mut conn, &mut decoder, waits).await {
            Ok(body) => body,
            Err(fault) => {
                let error = LegError::in_answer(fault);
                leg.fail(&error);
                return Err(Box::new(prefill_lost(engine, &error)));
            }
        };
        if reusable {
            leg.endpoint().pool.put(conn);
        }
        let raw = (connector == VllmConnector::Nixl).then(|| bodies::params_of(&body));
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

    /// The decode leg, to its first token event. A decode to which nothing was written is replaced while the parameters are
    /// young. `waiting`: the one chosen with the prefill, or who took its place; none is left when all were withdrawn meanwhile.
    async fn decoded(
        &mut self,
        ticket: &mut Ticket,
        (chosen, waiting): (u64, Option<Leg>),
        id: &EngineId,
        params: Params,
    ) -> Verdict {
        let body = match &params.raw {
            Some(raw) => bodies::vllm_decode(self.job.body, self.job.peek, raw.clone()),
            None => without_owned(self.job.body, self.job.peek),
        };
        let mut next = waiting.or_else(|| self.other());
        let mut last = None;
        loop {
            let Some(mut leg) = next else {
                // Refused or withdrawn, all of them. What was withdrawn while it waited did not fail: decided again (I3).
                return last.unwrap_or(Verdict::Withdrawn(chosen));
            };
            ticket.endpoint = Some(Arc::clone(leg.endpoint()));
            let engine = leg.endpoint().id;
            let out = outbound_with(ticket, self.job.parts, self.service, leg.endpoint(), Some(&body), id);
            match self.send(ticket, &mut leg, &out, &params).await {
                None => {
                    let failure = Failure::Upstream(LegError::before_write(Fault::FirstByteTimeout));
                    return Verdict::Failed(Side::Decode, engine, Reason::KvTooOld, Err(failure));
                }
                Some(Sent::Answered(conn, answer)) => {
                    leg.answered(clock::recent());
                    let verdict = self.begun(conn, answer, leg, params).await;
                    if let Verdict::Relay(Answer::Stream { .. }) = verdict {
                        ticket.decode_began();
                    }
                    return verdict;
                }
                Some(Sent::Withdrawn) => {
                    self.excluded.add(leg.endpoint());
                    last = Some(Verdict::Withdrawn(engine));
                }
                Some(Sent::Failed(error)) => {
                    leg.fail(&error);
                    if error.written != Written::Nothing || error.fault == Fault::TotalTimeout {
                        return decode_lost(engine, &error);
                    }
                    if error.is_reuse_race() && !self.fresh {
                        // It is well: its connection was closed while it waited.
                        self.fresh = true;
                    } else {
                        self.excluded.add(leg.endpoint());
                    }
                    last = Some(decode_lost(engine, &error));
                }
            }
            drop(leg);
            next = self.other();
        }
    }

    /// `None`: the parameters are too old by the time there is a connection.
    async fn send(
        &self,
        ticket: &mut Ticket,
        leg: &mut Leg,
        out: &Outbound,
        params: &Params,
    ) -> Option<Sent> {
        let timeouts = &self.worker.shared.timeouts;
        let deadline = self.job.deadline;
        let connected = {
            let connecting = connect(self.worker, leg.endpoint(), timeouts.connect, deadline, self.fresh);
            leg.unless_cut(pin!(connecting)).await
        };
        let conn = match connected {
            Some(Ok(conn)) => conn,
            Some(Err(fault)) => return Some(Sent::Failed(LegError::before_write(fault))),
            None => return Some(Sent::Withdrawn),
        };
        let age = clock::now().saturating_duration_since(params.at);
        if params.raw.is_some() && age > self.service.config.upstream.handoff_max_age {
            return None;
        }
        self.worker.shared.services[self.service.index].handed_over(age);
        ticket.decode_sent(Some(age));
        Some(send(leg, conn, out, timeouts, deadline).await)
    }

    async fn begun(
        &self,
        conn: Conn,
        answer: crate::upstream::Answer,
        leg: Leg,
        mut params: Params,
    ) -> Verdict {
        let waits = Waits { idle: self.worker.shared.timeouts.idle, deadline: self.job.deadline };
        let engine = leg.endpoint().id;
        if !is_event_stream(&answer.head.headers) || answer.head.status.as_u16() >= 400 {
            // The engine's own word about the whole request: it has pulled the KV, or its front end has freed it.
            params.lease.end();
        }
        match begin(conn, answer, leg, waits).await {
            Begun::Good(answer) => {
                params.lease.end();
                Verdict::Relay(answer)
            }
            Begun::Bad(head, body) => rejected(Side::Decode, engine, head, body),
            Begun::Failed(error, _) => Verdict::Refuse(Failure::Upstream(error)),
        }
    }

    fn other(&self) -> Option<Leg> {
        let hold = route::pick_decode(self.service, self.cohort, &self.prefill, self.excluded)?;
        Some(Leg::new(hold, Arc::clone(&self.worker.shared.services[self.service.index])))
    }
}

/// P failed before it answered: it did prefill work at most, which may be repeated on another. No decode was asked.
fn prefill_lost(engine: u64, error: &LegError) -> Verdict {
    let reason = match error.fault {
        Fault::TotalTimeout => {
            return Verdict::Refuse(Failure::Upstream(LegError { written: Written::Nothing, ..*error }));
        }
        Fault::Connect | Fault::ConnectTimeout => {
            return Verdict::Failed(Side::Prefill, engine, Reason::Connect, Err(Failure::Upstream(*error)));
        }
        _ if error.is_reuse_race() => Reason::ReuseRace,
        _ => Reason::Lost,
    };
    let failure = Failure::Prefill { error: *error, decode_asked: false };
    Verdict::Failed(Side::Prefill, engine, reason, Err(failure))
}

/// Grows in place where the buffer is nobody else's.
fn joined(body: Bytes, more: &[u8]) -> Bytes {
    let mut body = BytesMut::from(body);
    body.extend_from_slice(more);
    body.freeze()
}

async fn whole(leg: &Leg, conn: &mut Conn, decoder: &mut Decoder, waits: Waits) -> Result<Bytes, Fault> {
    // Nearly always it is one piece, which needs no copy.
    let mut body = Bytes::new();
    while let Some(data) = next(Some(leg), conn, decoder, waits.idle, waits.deadline).await? {
        if body.len() + data.len() > MOST_ANSWER {
            return Err(TOO_LARGE);
        }
        body = if body.is_empty() { data } else { joined(body, &data) };
    }
    Ok(body)
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
