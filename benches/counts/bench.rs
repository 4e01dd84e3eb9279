//! How a step is counted, or timed.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// How long each step is timed, where it is.
const TIMED: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Bench {
    /// Once each, for callgrind.
    once: bool,
    /// Only names that begin so.
    only: String,
}

/// The one function that callgrind counts, with all it calls. Not generic: its name must be one symbol.
#[inline(never)]
fn counted_part(part: &mut dyn FnMut()) {
    part();
    end_of_part();
    black_box(part);
}

/// Callgrind writes down what it has counted when it comes here.
#[inline(never)]
fn end_of_part() {
    black_box(0u8);
}

impl Bench {
    /// `--once`, and the beginning of a name. Cargo's own `--bench` is passed over.
    pub(crate) fn from_arguments() -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let only = words.iter().find(|word| !word.starts_with("--")).cloned().unwrap_or_default();
        Self { once: words.iter().any(|word| word == "--once"), only }
    }

    /// A step that changes nothing, done `times`.
    pub(crate) fn of<R>(&mut self, name: &str, times: u32, mut step: impl FnMut() -> R) {
        self.with(name, times, || (), |()| step());
    }

    /// A step that takes what `input` makes. Both ends with their results dropped.
    pub(crate) fn with<I, R>(
        &mut self,
        name: &str,
        times: u32,
        mut input: impl FnMut() -> I,
        mut step: impl FnMut(I) -> R,
    ) {
        if !name.starts_with(&self.only) {
            return;
        }
        let mut batch = |counted: bool| {
            // The same random choices each time.
            fastrand::seed(1);
            let mut inputs: Vec<I> = (0..times).map(|_| input()).collect();
            let mut part = || inputs.drain(..).for_each(|input| drop(black_box(step(black_box(input)))));
            let start = Instant::now();
            if counted {
                counted_part(&mut part);
            } else {
                part();
            }
            start.elapsed()
        };
        // Lazy tables, grown buffers and the allocator's first pages are not what is asked about.
        for _ in 0..3 {
            batch(false);
        }
        if self.once {
            batch(true);
            println!("{name}\t{times}");
            return;
        }
        let start = Instant::now();
        let mut best = Duration::MAX;
        while start.elapsed() < TIMED {
            best = best.min(batch(true));
        }
        println!("{name:44} {:>10.1} ns", best.as_nanos() as f64 / f64::from(times));
    }
}
