//! Real faults of routers like this one, replayed. A function is named after its row: `b41_…`.
//!
//! Each states its CI size where the full one is larger; `REPLAY_SCALE=full` runs that.

mod ask;
mod bodies;
mod bytes;
mod bytes_rig;
mod disconnect;
mod expect;
mod framing;
mod headers;
mod heads;
mod json_input;
mod overload;
mod passthrough;
mod paths;
mod recorded;
mod relay_rig;
mod responses;
mod retry;
mod reuse;
mod secrets;
mod shutdown;
mod shutdown_clock;
mod silence;
mod sse;
mod stalls;
mod timeouts;
mod upstream_cases;

/// `ci`, or `full` when `REPLAY_SCALE=full` is set.
pub(crate) fn scale<T>(ci: T, full: T) -> T {
    if std::env::var("REPLAY_SCALE").is_ok_and(|v| v == "full") { full } else { ci }
}

/// A file of front-door keys with one in it, `front-door-key-1`.
fn keys_file() -> tempfile::NamedTempFile {
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), "front-door-key-1\n").unwrap();
    keys
}
