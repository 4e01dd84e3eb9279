//! Pods flap while clients ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tandem::types::clock::{Instant, now};
use tokio::time::sleep;

use super::super::pods::{DRAIN, ELIGIBLE};
use super::super::witness::Sight;
use super::super::{Cluster, Engines, Lag, Load, MARGIN, Router, SOON, Witness};
use super::{SELDOM, ms, secs};

/// Stay as they are.
const STEADY: usize = 2;
/// What befalls a Pod; the next one undoes it.
const BLOWS: [&str; 6] = ["label", "ready", "unknown", "drain", "namesake", "gone"];

pub async fn a_storm_of_pods_costs_no_request(cluster: Arc<Cluster>) {
    let (many, lasts) = cluster.pick((22, secs(20)), (12, secs(4)));
    let seed = std::env::var("STORM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("STORM_SEED={seed}");
    let engines = Arc::new(Engines::start(many).await);
    cluster.create_all(&engines.pods()).await;
    let witness = Witness::of(&cluster).await;
    let router = Router::ready(&cluster, SELDOM).await;
    let lag = Lag::of(&router);
    router.until_selectable(&engines.ports(), SOON).await;
    let load = Load::on(&router, 6);
    let began = now();
    let flapping = (STEADY..many).map(|i| {
        let random = fastrand::Rng::with_seed(seed + i as u64);
        flap(Arc::clone(&cluster), Arc::clone(&engines), i, random, began + lasts)
    });
    let blows: usize = futures_util::future::join_all(flapping).await.into_iter().sum();
    router.until_selectable(&engines.ports(), SOON).await;
    router.observers_agree().await;
    let over = now();
    sleep(ms(200)).await;
    let good = load.none_failed().await;

    let seen = witness.seen();
    let mut worst = Duration::ZERO;
    for i in 0..many {
        let out = withdrawn(&seen, engines.port(i));
        for at in engines.arrivals(i) {
            let Some((from, to)) = out.iter().find(|(from, to)| at > *from && at < *to) else { continue };
            // The router may hear of its return a little before we do.
            if at + MARGIN + lag.between(at, *to) >= *to {
                continue;
            }
            let late = at - *from;
            let allowed = MARGIN + lag.between(*from, at);
            assert!(
                late <= allowed,
                "engine {i} got a request {late:?} after its withdrawal, {allowed:?} allowed"
            );
            worst = worst.max(late);
        }
    }
    println!(
        "{good} requests, none failed; {blows} blows to {} Pods, {} events, in {:?}; the latest request {worst:?} after a \
         withdrawal was observed",
        many - STEADY,
        seen.len(),
        over - began
    );
    assert_eq!(router.counted("tandem_discovery_drift_total", None).await, 0, "the watch told everything");
}

/// Blows and their ends, until the time is over; the Pod is as at the start then. How many.
async fn flap(
    cluster: Arc<Cluster>,
    engines: Arc<Engines>,
    i: usize,
    mut random: fastrand::Rng,
    until: Instant,
) -> usize {
    let name = format!("p{i}");
    let mut blows = 0;
    while now() < until {
        sleep(ms(random.u64(10..600))).await;
        let blow = BLOWS[random.usize(..BLOWS.len())];
        match blow {
            "label" => drop(cluster.set_label(&name, ELIGIBLE, None).await),
            "ready" => drop(cluster.say_ready(&name, "False").await),
            "unknown" => drop(cluster.say_ready(&name, "Unknown").await),
            "drain" => drop(cluster.set_annotation(&name, DRAIN, Some("storm")).await),
            _ => cluster.force_delete(&name).await,
        }
        if blow != "namesake" {
            sleep(ms(random.u64(..500))).await;
        }
        match blow {
            "label" => drop(cluster.set_label(&name, ELIGIBLE, Some("true")).await),
            "ready" | "unknown" => drop(cluster.say_ready(&name, "True").await),
            "drain" => drop(cluster.set_annotation(&name, DRAIN, None).await),
            _ => drop(cluster.create(&engines.pod(i, &name)).await),
        }
        blows += 1;
    }
    blows
}

/// When no Pod served at this port, by what was observed.
fn withdrawn(seen: &[Sight], port: u16) -> Vec<(Instant, Instant)> {
    let mut serving: BTreeMap<&str, bool> = BTreeMap::new();
    let (mut out, mut since) = (Vec::new(), None);
    for sight in seen.iter().filter(|sight| sight.ports.contains(&port)) {
        serving.insert(&sight.uid, sight.serves);
        let any = serving.values().any(|serves| *serves);
        match (any, since) {
            (false, None) => since = Some(sight.at),
            (true, Some(from)) => {
                out.push((from, sight.at));
                since = None;
            }
            _ => {}
        }
    }
    out
}

/// As the router's log writes it: to find the place there.
fn wall(at: Instant) -> String {
    let ms = tandem::types::clock::wall_ms() - (now() - at).as_millis() as u64;
    format!("{:02}:{:02}.{:03}", ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
}
