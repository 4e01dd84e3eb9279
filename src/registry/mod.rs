//! Which endpoints exist and may take a request: one writer, whole immutable snapshots.
//!
//! Readers load one [`Snapshot`] per attempt through [`View`]. Per-endpoint state (gate, pool, ejection, metric handles)
//! lives in the [`Endpoint`] itself and is shared by every snapshot that lists it, so it survives changes by identity and
//! never moves to a namesake.

mod budget;
mod cohort;
mod drift;
mod endpoint;
mod facts;
mod groups;
mod in_flight;
mod lanes;
mod listener;
mod member;
mod moments;
mod observer;
mod orders;
mod reason;
pub mod report;
mod rollout;
mod shares;
mod snapshot;
mod split;
mod sync;
mod writer;

pub use crate::types::fact::Fact;
pub use crate::types::role::Role;
pub use budget::RetryBudget;
pub use cohort::{Cohort, Need, Uncovered};
pub use endpoint::{Endpoint, Load};
pub use facts::EngineFacts;
pub use groups::{Groups, Kind};
pub use in_flight::InFlight;
pub use lanes::{Facts, Job, LaneState, Lanes, Probed};
pub use listener::{Born, Listener, PodBatch, PodId, PodUpdate, PodVerdict};
pub use observer::{Observer, Unobservable};
pub use orders::Deadline;
pub use reason::Reason;
pub use report::Reporter;
pub use rollout::{Rollout, Said};
pub use shares::{SAMPLE, Shares};
pub use snapshot::{Departed, PodNote, Service, Snapshot, Turns, View};
pub use split::{Split, SplitSource};
pub use sync::{Sync, Synced};
pub use writer::{Change, Handle, Ordered, Replaced, SplitApplied, SplitOrder, Writer};
