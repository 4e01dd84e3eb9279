//! What went wrong with a question to the API server.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use serde::Deserialize;

/// One failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: Kind,
    /// In words for an operator.
    pub(super) message: String,
    /// The server does not want to be asked before.
    pub(super) retry_after: Option<Duration>,
}

/// Bounded words; a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// 401
    Unauthorized,
    /// 403
    Forbidden,
    /// 404
    NotFound,
    /// 410, or an in-stream 410: what was asked for is too old.
    Expired,
    /// 429
    Throttled,
    /// Any other status.
    Server,
    /// No answer in time.
    Timeout,
    /// No connection, or it broke.
    Connection,
    /// An answer that cannot be read.
    Invalid,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Expired => "expired",
            Self::Throttled => "throttled",
            Self::Server => "server_error",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Invalid => "invalid",
        }
    }

    /// The server refuses us, and will until someone changes that.
    pub(super) fn refusal(self) -> Option<u16> {
        match self {
            Self::Unauthorized => Some(401),
            Self::Forbidden => Some(403),
            Self::NotFound => Some(404),
            _ => None,
        }
    }

    /// Other connections and fresh credentials may help.
    pub(super) fn wants_new_client(self) -> bool {
        matches!(self, Self::Unauthorized | Self::Timeout | Self::Connection)
    }
}

impl Failure {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    /// From an answer that is no success.
    pub(super) fn of_answer(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Self {
        let said: Status = serde_json::from_slice(body).unwrap_or_default();
        let header = headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.trim().parse().ok());
        let seconds: Option<u64> = header.or(said.details.as_ref().and_then(|d| d.retry_after_seconds));
        let text = said.message.unwrap_or_default();
        Self {
            kind: kind_of(status.as_u16()),
            message: if text.is_empty() { format!("status {status}") } else { text },
            retry_after: seconds.map(Duration::from_secs),
        }
    }

    /// From an ERROR event.
    pub(super) fn of_event(object: &str) -> Self {
        let said: Status = serde_json::from_str(object).unwrap_or_default();
        let seconds = said.details.as_ref().and_then(|d| d.retry_after_seconds);
        Self {
            kind: kind_of(said.code.unwrap_or(500)),
            message: said.message.unwrap_or_else(|| "an error event without a message".to_owned()),
            retry_after: seconds.map(Duration::from_secs),
        }
    }

    pub(super) fn of_client(error: &kube::Error) -> Self {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        Self::new(Kind::Connection, text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(super::super::judge::shortened(&self.message))
    }
}

fn kind_of(code: u16) -> Kind {
    match code {
        401 => Kind::Unauthorized,
        403 => Kind::Forbidden,
        404 => Kind::NotFound,
        410 => Kind::Expired,
        429 => Kind::Throttled,
        _ => Kind::Server,
    }
}

#[derive(Deserialize, Default)]
struct Status {
    message: Option<String>,
    code: Option<u16>,
    details: Option<Details>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
}
