//! One traffic thread: takes connections from its lane, runs them, and does its housekeeping.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::accept::Accepted;
use super::conn::serve;
use crate::drain::Phase;
use crate::proxy::context::Worker;
use crate::types::clock;

/// Connections that may wait for a thread to pick them up; the accept loop waits beyond that.
const WAITING: usize = 1024;
/// How often a thread looks after its log buffer.
const TICK: Duration = Duration::from_millis(100);
/// Every how many ticks idle upstream connections are swept.
const SWEEP: u32 = 10;

/// The accept loop's end of one traffic thread.
#[derive(Debug, Clone)]
pub struct Lane {
    sender: mpsc::Sender<Accepted>,
    load: Arc<Load>,
}

/// How busy a thread is.
#[derive(Debug, Default)]
pub struct Load {
    pub streams: AtomicUsize,
    pub connections: AtomicUsize,
    /// The thread ended although the process runs.
    died: AtomicBool,
}

impl Load {
    /// A thread that serves nothing any more, and should: only a restart helps.
    pub fn died(&self) -> bool {
        self.died.load(Ordering::Relaxed)
    }
}

impl Lane {
    pub(super) fn load(&self) -> (usize, usize) {
        (self.load.streams.load(Ordering::Relaxed), self.load.connections.load(Ordering::Relaxed))
    }

    /// Its thread still takes connections.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// A sender would have to wait.
    pub(super) fn is_full(&self) -> bool {
        self.sender.capacity() == 0
    }

    pub(super) async fn send(&self, accepted: Accepted) {
        // Counted here, so that a burst of connections spreads before the threads have looked at it.
        self.load.connections.fetch_add(1, Ordering::Relaxed);
        if self.sender.send(accepted).await.is_err() {
            self.load.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A lane, its receiving end, and the load both sides share.
pub fn lane() -> (Lane, mpsc::Receiver<Accepted>, Arc<Load>) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let load = Arc::new(Load::default());
    (Lane { sender, load: Arc::clone(&load) }, receiver, load)
}

/// Notices, and says, that its thread ends although the process runs.
struct Alive(Arc<Worker>);

impl Alive {
    fn died(&self, how: &str) {
        self.0.load.died.store(true, Ordering::Relaxed);
        tracing::error!(
            thread = self.0.index,
            how,
            "a traffic thread ended; this process should be restarted"
        );
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.died("it panicked");
        }
    }
}

/// Runs until the lane is closed and every connection of this thread has ended.
pub async fn run_worker(worker: Arc<Worker>, mut lane: mpsc::Receiver<Accepted>) {
    let alive = Alive(Arc::clone(&worker));
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut count = 0u32;
    let mut open = true;
    let tracker = worker.tracker.clone();
    let mut ended = std::pin::pin!(tracker.wait());
    loop {
        tokio::select! {
            () = &mut ended, if !open => break,
            accepted = lane.recv(), if open => if let Some(accepted) = accepted {
                worker.tracker.spawn_light(serve(Arc::clone(&worker), accepted));
            } else {
                open = false;
                if worker.shared.phases.now() < Phase::Draining {
                    alive.died("nothing is accepted any more");
                }
            },
            _ = ticks.tick() => {
                count = count.wrapping_add(1);
                clock::refresh();
                worker.access.flush_if_due(clock::recent());
                if count.is_multiple_of(SWEEP) {
                    sweep(&worker);
                }
            }
        }
    }
    worker.access.flush();
}

fn sweep(worker: &Worker) {
    for service in &worker.shared.view.load().services {
        for endpoint in service.all() {
            endpoint.pool.sweep(worker.index);
        }
    }
}
