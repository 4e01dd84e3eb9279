//! An engine's answer made into the client's response: its status, its end-to-end headers, its bytes.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::body::OutBody;
use super::observe::Observer;
use super::stream::{Relay, Start};
use super::ticket::Ticket;
use crate::drain::Phase;
use crate::proxy::dispatch::{Answer, outcome};
use crate::proxy::listener::Protocol;
use crate::proxy::request::headers::{add_response, strip_response};
use crate::proxy::request::media;
use crate::proxy::rescue::{UPSTREAM_ERROR, error_json};

/// Longest text of a non-JSON error that is passed on inside the JSON one, bytes.
const MAX_WRAPPED: usize = 8 * 1024;

/// Turns an answer into a response. The buffered request is no longer needed: nothing can be repeated from here.
pub fn respond(answer: Answer, mut ticket: Box<Ticket>) -> Response<OutBody> {
    ticket.buffered = None;
    match answer {
        Answer::Whole { head, body } => whole(head.status, head.headers, body, ticket),
        Answer::Stream { conn, head, prefix, decoder, reusable, leg } => {
            let observer = observer(&head.headers);
            let timeouts = std::sync::Arc::clone(&ticket.worker.shared.timeouts);
            let deadline = timeouts.total.map(|limit| ticket.started + limit);
            let mut headers = head.headers;
            strip_response(&mut headers);
            if observer.is_events() {
                // Should the engine fail, an error event must fit in: an announced length would leave no room for it.
                headers.remove(CONTENT_LENGTH);
            }
            finish_head(&mut ticket, head.status, &mut headers);
            let relay = Relay::new(Start {
                conn,
                prefix,
                decoder,
                reusable,
                leg,
                observer,
                outcome: outcome(head.status),
                idle: timeouts.idle,
                deadline,
                ticket,
            });
            build(head.status, headers, OutBody::relay(relay))
        }
    }
}

/// A complete error answer. One that is not JSON is wrapped, its text inside, so that every error parses (I13).
fn whole(
    status: StatusCode,
    mut headers: HeaderMap,
    body: Bytes,
    mut ticket: Box<Ticket>,
) -> Response<OutBody> {
    strip_response(&mut headers);
    ticket.end(outcome(status).0);
    if ticket.method == Method::HEAD {
        // There is no text to wrap, and the length is that of the body a GET would get.
        finish_head(&mut ticket, status, &mut headers);
        return build(status, headers, OutBody::full(Bytes::new(), ticket));
    }
    let body = if is_json(&headers) || headers.contains_key(CONTENT_ENCODING) {
        body
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        wrap(status, &body, ticket.id.as_str())
    };
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    finish_head(&mut ticket, status, &mut headers);
    build(status, headers, OutBody::full(body, ticket))
}

fn wrap(status: StatusCode, body: &[u8], request_id: &str) -> Bytes {
    let cut = &body[..body.len().min(MAX_WRAPPED)];
    let text = String::from_utf8_lossy(cut);
    let text = text.trim();
    let message = if text.is_empty() {
        format!("the engine answered {status} without a body")
    } else {
        text.to_owned()
    };
    error_json(status, UPSTREAM_ERROR, &message, None, request_id)
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| media::is_json(value.as_bytes()))
}

fn observer(headers: &HeaderMap) -> Observer {
    let encoded =
        headers.get(CONTENT_ENCODING).is_some_and(|v| !v.as_bytes().eq_ignore_ascii_case(b"identity"));
    Observer::new(headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes), encoded)
}

/// What every response carries, and what is noted of it.
pub(super) fn finish_head(ticket: &mut Ticket, status: StatusCode, headers: &mut HeaderMap) {
    add_response(headers, &ticket.id, ticket.told_cohort());
    if ticket.protocol == Protocol::H1 && ticket.down().phases.now() >= Phase::Unready {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    ticket.status = Some(status);
}

pub(super) fn build(status: StatusCode, headers: HeaderMap, body: OutBody) -> Response<OutBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
