//! Whether a service's endpoint set is known (I9).

use std::sync::atomic::{AtomicU32, Ordering};

/// How far a service's source has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    /// No complete list was applied yet.
    Waiting,
    /// It was; some endpoints have not had their first verdict.
    Listed,
    Ready,
    /// The source refuses us for good (401, 403, 404): waiting for it would not help.
    Refused(u16),
}

/// Written by the registry's writer, shared by all snapshots.
#[derive(Debug)]
pub struct Sync(AtomicU32);

const WAITING: u32 = 0;
const LISTED: u32 = 1;
const READY: u32 = 2;

impl Sync {
    /// `ready`: nothing has to be waited for, as with endpoints of the configuration.
    pub(super) fn new(ready: bool) -> Self {
        Self(AtomicU32::new(if ready { READY } else { WAITING }))
    }

    pub fn now(&self) -> Synced {
        match self.0.load(Ordering::Acquire) {
            WAITING => Synced::Waiting,
            LISTED => Synced::Listed,
            READY => Synced::Ready,
            status => Synced::Refused(u16::try_from(status).unwrap_or(u16::MAX)),
        }
    }

    /// What is ready stays ready: the last good view serves (I9).
    pub(super) fn set(&self, to: Synced) {
        let word = match to {
            Synced::Waiting => WAITING,
            Synced::Listed => LISTED,
            Synced::Ready => READY,
            Synced::Refused(status) => u32::from(status).max(READY + 1),
        };
        if self.now() != Synced::Ready {
            self.0.store(word, Ordering::Release);
        }
    }
}
