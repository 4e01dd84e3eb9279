//! Discovery of Pods before a real API server: the scenarios of [`suite`], on whatever `KUBECONFIG` points at.
//!
//! ```sh
//! KUBECONFIG=… cargo nextest run --test cluster --run-ignored all
//! ```
//!
//! Every conformant server from Kubernetes 1.20 on will do, with nodes or without: nothing is run there. Each test works in a
//! namespace of its own and removes it. See `docs/testing.md`; `tests/it/discovery/cluster.rs` runs the same before the fake server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test binary: a panic is how its helpers report"
)]

#[allow(dead_code, reason = "shared with tests/it, which uses more of it")]
#[path = "../it/process.rs"]
mod process;
#[allow(dead_code, reason = "shared with tests/it, which has the fake server")]
mod suite;

macro_rules! tests {
    ($($scene:ident)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[ignore = "needs a cluster: set KUBECONFIG"]
        async fn $scene() {
            suite::run(suite::Cluster::real().await, suite::scenes::$scene).await;
        }
    )* };
}

suite::every_scene!(tests);
