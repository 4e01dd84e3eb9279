//! The loop of pair attempts.

use std::sync::Arc;

use http::StatusCode;

use super::super::answer::Answer;
use super::super::cohort::{Asked, cohort, no_endpoint};
use super::super::retry::Reason;
use super::super::run::{current, retry_allowed};
use super::{PairJob, Side, Verdict, bodies, sglang, vllm};
use crate::config::EngineKind;
use crate::proxy::context::{Shared, Worker};
use crate::proxy::error::{Failure, Refusal};
use crate::proxy::relay::{Leg, Ticket};
use crate::proxy::request::route::Route;
use crate::proxy::request::trace::Spans;
use crate::proxy::route::{self, Excluded};
use crate::registry::{Cohort, Need, Role, Service};

/// Whether this kind of engine has a two-leg form of a route.
pub fn has_form(kind: EngineKind, route: Route) -> bool {
    match kind {
        EngineKind::Plain => false,
        EngineKind::Sglang => bodies::sglang_serves(route),
        EngineKind::Vllm(_) => bodies::vllm_serves(route),
    }
}

/// What the attempts so far have used up.
#[derive(Debug, Default)]
struct Spent {
    excluded: Excluded,
    retries: u32,
    /// A busy answer of this side was already tried elsewhere.
    busy: [bool; 2],
    raced: bool,
    last: Option<Result<Answer, Failure>>,
}

/// Makes attempts until one has an answer for the client, or there is nothing left to try.
pub async fn run(ticket: &mut Ticket, job: &PairJob<'_>) -> Result<Answer, Failure> {
    let worker = Arc::clone(&ticket.worker);
    let shared = Arc::clone(&worker.shared);
    let mut spent = Spent::default();
    let service =
        current(&shared, job.service).ok_or(Failure::Internal("the service left the configuration"))?;
    refuse(service.config.engine, job)?;
    service.budget.request();
    let asked = Asked::new(&service, Need::Pair, &job.parts.headers, job.identity);
    drop(service);
    loop {
        let (service, decision) = match cohort(ticket, &asked, &spent.excluded).await {
            Ok(decided) => decided,
            Err(failure) => return spent.last.unwrap_or(Err(failure)),
        };
        let cohort = decision.cohort;
        let Some((mut prefill, decode)) = pair(&shared, &service, &cohort, &spent.excluded) else {
            // Withdrawn since it was decided.
            return spent.last.unwrap_or_else(|| Err(no_endpoint(&service, Need::Pair)));
        };
        ticket.pair_attempt(&mut prefill, &decode, Spans::of(&job.parts.headers));
        let verdict = attempt(&worker, ticket, job, (&service, &cohort), (prefill, decode), &mut spent).await;
        let (side, engine, reason, last) = match verdict {
            Verdict::Relay(answer) => return Ok(answer),
            Verdict::Refuse(failure) => return Err(failure),
            Verdict::Withdrawn(engine) => {
                ticket.withdrawn();
                spent.excluded.add_id(engine);
                continue;
            }
            Verdict::Silent(prefill, decode, failure) => {
                spent.leave_out(&service, decode);
                (Side::Prefill, prefill, Reason::Lost, Err(failure))
            }
            Verdict::Failed(side, engine, reason, last) => (side, engine, reason, last),
        };
        let worth = spent.note(side, reason, engine);
        spent.last = Some(last);
        if !(worth && spent.again(ticket, &service, side, reason)) {
            return spent.last.take().unwrap_or(Err(Failure::Internal("no attempt was made")));
        }
    }
}

async fn attempt(
    worker: &Arc<Worker>,
    ticket: &mut Ticket,
    job: &PairJob<'_>,
    (service, cohort): (&Arc<Service>, &Arc<Cohort>),
    (prefill, decode): (Leg, Leg),
    spent: &mut Spent,
) -> Verdict {
    let fresh = spent.raced;
    if service.config.engine == EngineKind::Sglang {
        return sglang::attempt(worker, ticket, job, service, prefill, decode, fresh).await;
    }
    let at = Arc::clone(prefill.endpoint());
    vllm::Attempt { worker, job, service, cohort, prefill: at, fresh, excluded: &mut spent.excluded }
        .run(ticket, prefill, decode)
        .await
}

/// Prefill's hold, then decode's; a refusal of the second gives the first back.
fn pair(shared: &Shared, service: &Service, cohort: &Cohort, excluded: &Excluded) -> Option<(Leg, Leg)> {
    let metrics = &shared.services[service.index];
    let prefill = Leg::new(route::pick_prefill(service, cohort, excluded)?, Arc::clone(metrics));
    let decode = route::pick_decode(service, cohort, prefill.endpoint(), excluded)?;
    Some((prefill, Leg::new(decode, Arc::clone(metrics))))
}

fn refuse(kind: EngineKind, job: &PairJob<'_>) -> Result<(), Failure> {
    let unsupported = match kind {
        EngineKind::Sglang => bodies::sglang_refuses(job.body, job.peek),
        _ => bodies::vllm_refuses(job.body, job.peek),
    };
    unsupported.map_or(Ok(()), |found| Err(unsupported_key(found.param, found.why)))
}

/// The refusal of what a key asks for, which two legs cannot give.
pub fn unsupported_key(param: &'static str, why: &'static str) -> Failure {
    Failure::Refused(Refusal {
        status: StatusCode::BAD_REQUEST,
        code: "unsupported_on_pd",
        message: why.into(),
        param: Some(param),
        allow: None,
        close: false,
    })
}

impl Spent {
    /// Notes a failure; whether another attempt is worth asking for.
    fn note(&mut self, side: Side, reason: Reason, engine: u64) -> bool {
        match reason {
            // The engine is well: the connection was closed while it waited.
            Reason::ReuseRace => return !std::mem::replace(&mut self.raced, true),
            // The parameters, not the engines.
            Reason::KvTooOld => return true,
            Reason::Busy => {
                self.excluded.add_id(engine);
                return !std::mem::replace(&mut self.busy[side as usize], true);
            }
            _ => self.excluded.add_id(engine),
        }
        true
    }

    /// Leaves a decode out that may be the one to blame, as long as there is another.
    fn leave_out(&mut self, service: &Service, decode: u64) {
        let mut without = self.excluded.clone();
        without.add_id(decode);
        if route::has_other(service, Role::Decode, &without) {
            self.excluded = without;
        }
    }

    /// Whether another attempt may be made; if so it is counted.
    fn again(&mut self, ticket: &mut Ticket, service: &Service, side: Side, reason: Reason) -> bool {
        let role = match side {
            Side::Prefill => Role::Prefill,
            Side::Decode => Role::Decode,
        };
        let other = route::has_other(service, role, &self.excluded);
        other && retry_allowed(ticket, service, &mut self.retries, role, reason)
    }
}
