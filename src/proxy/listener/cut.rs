//! A request that is cut while its client takes no bytes. hyper does not ask its body then, which is where a cut leg ends; so
//! its task gives it [`PATIENCE`], and ends it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep_until};

use crate::drain::{Moment, Phases};
use crate::types::clock;

/// How long such a client has to make room for its error.
const PATIENCE: Duration = Duration::from_millis(500);

/// Id of the engine whose answer a connection or a stream relays now; 0: none.
#[derive(Debug, Default)]
pub struct RelayedEngine(AtomicU64);

impl RelayedEngine {
    #[inline]
    pub fn set(&self, engine: u64) {
        self.0.store(engine, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Of one task, which knows its relay only by what hyper asks of it.
#[derive(Debug, Default)]
pub(super) struct Cut(Option<Box<Due>>);

#[derive(Debug)]
struct Due {
    engine: u64,
    timer: Pin<Box<Sleep>>,
}

impl Cut {
    /// After a change, and after hyper was polled: a relay that could be asked has ended its leg by now.
    pub(super) fn look(&mut self, phases: &Phases, before: Moment, relayed: &RelayedEngine) {
        let engine = relayed.get();
        if engine != 0 && phases.has_cut(engine, before) {
            self.0 = Some(Box::new(Due { engine, timer: Box::pin(sleep_until(clock::now() + PATIENCE)) }));
        }
    }

    /// Ready when the time is over.
    #[inline]
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, relayed: &RelayedEngine) -> Poll<()> {
        match &mut self.0 {
            None => Poll::Pending,
            Some(due) if due.engine == relayed.get() => due.timer.as_mut().poll(cx),
            Some(_) => {
                self.0 = None;
                Poll::Pending
            }
        }
    }
}
