//! Configuration: file, environment and flags become one validated [`RouterConfig`], or a list of every mistake.

mod router;
pub mod secret_file;

pub use router::*;
