//! Who may send next, and when it should have been.
//!
//! The schedule of the open loop comes from a thread of its own: the event loop's timers have a grain of a millisecond,
//! more than the latencies measured here. What the thread itself is late by is in the report.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::args::Args;
use crate::common::now;
use crate::plan::Plans;

/// Hands out starts until all requests have one.
#[derive(Debug)]
pub enum Pace {
    /// The next request starts when somebody is free to send it.
    Closed { next: Cell<usize>, requests: usize },
    /// The next request starts when the schedule says so.
    Open(Mutex<UnboundedReceiver<Start>>),
}

/// The beginning of one request.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// Which request this is.
    pub number: usize,
    /// When the request was due; latency counts from here.
    pub due: Instant,
    /// When the schedule's thread said so.
    pub told: Instant,
}

impl Pace {
    /// The pace that `args` ask for. An open one starts running now.
    pub fn new(args: &Args, plans: &Plans) -> Self {
        let due: Box<dyn Iterator<Item = Duration> + Send> = match (&plans.due, args.rate) {
            (Some(due), _) => Box::new(due.clone().into_iter()),
            (None, Some(rate)) => Box::new(arrivals(rate, args.even, args.seed).take(args.requests)),
            (None, None) => return Self::Closed { next: Cell::new(0), requests: args.requests },
        };
        let (sender, receiver) = unbounded_channel();
        std::thread::spawn(move || tick(&sender, due));
        Self::Open(Mutex::new(receiver))
    }

    /// Waits for the next start; `None` when there are no more.
    pub async fn next(&self) -> Option<Start> {
        match self {
            Self::Closed { next, requests } => {
                let number = next.get();
                next.set(number + 1);
                let due = now();
                (number < *requests).then_some(Start { number, due, told: due })
            }
            Self::Open(starts) => starts.lock().await.recv().await,
        }
    }
}

fn tick(sender: &UnboundedSender<Start>, due: impl Iterator<Item = Duration>) {
    let begin = now() + Duration::from_millis(20);
    for (number, due) in due.enumerate() {
        let due = begin + due;
        std::thread::sleep(due.saturating_duration_since(now()));
        if sender.send(Start { number, due, told: now() }).is_err() {
            return;
        }
    }
}

/// Times of arrivals, without an end: Poisson or at equal distances.
fn arrivals(rate: f64, even: bool, seed: u64) -> impl Iterator<Item = Duration> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut due = 0.0;
    std::iter::repeat_with(move || {
        let now = due;
        // Exponential distances make Poisson arrivals; 1 - u is never 0.
        due += if even { 1.0 } else { -(1.0 - random.f64()).ln() } / rate;
        Duration::from_secs_f64(now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_their_rate_and_are_as_spread_as_poissons() {
        let times: Vec<f64> = arrivals(100.0, false, 1).take(20_001).map(|due| due.as_secs_f64()).collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((mean - 0.01).abs() < 0.0003 && (deviation - 0.01).abs() < 0.0005, "{mean} {deviation}");
        let even: Vec<Duration> = arrivals(100.0, true, 1).take(3).collect();
        assert_eq!(even, [0, 10, 20].map(Duration::from_millis));
    }
}
