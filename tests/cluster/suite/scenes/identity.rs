//! Who is who: a Pod is its UID, an endpoint its address and role too.

use std::sync::Arc;

use tandem::types::clock::now;
use tokio::time::sleep;

use super::super::pods::PORTS;
use super::super::{Blueprint, Cluster, Engines, Lag, Load, MARGIN, Router, SOON, Witness};
use super::{SELDOM, ms};

pub async fn a_namesake_at_the_same_address_is_another_endpoint(cluster: Arc<Cluster>) {
    let engines = Engines::start(2).await;
    cluster.create_all(&engines.pods()).await;
    let router = Router::ready(&cluster, SELDOM).await;
    let load = Load::on(&router, 3);
    for _ in 0..cluster.pick(10, 4) {
        let before = router.endpoint(engines.port(1)).await.unwrap();
        cluster.force_delete("p1").await;
        let uid = cluster.create(&engines.pod(1, "p1")).await;
        super::super::until("the namesake", SOON, || async {
            let endpoint = router.endpoint(engines.port(1)).await.unwrap();
            let is_new = endpoint.selectable && endpoint.pod_uid.as_ref() == Some(&uid);
            if is_new { Ok(()) } else { Err(endpoint) }
        })
        .await;
        let after = router.endpoint(engines.port(1)).await.unwrap();
        assert_ne!((&before.id, &before.pod_uid), (&after.id, &after.pod_uid));
        let fleet = router.fleet().await;
        let old = fleet.endpoints.iter().find(|e| e.id == before.id);
        assert!(old.is_none_or(|old| !old.selectable), "the old one is out: {old:?}");
    }
    router.until_selectable(&engines.ports(), SOON).await;
    router.observers_agree().await;
    load.none_failed().await;
}

/// The address of a Pod that nobody has told to be gone: the new one has it.
pub async fn a_second_pod_takes_over_an_address(cluster: Arc<Cluster>) {
    let engines = Engines::start(1).await;
    let old = cluster.create(&engines.pod(0, "old")).await;
    let router = Router::ready(&cluster, SELDOM).await;
    let load = Load::on(&router, 2);
    // Pods made within one second are told apart by their versions.
    let new = cluster.create(&engines.pod(0, "new")).await;
    let state = || async {
        let fleet = router.fleet().await;
        let find = |uid: &str| fleet.endpoints.iter().rfind(|e| e.pod_uid.as_deref() == Some(uid)).cloned();
        (find(&old), find(&new))
    };
    super::super::until("the takeover", SOON, || async {
        match state().await {
            (Some(old), Some(new)) if !old.selectable && new.selectable => Ok(old.reason),
            other => Err(other),
        }
    })
    .await;
    // The old one's news change nothing; its end neither.
    cluster.say_ready("old", "False").await;
    cluster.say_ready("old", "True").await;
    sleep(ms(300)).await;
    let (_, kept) = state().await;
    assert!(kept.unwrap().selectable);
    cluster.force_delete("new").await;
    super::super::until("the old one again", SOON, || async {
        let (old, new) = state().await;
        let is_out = new.is_none_or(|new| !new.selectable);
        if is_out && old.as_ref().is_some_and(|old| old.selectable) { Ok(()) } else { Err(old) }
    })
    .await;
    let since = now();
    sleep(ms(200)).await;
    assert!(engines.after(0, since) > 0);
    drop(load.end().await);
}

pub async fn another_port_is_another_endpoint(cluster: Arc<Cluster>) {
    let engines = Engines::start(4).await;
    let ports = engines.ports();
    cluster.create(&engines.pod(0, "steady")).await;
    cluster.create(&Blueprint::new("p", ports[1])).await;
    let witness = Witness::of(&cluster).await;
    let router = Router::ready(&cluster, SELDOM).await;
    router.until_selectable(&ports[..2], SOON).await;
    let lag = Lag::of(&router);
    let load = Load::on(&router, 3);

    let version = cluster.set_annotation("p", PORTS, Some(&ports[2].to_string())).await;
    let moved = witness.saw(version).await;
    router.until_selectable(&[ports[0], ports[2]], SOON).await;
    router.until_reason(&ports[1].to_string(), "replaced").await;
    let shown = now();
    sleep(ms(300)).await;
    assert_eq!(engines.after(1, shown + MARGIN + lag.between(moved, shown + MARGIN)), 0, "the old port");
    assert!(engines.count(2) > 0);

    // Several ports are one endpoint each.
    cluster.set_annotation("p", PORTS, Some(&format!("{},{}", ports[2], ports[3]))).await;
    router.until_selectable(&[ports[0], ports[2], ports[3]], SOON).await;
    // One that cannot be read withdraws the Pod, with a word for its owner.
    cluster.set_annotation("p", PORTS, Some("http")).await;
    router.until_selectable(&ports[..1], SOON).await;
    cluster.set_annotation("p", PORTS, Some(&ports[1].to_string())).await;
    router.until_selectable(&ports[..2], SOON).await;
    router.observers_agree().await;
    load.none_failed().await;
}
