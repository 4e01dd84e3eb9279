//! The cohort of an attempt: decided by the weights, counted, and noted on the ticket. Where every cohort with a weight lacks
//! something, one may come back in a moment: a request waits for that once, for a short time.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::time::sleep;

use super::run::current;
use crate::proxy::error::Failure;
use crate::proxy::relay::Ticket;
use crate::proxy::route::{Decision, Excluded, NoCohort, StickyKey, decide};
use crate::registry::{Need, Role, Service};
use crate::types::clock;

/// How long a request waits for a cohort to come back, and how often it looks.
const HOLD: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// What a request asks of a service, whatever the attempt.
#[derive(Debug)]
pub(super) struct Asked {
    /// Index of the service in every snapshot.
    pub service: usize,
    pub need: Need,
    key: Option<StickyKey>,
}

impl Asked {
    /// `of_body`: what its body says of who asks.
    pub(super) fn new(service: &Service, need: Need, headers: &HeaderMap, of_body: Option<&[u8]>) -> Self {
        // With one cohort there is nothing to stay with.
        let sticks = service.cohorts.len() > 1;
        let names = service.config.sticky.headers.iter().filter(|_| sticks);
        let value = names.filter_map(|name| headers.get(name)).find(|value| !value.is_empty());
        let value = value.map(HeaderValue::as_bytes).or(of_body.filter(|_| sticks));
        let key = value.map(|value| StickyKey::new(&service.config.name, value));
        Self { service: service.index, need, key }
    }
}

/// Decides on the newest snapshot.
///
/// # Errors
/// When no cohort that is given requests can take this one.
pub(super) async fn cohort(
    ticket: &mut Ticket,
    asked: &Asked,
    excluded: &Excluded,
) -> Result<(Arc<Service>, Decision), Failure> {
    // Known once it waits: mostly nobody does.
    let mut until = None;
    loop {
        let service = current(&ticket.worker.shared, asked.service);
        let service = service.ok_or(Failure::Internal("the service left the configuration"))?;
        let stay = ticket.cohort.as_ref().map(|cohort| &*cohort.name);
        match decide(&service, asked.need, asked.key.as_ref(), excluded, stay) {
            Ok(decision) => {
                ticket.decided(&service, &decision);
                return Ok((service, decision));
            }
            Err(_) if service.split.is_none() => return Err(no_endpoint(&service, asked.need)),
            Err(NoCohort::Uncovered)
                if ticket.attempts == 0
                    && clock::now() < *until.get_or_insert_with(|| clock::now() + HOLD) =>
            {
                sleep(LOOK).await;
            }
            Err(why) => {
                let service = service.config.name.clone();
                return Err(Failure::NoCohort { service, all_zero: why == NoCohort::AllZero });
            }
        }
    }
}

/// The role that it fails for.
pub(super) fn no_endpoint(service: &Service, need: Need) -> Failure {
    let role = match need {
        Need::One(role) => role,
        Need::Pair => {
            let lacks = [Role::Prefill, Role::Decode].into_iter().find(|role| !service.has_selectable(*role));
            lacks.unwrap_or(Role::Decode)
        }
    };
    Failure::no_endpoint(service, role)
}
