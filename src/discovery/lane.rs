//! Lanes: what engines are asked before their first request.
//!
//! One lane for each URL. Its jobs run in order, one at a time; no URL waits for another (GPU-24). A job that did not get the
//! answer it wants goes to the end of its lane and is tried again, for as long as its endpoint qualifies (GPU-25). The
//! registry's writer and the watch never wait here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dashmap::{DashMap, Entry};
use tokio::sync::mpsc::WeakSender;
use tokio::time::sleep;
use tracing::debug;

use super::probe::probe;
use crate::drain::Tracker;
use crate::metrics::LaneMetrics;
use crate::registry::{Change, Handle, Job, LaneState, Lanes, Probed};
use crate::upstream::Dial;

/// Between two tries, by how many failed; the last one from there on.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// The lanes of a process.
#[derive(Debug)]
pub struct Probers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lanes: DashMap<String, VecDeque<Waiting>>,
    dial: Arc<dyn Dial>,
    tasks: Tracker,
    /// Weak: the writer that reads these owns the lanes.
    changes: WeakSender<Change>,
    metrics: LaneMetrics,
}

#[derive(Debug)]
struct Waiting {
    job: Job,
    failures: usize,
    /// The verdict that was told last.
    told: Option<String>,
}

impl Probers {
    pub fn new(dial: Arc<dyn Dial>, tasks: Tracker, changes: &Handle, metrics: LaneMetrics) -> Self {
        let changes = changes.downgrade();
        Self(Arc::new(Inner { lanes: DashMap::new(), dial, tasks, changes, metrics }))
    }
}

impl Lanes for Probers {
    fn submit(&self, job: Job) {
        let url = job.endpoint.url.clone();
        let waiting = Waiting { job, failures: 0, told: None };
        match self.0.lanes.entry(url) {
            Entry::Occupied(mut lane) => {
                let lane = lane.get_mut();
                // A flapping Pod leaves jobs behind that nobody wants.
                lane.retain(|waiting| !waiting.job.cancel.is_cancelled());
                lane.push_back(waiting);
            }
            Entry::Vacant(lane) => {
                let url = lane.key().clone();
                lane.insert(VecDeque::from([waiting]));
                self.0.tasks.spawn_light(work(Arc::clone(&self.0), url));
            }
        }
    }

    fn state(&self, url: &str) -> LaneState {
        let waiting = self.0.lanes.get(url).map(|lane| lane.len());
        LaneState { busy: waiting.is_some(), waiting: waiting.unwrap_or(0) }
    }
}

/// Works a lane off and closes it.
async fn work(inner: Arc<Inner>, url: String) {
    let _open = inner.metrics.open();
    loop {
        let next = match inner.lanes.entry(url.clone()) {
            Entry::Occupied(mut lane) => {
                let Some(next) = lane.get_mut().pop_front() else {
                    // Under the entry's lock: whoever submits now finds no lane, and opens one.
                    lane.remove();
                    return;
                };
                next
            }
            Entry::Vacant(_) => return,
        };
        if let Some((waiting, pause)) = inner.ask(next).await {
            let cancel = waiting.job.cancel.clone();
            if let Some(mut lane) = inner.lanes.get_mut(&url) {
                lane.push_back(waiting);
                // Others have their turn before the pause.
                if lane.len() > 1 {
                    continue;
                }
            }
            let _ = cancel.run_until_cancelled(sleep(pause)).await;
        }
    }
}

impl Inner {
    async fn tell(&self, verdict: Probed) {
        if let Some(changes) = self.changes.upgrade() {
            let _ = changes.send(Change::Probed(verdict)).await;
        }
    }

    /// One try. `Some`: it has to be repeated, after a pause.
    async fn ask(&self, mut waiting: Waiting) -> Option<(Waiting, Duration)> {
        let Job { endpoint, number, cancel, .. } = &waiting.job;
        let result = cancel.run_until_cancelled(probe(&*self.dial, &waiting.job)).await?;
        self.metrics.probed(result.is_ok());
        let (id, job) = (endpoint.id, *number);
        match result {
            Ok(facts) => {
                self.tell(Probed { id, job, result: Ok(facts) }).await;
                None
            }
            Err(why) => {
                debug!(endpoint = %endpoint.url, why, "the engine is not ready for requests yet");
                if waiting.told.as_ref() != Some(&why) {
                    self.tell(Probed { id, job, result: Err(why.clone()) }).await;
                    waiting.told = Some(why);
                }
                let pause = PAUSES[waiting.failures.min(PAUSES.len() - 1)];
                waiting.failures += 1;
                Some((waiting, pause))
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/lane.rs"]
mod tests;
