//! The proof of the in-flight report (R4, R5): three routers before one API server, plain engines and prefill/decode pairs,
//! everything that happens to Pods, engines, events and clients, in memory on a paused clock. Every few milliseconds each
//! router's report is read, and every row that calls an endpoint quiesced is held against the log of that Pod's engine.
//!
//! `DRAIN_STORM_SEED=N` plays one seed, `DRAIN_STORM_STEPS=N` so many steps; `REPLAY_SCALE=full` plays more of both.
//!
//! * `host` — an engine for each Pod UID, with a log of its own. `fleet` — the Pods. `steps` — what befalls them.
//! * `trouble` — what befalls one router's view of them. `clients` — requests, and how they leave.
//! * `world` — all of it, and the reader. `run` — the storm.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    unreachable_pub,
    reason = "a test binary: a panic is how its helpers report"
)]

mod clients;
mod fleet;
mod host;
mod run;
mod steps;
mod trouble;
mod world;

use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn no_report_is_contradicted_by_an_engine_and_every_count_returns_to_zero() {
    run::seeds(host::Guard::On).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_holds_where_sglang_pairs_are_kept_for_their_grace() {
    run::seeds(host::Guard::Off).await;
}
