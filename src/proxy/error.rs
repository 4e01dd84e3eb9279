//! Why a request did not get an engine's answer. Each value is made next to the failure and turned into a response in
//! one place, [`rescue`](super::rescue).

use std::borrow::Cow;

use http::StatusCode;

use super::request::head;
use super::request::peek::PeekError;
use crate::config::Limits;
use crate::registry::{Role, Service};
use crate::upstream::LegError;

/// What the client sent is refused before anything else happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    /// Stable code, listed in `docs/errors.md`.
    pub code: &'static str,
    pub message: Cow<'static, str>,
    /// The body key or header at fault.
    pub param: Option<&'static str>,
    /// `Allow` for a 405.
    pub allow: Option<&'static str>,
    /// The connection cannot be trusted to be in step any more.
    pub close: bool,
}

impl Refusal {
    /// The head is larger than its bounds. Closes: a parser that stopped inside it has lost its place.
    pub fn head_too_large(limits: &Limits) -> Self {
        let Limits { headers, header_bytes, .. } = limits;
        let message = format!("the request head has more than {headers} fields or {header_bytes} bytes");
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Self::closing(status, "headers_too_large", message.into())
    }

    /// The parser refused the head with `status`, and says no more than that.
    pub fn unparsed(status: StatusCode, limits: &Limits) -> Self {
        match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Self::head_too_large(limits),
            StatusCode::URI_TOO_LONG => {
                Self::closing(status, "uri_too_long", "the request target is too long".into())
            }
            // The code of our own framing rules: which of the two parsers found a fault is nothing to tell apart.
            _ => Self::closing(
                StatusCode::BAD_REQUEST,
                "invalid_framing",
                "this is not a valid HTTP/1.1 request head: request line, a header, or the framing it states"
                    .into(),
            ),
        }
    }

    fn closing(status: StatusCode, code: &'static str, message: Cow<'static, str>) -> Self {
        Self { status, code, message, param: None, allow: None, close: true }
    }
}

impl From<head::Refusal> for Refusal {
    fn from(refusal: head::Refusal) -> Self {
        let head::Refusal { status, code, message, allow, close } = refusal;
        Self { status, code, message: message.into(), param: None, allow, close }
    }
}

impl From<PeekError> for Refusal {
    fn from(error: PeekError) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: error.code(),
            message: error.to_string().into(),
            param: error.param(),
            allow: None,
            close: false,
        }
    }
}

/// Which bound was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shed {
    /// `limits.in_flight`.
    InFlight,
    /// `limits.buffered_bytes`.
    Buffered,
}

/// A request without an engine's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The router is ending what is left at shutdown.
    Forced,
    Refused(Refusal),
    /// No or a wrong front-door key.
    Unauthorized,
    BodyTooLarge {
        limit: u64,
    },
    /// The request body stopped coming.
    BodyTimeout,
    /// The client ended the body early, or broke its framing.
    BodyBroken,
    Shed(Shed),
    ModelNotFound {
        model: Option<String>,
    },
    /// The service has no endpoint of this role that may take a request. `registered` says that it has some, all withdrawn.
    NoEndpoint {
        service: String,
        role: Role,
        registered: bool,
    },
    /// The split gives requests to no cohort that could take this one. `all_zero`: to none at all.
    NoCohort {
        service: String,
        all_zero: bool,
    },
    /// A prefill answered well but handed no KV over: the decode would have to do everything again, unnoticed.
    PrefillNoKv,
    /// A prefill's bootstrap server is not there, so its decode came to nothing.
    NoBootstrap,
    /// A prefill failed after it was sent its request. `decode_asked`: a decode had the request too, so it may have run.
    Prefill {
        error: LegError,
        decode_asked: bool,
    },
    /// The last attempt's failure on an engine.
    Upstream(LegError),
    /// `GET /observer/endpoints`: nothing truthful can be said now.
    Unobservable(String),
    /// What the client wants cannot be served by a prefill and a decode together.
    UnsupportedOnPd(&'static str),
    Internal(&'static str),
}

impl Failure {
    pub fn no_endpoint(service: &Service, role: Role) -> Self {
        let registered = !service.of(role).is_empty();
        Self::NoEndpoint { service: service.config.name.clone(), role, registered }
    }
}
