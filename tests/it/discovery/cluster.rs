//! The scenarios of `tests/cluster` before the fake API server, over HTTP: that suite has to be right before a real server is
//! judged by it, and these are whole processes under the faults that only a network has.

#[allow(dead_code, reason = "shared with tests/cluster, which has real servers")]
#[path = "../../cluster/suite/mod.rs"]
mod suite;

use std::sync::Arc;
use std::time::Duration;

use suite::pods::ELIGIBLE;
use suite::{Cluster, Engines, Load, Router, SOON};
use tandem::testkit::kube::{Fault, RequestKind};

macro_rules! tests {
    ($($scene:ident)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $scene() {
            suite::run(Cluster::fake().await, suite::scenes::$scene).await;
        }
    )* };
}

suite::every_scene!(tests);

/// 410: a new list, then a watch from there. A real server says it to a router whose place it has forgotten, which takes a
/// restart; that scenario prints whether it did.
async fn expired(cluster: Arc<Cluster>) {
    let engines = Engines::start(2).await;
    cluster.create_all(&engines.pods()).await;
    let router = Router::ready(&cluster, Duration::from_secs(15)).await;
    router.until_selectable(&engines.ports(), SOON).await;
    let load = Load::on(&router, 3);
    cluster.the_fake().push(RequestKind::Watch, Fault::InStream { code: 410 });
    router.proxy.cut();
    cluster.set_label("p1", ELIGIBLE, None).await;
    router.until_selectable(&[engines.port(0)], SOON).await;
    assert_eq!(router.counted("tandem_discovery_watch_ends_total", Some("expired")).await, 1);
    cluster.set_label("p1", ELIGIBLE, Some("true")).await;
    router.until_selectable(&engines.ports(), SOON).await;
    load.none_failed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_watch_starts_over() {
    suite::run(Cluster::fake().await, expired).await;
}
