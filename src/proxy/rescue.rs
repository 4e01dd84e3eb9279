//! The one table from failure to answer (I13): status, code, message, outcome, and what the client may do next.
//!
//! The order of the arms is the order of blame: our own shutdown, the client, our bounds, the engines, ourselves.
//! `docs/errors.md` lists every code; a test keeps the two equal.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;

use super::error::{Failure, Shed};
use crate::registry::Role;
use crate::types::outcome::Outcome;
use crate::upstream::{Fault, LegError, Written};

/// Seconds after which a shed client may try again.
const RETRY_AFTER: u32 = 1;

/// A failure made presentable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescue {
    pub status: StatusCode,
    /// Stable machine-readable code, also the metric label.
    pub code: &'static str,
    pub message: Cow<'static, str>,
    pub param: Option<&'static str>,
    pub allow: Option<&'static str>,
    /// `Retry-After`, seconds.
    pub retry_after: Option<u32>,
    /// A generation may have happened, or the same request would fail again: `x-should-retry: false`.
    pub no_retry: bool,
    pub outcome: Outcome,
    /// `Connection: close`.
    pub close: bool,
}

/// Every code an error of the router can carry.
pub const CODES: &[&str] = &[
    "invalid_framing",
    "invalid_host",
    "unknown_route",
    "method_not_allowed",
    "uri_too_long",
    "headers_too_large",
    "duplicate_header",
    "expectation_failed",
    "unsupported_content_encoding",
    "unsupported_content_type",
    "invalid_json",
    "invalid_type",
    "duplicate_key",
    "shutting_down",
    "drain_forced",
    "invalid_api_key",
    "request_too_large",
    "request_timeout",
    "request_incomplete",
    "server_overloaded",
    "buffer_exhausted",
    "router_exhausted",
    "model_not_found",
    "no_endpoint",
    "no_cohort_available",
    "observer_unavailable",
    "prefill_no_kv",
    "prefill_no_bootstrap",
    "prefill_lost",
    "prefill_timeout",
    "unsupported_on_pd",
    "route_unsupported_on_pd",
    "upstream_connect_failed",
    "upstream_connect_timeout",
    "upstream_timeout",
    "upstream_lost",
    "upstream_malformed",
    "upstream_error",
    "internal_error",
];

/// Engine answers of 400 and above whose body is not JSON are wrapped under this code.
pub const UPSTREAM_ERROR: &str = "upstream_error";

#[expect(clippy::too_many_lines, reason = "a table: an arm for each failure")]
pub fn rescue(failure: &Failure) -> Rescue {
    use Failure as F;
    let make = |status, code, message: Cow<'static, str>, outcome| Rescue {
        status,
        code,
        message,
        param: None,
        allow: None,
        retry_after: None,
        no_retry: false,
        outcome,
        close: false,
    };
    let overloaded = |code, message: &'static str| Rescue {
        retry_after: Some(RETRY_AFTER),
        ..make(StatusCode::SERVICE_UNAVAILABLE, code, message.into(), Outcome::Overload)
    };
    match failure {
        F::Forced => Rescue {
            retry_after: Some(RETRY_AFTER),
            close: true,
            ..make(
                StatusCode::SERVICE_UNAVAILABLE,
                "shutting_down",
                "this router is shutting down and its grace period is over".into(),
                Outcome::Forced,
            )
        },
        F::Refused(refusal) => Rescue {
            param: refusal.param,
            allow: refusal.allow,
            close: refusal.close,
            ..make(refusal.status, refusal.code, refusal.message.clone(), Outcome::Rejected)
        },
        F::Unauthorized => make(
            StatusCode::UNAUTHORIZED,
            "invalid_api_key",
            "missing or unknown API key; send it as `Authorization: Bearer KEY`".into(),
            Outcome::Rejected,
        ),
        F::BodyTooLarge { limit } => Rescue {
            close: true,
            ..make(
                StatusCode::PAYLOAD_TOO_LARGE,
                "request_too_large",
                format!("the request body is larger than the limit of {limit} bytes").into(),
                Outcome::Rejected,
            )
        },
        F::BodyTimeout => Rescue {
            close: true,
            ..make(
                StatusCode::REQUEST_TIMEOUT,
                "request_timeout",
                "the request body stopped arriving".into(),
                Outcome::Rejected,
            )
        },
        F::BodyBroken => Rescue {
            close: true,
            ..make(
                StatusCode::BAD_REQUEST,
                "request_incomplete",
                "the request body is incomplete or its framing is broken".into(),
                Outcome::Rejected,
            )
        },
        F::Shed(Shed::InFlight) => {
            overloaded("server_overloaded", "too many requests in flight in this router; try again shortly")
        }
        F::Shed(Shed::Buffered) => overloaded(
            "buffer_exhausted",
            "too many request bytes are buffered in this router; try again shortly",
        ),
        F::ModelNotFound { model: Some(model) } => Rescue {
            param: Some("model"),
            ..make(
                StatusCode::NOT_FOUND,
                "model_not_found",
                format!("no service here serves the model `{}`", shorten(model)).into(),
                Outcome::Rejected,
            )
        },
        F::ModelNotFound { model: None } => Rescue {
            param: Some("model"),
            ..make(
                StatusCode::NOT_FOUND,
                "model_not_found",
                "several services are configured here: name one of their models in `model`".into(),
                Outcome::Rejected,
            )
        },
        F::NoEndpoint { service, role, registered } => Rescue {
            retry_after: Some(RETRY_AFTER),
            ..make(
                StatusCode::SERVICE_UNAVAILABLE,
                "no_endpoint",
                no_endpoint(service, *role, *registered).into(),
                Outcome::NoEndpoint,
            )
        },
        F::NoCohort { service, all_zero } => Rescue {
            retry_after: Some(RETRY_AFTER),
            ..make(
                StatusCode::SERVICE_UNAVAILABLE,
                "no_cohort_available",
                if *all_zero {
                    format!("the split of service `{service}` gives every cohort the weight 0")
                } else {
                    format!("no cohort of service `{service}` that has a weight can take a request now")
                }
                .into(),
                Outcome::NoEndpoint,
            )
        },
        F::Unobservable(why) => Rescue {
            retry_after: Some(RETRY_AFTER),
            ..make(
                StatusCode::SERVICE_UNAVAILABLE,
                "observer_unavailable",
                why.clone().into(),
                Outcome::Overload,
            )
        },
        F::PrefillNoKv => make(
            StatusCode::BAD_GATEWAY,
            "prefill_no_kv",
            "the prefill answered without KV parameters: is its KV connector configured?".into(),
            Outcome::UpstreamError,
        ),
        F::NoBootstrap => make(
            StatusCode::BAD_GATEWAY,
            "prefill_no_bootstrap",
            "nothing listens at the prefill's bootstrap port: is `bootstrap_port` the engine's \
             `--disaggregation-bootstrap-port`?"
                .into(),
            Outcome::UpstreamError,
        ),
        F::Prefill { error, .. } if error.fault == Fault::Cut => cut(),
        F::Prefill { error, decode_asked } => {
            let (status, code, outcome) = if error.is_timeout() {
                (StatusCode::GATEWAY_TIMEOUT, "prefill_timeout", Outcome::UpstreamTimeout)
            } else {
                (StatusCode::BAD_GATEWAY, "prefill_lost", Outcome::UpstreamError)
            };
            let message = format!("the prefill engine failed: {}", error.fault).into();
            Rescue { no_retry: *decode_asked, ..make(status, code, message, outcome) }
        }
        F::UnsupportedOnPd(what) => Rescue {
            no_retry: true,
            ..make(StatusCode::NOT_IMPLEMENTED, "route_unsupported_on_pd", (*what).into(), Outcome::Rejected)
        },
        F::Upstream(error) => upstream(error),
        F::Internal(what) => {
            make(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", (*what).into(), Outcome::Internal)
        }
    }
}

fn no_endpoint(service: &str, role: Role, registered: bool) -> String {
    let role = match role {
        Role::Mixed => "",
        Role::Prefill => "prefill ",
        Role::Decode => "decode ",
    };
    let withdrawn = if registered { " that takes new requests: all are withdrawn" } else { "" };
    format!("service `{service}` has no {role}endpoint{withdrawn}")
}

/// No byte of an engine's answer went to the client.
fn upstream(error: &LegError) -> Rescue {
    let (status, code, outcome) = match error.fault {
        Fault::Connect => (StatusCode::BAD_GATEWAY, "upstream_connect_failed", Outcome::UpstreamError),
        Fault::Local | Fault::LocalPort => {
            (StatusCode::SERVICE_UNAVAILABLE, "router_exhausted", Outcome::Overload)
        }
        Fault::ConnectTimeout => {
            (StatusCode::GATEWAY_TIMEOUT, "upstream_connect_timeout", Outcome::UpstreamTimeout)
        }
        Fault::Lost => (StatusCode::BAD_GATEWAY, "upstream_lost", Outcome::UpstreamError),
        Fault::Malformed(_) => (StatusCode::BAD_GATEWAY, "upstream_malformed", Outcome::UpstreamError),
        Fault::FirstByteTimeout | Fault::IdleTimeout | Fault::WriteStall | Fault::TotalTimeout => {
            (StatusCode::GATEWAY_TIMEOUT, "upstream_timeout", Outcome::UpstreamTimeout)
        }
        Fault::Cut => return cut(),
    };
    Rescue {
        status,
        code,
        message: if error.fault.is_local() {
            format!("{}; try again shortly", error.fault).into()
        } else {
            format!("the engine failed: {}", error.fault).into()
        },
        param: None,
        allow: None,
        // The OpenAI clients repeat any 5xx by themselves: only where nothing can have been generated may they.
        retry_after: error.fault.is_local().then_some(RETRY_AFTER),
        no_retry: error.written == Written::All,
        outcome,
        close: false,
    }
}

/// By a drain that forces. Whether the engine had come to anything is not known.
fn cut() -> Rescue {
    Rescue {
        status: StatusCode::SERVICE_UNAVAILABLE,
        code: "drain_forced",
        message:
            "the engine is being taken out of service, and what it still carried at the deadline was cut"
                .into(),
        param: None,
        allow: None,
        retry_after: None,
        no_retry: true,
        outcome: Outcome::Forced,
        close: false,
    }
}

/// The client's own text in a message stays short.
fn shorten(text: &str) -> &str {
    const MAX: usize = 128;
    if text.len() <= MAX {
        return text;
    }
    let mut end = MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// OpenAI's error type for a status.
fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        502..=504 => "service_unavailable",
        _ => "server_error",
    }
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorFields<'a>,
}

#[derive(Serialize)]
struct ErrorFields<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: &'a str,
    request_id: &'a str,
}

/// The OpenAI-shaped error body.
pub fn error_json(
    status: StatusCode,
    code: &str,
    message: &str,
    param: Option<&str>,
    request_id: &str,
) -> Bytes {
    let body = ErrorBody { error: ErrorFields { message, r#type: kind(status), param, code, request_id } };
    serde_json::to_vec(&body).map_or_else(|_| Bytes::from_static(b"{}"), Bytes::from)
}

/// The same as one SSE event: the only channel left once a stream has begun. No `[DONE]` follows it.
pub fn error_event(rescue: &Rescue, request_id: &str, mid_event: bool) -> Bytes {
    let json = error_json(rescue.status, rescue.code, &rescue.message, rescue.param, request_id);
    let mut event = Vec::with_capacity(json.len() + 16);
    if mid_event {
        event.extend_from_slice(b"\n\n");
    }
    event.extend_from_slice(b"data: ");
    event.extend_from_slice(&json);
    event.extend_from_slice(b"\n\n");
    event.into()
}
