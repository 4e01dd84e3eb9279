//! The phase of the process: one value, one writer (the shutdown sequence), many readers.
//!
//! The request path reads it as one relaxed load. A task that may sleep for long (a silent stream) is woken on every
//! change through [`Phases::changed`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// In order; a process only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Ready as far as shutdown is concerned.
    Running,
    /// `/readyz` is 503; requests are still accepted and served, with `Connection: close` on HTTP/1.1.
    Unready,
    /// The listener is closed; open requests go on.
    Draining,
    /// The grace is over, or a second signal came: open requests are being ended with an error.
    Forcing,
    Stopped,
}

impl Phase {
    pub const ALL: [Self; 5] = [Self::Running, Self::Unready, Self::Draining, Self::Forcing, Self::Stopped];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Unready => "unready",
            Self::Draining => "draining",
            Self::Forcing => "forcing",
            Self::Stopped => "stopped",
        }
    }
}

/// Shared view of the phase.
#[derive(Debug)]
pub struct Phases {
    now: AtomicU8,
    changed: Arc<Notify>,
}

impl Default for Phases {
    fn default() -> Self {
        Self { now: AtomicU8::new(Phase::Running as u8), changed: Arc::new(Notify::new()) }
    }
}

impl Phases {
    #[inline]
    pub fn now(&self) -> Phase {
        Phase::ALL[usize::from(self.now.load(Ordering::Relaxed)).min(Phase::ALL.len() - 1)]
    }

    /// Moves forward; never back. Returns whether this changed anything.
    pub fn advance(&self, to: Phase) -> bool {
        let before = self.now.fetch_max(to as u8, Ordering::AcqRel);
        self.changed.notify_waiters();
        before < to as u8
    }

    /// Completes at the next change after this call, even if it is polled only later.
    pub fn changed(&self) -> OwnedNotified {
        Arc::clone(&self.changed).notified_owned()
    }

    /// Completes when the phase is at least `phase`.
    pub async fn reached(&self, phase: Phase) {
        loop {
            let changed = self.changed();
            if self.now() >= phase {
                return;
            }
            changed.await;
        }
    }
}
