use super::*;

const KEYS: u64 = 100_000;

fn key(n: u64) -> StickyKey {
    StickyKey::new("chat", format!("session-{n}").as_bytes())
}

/// Where each key goes.
fn homes(cohorts: &[(&'static str, u64)]) -> Vec<&'static str> {
    (0..KEYS).map(|n| cohorts[key(n).first(cohorts.iter().copied()).unwrap()].0).collect()
}

fn share(homes: &[&str], name: &str) -> f64 {
    homes.iter().filter(|home| **home == name).count() as f64 / KEYS as f64
}

#[test]
fn keys_are_shared_as_the_weights_say() {
    for (cohorts, wanted) in [
        (&[("a", 90), ("b", 10)][..], 0.9),
        (&[("a", 1), ("b", 1)], 0.5),
        (&[("a", 1), ("b", 1), ("c", 2)], 0.25),
    ] {
        let found = share(&homes(cohorts), "a");
        assert!((found - wanted).abs() < 0.01, "{found}, not {wanted}");
    }
}

#[test]
fn no_order_of_the_list_matters() {
    let (one, other) = (homes(&[("a", 5), ("b", 3), ("c", 2)]), homes(&[("c", 2), ("a", 5), ("b", 3)]));
    assert_eq!(one, other);
}

/// As one weight grows keys only move towards it; a cohort that goes gives its keys to the others, and gets them back.
#[test]
fn keys_move_no_more_than_they_must() {
    let before = homes(&[("old", 90), ("new", 10)]);
    let after = homes(&[("old", 90), ("new", 30)]);
    let moved = before.iter().zip(&after).filter(|(a, b)| a != b);
    assert!(moved.clone().count() > 1000 && moved.clone().all(|(_, to)| *to == "new"));
    let all = homes(&[("a", 2), ("b", 1), ("c", 1)]);
    let without = homes(&[("a", 2), ("c", 1)]);
    assert!(all.iter().zip(&without).all(|(home, now)| home == now || *home == "b"));
}

/// The hash is fixed: another build that sent keys elsewhere would move every session of a fleet that is being rolled.
/// A client can send megabytes; what counts of them is bounded, and two that begin alike are one session.
#[test]
fn only_the_first_bytes_of_a_value_count() {
    let (long, longer) = (vec![b'x'; LONGEST], vec![b'x'; LONGEST + 1]);
    assert_eq!(StickyKey::new("s", &long).0, StickyKey::new("s", &longer).0);
    assert_ne!(StickyKey::new("s", &long[1..]).0, StickyKey::new("s", &long).0);
}

#[test]
fn the_hash_is_version_1() {
    let two = [("kv-v1", 50), ("kv-v2", 50)];
    let homes: String =
        (0..32).map(|n| if key(n).first(two.into_iter()) == Some(0) { '1' } else { '2' }).collect();
    assert_eq!(homes, "22112112111111111211112211212212");
    assert_ne!(StickyKey::new("ab", b"c").0, StickyKey::new("a", b"bc").0);
}
