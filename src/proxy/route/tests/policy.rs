//! The choice of the least loaded.

use super::*;
use crate::config::StaticEndpoint;
use crate::metrics::{Metrics, Vocabulary};
use crate::registry::Writer;

const DRAWS: u64 = 40_000;

/// Takes `DRAWS` holds, each given back at once, among endpoints that already carry so many requests; how often each was chosen.
fn chosen(carried: &[usize], usable: impl Fn(usize) -> bool) -> Vec<u64> {
    let at = |n: usize| StaticEndpoint::parse(&format!("http://10.0.{}.{}:8000", n / 250, n % 250)).unwrap();
    let config = crate::config::Service::plain("llm", (0..carried.len()).map(at).collect());
    let words = Vocabulary { routes: &["chat"], error_codes: &[], retry_reasons: &[], phases: &["running"] };
    let metrics = Metrics::new(&words).unwrap();
    let view = Writer::new(&[config], 1, &metrics.endpoints).1;
    let service = Arc::clone(&view.load().services[0]);
    let all = service.cohorts[0].of(Role::Mixed);
    let kept = all.iter().zip(carried).flat_map(|(e, n)| (0..*n).map(|_| Hold::take(e).unwrap()));
    let _kept: Vec<_> = kept.collect();
    // Numbered one after the other as they were made.
    let place = |e: &Endpoint| usize::try_from(e.id - all[0].id).unwrap();
    assert!(all.iter().enumerate().all(|(n, e)| place(e) == n));
    let mut counts = vec![0; all.len()];
    for _ in 0..DRAWS {
        let hold = least(all, &|e: &Endpoint| usable(place(e))).unwrap();
        counts[place(hold.endpoint())] += 1;
    }
    counts
}

/// Those of the lowest load share alike (five standard deviations), and nobody else gets any.
fn shares_alike(carried: &[usize], usable: impl Fn(usize) -> bool + Copy) {
    let lowest = (0..carried.len()).filter(|n| usable(*n)).map(|n| carried[n]).min().unwrap();
    let is_tie = |n: usize| usable(n) && carried[n] == lowest;
    let ties = (0..carried.len()).filter(|n| is_tie(*n)).count();
    let mean = DRAWS as f64 / ties as f64;
    for (n, count) in chosen(carried, usable).into_iter().enumerate() {
        let off = (count as f64 - mean).abs();
        assert!(if is_tie(n) { off <= 5.0 * mean.sqrt() } else { count == 0 }, "{n}: {count}, mean {mean}");
    }
}

#[test]
fn the_least_loaded_share_alike_however_many_they_are() {
    fastrand::seed(8);
    let all = |_: usize| true;
    shares_alike(&[0; 200], all);
    shares_alike(&[1; 200], all);
    let rare: Vec<usize> = (0..200).map(|n| usize::from(n % 41 != 0)).collect();
    shares_alike(&rare, all);
    let many: Vec<usize> = (0..200).map(|n| 2 - usize::from(n % 2 == 0)).collect();
    shares_alike(&many, all);
    for ties in [FEW_TIES, FEW_TIES + 1] {
        let few: Vec<usize> = (0..200).map(|n| if n % 20 == 0 && n / 20 < ties { 1 } else { 2 }).collect();
        shares_alike(&few, all);
    }
    shares_alike(&[0; 200], |n| n > 150);
    shares_alike(&many, |n| n % 3 == 0 && n > 9);
    shares_alike(&[3, 2, 2, 9], all);
}

#[test]
fn where_none_is_usable_none_is_chosen() {
    assert!(least(&[], &|_| true).is_none());
    let left_out = std::panic::catch_unwind(|| chosen(&[0, 0], |_| false));
    assert!(left_out.is_err(), "there was one to choose");
}
