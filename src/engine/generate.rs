//! One request for text: script, checks, job, answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::answer::{self, Shape};
use super::body::{Body, Response};
use super::config::Wire;
use super::core::Core;
use super::job::{self, Event, Failure, Finish, pause};
use super::json::Json;
use super::request::{Api, Request};
use super::script::{self, End, Fault};
use super::stream::{EventStream, Growing, Ticket};
use super::vllm;

/// Answers a request for text.
pub(super) async fn handle(ticket: Ticket, api: Api, headers: &HeaderMap, body: &Bytes) -> Response {
    let mut ticket = ticket;
    let core = Arc::clone(&ticket.core);
    let fault = match fault(&core, headers) {
        Ok(fault) if fault.reused && ticket.entry.ordinal() == 0 => Fault { end: None, after: None, ..fault },
        Ok(fault) => fault,
        Err(words) => return refuse(ticket, &Failure::bad(format!("x-mock: {words}"))),
    };
    if let Some(delay) = fault.delay {
        pause(delay).await;
    }
    if fault.after.is_none()
        && fault.at.is_none()
        && let Some(end) = fault.end
    {
        if let Some(failure) = scripted_failure(end) {
            return refuse(ticket, &failure);
        }
        if ticket.end(end) {
            // The peer may leave while nothing happens; the ticket, held across this, says so.
            std::future::pending::<()>().await;
        }
    }
    let request = match Request::read(&core.config, api, headers, body, |digits| core.hex(digits)) {
        Ok(request) => Arc::new(request),
        Err(failure) => {
            if core.config.wire == Wire::Vllm {
                vllm::refused(&core, body);
            }
            return refuse(ticket, &failure);
        }
    };
    let (sender, events) = unbounded_channel();
    match job::start(&core, &request, fault.clone(), ticket.entry.clone(), &sender) {
        Ok(job) => ticket.job = Some(job),
        Err(failure) => return refuse(ticket, &failure),
    }
    drop(sender);
    if let (Some(at), Some(end)) = (fault.at, fault.end) {
        ticket.end_in(at, end);
    }
    if fault.after.is_none()
        && fault.end == Some(End::Abort)
        && let Some(job) = &ticket.job
    {
        job.abort();
    }
    if request.stream {
        stream(ticket, &request, events, fault).await
    } else {
        whole(ticket, &request, events, &fault).await
    }
}

fn fault(core: &Core, headers: &HeaderMap) -> Result<Fault, String> {
    match headers.get("x-mock") {
        Some(words) => {
            let words = words.to_str().map_err(|_| "not text".to_owned())?;
            script::for_engine(words, core.config.role, &core.config.advertise)
        }
        None => Ok(core.next_fault().unwrap_or_default()),
    }
}

fn scripted_failure(end: End) -> Option<Failure> {
    let failure = |status: u16| Failure {
        status,
        kind: kind(status),
        message: format!("scripted {status}"),
        param: None,
    };
    match end {
        End::Status(status) => Some(failure(status)),
        End::Error => Some(Failure::internal("Internal server error")),
        _ => None,
    }
}

fn kind(status: u16) -> &'static str {
    match status {
        429 => "RateLimitError",
        404 => "NotFoundError",
        400..500 => "BadRequestError",
        503 => "ServiceUnavailableError",
        _ => "InternalServerError",
    }
}

/// An error as the whole answer.
fn refuse(mut ticket: Ticket, failure: &Failure) -> Response {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    ticket.done();
    Body::json(status, &answer::error(ticket.core.config.wire, failure))
}

async fn stream(
    ticket: Ticket,
    request: &Request,
    mut events: UnboundedReceiver<Event>,
    fault: Fault,
) -> Response {
    let wire = ticket.core.config.wire;
    // SGLang says nothing, not even its head, before the first token or the error.
    let first = if wire == Wire::Sglang { events.recv().await } else { None };
    let shape = Shape::new(wire, request);
    let mut stream = EventStream::new(ticket, shape, request.choices(), events, first, fault);
    if wire == Wire::Vllm {
        stream.open_all();
    }
    Body::events(stream)
}

async fn whole(
    mut ticket: Ticket,
    request: &Request,
    mut events: UnboundedReceiver<Event>,
    fault: &Fault,
) -> Response {
    let mut growing = Growing::new(request.choices());
    let mut params: Option<Json> = None;
    let mut tokens = 0;
    while !growing.complete() {
        match events.recv().await {
            Some(Event::Params(returned)) => params = Some(returned),
            Some(Event::Token { choice, id, text, finish }) => {
                if fault.after == Some(tokens)
                    && let Some(end) = fault.end
                    && !matches!(end, End::Abort)
                {
                    return cut(ticket, end).await;
                }
                tokens += 1;
                growing.add(choice, id, &text, finish);
                if fault.after == Some(tokens) && fault.end == Some(End::Abort) {
                    growing.choices.iter_mut().for_each(|choice| choice.finish = Some(Finish::Abort));
                }
            }
            Some(Event::Failed(failure)) => return refuse(ticket, &failure),
            None => return refuse(ticket, &Failure::internal("the engine is gone")),
        }
    }
    let shape = Shape::new(ticket.core.config.wire, request);
    ticket.done();
    Body::json(StatusCode::OK, &shape.whole(&growing.choices, params))
}

async fn cut(ticket: Ticket, end: End) -> Response {
    if ticket.end(end) {
        std::future::pending::<()>().await;
    }
    refuse(ticket, &Failure::internal("Internal server error"))
}
