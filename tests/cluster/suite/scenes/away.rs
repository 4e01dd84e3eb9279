//! An API server that is not there for a while (I9): no endpoint changes, no request fails, and what happened meanwhile is
//! known within one tick of its return.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tandem::types::clock::now;
use tokio::time::sleep;

use super::super::pods::{APP, ELIGIBLE};
use super::super::{Blueprint, Cluster, Engines, Lag, Load, MARGIN, Proxy, Router, SOON};
use super::{SELDOM, ms, secs};

/// For the list itself, on a busy machine.
const SLACK: Duration = Duration::from_secs(1);

/// How long it is away, seconds, where the usual time is too short.
const AWAY: &str = "TANDEM_CLUSTER_AWAY";

/// R7, in small unless asked otherwise.
pub async fn an_api_server_that_is_away_costs_no_request(cluster: Arc<Cluster>) {
    let (relist, away) = cluster.pick((SELDOM, secs(40)), (secs(1), secs(2)));
    let away = std::env::var(AWAY).map_or(away, |text| secs(text.parse().unwrap()));
    let mut engines = Engines::start(8).await;
    let mut pods = engines.pods();
    let late = pods.pop().unwrap();
    cluster.create_all(&pods).await;
    let router = Router::ready(&cluster, relist).await;
    let lag = Lag::of(&router);
    let first = engines.ports()[..7].to_vec();
    router.until_selectable(&first, SOON).await;
    let load = Load::on(&router, 4);

    router.proxy.shut().await;
    let gone = now();
    // Behind its back: one deleted and its process ended, one without its mark, one not ready, a namesake, a new one.
    cluster.force_delete("p2").await;
    engines.0[2].refuse().await;
    cluster.set_label("p3", ELIGIBLE, None).await;
    cluster.say_ready("p4", "False").await;
    cluster.force_delete("p5").await;
    let namesake = cluster.create(&engines.pod(5, "p5")).await;
    cluster.create(&late).await;
    while now() - gone < away {
        assert!(router.is_ready().await, "an API server that is away makes no router unready");
        assert_eq!(
            router.selectable().await,
            first.iter().copied().collect::<BTreeSet<_>>(),
            "the last good view"
        );
        sleep(ms(200)).await;
    }
    let good = load.good();
    assert!(router.counted("tandem_discovery_list_failures_total", None).await > 0);

    router.proxy.open();
    let back = now();
    let expected: Vec<u16> = [0, 1, 5, 6, 7].into_iter().map(|i| engines.port(i)).collect();
    let known = router.until_selectable(&expected, relist + SLACK).await;
    println!(
        "away for {away:?} with {good} requests; known {:?} after its return, one tick is {relist:?}",
        known - back
    );
    let five = router.endpoint(engines.port(5)).await.unwrap();
    assert_eq!(five.pod_uid, Some(namesake));
    sleep(ms(500)).await;
    let limit = known + MARGIN + lag.between(back, known);
    for i in [3, 4] {
        assert_eq!(engines.after(i, limit), 0, "p{i} still gets requests");
    }
    assert!(engines.after(7, known) > 0 && engines.after(5, known) > 0);
    router.observers_agree().await;
    events_count_again(&cluster, &router, &engines, &expected).await;
    let total = load.none_failed().await;
    println!("{total} requests in all, none failed");
}

pub async fn a_router_may_start_before_its_api_server(cluster: Arc<Cluster>) {
    let engines = Engines::start(2).await;
    cluster.create_all(&engines.pods()).await;
    let proxy = Proxy::to(&cluster.server);
    proxy.shut().await;
    let router = Router::behind(proxy, &cluster, SELDOM, "").await;
    sleep(ms(1500)).await;
    assert!(!router.is_ready().await);
    assert_eq!(router.process.admin_get("/observer/endpoints").await.status(), 503);
    router.proxy.open();
    let back = now();
    // It asks again after one second, two, four.
    let ready = router.until_ready(secs(5)).await;
    println!("ready {:?} after the API server is there", ready - back);
    assert_eq!(router.selectable().await.len(), 2);
    assert_eq!(router.ask(10).await, [200; 10]);
    router.observers_agree().await;
}

/// The server itself goes and returns, or as much of that as a proxy can show.
pub async fn an_api_server_that_restarts_costs_no_request(cluster: Arc<Cluster>) {
    let relist = cluster.pick(SELDOM, secs(2));
    let engines = Engines::start(4).await;
    cluster.create_all(&engines.pods()).await;
    let router = Router::ready(&cluster, relist).await;
    let all = engines.ports();
    router.until_selectable(&all, SOON).await;
    let load = Load::on(&router, 4);
    // Of another service: the versions go on and the router's watch is not told, so a server that starts with an empty cache
    // finds the router's place too old (410).
    cluster.create(&Blueprint::new("bystander", 1).label(APP.0, "another")).await;
    let began = now();
    if !cluster.restart().await {
        println!("TANDEM_CLUSTER_RESTART is not set: the proxy stands in for a restart");
        router.proxy.shut().await;
        sleep(secs(3)).await;
        router.proxy.open();
    }
    let back = now();
    println!("restarted in {:?}", back - began);
    assert_eq!(router.selectable().await, all.iter().copied().collect::<BTreeSet<_>>());
    cluster.set_label("p1", ELIGIBLE, None).await;
    cluster.force_delete("p2").await;
    let uid = cluster.create(&engines.pod(2, "p2")).await;
    let expected = [all[0], all[2], all[3]];
    let known = router.until_selectable(&expected, relist + SLACK).await;
    super::super::until("the namesake", relist + SLACK, || async {
        let endpoint = router.endpoint(all[2]).await;
        let is_new = endpoint.as_ref().is_some_and(|e| e.selectable && e.pod_uid.as_ref() == Some(&uid));
        if is_new { Ok(()) } else { Err(endpoint) }
    })
    .await;
    println!("a change right after the restart is known {:?} after it", known - back);
    events_count_again(&cluster, &router, &engines, &expected).await;
    println!(
        "watches ended by: {}; lists failed by: {}",
        router.kinds("tandem_discovery_watch_ends_total").await,
        router.kinds("tandem_discovery_list_failures_total").await
    );
    assert!(router.is_ready().await);
    router.observers_agree().await;
    load.none_failed().await;
}

/// `p0` goes and comes back by events alone, quicker than any list.
async fn events_count_again(cluster: &Cluster, router: &Router, engines: &Engines, ports: &[u16]) {
    let others: Vec<u16> = ports.iter().copied().filter(|port| *port != engines.port(0)).collect();
    super::super::until("events to count again", secs(15), || async {
        let at = now();
        cluster.set_label("p0", ELIGIBLE, None).await;
        router.until_selectable(&others, SELDOM + SLACK).await;
        let took = now() - at;
        cluster.set_label("p0", ELIGIBLE, Some("true")).await;
        router.until_selectable(ports, SELDOM + SLACK).await;
        if took < ms(500) { Ok(()) } else { Err(took) }
    })
    .await;
}
