//! 5. Attempts on engines.
//!
//! One attempt is one hold, one connection, one request. Whether a failed one is followed by another is decided in
//! `retry`, and nowhere else; `attempt` carries one out; `run` is the loop between them.

mod answer;
mod attempt;
mod cohort;
mod pd;
mod retry;
mod run;

pub use answer::Answer;
#[cfg(feature = "testing")]
pub use pd::bench as pair_bodies;
pub use pd::{Abort, PairJob, has_form, run as run_pair, unsupported_key as unsupported};
pub use retry::{REASONS, outcome};
pub use run::{Job, run};
