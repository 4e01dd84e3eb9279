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

/// A moment of the wall clock, fixed against the clock of timers when it was told: a wall clock that is set afterwards moves
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    told: Instant,
    /// From then on, milliseconds; negative: it was past.
    left: i64,
}

impl Due {
    /// `at_ms`: milliseconds since the Unix epoch.
    pub fn at(at_ms: u64) -> Self {
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        Self { told: now(), left: signed(at_ms).saturating_sub(signed(wall_ms())) }
    }

    /// When a timer has to fire; what was past is due at once. One beyond what the clock can say is a century away.
    pub fn instant(&self) -> Instant {
        const CENTURY: std::time::Duration = std::time::Duration::from_hours(100 * 365 * 24);
        let left = std::time::Duration::from_millis(u64::try_from(self.left).unwrap_or(0));
        self.told + left.min(CENTURY)
    }

    /// Milliseconds until then; negative once it is past.
    pub fn left_ms(&self) -> i64 {
        let since = now().saturating_duration_since(self.told).as_millis();
        self.left.saturating_sub(i64::try_from(since).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_moment_is_fixed_against_the_clock_of_timers() {
        let (soon, past, never) = (Due::at(wall_ms() + 5000), Due::at(wall_ms() - 5000), Due::at(u64::MAX));
        let (start, ms) = (now(), std::time::Duration::from_millis);
        assert!(soon.instant() > start + ms(4900) && soon.instant() <= start + ms(5000));
        assert!(past.instant() == start && (-5100..=-5000).contains(&past.left_ms()));
        assert!(never.instant() > start + ms(86_400_000));
        tokio::time::advance(ms(6000)).await;
        assert!((-1100..=-1000).contains(&soon.left_ms()), "{}", soon.left_ms());
    }

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
