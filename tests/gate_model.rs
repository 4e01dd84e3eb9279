//! The one-word gate under every interleaving (I3), and proof that the model sees the mistakes it is there for.
//!
//! loom runs the very code of `ledger::Gate` on its own atomic word. What truly happened is noted beside it in plain
//! atomics, which loom does not schedule: right after an operation of the gate nothing can come between. Each mutant
//! is the gate with one step done the way it is usually done wrong; its test passes only if the model fails.
//!
//! A test target of its own, because the integration tests count every panic of their process.

#![allow(clippy::unwrap_used, reason = "a test binary")]

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use loom::sync::atomic::AtomicU64 as ModelU64;
use loom::thread;
use tandem::ledger::{Gate, Withdrawn, Word};

/// loom's word under the product's gate.
struct Loom(ModelU64);

impl Word for Loom {
    fn new(value: u64) -> Self {
        Self(ModelU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_or(bits, order)
    }
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_and(bits, order)
    }
    fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
        self.0.fetch_add(n, order)
    }
    fn fetch_sub(&self, n: u64, order: Ordering) -> u64 {
        self.0.fetch_sub(n, order)
    }
    fn compare_exchange_weak(&self, old: u64, new: u64, ok: Ordering, err: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange_weak(old, new, ok, err)
    }
    fn fence() {
        loom::sync::atomic::fence(SeqCst);
    }
}

/// What the models need of a gate, right or wrong.
trait Gated: Send + Sync + 'static {
    fn new() -> Self;
    fn try_hold(&self) -> Result<(), Withdrawn>;
    fn release(&self);
    fn withdraw(&self) -> u64;
    fn restore(&self) {}
    fn is_withdrawn(&self) -> bool;
    fn holds(&self) -> u64;
}

impl<W: Word + Send + Sync + 'static> Gated for Gate<W> {
    fn new() -> Self {
        Gate::new()
    }
    fn try_hold(&self) -> Result<(), Withdrawn> {
        self.try_hold()
    }
    fn release(&self) {
        self.release();
    }
    fn withdraw(&self) -> u64 {
        self.withdraw()
    }
    fn restore(&self) {
        self.restore();
    }
    fn is_withdrawn(&self) -> bool {
        self.is_withdrawn()
    }
    fn holds(&self) -> u64 {
        self.holds()
    }
}

/// A gate and what truly happened to it.
struct Seen<G> {
    gate: G,
    /// Holds that exist.
    live: AtomicU64,
    withdrawn: AtomicBool,
}

impl<G: Gated> Seen<G> {
    fn new() -> Arc<Self> {
        Arc::new(Self { gate: G::new(), live: AtomicU64::new(0), withdrawn: AtomicBool::new(false) })
    }

    fn hold(&self) -> bool {
        let held = self.gate.try_hold().is_ok();
        if held {
            assert!(!self.withdrawn.load(SeqCst), "model: a hold was taken after the withdrawal");
            self.live.fetch_add(1, SeqCst);
        }
        held
    }

    fn release(&self) {
        self.gate.release();
        self.live.fetch_sub(1, SeqCst);
    }

    fn withdraw(&self) -> u64 {
        let holds = self.gate.withdraw();
        assert_eq!(holds, self.live.load(SeqCst), "model: the withdrawal returned a wrong number of holds");
        self.withdrawn.store(true, SeqCst);
        holds
    }
}

fn spawn<G: Gated>(seen: &Arc<Seen<G>>, run: impl FnOnce(&Seen<G>) + 'static) -> thread::JoinHandle<()> {
    let seen = Arc::clone(seen);
    thread::spawn(move || run(&seen))
}

fn request<G: Gated>(seen: &Seen<G>) {
    if seen.hold() {
        seen.release();
    }
}

/// Withdrawing returns the holds that exist; when those are over there is none and there can be none.
fn withdrawal<G: Gated>() {
    loom::model(|| {
        let seen = Seen::<G>::new();
        let requests = [spawn(&seen, request), spawn(&seen, request)];
        seen.withdraw();
        for request in requests {
            request.join().unwrap();
        }
        assert!(seen.gate.is_withdrawn(), "model: the withdrawal was lost");
        assert_eq!(seen.gate.holds(), 0, "model: a hold was lost or left behind");
        assert_eq!(seen.gate.try_hold(), Err(Withdrawn), "model: a hold was taken after the end");
    });
}

/// Who once sees "withdrawn" and then "0 holds" sees a fact that stays.
fn quiescence<G: Gated>() {
    loom::model(|| {
        let seen = Seen::<G>::new();
        let others = [
            spawn(&seen, request),
            spawn(&seen, |seen| {
                seen.withdraw();
            }),
        ];
        if seen.gate.is_withdrawn() && seen.gate.holds() == 0 {
            assert_eq!(seen.live.load(SeqCst), 0, "model: 0 holds were read while one existed");
            assert_eq!(seen.gate.try_hold(), Err(Withdrawn), "model: a hold was taken after 0 was read");
            assert!(seen.gate.is_withdrawn() && seen.gate.holds() == 0, "model: 0 holds did not stay");
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

/// Who reads the lower count also sees what the leg did before it ended.
fn publication<G: Gated>() {
    loom::model(|| {
        let seen = Seen::<G>::new();
        let done = Arc::new(ModelU64::new(0));
        assert!(seen.hold());
        let leg = {
            let done = Arc::clone(&done);
            spawn(&seen, move |seen| {
                done.store(1, Relaxed);
                seen.release();
            })
        };
        seen.withdraw();
        if seen.gate.holds() == 0 {
            assert_eq!(done.load(Relaxed), 1, "model: the leg's work was not seen");
        }
        leg.join().unwrap();
    });
}

/// The last look at the bit, right before a leg's first byte: a withdrawal that is known to have happened is seen.
fn last_look<G: Gated>() {
    loom::model(|| {
        let seen = Seen::<G>::new();
        let told = Arc::new(ModelU64::new(0));
        assert!(seen.hold());
        let writer = {
            let told = Arc::clone(&told);
            spawn(&seen, move |seen| {
                seen.withdraw();
                told.store(1, Release);
            })
        };
        if told.load(Acquire) == 1 {
            assert!(seen.gate.is_withdrawn(), "model: the leg would have started on a withdrawn endpoint");
        }
        seen.release();
        writer.join().unwrap();
        assert_eq!(seen.gate.holds(), 0, "model: a hold was left behind");
    });
}

/// Restoring keeps older holds counted, whatever runs beside it.
fn restoring<G: Gated>() {
    loom::model(|| {
        let seen = Seen::<G>::new();
        assert!(seen.hold());
        let others = [spawn(&seen, Seen::release), spawn(&seen, request)];
        seen.gate.withdraw();
        seen.gate.restore();
        for other in others {
            other.join().unwrap();
        }
        assert!(!seen.gate.is_withdrawn(), "model: the restoring was lost");
        assert_eq!(seen.gate.holds(), 0, "model: the count was lost");
    });
}

#[test]
fn withdrawing_returns_every_hold_and_none_comes_after() {
    withdrawal::<Gate<Loom>>();
}

#[test]
fn withdrawn_with_no_holds_is_final() {
    quiescence::<Gate<Loom>>();
}

#[test]
fn whoever_sees_a_hold_gone_sees_what_it_did() {
    publication::<Gate<Loom>>();
}

#[test]
fn a_known_withdrawal_stops_a_leg_before_its_first_byte() {
    last_look::<Gate<Loom>>();
}

#[test]
fn restoring_keeps_the_count_under_any_interleaving() {
    restoring::<Gate<Loom>>();
}

/// A word that can be spoilt: the product's gate runs on it unchanged, but one of its operations is two or too weak.
/// `HOW` says which.
struct Spoilt<const HOW: u8>(ModelU64);

const CHECK_THEN_INCREMENT: u8 = 0;
const WITHDRAW_BY_STORE: u8 = 1;
const RELEASE_BY_STORE: u8 = 2;
const RESTORE_BY_STORE: u8 = 3;
const RELAXED_RELEASE: u8 = 4;
const NONE: u8 = 5;

impl<const HOW: u8> Word for Spoilt<HOW> {
    fn new(value: u64) -> Self {
        Self(ModelU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        if HOW == WITHDRAW_BY_STORE {
            let old = self.0.load(Acquire);
            self.0.store(old | bits, Release);
            return old;
        }
        self.0.fetch_or(bits, order)
    }
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        if HOW == RESTORE_BY_STORE {
            let old = self.0.load(Acquire);
            self.0.store(old & bits, Release);
            return old;
        }
        self.0.fetch_and(bits, order)
    }
    fn fetch_sub(&self, n: u64, order: Ordering) -> u64 {
        match HOW {
            RELEASE_BY_STORE => {
                let old = self.0.load(Acquire);
                self.0.store(old - n, Release);
                old
            }
            RELAXED_RELEASE => self.0.fetch_sub(n, Relaxed),
            _ => self.0.fetch_sub(n, order),
        }
    }
    fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
        self.0.fetch_add(n, order)
    }
    fn fence() {
        loom::sync::atomic::fence(SeqCst);
    }
    fn compare_exchange_weak(&self, old: u64, new: u64, ok: Ordering, err: Ordering) -> Result<u64, u64> {
        if HOW == CHECK_THEN_INCREMENT {
            // The bit was looked at in the load before; the increment no longer cares.
            return Ok(self.0.fetch_add(new - old, ok));
        }
        self.0.compare_exchange_weak(old, new, ok, err)
    }
}

/// The bit is looked at once, when the hold is taken.
struct StaleLook(Gate<Loom>, AtomicBool);

impl Gated for StaleLook {
    fn new() -> Self {
        Self(Gate::new(), AtomicBool::new(false))
    }
    fn try_hold(&self) -> Result<(), Withdrawn> {
        let taken = self.0.try_hold();
        self.1.store(taken.is_err(), SeqCst);
        taken
    }
    fn release(&self) {
        self.0.release();
    }
    fn withdraw(&self) -> u64 {
        self.0.withdraw()
    }
    fn is_withdrawn(&self) -> bool {
        self.1.load(SeqCst)
    }
    fn holds(&self) -> u64 {
        self.0.holds()
    }
}

#[test]
fn an_unspoilt_word_passes() {
    withdrawal::<Gate<Spoilt<NONE>>>();
    publication::<Gate<Spoilt<NONE>>>();
    restoring::<Gate<Spoilt<NONE>>>();
}

#[test]
#[should_panic(expected = "model: ")]
fn the_model_sees_check_then_increment() {
    withdrawal::<Gate<Spoilt<CHECK_THEN_INCREMENT>>>();
}

#[test]
#[should_panic(expected = "model: ")]
fn the_model_sees_a_withdrawal_by_plain_store() {
    withdrawal::<Gate<Spoilt<WITHDRAW_BY_STORE>>>();
}

#[test]
#[should_panic(expected = "model: ")]
fn the_model_sees_a_release_by_load_and_store() {
    withdrawal::<Gate<Spoilt<RELEASE_BY_STORE>>>();
}

#[test]
#[should_panic(expected = "model: ")]
fn the_model_sees_check_then_increment_break_the_final_zero() {
    quiescence::<Gate<Spoilt<CHECK_THEN_INCREMENT>>>();
}

#[test]
#[should_panic(expected = "model: ")]
fn the_model_sees_a_restore_by_load_and_store() {
    restoring::<Gate<Spoilt<RESTORE_BY_STORE>>>();
}

#[test]
#[should_panic(expected = "model: the leg's work was not seen")]
fn the_model_sees_a_release_without_release_order() {
    publication::<Gate<Spoilt<RELAXED_RELEASE>>>();
}

#[test]
#[should_panic(expected = "started on a withdrawn endpoint")]
fn the_model_sees_a_bit_that_is_looked_at_once() {
    last_look::<StaleLook>();
}
