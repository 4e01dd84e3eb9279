//! Pods flap while clients ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tandem::engine::Role;
use tandem::types::clock::{Instant, now};
use tokio::time::sleep;

use super::super::pods::{DRAIN, ELIGIBLE};
use super::super::witness::Sight;
use super::super::{Blueprint, Cluster, Engines, Lag, Load, MARGIN, Router, SOON, Witness};
use super::pairs::{CHAT, sglang, sglang_pod, sglang_service};
use super::{SELDOM, ms, secs};

/// Stay as they are.
const STEADY: usize = 2;
/// What befalls a Pod; the next one undoes it.
const BLOWS: [&str; 6] = ["label", "ready", "unknown", "drain", "namesake", "gone"];

pub async fn a_storm_of_pods_costs_no_request(cluster: Arc<Cluster>) {
    let (many, lasts) = cluster.pick((22, secs(20)), (12, secs(2)));
    let engines = Engines::start(many).await;
    let engines = &engines;
    let arrivals = (0..many).map(|i| (engines.port(i), move || engines.arrivals(i)));
    storm(&cluster, "", lasts, engines.pods(), STEADY, arrivals).await;
}

/// Prefills and decodes, one pair of which stays.
pub async fn a_storm_of_pairs_costs_no_request(cluster: Arc<Cluster>) {
    let (pairs, lasts) = cluster.pick((8, secs(20)), (4, secs(2)));
    let (mut engines, mut pods) = (Vec::new(), Vec::new());
    for i in 0..pairs {
        for (role, word) in [(Role::Prefill, "prefill"), (Role::Decode, "decode")] {
            let engine = sglang(role).await;
            pods.push(sglang_pod(&format!("{word}{i}"), &engine, word));
            engines.push(engine);
        }
    }
    let arrivals = engines.iter().map(|engine| {
        let when = || engine.log.read(|records| records.to(CHAT).map(|seen| seen.head_at).collect());
        (engine.addr.port(), when)
    });
    storm(&cluster, &sglang_service(), lasts, pods, 2, arrivals).await;
    let corrupted: u64 = engines.iter().map(|engine| engine.state().count("corrupted")).sum();
    assert_eq!(corrupted, 0);
}

/// All but the first Pods flap; engines are known by their ports.
async fn storm<A: Fn() -> Vec<Instant>>(
    cluster: &Arc<Cluster>,
    kind: &str,
    lasts: Duration,
    pods: Vec<Blueprint>,
    steady: usize,
    engines: impl Iterator<Item = (u16, A)>,
) {
    let seed = std::env::var("STORM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("STORM_SEED={seed}");
    cluster.create_all(&pods).await;
    let ports: Vec<u16> = pods.iter().map(Blueprint::port).collect();
    let witness = Witness::of(cluster).await;
    let router = Router::of_kind(cluster, SELDOM, kind).await;
    router.until_selectable(&ports, SOON).await;
    let lag = Lag::of(&router);
    let load = Load::on(&router, 6);
    let began = now();
    let flapping = pods.iter().enumerate().skip(steady).map(|(i, pod)| {
        let random = fastrand::Rng::with_seed(seed + i as u64);
        flap(Arc::clone(cluster), pod.clone(), random, began + lasts)
    });
    let blows: usize = futures_util::future::join_all(flapping).await.into_iter().sum();
    router.until_selectable(&ports, SOON).await;
    router.observers_agree().await;
    let over = now();
    sleep(ms(200)).await;
    let good = load.none_failed().await;

    let (sights, told) = (witness.seen(), router.withdrawals());
    let mut judged = Judged::default();
    for (port, arrivals) in engines {
        let told = told.get(&port).map(Vec::as_slice).unwrap_or_default();
        judged.judge(port, &withdrawn(&sights, port), told, &arrivals(), &lag);
    }
    println!(
        "{good} requests, none failed; {blows} blows to {} Pods, {} events, in {:?}",
        pods.len() - steady,
        sights.len(),
        over - began
    );
    judged.report();
    assert_eq!(router.counted("tandem_discovery_drift_total", None).await, 0, "the watch told everything");
}

/// Withdrawals as they were.
#[derive(Default)]
struct Judged {
    /// From the event to the router's word, and how much later than allowed.
    noticed: Vec<(Duration, Duration)>,
    /// The longest time from the router's word to a request.
    worst: Duration,
}

impl Judged {
    /// `out`: when its Pods did not serve, as observed; `told`: when the router says that it withdrew it.
    fn judge(
        &mut self,
        port: u16,
        out: &[(Instant, Instant)],
        told: &[Instant],
        arrivals: &[Instant],
        lag: &Lag,
    ) {
        for (from, to) in out.iter().copied() {
            // It may hear of a change a little before we do; and a prefill that is still being probed is withdrawn unsaid.
            let said = told.iter().copied().find(|at| *at + MARGIN >= from && *at < to);
            let told = said.unwrap_or(from);
            if said.is_some() {
                let noticed = told.saturating_duration_since(from);
                self.noticed.push((noticed, noticed.saturating_sub(MARGIN + lag.between(from, told))));
            }
            for at in arrivals.iter().copied().filter(|at| *at > told && *at < to) {
                let returns = at + MARGIN + lag.between(at, to) >= to;
                let (late, allowed) = (at - told, MARGIN + lag.between(told, at));
                assert!(
                    returns || late <= allowed,
                    "port {port} got a request {late:?} after the router had withdrawn it, {allowed:?} allowed; that was \
                     at {}, and the next news came {:?} later",
                    wall(told),
                    to - told
                );
                self.worst = if returns { self.worst } else { self.worst.max(late) };
            }
        }
    }

    /// One in twenty may come late: on a busy machine the API server may tell the router later than us.
    fn report(mut self) {
        self.noticed.sort_unstable();
        let all = self.noticed.len();
        let late = self.noticed.iter().filter(|(_, late)| !late.is_zero()).count();
        println!(
            "  {all} withdrawals: noticed {:?} after the event in the median, {:?} at most; the last request {:?} after that",
            self.noticed[all / 2].0,
            self.noticed[all - 1].0,
            self.worst
        );
        assert!(
            late * 20 <= all.max(20),
            "{late} of {all} withdrawals took longer than {MARGIN:?}: {:?}",
            self.noticed
        );
    }
}

/// Blows and their ends, until the time is over; the Pod is as at the start then. How many.
async fn flap(cluster: Arc<Cluster>, pod: Blueprint, mut random: fastrand::Rng, until: Instant) -> usize {
    let name = pod.name();
    let mut blows = 0;
    while now() < until {
        sleep(ms(random.u64(10..600))).await;
        let blow = BLOWS[random.usize(..BLOWS.len())];
        match blow {
            "label" => _ = cluster.set_label(name, ELIGIBLE, None).await,
            "ready" => _ = cluster.say_ready(name, "False").await,
            "unknown" => _ = cluster.say_ready(name, "Unknown").await,
            "drain" => _ = cluster.set_annotation(name, DRAIN, Some("storm")).await,
            _ => cluster.force_delete(name).await,
        }
        if blow != "namesake" {
            sleep(ms(random.u64(..500))).await;
        }
        match blow {
            "label" => _ = cluster.set_label(name, ELIGIBLE, Some("true")).await,
            "ready" | "unknown" => _ = cluster.say_ready(name, "True").await,
            "drain" => _ = cluster.set_annotation(name, DRAIN, None).await,
            _ => _ = cluster.create(&pod).await,
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
