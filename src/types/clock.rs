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

/// Microseconds since the first call in this process (or, under a paused test clock, in this runtime's time).
pub fn micros() -> u64 {
    now().saturating_duration_since(base()).as_micros() as u64
}

/// Inverse of [`micros`].
pub fn from_micros(at: u64) -> Instant {
    base() + std::time::Duration::from_micros(at)
}

fn base() -> Instant {
    static BASE: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BASE.get_or_init(now)
}

/// Wall clock in milliseconds since the Unix epoch: for log lines and boot generations, never for ages.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn wall_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
