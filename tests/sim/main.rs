//! Pod discovery against an API server that is late, lossy and lies: a seeded simulation, in memory on a paused clock.
//!
//! A driver does random steps in the lives of Pods, trouble befalls the API server's answers, clients ask all the time, and after
//! every pause the router's selectable set is held against what the API state implies. `SIM_SEED=N` plays one seed,
//! `SIM_STEPS=N` plays so many steps; `REPLAY_SCALE=full` plays more of both.
//!
//! * `pods` — a Pod as the driver means it, and the endpoints that follow: the rules once more, not the product's code.
//! * `history` — what was true when, what the router was told when, and by when it has to agree.
//! * `eye` — what the router shows, and everything that must hold of that at any time.
//! * `world` — API server, router, engines that judge what they are sent, clients.
//! * `trouble` — what befalls the API server. `steps` — what befalls Pods. `run` — the simulation.
//!
//! A test target of its own: it shares no panics and no thread-local randomness with the integration tests.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    unreachable_pub,
    reason = "a test binary: a panic is how its helpers report"
)]

mod eye;
mod history;
mod pods;
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
async fn whole_engines_are_selectable_exactly_while_the_api_says_so() {
    run::seeds(pods::Kind::Plain).await;
}

#[tokio::test(start_paused = true)]
async fn engines_that_have_to_answer_first_are_selectable_once_they_have() {
    run::seeds(pods::Kind::Probed).await;
}

#[tokio::test(start_paused = true)]
async fn prefills_and_decodes_are_selectable_exactly_while_the_api_says_so() {
    run::seeds(pods::Kind::Pairs).await;
}
