//! The first list, and many Pods.

use std::sync::Arc;

use kube::api::{DeleteParams, ListParams};
use tandem::types::clock::now;

use super::super::{Blueprint, Cluster, Engines, Router};
use super::{SELDOM, secs};
use crate::process::poll;

pub async fn the_first_list_makes_ready(cluster: Arc<Cluster>) {
    // Nothing there is an answer too: ready, and no endpoint to give a request to.
    let router = Router::ready(&cluster, SELDOM).await;
    assert_eq!(router.ask(1).await, [503]);
    router.observers_agree().await;
    drop(router);

    let engines = Engines::start(3).await;
    cluster.create_all(&engines.pods()).await;
    cluster.create(&Blueprint::new("not-ready", 1).not_ready()).await;
    cluster.create(&Blueprint::new("another", 2).label("app", "another")).await;
    let router = Router::start(&cluster, SELDOM).await;
    router.until_ready(secs(5)).await;
    // Not eventually: ready says that the list was applied.
    assert_eq!(router.selectable().await.into_iter().collect::<Vec<_>>(), sorted(engines.ports()));
    assert_eq!(router.reason("not-ready").await.as_deref(), Some("not_ready"));
    assert_eq!(router.reason("another").await, None, "not of the service");
    assert_eq!(router.ask(30).await, [200; 30]);
    for i in 0..3 {
        assert!(engines.count(i) > 0, "engine {i} got none");
    }
    router.observers_agree().await;
    assert_eq!(router.counted("tandem_discovery_drift_total", None).await, 0);
}

pub async fn two_hundred_pods_come_and_go_at_once(cluster: Arc<Cluster>) {
    const MANY: usize = 200;
    let engines = Engines::start(MANY).await;
    let router = Router::ready(&cluster, SELDOM).await;
    let began = now();
    cluster.create_all(&engines.pods()).await;
    let written = now();
    let all = router.until_selectable(&engines.ports(), secs(10)).await;
    println!("{MANY} Pods written in {:?}; all selectable {:?} later", written - began, all - written);
    assert_eq!(router.ask(4 * MANY).await, [200; 4 * MANY]);
    let idle = (0..MANY).filter(|i| engines.count(*i) == 0).count();
    assert!(idle < MANY / 5, "{idle} of {MANY} engines got nothing");

    let began = now();
    let second = Router::start(&cluster, SELDOM).await;
    let started = now();
    second.until_ready(secs(10)).await;
    println!("a second router: serving after {:?}, ready {:?} later", started - began, now() - started);
    assert_eq!(second.selectable().await.len(), MANY);

    let (at_once, all) = (DeleteParams::default().grace_period(0), ListParams::default());
    cluster.pods().delete_collection(&at_once, &all).await.unwrap();
    let deleted = now();
    let (one, other) =
        tokio::join!(router.until_selectable(&[], secs(10)), second.until_selectable(&[], secs(10)));
    println!("all deleted; none selectable {:?} and {:?} later", one - deleted, other - deleted);
    assert_eq!(router.ask(1).await, [503]);
    for router in [&router, &second] {
        assert_eq!(router.counted("tandem_discovery_drift_total", None).await, 0);
    }
    poll("what left to be forgotten or shown as gone", async || {
        let fleet = router.fleet().await;
        fleet.endpoints.iter().all(|e| e.reason.as_deref() == Some("deleted"))
    })
    .await;
}

fn sorted(mut ports: Vec<u16>) -> Vec<u16> {
    ports.sort_unstable();
    ports
}
