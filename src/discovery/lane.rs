//! Lanes: what engines are asked before their first request.
//!
//! One lane for each URL. Its jobs run in order, one at a time; no URL waits for another (GPU-24). A job that did not get the
//! answer it wants goes to the end of its lane and is tried again after a pause of its own, in which others have their turn,
//! for as long as its endpoint qualifies (GPU-25). The registry's writer and the watch never wait here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dashmap::{DashMap, Entry};
use tokio::sync::Notify;
use tokio::sync::mpsc::WeakSender;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::probe::probe;
use crate::drain::Tracker;
use crate::metrics::LaneMetrics;
use crate::registry::{Change, Handle, Job, LaneState, Lanes, Probed};
use crate::types::clock::{Instant, now};
use crate::upstream::Dial;

/// Between two tries, by how many failed; the last one from there on.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// The lanes of a process.
#[derive(Debug)]
pub struct Probers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lanes: DashMap<String, Lane>,
    dial: Arc<dyn Dial>,
    tasks: Tracker,
    /// Weak: the writer that reads these owns the lanes.
    changes: WeakSender<Change>,
    metrics: LaneMetrics,
}

#[derive(Debug, Default)]
struct Lane {
    jobs: VecDeque<Waiting>,
    /// Ends a pause: there is a new job.
    wake: Arc<Notify>,
}

#[derive(Debug)]
struct Waiting {
    job: Job,
    /// Not to be tried before.
    due: Instant,
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
        let waiting = Waiting { job, due: now(), failures: 0, told: None };
        match self.0.lanes.entry(url) {
            Entry::Occupied(mut lane) => {
                let lane = lane.get_mut();
                // A flapping Pod leaves jobs behind that nobody wants.
                lane.jobs.retain(|waiting| !waiting.job.cancel.is_cancelled());
                lane.jobs.push_back(waiting);
                lane.wake.notify_one();
            }
            Entry::Vacant(lane) => {
                let url = lane.key().clone();
                lane.insert(Lane { jobs: VecDeque::from([waiting]), ..Lane::default() });
                self.0.tasks.spawn_light(work(Arc::clone(&self.0), url));
            }
        }
    }

    fn state(&self, url: &str) -> LaneState {
        let waiting = self.0.lanes.get(url).map(|lane| lane.jobs.len());
        LaneState { busy: waiting.is_some(), waiting: waiting.unwrap_or(0) }
    }
}

enum Next {
    Try(Waiting),
    /// Every job has its pause: until then, or until the first of them is not wanted any more, or another one comes.
    Pause(Instant, CancellationToken, Arc<Notify>),
}

impl Lane {
    fn next(&mut self) -> Option<Next> {
        let now = now();
        if let Some(index) = self.jobs.iter().position(|waiting| waiting.due <= now) {
            return self.jobs.remove(index).map(Next::Try);
        }
        let first = self.jobs.iter().min_by_key(|waiting| waiting.due)?;
        Some(Next::Pause(first.due, first.job.cancel.clone(), Arc::clone(&self.wake)))
    }
}

/// Works a lane off and closes it.
async fn work(inner: Arc<Inner>, url: String) {
    let _open = inner.metrics.open();
    while let Some(next) = inner.next(&url) {
        match next {
            Next::Try(waiting) => {
                if let Some(again) = inner.ask(waiting).await
                    && let Some(mut lane) = inner.lanes.get_mut(&url)
                {
                    lane.jobs.push_back(again);
                }
            }
            Next::Pause(until, cancel, wake) => tokio::select! {
                () = sleep_until(until) => {}
                () = wake.notified() => {}
                () = cancel.cancelled() => inner.forget_cancelled(&url),
            },
        }
    }
}

impl Inner {
    /// What to do next; `None`: the lane was empty, and is closed.
    fn next(&self, url: &str) -> Option<Next> {
        let Entry::Occupied(mut lane) = self.lanes.entry(url.to_owned()) else { return None };
        let next = lane.get_mut().next();
        if next.is_none() {
            // Under the entry's lock: whoever submits now finds no lane, and opens one.
            lane.remove();
        }
        next
    }

    fn forget_cancelled(&self, url: &str) {
        if let Some(mut lane) = self.lanes.get_mut(url) {
            lane.jobs.retain(|waiting| !waiting.job.cancel.is_cancelled());
        }
    }

    async fn tell(&self, verdict: Probed) {
        if let Some(changes) = self.changes.upgrade() {
            let _ = changes.send(Change::Probed(verdict)).await;
        }
    }

    /// One try. `Some`: it has to be repeated, after a pause.
    async fn ask(&self, mut waiting: Waiting) -> Option<Waiting> {
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
                waiting.due = now() + PAUSES[waiting.failures.min(PAUSES.len() - 1)];
                waiting.failures += 1;
                Some(waiting)
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/lane.rs"]
mod tests;
