//! How a request, and each leg of it, ended (I7): exactly one value each, blamed on who actually failed.

/// The end of one client request. The text form is a metric label and an access-log value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A complete engine answer below 400, relayed to its last byte.
    Ok,
    /// Refused by the router because of what the client sent (its 4xx other than overload).
    Rejected,
    /// No endpoint could take it.
    NoEndpoint,
    /// Shed by the router: in-flight or buffer bound, or out of descriptors, ports or memory.
    Overload,
    /// The engine's own complete 4xx, relayed.
    UpstreamRejected,
    /// The engine's own complete busy answer (408, 409, 429, 503), relayed.
    UpstreamBusy,
    /// The engine failed: 5xx, reset, truncation, bad framing, an in-stream error event or abort.
    UpstreamError,
    /// The engine stayed silent beyond a limit, or the total limit passed.
    UpstreamTimeout,
    /// The client left, or stopped reading for longer than the write-stall limit.
    ClientCancelled,
    /// Ended by the router when the shutdown grace was over, or at the deadline of a drain that forces.
    Forced,
    /// A fault of the router itself.
    Internal,
}

impl Outcome {
    pub const ALL: [Self; 11] = [
        Self::Ok,
        Self::Rejected,
        Self::NoEndpoint,
        Self::Overload,
        Self::UpstreamRejected,
        Self::UpstreamBusy,
        Self::UpstreamError,
        Self::UpstreamTimeout,
        Self::ClientCancelled,
        Self::Forced,
        Self::Internal,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Rejected => "rejected",
            Self::NoEndpoint => "no_endpoint",
            Self::Overload => "overload",
            Self::UpstreamRejected => "upstream_rejected",
            Self::UpstreamBusy => "upstream_busy",
            Self::UpstreamError => "upstream_error",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::ClientCancelled => "client_cancelled",
            Self::Forced => "forced",
            Self::Internal => "internal",
        }
    }
}

/// The end of one leg: one request to one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LegOutcome {
    /// A complete answer below 400.
    Ok,
    /// The engine's complete 4xx.
    Rejected,
    /// The engine's complete 408, 409, 429 or 503: back-pressure, not a fault.
    Busy,
    /// 5xx, reset, truncation, bad framing, in-stream error.
    Error,
    /// Silent beyond a limit.
    Timeout,
    /// Refused, unreachable or not connected in time.
    ConnectFailed,
    /// Ended by us, or not begun for want of our own means: neither success nor failure.
    Cancelled,
}

impl LegOutcome {
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::Rejected,
        Self::Busy,
        Self::Error,
        Self::Timeout,
        Self::ConnectFailed,
        Self::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Rejected => "rejected",
            Self::Busy => "busy",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::ConnectFailed => "connect_failed",
            Self::Cancelled => "cancelled",
        }
    }
}
