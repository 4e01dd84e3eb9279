//! B97: requests one after the other are shared by the weights too, on one connection and on one each, also while a cohort
//! is away.

use tandem::testkit::fixtures::{chat_body, post};

use super::draws::rig;
use super::rig::*;

/// χ² that one in a thousand honest samples exceeds, by degrees of freedom.
const BOUND: [f64; 3] = [f64::NAN, 10.828, 13.816];

#[derive(Debug, Clone, Copy)]
enum Connections {
    One,
    OneEach,
}

/// So many requests; how many of them each revision served.
async fn counts(rig: &Rig, n: usize, connections: Connections) -> Vec<usize> {
    let before: Vec<usize> = rig.engines.iter().map(|(_, engine)| engine.log.request_count()).collect();
    let request = post(CHAT, &[], chat_body("m", false));
    let mut client = rig.client().await;
    for _ in 0..n {
        if matches!(connections, Connections::OneEach) {
            client = rig.client().await;
        }
        assert_eq!(client.request(&request).await.unwrap().status(), 200);
    }
    rig.engines.iter().zip(before).map(|((_, engine), before)| engine.log.request_count() - before).collect()
}

/// Against the weights of those that are there; nothing went to the others.
fn chi_square(counts: &[usize], weights: &[u64]) -> f64 {
    let (sum, of) = (weights.iter().sum::<u64>() as f64, counts.iter().sum::<usize>() as f64);
    let part = |(count, weight): (&usize, &u64)| {
        let expected = of * *weight as f64 / sum;
        if *weight == 0 {
            assert_eq!(*count, 0, "{counts:?} of {weights:?}");
            return 0.0;
        }
        (*count as f64 - expected).powi(2) / expected
    };
    counts.iter().zip(weights).map(part).sum()
}

/// p > 0.001. An honest router exceeds the bound once in a thousand samples: one that does has to be as good the next time.
async fn are_shared(rig: &Rig, n: usize, connections: Connections, weights: &[u64]) {
    let bound = BOUND[weights.iter().filter(|weight| **weight > 0).count() - 1];
    let first = counts(rig, n, connections).await;
    if chi_square(&first, weights) <= bound {
        return;
    }
    let again = counts(rig, n, connections).await;
    let chi = chi_square(&again, weights);
    assert!(chi <= bound, "{n} requests, {connections:?}: {first:?}, {again:?} of {weights:?}: {chi}");
}

#[tokio::test(start_paused = true)]
async fn b97_sequential_requests_are_shared_by_the_weights_whatever_the_connection() {
    fastrand::seed(97);
    let rig = rig(&[70, 30]).await;
    for connections in [Connections::One, Connections::OneEach] {
        for n in [100, 1000, 10_000] {
            are_shared(&rig, n, connections, &[70, 30]).await;
        }
    }
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn b97_what_an_absent_cohort_would_get_is_shared_by_the_others_until_it_is_back() {
    fastrand::seed(98);
    let rig = rig(&[60, 30, 10]).await;
    for (away, left, connections) in [
        (0, [0, 30, 10], Connections::One),
        (1, [60, 0, 10], Connections::OneEach),
        (2, [60, 30, 0], Connections::One),
    ] {
        rig.mark(away, false).await;
        are_shared(&rig, 1000, connections, &left).await;
        rig.mark(away, true).await;
        are_shared(&rig, 1000, connections, &[60, 30, 10]).await;
    }
    rig.end().await;
}
