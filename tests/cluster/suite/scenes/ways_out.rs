//! How an endpoint stops getting requests, and how soon.

use std::sync::Arc;
use std::time::Duration;

use tandem::types::clock::{Instant, now};
use tokio::time::sleep;

use super::super::pods::{APP, DRAIN, ELIGIBLE};
use super::super::{Cluster, Engines, Lag, Load, MARGIN, Router, SOON, Witness};
use super::{SELDOM, ms};

/// R1. One endpoint's label goes and comes back, round after round, while clients ask all the time.
pub async fn a_lost_label_takes_the_requests_within_50_ms(cluster: Arc<Cluster>) {
    let rounds = cluster.pick(25, 4);
    let engines = Engines::start(2).await;
    cluster.create_all(&engines.pods()).await;
    let witness = Witness::of(&cluster).await;
    let router = Router::ready(&cluster, SELDOM).await;
    let lag = Lag::of(&router);
    let both = engines.ports();
    let load = Load::on(&router, 4);
    let mut withdrawals = Vec::new();
    for _ in 0..rounds {
        let before = engines.count(1);
        super::super::until("requests at both", SOON, || async {
            let count = engines.count(1);
            if count > before + 5 { Ok(()) } else { Err(count) }
        })
        .await;
        let asked = now();
        let version = cluster.set_label("p1", ELIGIBLE, None).await;
        let event = witness.saw(version).await;
        let shown = router.until_selectable(&both[..1], SOON).await;
        sleep(ms(200)).await;
        withdrawals.push(Withdrawal { asked, event, shown, over: now() });
        cluster.set_label("p1", ELIGIBLE, Some("true")).await;
        router.until_selectable(&both, SOON).await;
    }
    let good = load.none_failed().await;
    let arrivals = engines.arrivals(1);
    let late: Vec<Duration> = withdrawals.iter().filter_map(|w| w.late(&arrivals, &lag)).collect();
    println!("{good} requests, none failed; {rounds} times label off, ms from the event:");
    let times = |from: fn(&Withdrawal) -> Instant, to: &dyn Fn(&Withdrawal) -> Option<Instant>| {
        let mut all: Vec<f64> =
            withdrawals.iter().filter_map(|w| to(w).map(|to| signed_ms(from(w), to))).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let last = |w: &Withdrawal| w.last(&arrivals);
    let to_last = times(|w| w.event, &last);
    println!("  to the last request  {}", summary(&to_last));
    println!("  to /endpoints        {}", summary(&times(|w| w.event, &|w| Some(w.shown))));
    println!("from the write's start to the last request  {}", summary(&times(|w| w.asked, &last)));
    assert!(to_last[to_last.len() / 2] <= MARGIN.as_secs_f64() * 1000.0);
    // On a busy machine the API server may tell the router later than us, once.
    assert!(late.len() <= 1 && late.iter().all(|late| *late < Duration::from_secs(1)), "late: {late:?}");
}

struct Withdrawal {
    asked: Instant,
    /// When this process was told.
    event: Instant,
    /// When `/endpoints` said so.
    shown: Instant,
    /// When the label came back, or soon will.
    over: Instant,
}

impl Withdrawal {
    /// The last request before the label came back.
    fn last(&self, arrivals: &[Instant]) -> Option<Instant> {
        arrivals.iter().filter(|at| **at < self.over).max().copied()
    }

    /// How long after the event the last request came, where that is longer than it may be.
    fn late(&self, arrivals: &[Instant], lag: &Lag) -> Option<Duration> {
        let last = self.last(arrivals)?;
        let limit = self.event + MARGIN + lag.between(self.asked, last);
        (last > limit).then(|| last - self.event)
    }
}

fn signed_ms(from: Instant, to: Instant) -> f64 {
    let (later, earlier) = (to.saturating_duration_since(from), from.saturating_duration_since(to));
    (later.as_secs_f64() - earlier.as_secs_f64()) * 1000.0
}

/// Of sorted times.
fn summary(all: &[f64]) -> String {
    format!("median {:.1}, least {:.1}, most {:.1}", all[all.len() / 2], all[0], all[all.len() - 1])
}

/// Each by its own event, under load, with the reason that an operator sees; and back, where there is a way back.
pub async fn each_way_out_and_back(cluster: Arc<Cluster>) {
    let engines = Engines::start(9).await;
    let mut pods = engines.pods();
    // A graceful delete waits for the kubelet of a node.
    pods[4] = pods[4].clone().bound();
    cluster.create_all(&pods).await;
    let router = Router::ready(&cluster, SELDOM).await;
    let lag = Lag::of(&router);
    router.until_selectable(&engines.ports(), SOON).await;
    let load = Load::on(&router, 4);

    let began = now();
    cluster.set_label("p1", ELIGIBLE, None).await;
    cluster.say_ready("p2", "False").await;
    cluster.say_ready("p3", "Unknown").await;
    cluster.delete("p4").await;
    cluster.force_delete("p5").await;
    cluster.set_annotation("p6", DRAIN, Some("maintenance")).await;
    cluster.say_phase("p7", "Failed").await;
    // Leaves the watch's selector: told as DELETED, with the Pod as it was before.
    cluster.set_label("p8", APP.0, Some("another")).await;
    router.until_selectable(&[engines.port(0)], SOON).await;
    let out = now();
    println!("eight ways out, one after the other: {:?}", out - began);
    let reasons =
        ["not_eligible", "not_ready", "ready_unknown", "terminating", "deleted", "drain_annotation"];
    for (i, reason) in reasons.into_iter().chain(["not_running", "deleted"]).enumerate() {
        router.until_reason(&engines.port(i + 1).to_string(), reason).await;
    }
    let drained = router.endpoint(engines.port(6)).await.unwrap();
    assert_eq!(drained.detail.as_deref(), Some("maintenance"));
    router.observers_agree().await;
    sleep(ms(500)).await;
    let limit = out + MARGIN + lag.between(began, out);
    for i in 1..9 {
        assert_eq!(engines.after(i, limit), 0, "p{i} still gets requests");
    }
    assert!(engines.after(0, out) > 0);

    cluster.set_label("p1", ELIGIBLE, Some("true")).await;
    cluster.say_ready("p2", "True").await;
    cluster.say_ready("p3", "True").await;
    cluster.force_delete("p4").await;
    cluster.create(&engines.pod(5, "p5")).await;
    cluster.set_annotation("p6", DRAIN, None).await;
    cluster.set_label("p8", APP.0, Some(APP.1)).await;
    let back: Vec<u16> = [0, 1, 2, 3, 5, 6, 8].into_iter().map(|i| engines.port(i)).collect();
    router.until_selectable(&back, SOON).await;
    served_again(&engines, &[1, 2, 3, 5, 6, 8]).await;
    router.observers_agree().await;
    load.none_failed().await;
    assert_eq!(router.counted("tandem_discovery_drift_total", None).await, 0, "all of it by events");
}

async fn served_again(engines: &Engines, which: &[usize]) {
    let since = now();
    super::super::until("requests again", Duration::from_secs(5), || async {
        let idle: Vec<usize> = which.iter().copied().filter(|i| engines.after(*i, since) == 0).collect();
        if idle.is_empty() { Ok(()) } else { Err(idle) }
    })
    .await;
}
