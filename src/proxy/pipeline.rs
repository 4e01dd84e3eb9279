//! One request through the stages, a line each: head, keys, permit, body, service, attempts, relay.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;

use super::context::Worker;
use super::dispatch::{self, Answer, Job, PairJob};
use super::error::{Failure, Refusal, Shed};
use super::listener::{Discarding, Downstream, Protocol};
use super::relay::{OutBody, Ticket, respond, synth};
use super::request::body::{self, BodyLimits};
use super::request::head;
use super::request::id::RequestId;
use super::request::peek::{Peek, peek_for};
use super::request::route::{BodyKind, Route};
use super::request::splice::{Segments, without_owned};
use crate::config::Limits;
use crate::registry::{Role, Service};

/// Bodies larger than this are scanned off the traffic thread, bytes.
const SCAN_INLINE: usize = 256 * 1024;
/// What a client may still send, at least, after its request was refused, before the connection is closed on it.
const DISCARD: u64 = 16 << 20;
/// For how long one that was refused before it was known to be welcome may.
const STRANGER: Duration = Duration::from_secs(10);
/// For how long any other one may.
const GUEST: Duration = Duration::from_secs(30);

/// What a request turned out to be.
#[expect(clippy::large_enum_variant, reason = "one per request, moved once")]
enum Reply {
    Relay(Answer),
    /// Answered by the router itself.
    Own(Bytes),
}

/// Serves one request. Never fails: every failure becomes an answer. Dropping the future cancels everything.
pub async fn handle<B>(
    worker: Arc<Worker>,
    down: Arc<Downstream>,
    protocol: Protocol,
    request: Request<B>,
) -> Response<OutBody>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    let (parts, mut body) = request.into_parts();
    let id = RequestId::of(&parts.headers);
    let mut ticket = Ticket::new(worker, &down, protocol, parts.method.clone(), id);
    let reply = {
        let serving = pin!(serve(&mut ticket, &parts, &mut body));
        unless_forced(&down, serving).await
    };
    match reply {
        Ok(Reply::Relay(answer)) => respond(answer, ticket),
        Ok(Reply::Own(json)) => synth::own(json, ticket),
        Err(failure) => {
            let waits = parts.headers.contains_key(http::header::EXPECT);
            if protocol == Protocol::H1 {
                down.mark_refused();
            }
            if protocol == Protocol::H1 && !waits && !body.is_end_stream() {
                let (bytes, time) = discarded(&failure, &ticket.worker.shared.limits.load());
                let discarding = Discarding::new(&down);
                ticket.worker.tracker.spawn_light(async move {
                    body::discard(body, bytes, time).await;
                    drop(discarding);
                });
            }
            synth::failure(&failure, ticket)
        }
    }
}

/// How much of a refused request is thrown away, and for how long. Those that anybody can have are short.
fn discarded(failure: &Failure, limits: &Limits) -> (u64, Duration) {
    match failure {
        Failure::Refused(_) | Failure::Unauthorized => (DISCARD, STRANGER),
        _ => (limits.body.saturating_mul(2).max(DISCARD), GUEST),
    }
}

/// The answer to a head that the HTTP/1.1 parser refused with `status`. No request ever came of it, but its client gets
/// an answer from the same table, and it is counted and logged.
pub fn unparsed(worker: Arc<Worker>, down: &Arc<Downstream>, status: StatusCode) -> Response<OutBody> {
    // The method was not read, or is not to be trusted.
    let method = Method::from_bytes(b"-").unwrap_or_default();
    let ticket = Ticket::new(worker, down, Protocol::H1, method, RequestId::mint());
    down.mark_refused();
    synth::failure(&Failure::Refused(Refusal::unparsed(status, &ticket.worker.shared.limits.load())), ticket)
}

/// Ends `future` when the shutdown grace is over; the task is woken for that by its supervisor. It takes the future where it
/// stands: one passed by value would have room in the caller's twice.
fn unless_forced<'a, T>(
    down: &'a Downstream,
    mut future: Pin<&'a mut impl Future<Output = Result<T, Failure>>>,
) -> impl Future<Output = Result<T, Failure>> {
    poll_fn(move |cx| {
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() && down.is_forced() { Poll::Ready(Err(Failure::Forced)) } else { polled }
    })
}

async fn serve<B>(ticket: &mut Ticket, parts: &Parts, body: &mut B) -> Result<Reply, Failure>
where
    B: Body<Data = Bytes> + Unpin,
{
    let worker = Arc::clone(&ticket.worker);
    let shared = &worker.shared;
    let limits = shared.limits.load();
    ticket.route = Route::find(parts.uri.path());
    let head = size(parts, &limits)
        .and_then(|()| head::check(parts, limits.url).map_err(Refusal::from))
        .map_err(Failure::Refused)?;
    if head.route == Route::Health {
        return Ok(Reply::Own(synth::HEALTHY));
    }
    if head.route == Route::ObserverEndpoints && !shared.observer_in_front {
        ticket.route = None;
        return Err(Failure::Refused(Refusal::from(head::Refusal::unknown_route())));
    }
    if let Some(keys) = &shared.keys {
        keys.check_headers(&parts.headers).map_err(|_| Failure::Unauthorized)?;
    }
    if head.route == Route::ObserverEndpoints {
        let told = shared.observer.endpoints();
        return told
            .map(|json| Reply::Own(json.into()))
            .map_err(|why| Failure::Unobservable(why.to_string()));
    }
    ticket.in_flight = Some(shared.in_flight.take(1).ok_or(Failure::Shed(Shed::InFlight))?);
    let deadline = shared.timeouts.total.map(|limit| ticket.started + limit);

    if head.route.body() == BodyKind::None {
        let services = shared.view.load_full();
        if services.services.len() != 1 {
            return Ok(Reply::Own(synth::models(&services)));
        }
        // A list of models is no leg: where only pairs are, any decode can tell.
        let role = if services.services[0].endpoints.is_empty() { Role::Decode } else { Role::Mixed };
        return attempt(ticket, Job { parts, body: None, identity: None, service: 0, role, deadline }).await;
    }
    // A client that waits for `100 Continue` is told at once when there is no point in sending.
    if head.expects_continue {
        can_serve(&shared.view.load())?;
    }
    let progress = shared.timeouts.body_progress;
    let bounds = BodyLimits { max: limits.body, budget: &shared.buffered, progress, deadline };
    let (bytes, permit) = body::read(body, &bounds).await?;
    ticket.buffered = Some(permit);
    ticket.bytes_in = bytes.len() as u64;
    let mut fields = None;
    let seen = match head.route.body() {
        BodyKind::Json => {
            fields.clone_from(&shared.view.load().body_fields);
            let seen = scan(&bytes, fields.as_ref()).await?;
            ticket.model.clone_from(&seen.model);
            ticket.stream = seen.stream;
            Some(seen)
        }
        BodyKind::Multipart | BodyKind::None => None,
    };
    let service = {
        let snapshot = shared.view.load();
        let found = snapshot.service_for(ticket.model.as_deref());
        let missing = || Failure::ModelNotFound { model: ticket.model.as_deref().map(str::to_owned) };
        Arc::clone(found.ok_or_else(missing)?)
    };
    let index = service.index;
    ticket.service = Some(Arc::clone(&service));
    let identity = seen.as_ref().and_then(|peek| identity(&service, fields.as_deref()?, peek, &bytes));
    if service.has_pairs()
        && let Some(peek) = in_two_legs(&service, head.route, seen.as_ref())?
    {
        ticket.down().request_read();
        let job =
            PairJob { parts, route: head.route, body: &bytes, peek, identity, service: index, deadline };
        // Boxed: a plain request's future would have room for it.
        return Box::pin(dispatch::run_pair(ticket, &job)).await.map(Reply::Relay);
    }
    let segments = match &seen {
        Some(seen) => without_owned(&bytes, seen),
        None => Segments::from(bytes.clone()),
    };
    let job = Job { parts, body: Some(&segments), identity, service: index, role: Role::Mixed, deadline };
    attempt(ticket, job).await
}

/// What the body says of who asks. `fields`: what was looked for in it.
fn identity<'b>(service: &Service, fields: &[String], peek: &Peek, body: &'b [u8]) -> Option<&'b [u8]> {
    let field = service.config.sticky.body_field.as_ref()?;
    peek.identity(fields.iter().position(|name| name == field)?, body)
}

/// Whether a request goes to a prefill and a decode: where its route has such a form and a pair can be had; else a mixed
/// endpoint serves it whole, and where there is none it is 501 rather than a lone leg.
fn in_two_legs<'a>(
    service: &Service,
    route: Route,
    seen: Option<&'a Peek>,
) -> Result<Option<&'a Peek>, Failure> {
    let mixed = service.has_selectable(Role::Mixed);
    match seen.filter(|_| dispatch::has_form(service.config.engine, route)) {
        Some(_) if mixed && !service.has_selectable_pair() => Ok(None),
        Some(peek) => Ok(Some(peek)),
        None if service.endpoints.is_empty() => Err(Failure::UnsupportedOnPd(
            "this route has no prefill/decode form for these engines; add a mixed endpoint to serve it whole",
        )),
        None => Ok(None),
    }
}

async fn attempt(ticket: &mut Ticket, job: Job<'_>) -> Result<Reply, Failure> {
    if ticket.service.is_none() {
        ticket.service = ticket.worker.shared.view.load().services.get(job.service).map(Arc::clone);
    }
    ticket.down().request_read();
    dispatch::run(ticket, &job).await.map(Reply::Relay)
}

/// Count and size of the head. hyper's own bounds stand above these, so that the client gets a readable answer.
fn size(parts: &Parts, limits: &Limits) -> Result<(), Refusal> {
    let bytes: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if parts.headers.len() <= limits.headers && bytes <= limits.header_bytes {
        return Ok(());
    }
    Err(Refusal::head_too_large(limits))
}

fn can_serve(snapshot: &crate::registry::Snapshot) -> Result<(), Failure> {
    if snapshot.has_selectable() {
        return Ok(());
    }
    let lacking = snapshot.services.first().and_then(|service| Some((service, service.lacks()?)));
    match lacking {
        Some((service, role)) => Err(Failure::no_endpoint(service, role)),
        // Something was restored just now.
        None => Ok(()),
    }
}

/// One pass over the body; a large one does not hold up the other requests of this thread.
async fn scan(bytes: &Bytes, wanted: Option<&Arc<[String]>>) -> Result<Peek, Failure> {
    let result = if bytes.len() <= SCAN_INLINE {
        peek_for(bytes, wanted.map_or(&[], |wanted| wanted))
    } else {
        let (bytes, wanted) = (bytes.clone(), wanted.cloned());
        tokio::task::spawn_blocking(move || peek_for(&bytes, wanted.as_deref().unwrap_or_default()))
            .await
            .map_err(|_| Failure::Internal("scanning the request body failed"))?
    };
    result.map_err(|error| Failure::Refused(Refusal::from(error)))
}
