//! The storm: requests through the router to mock engines that keep rooms, pages and leases as the real ones do, in memory
//! on a paused clock. Every variant of stage, fault, protocol and engine kind must have happened a hundred times, and
//! nothing may be wrong, left or counted twice.
//!
//! * `cases` — the variants, as one table.
//! * `world` — engines, router, and what befalls them.
//! * `client` — one request.
//! * `run` — rounds, drawn by a seed: `STORM_SEED=N` plays another storm.
//! * `burst` — a report of the same kind: many long prompts at once, and a decode that is lost.
//! * `legs`, `judge`, `rest` — what the engines saw, what a case may come to, what is left.

mod burst;
mod cases;
mod client;
mod judge;
mod legs;
mod rest;
mod run;
mod world;

use std::time::Duration;

use cases::Kind;

/// Longest that any request of the storm may take.
const LONGEST: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn sglang_with_its_guard_weathers_the_storm() {
    run::storm(Kind::Guarded).await;
}

#[tokio::test(start_paused = true)]
async fn sglang_without_its_guard_weathers_the_storm() {
    run::storm(Kind::Unguarded).await;
}

#[tokio::test(start_paused = true)]
async fn vllm_weathers_the_storm() {
    run::storm(Kind::Pull).await;
}
