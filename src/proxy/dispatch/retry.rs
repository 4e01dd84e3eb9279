//! The retry table for plain endpoints: the D rows of `docs/request-lifecycle.md`. The only place that decides it (I5).

use http::StatusCode;

use crate::types::outcome::{LegOutcome, Outcome};
use crate::upstream::{Fault, LegError, Written};

/// Why another attempt is made; a label of `tandem_retries_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Nothing reached the engine: refused, unreachable, not connected in time.
    Connect,
    /// The engine took only part of the request, so it cannot have run it.
    Incomplete,
    /// The waiting connection was closed by the engine just as it was used.
    ReuseRace,
    /// 408, 409, 429 or 503: another endpoint may have room.
    Busy,
    /// Another complete 5xx.
    ServerError,
    /// A prefill was reset or silent before the decode's first token: its work may be repeated.
    Lost,
    /// A prefill's KV parameters grew too old before a decode could be sent.
    KvTooOld,
    /// A decode failed because nothing listens where its prefill's bootstrap server should be.
    NoBootstrap,
}

/// Why an attempt may be followed by another, as metric labels.
pub const REASONS: &[&str] =
    &["connect", "incomplete", "reuse_race", "busy", "server_error", "lost", "kv_too_old", "no_bootstrap"];

impl Reason {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Incomplete => "incomplete",
            Self::ReuseRace => "reuse_race",
            Self::Busy => "busy",
            Self::ServerError => "server_error",
            Self::Lost => "lost",
            Self::KvTooOld => "kv_too_old",
            Self::NoBootstrap => "no_bootstrap",
        }
    }
}

/// May a request whose leg failed without a usable answer be tried again?
pub(super) fn after_error(error: &LegError) -> Option<Reason> {
    match (error.fault, error.written) {
        // The client's own time is up; or we are short of what every attempt needs, and more of them make it worse; or we ended it
        // ourselves, and it may have run.
        (Fault::TotalTimeout | Fault::Local | Fault::Cut, _) => None,
        (Fault::Connect | Fault::LocalPort | Fault::ConnectTimeout, _) => Some(Reason::Connect),
        _ if error.is_reuse_race() => Some(Reason::ReuseRace),
        // An answer that began proves that the engine acts on the request.
        _ if error.answered => None,
        (_, Written::Nothing | Written::Part) => Some(Reason::Incomplete),
        (_, Written::All) => None,
    }
}

/// What a complete answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Relay it, whatever happens.
    Final,
    /// Try once elsewhere if there is somewhere, else relay it. No fault of the engine.
    Busy,
    /// Try elsewhere, else relay it.
    Failed,
}

pub(super) fn verdict(status: StatusCode) -> Verdict {
    match status.as_u16() {
        408 | 409 | 429 | 503 => Verdict::Busy,
        500..=599 => Verdict::Failed,
        _ => Verdict::Final,
    }
}

/// What the status makes of an answer that is relayed to its end.
pub fn outcome(status: StatusCode) -> (Outcome, LegOutcome) {
    match verdict(status) {
        Verdict::Busy => (Outcome::UpstreamBusy, LegOutcome::Busy),
        Verdict::Failed => (Outcome::UpstreamError, LegOutcome::Error),
        Verdict::Final if status.is_client_error() => (Outcome::UpstreamRejected, LegOutcome::Rejected),
        Verdict::Final => (Outcome::Ok, LegOutcome::Ok),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn error(fault: Fault, written: Written, answered: bool) -> LegError {
        LegError { fault, written, answered, reused: None }
    }

    #[test]
    fn only_what_cannot_have_run_is_repeated_after_a_loss() {
        use Written::{All, Nothing, Part};
        let table = [
            (Fault::Connect, Nothing, false, Some(Reason::Connect)),
            (Fault::ConnectTimeout, Nothing, false, Some(Reason::Connect)),
            (Fault::LocalPort, Nothing, false, Some(Reason::Connect)),
            (Fault::Local, Nothing, false, None),
            (Fault::Lost, Nothing, false, Some(Reason::Incomplete)),
            (Fault::Lost, Part, false, Some(Reason::Incomplete)),
            (Fault::WriteStall, Part, false, Some(Reason::Incomplete)),
            (Fault::Lost, Part, true, None),
            (Fault::Lost, All, false, None),
            (Fault::FirstByteTimeout, All, false, None),
            (Fault::Malformed("x"), All, true, None),
            (Fault::TotalTimeout, Nothing, false, None),
            (Fault::Cut, All, false, None),
            (Fault::Cut, Nothing, false, None),
        ];
        for (fault, written, answered, expected) in table {
            assert_eq!(
                after_error(&error(fault, written, answered)),
                expected,
                "{fault:?} {written:?} {answered}"
            );
        }
    }

    #[test]
    fn the_reuse_race_needs_a_long_idle_a_quick_loss_and_no_answer() {
        let ms = Duration::from_millis;
        let race = |idle, since, answered| {
            let reused = Some((ms(idle), ms(since)));
            after_error(&LegError { fault: Fault::Lost, written: Written::All, answered, reused })
        };
        assert_eq!(race(100, 100, false), Some(Reason::ReuseRace));
        assert_eq!(race(99, 0, false), None);
        assert_eq!(race(100, 101, false), None);
        assert_eq!(race(100, 0, true), None);
    }

    #[test]
    fn statuses_are_sorted_by_the_table() {
        for status in 200..600u16 {
            let verdict = verdict(StatusCode::from_u16(status).unwrap());
            let expected = match status {
                408 | 409 | 429 | 503 => Verdict::Busy,
                500.. => Verdict::Failed,
                _ => Verdict::Final,
            };
            assert_eq!(verdict, expected, "{status}");
        }
    }
}
