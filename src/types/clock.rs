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

/// Wall clock in milliseconds since the Unix epoch: for log lines and boot generations, never for ages.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn wall_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
