//! Draws without number, on the function that requests are decided by and a router's own snapshot (R3).

use std::sync::Arc;

use tandem::config::{EngineKind, SplitEntry};
use tandem::proxy::route::{Excluded, StickyKey, decide};
use tandem::registry::{Need, Role, Service};

use super::rig::*;

pub(super) const DRAWS: u64 = 1_000_000;
pub(super) const MIXED: Need = Need::One(Role::Mixed);

/// Revisions with an engine each.
pub(super) const REVISIONS: [&str; 4] = ["r1", "r2", "r3", "r4"];

pub(super) fn weights(of: &[u64]) -> Vec<SplitEntry> {
    REVISIONS.iter().zip(of).map(|(name, weight)| revision(name, *weight)).collect()
}

pub(super) async fn rig(of: &[u64]) -> Rig {
    let all: Vec<Is> = REVISIONS[..of.len()].iter().map(|name| Is("mixed", name, "")).collect();
    Rig::start(EngineKind::Plain, &all, Some(weights(of)), |_| {}).await
}

/// Position of the cohort that a request with this key, or without one, is decided for.
pub(super) fn chosen(service: &Service, key: Option<&StickyKey>) -> usize {
    let decision = decide(service, MIXED, key, &Excluded::default(), None).unwrap();
    service.cohorts.iter().position(|cohort| Arc::ptr_eq(cohort, &decision.cohort)).unwrap()
}

/// How often each cohort is chosen by so many requests without a key.
fn drawn(service: &Service, draws: u64) -> Vec<u64> {
    let mut counts = vec![0; service.cohorts.len()];
    (0..draws).for_each(|_| counts[chosen(service, None)] += 1);
    counts
}

/// Within three deviations of the weights; nothing at 0, and everything where only one has a weight.
pub(super) fn assert_shares(counts: &[u64], weights: &[u64]) {
    let (sum, of) = (weights.iter().sum::<u64>() as f64, counts.iter().sum::<u64>() as f64);
    for (count, weight) in counts.iter().zip(weights) {
        let share = *weight as f64 / sum;
        let off = (*count as f64 - of * share).abs();
        assert!(off <= 3.0 * (of * share * (1.0 - share)).sqrt(), "{counts:?} of {weights:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn b93_shares_of_a_million_draws_are_the_weights_and_zero_is_exact() {
    for (seed, of) in [
        (1, &[100, 0][..]),
        (2, &[0, 100]),
        (3, &[50, 50]),
        (4, &[99, 1]),
        (5, &[1, 1, 1]),
        (6, &[1, 0, 999_999]),
    ] {
        let rig = rig(of).await;
        fastrand::seed(seed);
        assert_shares(&drawn(&rig.service(), DRAWS), of);
        // Nothing to draw from is an answer, not a panic.
        rig.put(weights(&vec![0; of.len()]), None).await;
        assert!(decide(&rig.service(), MIXED, None, &Excluded::default(), None).is_err());
    }
}

/// Four routers that came to their weights in different ways, four threads at each.
#[tokio::test(start_paused = true)]
async fn b94_nothing_at_zero_and_everything_at_a_hundred_on_every_thread_of_every_router() {
    let rigs = [rig(&[0, 100]).await, rig(&[0, 100]).await, rig(&[50, 50]).await, rig(&[100, 0]).await];
    // One was put by hand, one has seen other Pods.
    rigs[2].put(weights(&[0, 100]), None).await;
    rigs[3].put(weights(&[0, 3]), None).await;
    rigs[1].mark(0, false).await;
    rigs[1].mark(0, true).await;
    let draws = DRAWS / 16;
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let services = rigs.iter().map(Rig::service);
        let threads = services.enumerate().flat_map(|(n, service)| {
            (0..4).map(move |thread| {
                let service = Arc::clone(&service);
                scope.spawn(move || {
                    fastrand::seed(16 * n as u64 + thread);
                    let keyed =
                        (0..draws / 2).map(|k| StickyKey::new("chat", &(k * 16 + thread).to_le_bytes()));
                    let keyed = keyed.filter(|key| chosen(&service, Some(key)) == 0).count();
                    keyed as u64 + drawn(&service, draws / 2)[0]
                })
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(counts, [0; 16], "requests at 0, by thread");
}
