//! Why a request did not get an engine's answer. Each value is made next to the failure and turned into a response in
//! one place, [`rescue`](super::rescue).

use std::borrow::Cow;

use http::StatusCode;

use super::request::head;
use super::request::peek::PeekError;
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
    BodyTooLarge { limit: u64 },
    /// The request body stopped coming.
    BodyTimeout,
    /// The client ended the body early, or broke its framing.
    BodyBroken,
    Shed(Shed),
    ModelNotFound { model: Option<String> },
    /// The service has no endpoint that may take a request. `registered` says that it has some, all withdrawn.
    NoEndpoint { service: String, registered: bool },
    /// The last attempt's failure on an engine.
    Upstream(LegError),
    Internal(&'static str),
}
