//! Tasks that have not ended, by the runtime they run on: a leak of them shows here before it shows in memory.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Registry, Result};
use tokio::runtime::Handle;

use super::{build, names};

/// The runtimes of the process, asked at each scrape.
#[derive(Debug, Clone)]
pub struct RuntimeTasks {
    gauge: IntGaugeVec,
    runtimes: Arc<Mutex<Vec<(String, Handle)>>>,
}

impl RuntimeTasks {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let gauge = build::loose_gauge_vec(&names::RUNTIME_TASKS)?;
        let tasks = Self { gauge, runtimes: Arc::default() };
        registry.register(Box::new(tasks.clone()))?;
        Ok(tasks)
    }

    /// Counts the tasks of one more runtime, under the name of its thread. Once per thread of the process.
    pub fn watch(&self, thread: &str, runtime: &Handle) {
        self.runtimes.lock().push((thread.to_owned(), runtime.clone()));
    }
}

impl Collector for RuntimeTasks {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for (thread, runtime) in &*self.runtimes.lock() {
            let alive = runtime.metrics().num_alive_tasks();
            self.gauge.with_label_values(&[thread]).set(i64::try_from(alive).unwrap_or(i64::MAX));
        }
        self.gauge.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_are_counted_until_they_end() {
        let tasks = RuntimeTasks::new(&Registry::new()).unwrap();
        tasks.watch("traffic-0", &Handle::current());
        let count = || tasks.collect()[0].get_metric()[0].get_gauge().value() as i64;
        let before = count();
        let waiting = crate::testkit::task::spawn(std::future::pending::<()>());
        assert_eq!(count(), before + 1);
        waiting.abort();
        let _ = waiting.await;
        assert_eq!(count(), before);
    }
}
