//! What the watch missed, the next list repairs; what broke the watch is noticed.

use std::sync::Arc;
use std::time::Duration;

use tandem::types::clock::{Instant, now};
use tokio::time::sleep;

use super::super::pods::{DRAIN, ELIGIBLE};
use super::super::{Cluster, Engines, Load, MARGIN, Router, SOON, Witness};
use super::{SELDOM, ms, secs};

/// Limit of a list, and the wait after its failure.
const LIST: Duration = Duration::from_secs(5);
const BACKOFF: Duration = Duration::from_secs(1);
/// For the list itself, on a busy machine.
const SLACK: Duration = Duration::from_secs(1);

/// The connection with the watch, found by a harmless event that comes over it, is half-open from now on; the others pass.
async fn swallow_watch(cluster: &Cluster, router: &Router, witness: &Witness) {
    let lists = || router.counted("tandem_discovery_relists_total", None);
    for i in 0..20 {
        let (since, before) = (now(), lists().await);
        let version = cluster.set_annotation("p0", "touched", Some(&i.to_string())).await;
        witness.saw(version).await;
        sleep(ms(50)).await;
        // A list in between would be taken for the watch.
        if lists().await == before && router.proxy.swallow_heard_since(since) > 0 {
            return;
        }
    }
    panic!("no connection carries the watch");
}

/// R1: a lost event, on a connection that looks alive.
pub async fn a_half_open_watch_is_repaired_by_the_next_list(cluster: Arc<Cluster>) {
    let relist = cluster.pick(SELDOM, secs(1));
    let engines = Engines::start(3).await;
    cluster.create_all(&engines.pods()).await;
    let witness = Witness::of(&cluster).await;
    let router = Router::ready(&cluster, relist).await;
    router.until_selectable(&engines.ports(), SOON).await;
    let load = Load::on(&router, 3);
    // The watch is open once an event has come.
    let version = cluster.set_annotation("p2", DRAIN, Some("")).await;
    witness.saw(version).await;
    router.until_selectable(&[engines.port(0), engines.port(1)], SOON).await;

    swallow_watch(&cluster, &router, &witness).await;
    let version = cluster.set_label("p1", ELIGIBLE, None).await;
    let event = witness.saw(version).await;
    let seen = router.until_selectable(&[engines.port(0)], relist + SLACK).await;
    println!("half-open watch, a list every {relist:?}: withdrawn {:?} after the lost event", seen - event);
    sleep(ms(300)).await;
    assert_eq!(engines.after(1, seen + MARGIN), 0);

    // Drift is told, and a new watch opened: events come again.
    let drift = || router.counted("tandem_discovery_drift_total", None);
    super::super::until("the drift to be counted", SOON, || async {
        let n = drift().await;
        if n == 1 { Ok(()) } else { Err(n) }
    })
    .await;
    watch_is_back(&cluster, &router, &engines, &[0]).await;
    load.none_failed().await;
}

/// Events reach the router again: a Pod's drain ends and begins by them alone, within a second.
async fn watch_is_back(cluster: &Cluster, router: &Router, engines: &Engines, others: &[usize]) {
    let others: Vec<u16> = others.iter().map(|i| engines.port(*i)).collect();
    let with: Vec<u16> = others.iter().copied().chain([engines.port(2)]).collect();
    super::super::until("the watch to be back", SOON, || async {
        cluster.set_annotation("p2", DRAIN, None).await;
        let quick = wait(router, &with).await;
        cluster.set_annotation("p2", DRAIN, Some("")).await;
        if quick && wait(router, &others).await { Ok(()) } else { Err("too slow for an event") }
    })
    .await;
}

async fn wait(router: &Router, ports: &[u16]) -> bool {
    let wanted = ports.iter().copied().collect();
    for _ in 0..60 {
        if router.selectable().await == wanted {
            return true;
        }
        sleep(ms(5)).await;
    }
    false
}

/// The network to the API server is gone: connections are half-open, and those that are dialled as well; then it returns.
pub async fn a_network_that_swallows_everything_is_noticed(cluster: Arc<Cluster>) {
    let (relist, gone) = cluster.pick((SELDOM, secs(30)), (secs(1), secs(3)));
    let engines = Engines::start(3).await;
    cluster.create_all(&engines.pods()).await;
    let witness = Witness::of(&cluster).await;
    let router = Router::ready(&cluster, relist).await;
    router.until_selectable(&engines.ports(), SOON).await;
    let load = Load::on(&router, 3);
    cluster.set_annotation("p2", DRAIN, Some("")).await;
    router.until_selectable(&[engines.port(0), engines.port(1)], SOON).await;

    router.proxy.swallow_all();
    label_off(&cluster, &witness, "p1").await;
    sleep(gone).await;
    assert!(router.is_ready().await);
    assert_eq!(router.selectable().await.len(), 2, "the last good view");
    // What was dialled before stays half-open.
    router.proxy.open();
    let back = now();
    let seen = router.until_selectable(&[engines.port(0)], relist + LIST + BACKOFF + SLACK).await;
    println!(
        "nothing passed for {gone:?}, a list every {relist:?}: withdrawn {:?} after the return",
        seen - back
    );
    watch_is_back(&cluster, &router, &engines, &[0]).await;
    assert!(router.counted("tandem_discovery_list_failures_total", Some("timeout")).await > 0);
    router.observers_agree().await;
    load.none_failed().await;
}

async fn label_off(cluster: &Cluster, witness: &Witness, name: &str) -> Instant {
    let version = cluster.set_label(name, ELIGIBLE, None).await;
    witness.saw(version).await
}

/// The connection breaks, visibly, again and again; what happens meanwhile is told by the next watch.
pub async fn a_cut_watch_loses_nothing(cluster: Arc<Cluster>) {
    let engines = Engines::start(2).await;
    cluster.create_all(&engines.pods()).await;
    let router = Router::ready(&cluster, SELDOM).await;
    router.until_selectable(&engines.ports(), SOON).await;
    let load = Load::on(&router, 3);
    let mut slowest = Duration::ZERO;
    for round in 0..cluster.pick(6, 2) {
        router.proxy.cut();
        let at = now();
        let on = round % 2 == 1;
        cluster.set_label("p1", ELIGIBLE, on.then_some("true")).await;
        let ports = if on { engines.ports() } else { vec![engines.port(0)] };
        // After the backoff of a broken watch, which grows with each failure in a row and starts over with an event.
        slowest = slowest.max(router.until_selectable(&ports, secs(4)).await - at);
    }
    println!("watch cut with an event right behind: told {slowest:?} later at most");
    assert!(router.counted("tandem_discovery_watch_ends_total", Some("connection")).await > 0);
    assert_eq!(router.counted("tandem_discovery_drift_total", None).await, 0, "no list had to help");
    load.none_failed().await;
}
