//! The only place that spawns tasks: each belongs to a tracker that can say how many are left and wait for them.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Owner of the tasks of one part of the process. Clones share the same set.
#[derive(Debug, Clone, Default)]
pub struct Tracker {
    tasks: TaskTracker,
}

impl Tracker {
    /// A long-lived task with a name in its log lines.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let span = tracing::info_span!("task", task = name);
        tokio::spawn(self.tasks.track_future(future).instrument(span))
    }

    /// A task per connection or stream: no span, because there are many.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn spawn_light<F>(&self, future: F)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(self.tasks.track_future(future));
    }

    /// Tasks that have not ended.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Completes when every task has ended, now or later spawned ones included until then.
    pub async fn wait(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
