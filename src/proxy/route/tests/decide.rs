//! R3: shares are the weights', and zero is zero. What needs endpoints is in `tests/it/split`.

use super::drawn;

const DRAWS: u64 = 1_000_000;

fn counts(weights: &[u64]) -> Vec<u64> {
    fastrand::seed(7);
    let mut counts = vec![0; weights.len()];
    for _ in 0..DRAWS {
        counts[drawn(weights.iter().copied()).unwrap()] += 1;
    }
    counts
}

#[test]
fn a_million_draws_are_shared_as_the_weights_say() {
    for weights in [&[90, 10][..], &[1, 1], &[1, 999_999], &[50, 30, 20], &[1_000_000; 64]] {
        let sum: u64 = weights.iter().sum();
        for (count, weight) in counts(weights).into_iter().zip(weights) {
            let share = *weight as f64 / sum as f64;
            let deviation = (DRAWS as f64 * share * (1.0 - share)).sqrt();
            let off = (count as f64 - DRAWS as f64 * share).abs();
            assert!(off <= 5.0 * deviation + 1.0, "{weights:?}: {count} for {weight}, {off} off");
        }
    }
}

#[test]
fn zero_is_never_drawn_and_all_always() {
    assert_eq!(counts(&[0, 5, 0]), [0, DRAWS, 0]);
    assert_eq!(counts(&[0, 1, 3])[0], 0);
    assert_eq!(drawn([0, 0].into_iter()), None);
    assert_eq!(drawn(std::iter::empty()), None);
}
