//! The scenarios of `tests/cluster` before the fake API server, over HTTP: that suite has to be right before a real server is
//! judged by it, and these are whole processes under the faults that only a network has.

#[path = "../../cluster/suite/mod.rs"]
mod suite;

macro_rules! tests {
    ($($scene:ident)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $scene() {
            suite::run(suite::Cluster::fake().await, suite::scenes::$scene).await;
        }
    )* };
}

suite::every_scene!(tests);
