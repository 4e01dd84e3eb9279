//! The only place that knows every plane: a configuration becomes a running router.
//!
//! * `build` — every part, wired, nothing running yet; tests start it on their own runtime and transports.
//! * `limits` — descriptors, memory and cores turned into the `auto` values.
//! * `probe` — what engines are asked beside requests.
//! * `control` — what the admin routes see and change.
//! * `run` — threads and runtimes of the real process, and its shutdown.

mod build;
mod control;
mod limits;
mod probe;
mod run;

pub use build::{Router, build};
pub use control::Control;
pub use run::{Started, run, start};
