//! A report of "withdrawn, nothing reserved" under every interleaving (I3), and proof that the model sees the mistakes it is
//! there for.
//!
//! loom runs the very code of `ledger::Stages` and `ledger::Gate` on its own atomic words. What truly happened is noted
//! beside it in plain atomics, which loom does not schedule. The mutants are the two orders turned round, and the look and the
//! report without what makes them sequentially consistent.

#![allow(clippy::unwrap_used, reason = "a test binary")]

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, Ordering};

use loom::sync::atomic::AtomicU64 as ModelU64;
use loom::thread;
use tandem::ledger::{Counts, Gate, Stage, Stages, Word};

/// loom's word; `FENCED` says whether a fence is one.
struct Loom<const FENCED: bool>(ModelU64);

impl<const FENCED: bool> Loom<FENCED> {
    /// Without fences nothing is sequentially consistent.
    fn order(order: Ordering) -> Ordering {
        if FENCED { order } else { Relaxed }
    }
}

impl<const FENCED: bool> Word for Loom<FENCED> {
    fn new(value: u64) -> Self {
        Self(ModelU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(Self::order(order))
    }
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_or(bits, Self::order(order))
    }
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_and(bits, Self::order(order))
    }
    fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
        self.0.fetch_add(n, Self::order(order))
    }
    fn fetch_sub(&self, n: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(n, Self::order(order))
    }
    fn compare_exchange_weak(&self, old: u64, new: u64, ok: Ordering, err: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange_weak(old, new, Self::order(ok), Self::order(err))
    }
    fn fence() {
        if FENCED {
            loom::sync::atomic::fence(SeqCst);
        }
    }
}

/// One endpoint.
struct World<W: Word> {
    gate: Gate<W>,
    stages: Stages<W>,
    /// It was reported as withdrawn with nothing reserved.
    reported: AtomicBool,
}

/// The steps of a leg and of a report, right or wrong.
struct Steps<W: Word> {
    look: fn(&World<W>) -> Option<Stage<W>>,
    is_quiet: fn(&World<W>) -> bool,
}

/// As the product does it: `Leg::may_start`, and the order of `Observer`.
fn right<W: Word>() -> Steps<W> {
    Steps {
        look: |world| world.stages.last_look(&world.gate),
        is_quiet: |world| world.gate.is_withdrawn() && world.stages.counts().reserved == 0,
    }
}

/// Once it is reported that an endpoint is withdrawn and nothing is reserved, no leg starts on it.
fn report<W: Word + Send + Sync + 'static>(steps: Steps<W>, legs: usize) {
    let steps = Arc::new(steps);
    let mut model = loom::model::Builder::new();
    // Every order of one leg; of two, those that a few interruptions give.
    model.preemption_bound = (legs > 1).then_some(2);
    model.check(move || {
        let world = Arc::new(World {
            gate: Gate::new(),
            stages: Stages::<W>::default(),
            reported: AtomicBool::new(false),
        });
        let leg = |_| {
            let (world, steps) = (Arc::clone(&world), Arc::clone(&steps));
            thread::spawn(move || {
                if let Some(mut stage) = (steps.look)(&world) {
                    assert!(!world.reported.load(SeqCst), "model: a leg started after the report");
                    stage.written();
                }
            })
        };
        let legs: Vec<_> = (0..legs).map(leg).collect();
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.gate.withdraw();
            })
        };
        if (steps.is_quiet)(&world) {
            world.reported.store(true, SeqCst);
        }
        for leg in legs {
            leg.join().unwrap();
        }
        writer.join().unwrap();
        assert_eq!(world.stages.counts(), Counts::default(), "model: a reservation was left behind");
        assert!((steps.is_quiet)(&world), "model: it does not come to rest");
    });
}

#[test]
fn no_leg_starts_after_the_report_that_none_will() {
    report::<Loom<true>>(right(), 1);
    report::<Loom<true>>(right(), 2);
}

#[test]
#[should_panic(expected = "model: a leg started after the report")]
fn the_model_sees_a_leg_that_looks_before_it_counts_itself() {
    let look = |world: &World<Loom<true>>| {
        let open = !world.gate.is_withdrawn();
        // An open gate of its own: counted, and not looked at again.
        world.stages.last_look(&Gate::new()).filter(|_| open)
    };
    report(Steps { look, ..right() }, 1);
}

#[test]
#[should_panic(expected = "model: a leg started after the report")]
fn the_model_sees_a_report_that_counts_before_it_looks() {
    let is_quiet =
        |world: &World<Loom<true>>| world.stages.counts().reserved == 0 && world.gate.is_withdrawn();
    report(Steps { is_quiet, ..right() }, 1);
}

#[test]
#[should_panic(expected = "model: a leg started after the report")]
fn the_model_sees_orders_that_are_too_weak() {
    report::<Loom<false>>(right(), 1);
}

/// A withdrawal that is known, by whatever way, is seen by the last look.
#[test]
fn a_known_withdrawal_lets_no_leg_start() {
    loom::model(|| {
        let (gate, stages) = (Arc::new(Gate::<Loom<true>>::new()), Stages::default());
        let told = Arc::new(ModelU64::new(0));
        let writer = {
            let (gate, told) = (Arc::clone(&gate), Arc::clone(&told));
            thread::spawn(move || {
                gate.withdraw();
                told.store(1, Ordering::Release);
            })
        };
        if told.load(Acquire) == 1 {
            assert!(stages.last_look(&gate).is_none(), "model: it started all the same");
        }
        writer.join().unwrap();
    });
}
