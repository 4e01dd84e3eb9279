//! The storm of splits: weights that change every 50 ms, Pods of three releases that come, change and go, engines that fail, and
//! requests with sessions and without, in memory on a paused clock. What the engines got is held against every split there was:
//! no pair of two cohorts or tokens, and nothing that was decided on a split in which its cohort is at 0 (I1, I2).
//!
//! `SPLIT_STORM_SEED=N` plays one seed, `SPLIT_STORM_REQUESTS=N` so many requests; `REPLAY_SCALE=full` plays more of both.
//!
//! * `host` — an engine for each Pod. `world` — Pods, a router, and what befalls them. `splits` — weights, and all there were.
//! * `clients` — requests. `judge` — the engines' logs. `run` — the storm.

mod clients;
mod host;
mod judge;
mod run;
mod splits;
mod world;

use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[tokio::test(start_paused = true)]
async fn no_pair_is_of_two_cohorts_and_nothing_goes_to_a_cohort_at_zero() {
    run::seeds(1).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_in_another_storm() {
    run::seeds(20_261_130).await;
}
