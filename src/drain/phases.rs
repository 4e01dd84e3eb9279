//! The phase of the process: one value, one writer (the shutdown sequence), many readers. A drain that forces reaches open
//! requests the same way, without a phase of its own: see [`Phases::cut`].
//!
//! The request path reads it as one relaxed load. A task that may sleep for long (a silent stream) is woken on every
//! change through [`Phases::changed`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
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

/// The phase in the topmost byte; below it the number of cuts so far.
const PHASE: u32 = 56;
const CUTS: u64 = (1 << PHASE) - 1;
/// Cuts that are remembered. A task hears of one within a moment, so that a handful would do.
const REMEMBERED: usize = 4096;

/// The phase, and how many cuts there were: what tasks compare to notice that one of them changed, with the one load that the
/// phase alone would take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment(u64);

impl Moment {
    /// Equal to none.
    pub const NEVER: Self = Self(u64::MAX);

    #[inline]
    pub fn phase(self) -> Phase {
        Phase::ALL[((self.0 >> PHASE) as usize).min(Phase::ALL.len() - 1)]
    }

    fn cuts(self) -> u64 {
        self.0 & CUTS
    }
}

/// Shared view of the phase.
#[derive(Debug)]
pub struct Phases {
    now: AtomicU64,
    changed: Arc<Notify>,
    /// The last engines whose open requests were cut, each with its number. Not on any request's way until there is one.
    cut: Mutex<VecDeque<(u64, u64)>>,
}

impl Default for Phases {
    fn default() -> Self {
        Self { now: AtomicU64::new(0), changed: Arc::new(Notify::new()), cut: Mutex::default() }
    }
}

impl Phases {
    #[inline]
    pub fn now(&self) -> Phase {
        self.moment().phase()
    }

    #[inline]
    pub fn moment(&self) -> Moment {
        Moment(self.now.load(Ordering::Relaxed))
    }

    /// Moves forward; never back. Returns whether this changed anything.
    pub fn advance(&self, to: Phase) -> bool {
        let forward =
            |now: u64| (Moment(now).phase() < to).then_some(Moment(now).cuts() | (to as u64) << PHASE);
        let moved = self.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, forward).is_ok();
        self.changed.notify_waiters();
        moved
    }

    /// Wakes every task that waits for a change: what is open on these engines is cut. Who cuts marks the engines before.
    pub fn cut(&self, engines: &[u64]) {
        let mut cut = self.cut.lock();
        let number = self.moment().cuts() + 1;
        cut.extend(engines.iter().map(|engine| (number, *engine)));
        let surplus = cut.len().saturating_sub(REMEMBERED);
        cut.drain(..surplus);
        self.now.fetch_add(1, Ordering::AcqRel);
        drop(cut);
        self.changed.notify_waiters();
    }

    /// Whether what was open on `engine` was cut after `moment`.
    pub fn has_cut(&self, engine: u64, moment: Moment) -> bool {
        self.moment().cuts() != moment.cuts()
            && self.cut.lock().iter().any(|(number, cut)| *number > moment.cuts() && *cut == engine)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_and_cuts_share_a_word_and_do_not_disturb_each_other() {
        let phases = Phases::default();
        let before = phases.moment();
        phases.cut(&[7, 8]);
        assert!(phases.has_cut(7, before) && phases.has_cut(8, before) && !phases.has_cut(9, before));
        assert!(!phases.has_cut(7, phases.moment()), "it began after that");
        assert!(phases.advance(Phase::Draining) && !phases.advance(Phase::Unready));
        assert_eq!(phases.now(), Phase::Draining);
        let later = phases.moment();
        assert!(phases.has_cut(7, before) && !phases.has_cut(7, later));
        phases.cut(&[7]);
        assert!(phases.has_cut(7, later) && !phases.has_cut(8, later));
        assert_eq!(phases.now(), Phase::Draining);
    }
}
