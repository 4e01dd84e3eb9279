//! Where sessions go as a canary grows (B98), and how even many of them are (R3).

use tandem::config::EngineKind;
use tandem::proxy::route::StickyKey;
use tandem::registry::Service;

use super::draws::{DRAWS, assert_shares, chosen, rig, weights};
use super::rig::*;

/// Sessions of the row.
const KEYS: u64 = 10_000;

fn key(service: &str, n: u64) -> StickyKey {
    StickyKey::new(service, format!("session-{n}").as_bytes())
}

/// Position of each key's cohort.
fn homes(service: &Service, of: &str) -> Vec<usize> {
    (0..KEYS).map(|n| chosen(service, Some(&key(of, n)))).collect()
}

fn share(homes: impl ExactSizeIterator<Item = bool>) -> f64 {
    let all = homes.len() as f64;
    homes.filter(|yes| *yes).count() as f64 / all
}

#[tokio::test(start_paused = true)]
async fn b98_sessions_move_to_a_growing_canary_and_never_back() {
    let rig = rig(&[95, 5]).await;
    let mut before = vec![0; KEYS as usize];
    for percent in [5, 20, 50] {
        rig.put(weights(&[100 - percent, percent]), None).await;
        let service = rig.service();
        let now = homes(&service, "chat");
        let wanted = percent as f64 / 100.0;
        assert!(before.iter().zip(&now).all(|(was, is)| is >= was), "{percent} %: a session came back");
        let canary = share(now.iter().map(|home| *home == 1));
        assert!((canary - wanted).abs() < 0.02, "{canary} at {percent} %");
        // Without a key a request is drawn, whoever asked before.
        fastrand::seed(percent);
        let keyless: Vec<usize> = (0..KEYS).map(|_| chosen(&service, None)).collect();
        let canary = share(keyless.iter().map(|home| *home == 1));
        assert!((canary - wanted).abs() < 0.02, "{canary} of the keyless at {percent} %");
        let alike = share(keyless.iter().zip(&now).map(|(a, b)| a == b));
        let chance = wanted * wanted + (1.0 - wanted) * (1.0 - wanted);
        assert!((alike - chance).abs() < 0.02, "{alike} are alike, by chance {chance}");
        // The same values at another service are other keys.
        let other = homes(&service, "other");
        let alike = share(other.iter().zip(&now).map(|(a, b)| a == b));
        assert!((alike - chance).abs() < 0.02, "{alike} are alike at two services, by chance {chance}");
        before = now;
    }
    // As it shrinks again sessions only leave it.
    rig.put(weights(&[90, 10]), None).await;
    let now = homes(&rig.service(), "chat");
    assert!(before.iter().zip(&now).all(|(was, is)| is <= was));
}

/// The first 1,024 bytes of a value count, and no more: longer ones that begin alike are one session.
#[tokio::test(start_paused = true)]
async fn b98_a_long_value_counts_to_its_bound_and_no_further() {
    let all = [Is("mixed", "r1", ""), Is("mixed", "r2", "")];
    let split = Some(vec![revision("r1", 1), revision("r2", 1)]);
    let rig = Rig::start(EngineKind::Plain, &all, split, |service| {
        service.sticky.headers = vec!["x-session-id".to_owned()];
    })
    .await;
    // How many cohorts serve these values, each asked for three times.
    let cohorts = async |values: Vec<String>| {
        let before = rig.seen("mixed");
        for value in values {
            let line = format!("x-session-id: {value}");
            assert!(rig.ask(3, &[&line]).await.iter().all(|reply| reply.status == 200));
        }
        rig.seen("mixed").into_iter().filter(|(name, count)| *count > before[name]).count()
    };
    let (short, long) = ("s".repeat(1022), "s".repeat(32 * 1024));
    for n in 10..26 {
        assert_eq!(cohorts(vec![format!("{short}{n}")]).await, 1, "a session is at two cohorts");
    }
    assert_eq!(cohorts((10..26).map(|n| format!("{short}{n}")).collect()).await, 2, "up to the bound");
    assert_eq!(cohorts((10..26).map(|n| format!("{short}ss{n}")).collect()).await, 1, "beyond it");
    assert_eq!(cohorts((10..26).map(|n| format!("{long}{n}")).collect()).await, 1, "far beyond it");
    // And no value is longer than a head may be.
    let line = format!("x-session-id: {}", "s".repeat(70 * 1024));
    let before = rig.seen("mixed");
    assert_eq!(rig.ask(1, &[&line]).await[0].status, 431);
    assert_eq!(rig.seen("mixed"), before);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_million_sessions_are_shared_as_the_weights_say() {
    for of in [&[90, 10][..], &[1, 1, 1], &[100, 0], &[0, 1, 2]] {
        let rig = rig(of).await;
        let service = rig.service();
        let mut counts = vec![0; of.len()];
        (0..DRAWS).for_each(|n| counts[chosen(&service, Some(&key("chat", n)))] += 1);
        assert_shares(&counts, of);
    }
}
