//! Rights that are missing.

use std::sync::Arc;

use serde_json::Value;
use tandem::types::clock::now;
use tokio::time::sleep;

use super::super::pods::{DRAIN, ELIGIBLE};
use super::super::{Cluster, Engines, Load, Router, SOON, until};
use super::{SELDOM, ms, secs};

/// The warnings about failures of this kind of question.
fn told(router: &Router, what: &str) -> Vec<Value> {
    let mut lines = router.process.log_lines();
    lines.retain(|line| line["kind"] == "forbidden" && line["what"] == what && line["level"] == "WARN");
    lines
}

pub async fn a_missing_right_is_named_and_waited_for(cluster: Arc<Cluster>) {
    let relist = cluster.pick(secs(5), secs(1));
    cluster.grant(&[]).await;
    let engines = Engines::start(3).await;
    cluster.create_all(&engines.pods()).await;
    let router = Router::start(&cluster, relist).await;
    sleep(ms(1500)).await;
    let answer = router.process.admin_get("/readyz").await;
    assert_eq!(answer.status(), 503, "{}", answer.text());
    println!("not ready: {:?}", answer.text());
    assert_eq!(
        router.process.admin_get("/observer/endpoints").await.status(),
        503,
        "nothing truthful to say"
    );
    let warned = told(&router, "list");
    assert_eq!(warned.len(), 1, "once: {warned:?}");
    let text = warned[0].to_string();
    println!("it says: {text}");
    for word in ["list", "pods", "forbidden", "watch", cluster.ns.as_str()] {
        assert!(text.contains(word), "{word:?} in {text}");
    }

    cluster.grant(&["list"]).await;
    let granted = now();
    let ready = router.until_ready(relist + secs(1)).await;
    println!("granted; ready {:?} later", ready - granted);
    router.until_selectable(&engines.ports(), SOON).await;
    let load = Load::on(&router, 3);
    // Half of it: lists do alone, and the other half is named.
    until("the other right to be named", SOON, || async {
        let warned = told(&router, "watch");
        if warned.len() == 1 { Ok(()) } else { Err(warned) }
    })
    .await;
    cluster.set_annotation("p2", DRAIN, Some("")).await;
    router.until_selectable(&[engines.port(0), engines.port(1)], relist + secs(1)).await;

    cluster.grant(&["list", "watch"]).await;
    until("the watch", SELDOM, || async {
        let at = now();
        cluster.set_annotation("p2", DRAIN, None).await;
        router.until_selectable(&engines.ports(), relist + secs(1)).await;
        let took = now() - at;
        cluster.set_annotation("p2", DRAIN, Some("")).await;
        router.until_selectable(&[engines.port(0), engines.port(1)], relist + secs(1)).await;
        if took < ms(300) { Ok(()) } else { Err(took) }
    })
    .await;

    // Taken away from a router that has its endpoints: they stay, and it stays ready.
    cluster.grant(&[]).await;
    router.proxy.cut();
    until("a failed list", relist + SOON, || async {
        let n = router.counted("tandem_discovery_list_failures_total", Some("forbidden")).await;
        if n > 1 { Ok(()) } else { Err(n) }
    })
    .await;
    assert!(router.is_ready().await);
    assert_eq!(router.selectable().await.len(), 2);
    cluster.set_label("p1", ELIGIBLE, None).await;
    cluster.grant(&["list", "watch"]).await;
    router.until_selectable(&[engines.port(0)], relist + secs(1)).await;
    load.none_failed().await;
}
