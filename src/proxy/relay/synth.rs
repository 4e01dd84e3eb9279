//! Responses the router makes itself.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde_json::json;

use super::body::OutBody;
use super::respond::{build, finish_head};
use super::ticket::Ticket;
use crate::proxy::error::Failure;
use crate::proxy::listener::Protocol;
use crate::proxy::rescue::{error_json, rescue};
use crate::registry::Snapshot;
use crate::types::outcome::Outcome;

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// `GET /health` of the front door: this process serves.
pub const HEALTHY: Bytes = Bytes::from_static(b"{\"status\":\"ok\"}");

/// A 200 with JSON of our own.
pub fn own(json: Bytes, mut ticket: Box<Ticket>) -> Response<OutBody> {
    ticket.end(Outcome::Ok);
    json_response(StatusCode::OK, json, HeaderMap::new(), ticket)
}

/// The answer to a failure, from the one table.
pub fn failure(failure: &Failure, mut ticket: Box<Ticket>) -> Response<OutBody> {
    let mut rescue = rescue(failure);
    // An engine was being asked when the grace ended: it may have generated.
    rescue.no_retry |= *failure == Failure::Forced && ticket.attempts > 0;
    ticket.rescued(&rescue);
    let json = error_json(rescue.status, rescue.code, &rescue.message, rescue.param, ticket.id.as_str());
    let mut headers = HeaderMap::new();
    if let Some(allow) = rescue.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if let Some(seconds) = rescue.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if rescue.no_retry {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if rescue.status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if rescue.close && ticket.protocol == Protocol::H1 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    json_response(rescue.status, json, headers, ticket)
}

fn json_response(
    status: StatusCode,
    json: Bytes,
    mut headers: HeaderMap,
    mut ticket: Box<Ticket>,
) -> Response<OutBody> {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(json.len()));
    finish_head(&mut ticket, status, &mut headers);
    build(status, headers, OutBody::full(json, ticket))
}

/// `GET /v1/models` where several services are configured: the names they list.
pub fn models(snapshot: &Snapshot) -> Bytes {
    let names = snapshot.services.iter().flat_map(|s| &s.config.models);
    let data: Vec<_> =
        names.map(|id| json!({ "id": id, "object": "model", "created": 0, "owned_by": "tandem" })).collect();
    Bytes::from(json!({ "object": "list", "data": data }).to_string())
}
