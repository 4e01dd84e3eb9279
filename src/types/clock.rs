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

/// Older than this nothing that [`recent`] gives may be; far above a poll that took long on a busy machine.
#[cfg(debug_assertions)]
const STALE: std::time::Duration = std::time::Duration::from_secs(10);

/// The time at the start of the current task poll: good to some microseconds, and free. For code that runs under a task
/// which calls [`refresh`]. Under any other task of a traffic thread it may be as old as that thread's last tick, which
/// refreshes it too (100 ms); on other threads it would stand still, which debug builds, and so the tests, do not let pass.
#[inline]
pub fn recent() -> Instant {
    let recent = RECENT.get().unwrap_or_else(now);
    #[cfg(debug_assertions)]
    if !std::thread::panicking() {
        let age = now().saturating_duration_since(recent);
        assert!(age <= STALE, "clock::recent() is {age:?} old: nobody on this thread calls clock::refresh()");
    }
    recent
}

static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

/// An instant in milliseconds since the first one that was asked about: half the size of an [`Instant`].
#[inline]
pub fn ms(at: Instant) -> u64 {
    at.saturating_duration_since(*START.get_or_init(|| at)).as_millis() as u64
}

/// Wall clock in milliseconds since the Unix epoch: for log lines and boot generations, never for ages.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn wall_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(debug_assertions)]
    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "nobody on this thread")]
    async fn a_recent_time_that_stands_still_is_found_by_any_test() {
        refresh();
        assert_eq!(recent(), now());
        tokio::time::advance(STALE * 2).await;
        let _ = recent();
    }
}
