//! The only place that knows every plane: a configuration becomes a running router.
//!
//! * `build` — every part, wired, nothing running yet; tests start it on their own runtime and transports.
//! * `limits` — descriptors, memory and cores turned into the `auto` values.
//! * `pods` — discovery of Pods, on a thread of its own.
//! * `probe` — what engines are asked beside requests.
//! * `control` — what the admin routes see and change.
//! * `reload` — changes of the configuration file while it runs.
//! * `status` — how the router is, for operators.
//! * `split` — cohorts and splits: what is shown of them, and another split by hand.
//! * `run` — threads and runtimes of the real process, and its shutdown.

mod build;
mod control;
mod limits;
mod pods;
mod probe;
mod reload;
mod run;
mod split;
mod status;

pub use build::{Router, build};
pub use control::Control;
pub use pods::discover;
pub use run::{Started, run, start};
