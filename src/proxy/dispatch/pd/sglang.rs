//! SGLang: both legs at once, meeting in a bootstrap room on the prefill.
//!
//! The client gets the decode's answer; the prefill's is read to its end and thrown away, unless it is an error, which always
//! wins: the decode's KV would be garbage. What a pair is on the way, and how it is ended early, is in `pair`.

use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::super::answer::Answer;
use super::super::attempt::connect;
use super::super::retry::Reason;
use super::super::run::{EngineId, outbound_with};
use super::bodies::{self, Bootstrap, Rids};
use super::legs::Prefilled;
use super::pair::{Event, Pair};
use super::start::Begun;
use super::{PairJob, Side, Verdict, decode_lost, rejected};
use crate::proxy::context::Worker;
use crate::proxy::error::Failure;
use crate::proxy::relay::{Leg, Ticket};
use crate::registry::{Endpoint, Service};
use crate::upstream::{Conn, Fault, LegError};

/// Where SGLang's bootstrap server listens unless it is told otherwise.
const BOOTSTRAP_PORT: u16 = 8998;

/// Longest time for a look whether it does. The client waits for it, after its decode failed.
const BOOTSTRAP_CHECK: Duration = Duration::from_millis(500);

type Dialled = (Conn, Option<Duration>);

/// One pair.
pub(super) async fn attempt(
    worker: &Arc<Worker>,
    ticket: &mut Ticket,
    job: &PairJob<'_>,
    service: &Arc<Service>,
    mut prefill: Leg,
    mut decode: Leg,
    fresh: bool,
) -> Verdict {
    // Both connections before either leg's first byte: a pair that cannot be sent whole is not sent at all.
    let (to_prefill, to_decode) = match dial(worker, job, &prefill, &decode, fresh).await {
        Ok(both) => both,
        Err((Side::Prefill, fault)) => return undialled(Side::Prefill, &mut prefill, fault),
        Err((Side::Decode, fault)) => return undialled(Side::Decode, &mut decode, fault),
    };
    // Both bits before either leg's first byte (I3).
    for leg in [&mut prefill, &mut decode] {
        if !leg.may_start() {
            return Verdict::Withdrawn(leg.endpoint().id);
        }
    }
    let id = EngineId::new(&ticket.id);
    let at = prefill.endpoint();
    let bootstrap = Bootstrap { host: host(at), port: bootstrap_port(at) };
    let rids = Rids { id, prompts: bodies::prompts(job.body, job.peek) };
    let body = bodies::sglang(job.body, job.peek, &rids, bootstrap, bodies::room);
    let out = |leg: &Leg| outbound_with(ticket, job.parts, service, leg.endpoint(), Some(&body), &rids.id);
    let (prefill_out, decode_out) = (out(&prefill), out(&decode));
    ticket.decode_sent(None);
    let mut pair = Pair::start(
        worker,
        service,
        rids,
        job.deadline,
        (prefill, to_prefill, prefill_out),
        (decode, to_decode, decode_out),
    );
    let verdict = decided(worker, &mut pair).await;
    if let Verdict::Relay(Answer::Stream { .. }) = verdict {
        ticket.decode_began();
    }
    verdict
}

fn bootstrap_port(prefill: &Endpoint) -> u16 {
    prefill.bootstrap_port().unwrap_or(BOOTSTRAP_PORT)
}

/// As in the URL: IPv6 bracketed.
fn host(at: &Endpoint) -> &str {
    at.authority.rsplit_once(':').map_or(at.host.as_str(), |(host, _)| host)
}

/// The first that fails ends the wait for the other.
async fn dial(
    worker: &Worker,
    job: &PairJob<'_>,
    prefill: &Leg,
    decode: &Leg,
    fresh: bool,
) -> Result<(Dialled, Dialled), (Side, Fault)> {
    let limit = worker.shared.timeouts.connect;
    let one = async |leg: &Leg, side| {
        let connecting = pin!(connect(worker, leg.endpoint(), limit, job.deadline, fresh));
        let connected = leg.unless_cut(connecting).await.unwrap_or(Err(Fault::Cut));
        connected.map_err(|fault| (side, fault))
    };
    tokio::try_join!(one(prefill, Side::Prefill), one(decode, Side::Decode))
}

fn undialled(side: Side, leg: &mut Leg, fault: Fault) -> Verdict {
    if fault == Fault::Cut {
        // Nothing of the pair was sent, so nothing is lost with it.
        return Verdict::Withdrawn(leg.endpoint().id);
    }
    let error = LegError::before_write(fault);
    leg.fail(&error);
    let failure = Failure::Upstream(error);
    match fault {
        Fault::TotalTimeout => Verdict::Refuse(failure),
        _ => Verdict::Failed(side, leg.endpoint().id, Reason::Connect, Err(failure)),
    }
}

/// Until the client's answer is clear.
async fn decided(worker: &Worker, pair: &mut Pair) -> Verdict {
    let (p, d) = pair.ids();
    loop {
        match pair.next().await {
            Event::Prefill(Prefilled::Done) => {}
            Event::Prefill(Prefilled::Rejected(head, body)) => return rejected(Side::Prefill, p, head, body),
            Event::Prefill(Prefilled::Failed(error, _))
                if error.fault == Fault::FirstByteTimeout && pair.is_decode_silent() =>
            {
                pair.put_decode_last();
                return Verdict::Silent(p, d, Failure::Prefill { error, decode_asked: true });
            }
            Event::Prefill(Prefilled::Failed(error, _)) => return prefill_lost(p, &error),
            Event::Decode(Begun::Good(answer)) => return Verdict::Relay(pair.settle(answer)),
            Event::Decode(Begun::Bad(head, body)) => {
                if head.status.is_server_error()
                    && pair.waits_for_prefill()
                    && no_bootstrap(worker, &pair.prefill()).await
                {
                    pair.blame_prefill();
                    return Verdict::Failed(Side::Prefill, p, Reason::NoBootstrap, Err(Failure::NoBootstrap));
                }
                return rejected(Side::Decode, d, head, body);
            }
            Event::Decode(Begun::Failed(error, _)) => return decode_lost(d, &error),
            Event::Cut(Side::Decode) => return decode_lost(d, &LegError::cut()),
            Event::Cut(Side::Prefill) => return prefill_lost(p, &LegError::cut()),
        }
    }
}

/// Whether D's error is P's fault: nothing listens where its bootstrap server should be, so that no decode can come to its KV.
/// Only a refusal says so; a port that the router is kept from by a firewall says nothing about the decodes' way to it.
async fn no_bootstrap(worker: &Worker, prefill: &Endpoint) -> bool {
    let dial = worker.shared.dial.dial(&prefill.host, bootstrap_port(prefill));
    match timeout(BOOTSTRAP_CHECK, dial).await {
        Ok(Err(error)) => error.kind() == ErrorKind::ConnectionRefused,
        Ok(Ok(_)) | Err(_) => false,
    }
}

/// P failed before D's first token event: prefill work may be repeated, on another P.
fn prefill_lost(engine: u64, error: &LegError) -> Verdict {
    let reason = match error.fault {
        Fault::TotalTimeout => return Verdict::Refuse(Failure::Upstream(*error)),
        _ if error.is_reuse_race() => Reason::ReuseRace,
        _ => Reason::Lost,
    };
    let failure = Failure::Prefill { error: *error, decode_asked: true };
    Verdict::Failed(Side::Prefill, engine, reason, Err(failure))
}
