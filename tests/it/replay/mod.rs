//! Replays of faults that users of routers like this one reported. A function's prefix is the report's row; each states
//! its size in CI, and `REPLAY_SCALE=full` runs the size the report asks for.

mod bytes;
mod headers;
mod secrets;
mod shutdown;
mod shutdown_clock;

/// `full` when `REPLAY_SCALE=full` is set, else `ci`.
pub(crate) fn scale(ci: usize, full: usize) -> usize {
    if std::env::var_os("REPLAY_SCALE").is_some_and(|value| value == "full") { full } else { ci }
}
