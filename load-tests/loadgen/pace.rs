//! Who may send next, and when it should have been.
//!
//! The schedule of the open loop comes from a thread of its own: the event loop's timers have a grain of a millisecond,
//! more than the latencies measured here. What the thread itself is late by is in the report.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::common::now;
use crate::plan::Args;

/// Hands out starts until all requests have one.
#[derive(Debug)]
pub enum Pace {
    /// The next request starts when somebody is free to send it.
    Closed(Cell<usize>),
    /// The next request starts when the schedule says so.
    Open(Mutex<UnboundedReceiver<Start>>),
}

/// The beginning of one request.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// When the request was due; latency counts from here.
    pub due: Instant,
    /// When the schedule's thread said so.
    pub told: Instant,
}

impl Pace {
    /// The pace that `args` ask for. An open one starts running now.
    pub fn new(args: &Args) -> Self {
        let Some(rate) = args.rate else { return Self::Closed(Cell::new(args.requests)) };
        let (sender, receiver) = unbounded_channel();
        let (requests, even, seed) = (args.requests, args.even, args.seed);
        std::thread::spawn(move || tick(&sender, requests, rate, even, seed));
        Self::Open(Mutex::new(receiver))
    }

    /// Waits for the next start; `None` when there are no more.
    pub async fn next(&self) -> Option<Start> {
        match self {
            Self::Closed(left) => {
                left.set(left.get().checked_sub(1)?);
                let due = now();
                Some(Start { due, told: due })
            }
            Self::Open(starts) => starts.lock().await.recv().await,
        }
    }
}

fn tick(sender: &UnboundedSender<Start>, requests: usize, rate: f64, even: bool, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut due = now() + Duration::from_millis(20);
    for _ in 0..requests {
        std::thread::sleep(due.saturating_duration_since(now()));
        if sender.send(Start { due, told: now() }).is_err() {
            return;
        }
        // Exponential distances make Poisson arrivals; 1 - u is never 0.
        let distance = if even { 1.0 } else { -(1.0 - random.f64()).ln() };
        due += Duration::from_secs_f64(distance / rate);
    }
}
