//! Which endpoints exist and may take a request: one writer, whole immutable snapshots.
//!
//! Readers load one [`Snapshot`] per attempt through [`View`]. Per-endpoint state (gate, pool, ejection, metric handles)
//! lives in the [`Endpoint`] itself and is shared by every snapshot that lists it, so it survives changes by identity and
//! never moves to a namesake.

mod budget;
mod endpoint;
mod snapshot;
mod writer;

pub use crate::types::role::Role;
pub use budget::RetryBudget;
pub use endpoint::{Endpoint, Reason};
pub use snapshot::{Service, Snapshot, Turns, View};
pub use writer::{Change, Handle, Replaced, Writer};
