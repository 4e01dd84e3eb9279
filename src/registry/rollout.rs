//! The weights of a rollout object as they come from outside: what it may say, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use super::sync::{Sync, Synced};
use crate::config::SplitEntry;

/// What a rollout object says of a service's weights. Whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// These weights.
    Weights(Vec<SplitEntry>),
    /// A canary is declared and nothing is written yet: what was said before stands, else all of it goes to these.
    Stable(Vec<SplitEntry>),
    /// No canary and no weights: it is no source of a split.
    Nothing,
    /// There is no such object. What was said before stands.
    Missing,
    /// What it says cannot be followed; why, in words for an operator. What was said before stands.
    Unusable(String),
}

/// What is known of a service's rollout object; written by the registry's writer, shared by all snapshots.
#[derive(Debug)]
pub struct Rollout {
    known: Sync,
    /// Why the newest word of it is not followed.
    problem: ArcSwapOption<String>,
    /// The object's own version of what is followed; 0: nothing is.
    version: AtomicU64,
}

impl Rollout {
    /// `awaited`: the service has such an object, and takes no request before that was read.
    pub(super) fn new(awaited: bool) -> Self {
        Self { known: Sync::new(!awaited), problem: ArcSwapOption::empty(), version: AtomicU64::new(0) }
    }

    /// Whether it was read: [`Synced::Ready`] also where there is nothing to be read.
    pub fn known(&self) -> Synced {
        self.known.now()
    }

    /// Why the newest word of it is not followed, in words for an operator.
    pub fn problem(&self) -> Option<Arc<String>> {
        self.problem.load_full()
    }

    /// `metadata.resourceVersion` of the object whose weights are followed; 0: none is.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self, status: u16) {
        self.known.set(Synced::Refused(status));
    }

    pub(super) fn followed(&self, version: u64) {
        self.version.store(version, Ordering::Relaxed);
        self.problem.store(None);
        self.known.set(Synced::Ready);
    }

    /// `missing`: that there is none is known, and no reason to wait.
    pub(super) fn not_followed(&self, why: String, missing: bool) {
        self.problem.store(Some(Arc::new(why)));
        if missing {
            self.known.set(Synced::Ready);
        }
    }
}
