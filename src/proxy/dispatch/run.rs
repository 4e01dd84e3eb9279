//! The loop of attempts.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::request::Parts;

use super::answer::{Answer, Gathered, gather};
use super::attempt::{Attempt, attempt};
use super::cohort::{Asked, cohort};
use super::retry::{self, Reason, Verdict};
use crate::proxy::context::Shared;
use crate::proxy::error::Failure;
use crate::proxy::relay::{Leg, Ticket};
use crate::proxy::request::headers::{Credentials, Forward, write_head};
use crate::proxy::request::id::{RequestId, hex};
use crate::proxy::request::splice::Segments;
use crate::proxy::route::{self, Excluded};
use crate::registry::{Endpoint, Need, Role, Service};
use crate::types::clock::{self, Instant};
use crate::upstream::{self, Conn, Decoder, Outbound};

/// A request ready to be sent to an engine, as often as needed.
#[derive(Debug)]
pub struct Job<'a> {
    pub parts: &'a Parts,
    /// `None`: the route has no body.
    pub body: Option<&'a Segments>,
    /// Index of the service in every snapshot.
    pub service: usize,
    /// What its body says of who asks, for sticky requests.
    pub identity: Option<&'a [u8]>,
    /// Whose policy chooses the endpoint.
    pub role: Role,
    /// When the whole request must be over.
    pub deadline: Option<Instant>,
}

/// What the attempts so far have used up.
#[derive(Debug)]
struct Spent {
    excluded: Excluded,
    retries: u32,
    busy: bool,
    /// A waiting connection turned out to be closed: from now on only new ones.
    raced: bool,
    /// What the client gets when nothing better comes.
    last: Option<Result<Answer, Failure>>,
}

/// Makes attempts until one has an answer for the client, or there is nothing left to try.
pub async fn run(ticket: &mut Ticket, job: &Job<'_>) -> Result<Answer, Failure> {
    let worker = Arc::clone(&ticket.worker);
    let shared = &worker.shared;
    let mut spent =
        Spent { excluded: Excluded::default(), retries: 0, busy: false, raced: false, last: None };
    let asked = {
        let service = current(shared, job.service);
        let service = service.ok_or(Failure::Internal("the service left the configuration"))?;
        service.budget.request();
        Asked::new(&service, Need::One(job.role), &job.parts.headers, job.identity)
    };
    loop {
        let (service, decision) = match cohort(ticket, &asked, &spent.excluded).await {
            Ok(decided) => decided,
            Err(failure) => return spent.last.unwrap_or(Err(failure)),
        };
        let Some(hold) = route::pick_role(&service, &decision.cohort, job.role, &spent.excluded) else {
            return spent.last.unwrap_or_else(|| Err(Failure::no_endpoint(&service, job.role)));
        };
        let mut leg = Leg::new(hold, Arc::clone(&shared.services[job.service]));
        ticket.attempt(&leg);
        let out = outbound(ticket, job, &service, leg.endpoint());
        match attempt(&worker, &mut leg, &out, &shared.timeouts, job.deadline, spent.raced).await {
            Attempt::Withdrawn => {
                ticket.withdrawn();
                spent.excluded.add(leg.endpoint());
            }
            Attempt::Failed(error) => {
                leg.fail(&error);
                let reason = retry::after_error(&error);
                if reason == Some(Reason::ReuseRace) {
                    spent.raced = true;
                } else {
                    spent.excluded.add(leg.endpoint());
                }
                drop(leg);
                // An endpoint that cannot have run the request says nothing about it; an engine that answered did.
                let says_nothing = reason.is_some() || error.fault.is_local();
                if !says_nothing || !matches!(spent.last, Some(Ok(_))) {
                    spent.last = Some(Err(Failure::Upstream(error)));
                }
                if !reason.is_some_and(|reason| spent.again(ticket, &service, job.role, reason)) {
                    return spent.last.unwrap_or(Err(Failure::Upstream(error)));
                }
            }
            Attempt::Answered(conn, answer) => {
                leg.answered(clock::recent());
                if answer.head.status.as_u16() < 400 {
                    return Ok(stream(conn, answer, leg));
                }
                // Boxed: errors are rare, and every request's future would have room for this.
                let judged = Box::pin(judge(ticket, job, conn, answer, leg, &service, &mut spent));
                if let Some(result) = judged.await {
                    return result;
                }
            }
        }
    }
}

/// An answer to be relayed as it comes.
fn stream(conn: Conn, answer: upstream::Answer, leg: Leg) -> Answer {
    let reusable = answer.is_reusable();
    let head = answer.head;
    let decoder = Decoder::new(head.framing);
    Answer::Stream { conn, head, prefix: Bytes::new(), decoder, reusable, leg }
}

/// Decides on an error answer. `None`: it was given up for another attempt.
async fn judge(
    ticket: &mut Ticket,
    job: &Job<'_>,
    mut conn: Conn,
    answer: upstream::Answer,
    mut leg: Leg,
    service: &Service,
    spent: &mut Spent,
) -> Option<Result<Answer, Failure>> {
    let reusable = answer.is_reusable();
    let head = answer.head;
    let status = head.status;
    let idle = ticket.worker.shared.timeouts.idle;
    let body = match gather(&leg, &mut conn, &head, idle, job.deadline).await {
        Gathered::Whole(body) => body,
        Gathered::TooLarge(prefix, decoder) => {
            return Some(Ok(Answer::Stream { conn, head, prefix, decoder, reusable, leg }));
        }
        Gathered::Failed(error) => {
            leg.fail(&error);
            return Some(Err(Failure::Upstream(error)));
        }
    };
    leg.end(retry::outcome(status).1);
    if reusable {
        leg.endpoint().pool.put(conn);
    }
    spent.excluded.add(leg.endpoint());
    drop(leg);
    let reason = match retry::verdict(status) {
        Verdict::Busy if !std::mem::replace(&mut spent.busy, true) => Some(Reason::Busy),
        Verdict::Failed => Some(Reason::ServerError),
        Verdict::Busy | Verdict::Final => None,
    };
    spent.last = Some(Ok(Answer::Whole { head, body }));
    let again = reason.is_some_and(|reason| spent.again(ticket, service, job.role, reason));
    if again { None } else { spent.last.take() }
}

impl Spent {
    /// Whether another attempt may be made; if so it is counted.
    fn again(&mut self, ticket: &mut Ticket, service: &Service, role: Role, reason: Reason) -> bool {
        let other = route::has_other(service, role, &self.excluded);
        other && retry_allowed(ticket, service, &mut self.retries, role, reason)
    }
}

/// Takes one more retry of those a request has and of the service's budget, and counts it. `role`: of the engine that failed.
pub(super) fn retry_allowed(
    ticket: &mut Ticket,
    service: &Service,
    retries: &mut u32,
    role: Role,
    reason: Reason,
) -> bool {
    if *retries >= service.config.retries.max {
        return false;
    }
    let metrics = Arc::clone(&ticket.worker.shared.services[service.index]);
    if !service.budget.take() {
        metrics.budget_exhausted();
        ticket.budget_exhausted = true;
        return false;
    }
    *retries += 1;
    metrics.retry(role.as_str(), reason.as_str());
    ticket.retried.push((role.as_str(), reason.as_str()));
    true
}

/// The service as the newest snapshot has it.
pub(super) fn current(shared: &Shared, index: usize) -> Option<Arc<Service>> {
    shared.view.load().services.get(index).map(Arc::clone)
}

/// The request as bytes for one engine. Only the head is made anew; the body's pieces are shared by every attempt.
fn outbound(ticket: &Ticket, job: &Job<'_>, service: &Service, endpoint: &Endpoint) -> Outbound {
    outbound_with(ticket, job.parts, service, endpoint, job.body, &EngineId::new(&ticket.id))
}

/// The same with a given id.
pub(super) fn outbound_with(
    ticket: &Ticket,
    parts: &Parts,
    service: &Service,
    endpoint: &Endpoint,
    body: Option<&Segments>,
    id: &EngineId,
) -> Outbound {
    let shared = &ticket.worker.shared;
    let secret = shared.secrets[service.index].as_ref().map(|s| s.current());
    let credentials = match (&secret, service.config.upstream.authorization.passes(shared.keys.is_some())) {
        (Some(value), _) => Credentials::Replace(value),
        (None, true) => Credentials::Pass,
        (None, false) => Credentials::Strip,
    };
    let forward = Forward {
        authority: &endpoint.authority,
        peer: ticket.down().peer_text(),
        tls: false,
        credentials,
        cookies: service.config.upstream.cookies,
        plain_answer: endpoint.role == Role::Prefill,
        span: ticket.pair.as_ref().and_then(|pair| pair.spans.as_ref()?.for_leg(endpoint.role)),
        request_id: id.as_bytes(),
        cohort: ticket.told_cohort(),
    };
    let mut head = BytesMut::new();
    write_head(&mut head, parts, &forward, body.map(|b| b.len() as u64));
    let mut segments = Vec::with_capacity(2);
    segments.push(head.freeze());
    if let Some(body) = body {
        segments.extend(body.iter().filter(|piece| !piece.is_empty()).cloned());
    }
    Outbound { method: parts.method.clone(), segments }
}

/// The id an engine sees: a fixed-length nonce first, new for every attempt, so that no id is another's prefix or
/// repeats while the client's own id is still recognisable in the engine's log (pd.md).
#[derive(Debug)]
pub(super) struct EngineId {
    text: [u8; NONCE + 1 + CLIENT_ID],
    len: usize,
}

/// Hexadecimal digits of the nonce.
const NONCE: usize = 16;
/// Most bytes of the client's own id.
const CLIENT_ID: usize = 64;

impl EngineId {
    pub(super) fn new(id: &RequestId) -> Self {
        let mut text = [b'-'; NONCE + 1 + CLIENT_ID];
        text[..NONCE].copy_from_slice(&hex(fastrand::u64(..)));
        let client = id.as_bytes();
        let client = &client[..client.len().min(CLIENT_ID)];
        text[NONCE + 1..][..client.len()].copy_from_slice(client);
        Self { text, len: NONCE + 1 + client.len() }
    }

    /// With no nonce, for tests of what it stands in.
    #[cfg(test)]
    pub(super) fn fixed(id: &[u8]) -> Self {
        let mut text = [b'-'; NONCE + 1 + CLIENT_ID];
        text[..id.len()].copy_from_slice(id);
        Self { text, len: id.len() }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}
