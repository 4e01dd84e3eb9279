//! The only place that reads the time.
//!
//! `tokio`'s instant is used so that a paused test clock governs every timer of the data path at once.

pub use tokio::time::Instant;

/// Monotonic now.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
#[inline]
pub fn now() -> Instant {
    Instant::now()
}

thread_local! {
    static RECENT: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
}

/// Reads the clock for everything that [`recent`] is asked for until the next call. Called at the start of each poll of a
/// connection's or stream's task.
#[inline]
pub fn refresh() {
    RECENT.set(Some(now()));
}

/// The time at the start of the current task poll: good to some microseconds, and free. Only for code that runs under a
/// task which calls [`refresh`]; elsewhere it would stand still.
#[inline]
pub fn recent() -> Instant {
    RECENT.get().unwrap_or_else(now)
}

/// Wall clock in milliseconds since the Unix epoch: for log lines and boot generations, never for ages.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn wall_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
