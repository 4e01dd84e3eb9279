//! Leaving well: every task has an owner, a name and an end; the process leaves in named, observable phases.
//!
//! * `phases` — where the process is between running and stopped, and how tasks hear of a change.
//! * `tracker` — the only place that spawns tasks.
//! * `signal` — SIGTERM and SIGINT; a second one forces.
//! * `sequence` — the shutdown itself, phase by phase.

mod phases;
mod sequence;
mod signal;
mod tracker;

pub use phases::{Moment, Phase, Phases};
pub use sequence::{Report, run_sequence};
pub use signal::Signals;
pub use tracker::Tracker;
