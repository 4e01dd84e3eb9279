//! The storm: weights and Pods change under load until every client is done; then the logs are judged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tandem::types::clock::now;
use tokio::time::sleep;

use super::clients::{Load, start};
use super::host::{KINDS, Kind, RELEASES};
use super::judge::{Verdict, judge};
use super::ms;
use super::splits::Splits;
use super::world::World;

/// Requests of one seed, in CI and at full size; and the seeds.
const REQUESTS: (u64, u64) = (8_000, 40_000);
/// So many seeds follow the one of each test at full size.
const MORE: u64 = 10;

pub(super) async fn seeds(first: u64) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let full = crate::replay::scale(false, true);
    let requests = number("SPLIT_STORM_REQUESTS").unwrap_or(if full { REQUESTS.1 } else { REQUESTS.0 });
    let seeds = match number("SPLIT_STORM_SEED") {
        Some(seed) => vec![seed],
        None => (first..=first + if full { MORE } else { 0 }).collect(),
    };
    for seed in seeds {
        play(seed, requests).await;
    }
}

async fn play(seed: u64, requests: u64) {
    fastrand::seed(seed);
    let mut world = World::new(seed);
    while world.selectable() < world.places() {
        sleep(ms(10)).await;
    }
    let (mut random, mut splits, load) =
        (fastrand::Rng::with_seed(seed), Splits::new(), Arc::new(Load::default()));
    let mut clients = start(seed, requests, &world.net, &load);
    let began = now();
    let mut turn = 0_u64;
    while !clients.is_empty() {
        sleep(ms(10)).await;
        while let Some(client) = clients.try_join_next() {
            client.unwrap();
        }
        world.tick().await;
        world.step();
        turn += 1;
        if turn.is_multiple_of(5) {
            let (kind, version) = splits.change(&world.router, &mut random).await;
            let at = KINDS.iter().position(|is| *is == kind).unwrap();
            load.versions[at].store(version, Ordering::Relaxed);
        }
    }
    let lines = world.router.access_lines();
    let verdict = judge(&world, &splits, &lines);
    println!(
        "SPLIT_STORM_SEED={seed}: {requests} requests in {:?}, answered {:?}; {} legs, {} again: {} stayed, {} in \
         another cohort, {} of them strayed; pairs {:?}; \
         {} splits, at 0 {:?}; {} engines, {:?}",
        now() - began,
        load.answers.lock(),
        verdict.legs,
        verdict.again,
        verdict.stayed,
        verdict.moved,
        verdict.strayed,
        verdict.pairs,
        splits.count(),
        splits.zeros,
        world.hosts.len(),
        world.done,
    );
    let wrong = &verdict.wrong;
    let first: Vec<_> = wrong.iter().take(10).collect();
    assert!(wrong.is_empty(), "SPLIT_STORM_SEED={seed}: {} wrong, such as {first:#?}", wrong.len());
    // An attempt that reached no engine is in no log: what comes after it seems to have strayed from the one before.
    let (strayed, moved) = (verdict.strayed, verdict.moved);
    assert!(
        strayed * 30 <= moved,
        "SPLIT_STORM_SEED={seed}: {strayed} of {moved} had no need to leave their cohort"
    );
    happened(seed, requests, &world, &splits, &verdict, &load);
    // A scripted decode of a room answers without its prefill, which no real one does: it is not held to one execution.
    let of = |once: bool| {
        let all =
            world.hosts.iter().map(move |host| (host, !host.facts.prefill && host.facts.kind == Kind::Pull));
        all.filter(|(_, is)| *is == once).map(|(host, _)| &host.engine).collect::<Vec<_>>()
    };
    world.router.assert_pair_invariants(&of(false), &of(true)).await;
}

/// A storm in which too little happens proves nothing.
fn happened(seed: u64, requests: u64, world: &World, splits: &Splits, verdict: &Verdict, load: &Load) {
    let at_least = |what: &str, n: u64, least: u64| {
        assert!(n >= least, "SPLIT_STORM_SEED={seed}: {n} {what}, and not {least}");
    };
    let answers = load.answers.lock();
    at_least("good answers", answers.get(&200).copied().unwrap_or(0), requests / 2);
    at_least("refusals", answers.get(&503).copied().unwrap_or(0), 1);
    at_least("further attempts", verdict.again as u64, requests / 50);
    at_least("of them in the same cohort", verdict.stayed as u64, requests / 100);
    at_least("of them in another cohort", verdict.moved as u64, 5);
    at_least("splits", splits.count() as u64, requests / 50);
    for (release, zeros) in RELEASES.iter().zip(splits.zeros) {
        at_least(&format!("splits with {release} at 0"), zeros, requests / 200);
    }
    at_least("deletions", world.done.deletions, requests / 200);
    // Two tokens of the third release, one of each other.
    for kind in KINDS {
        let of = verdict.pairs.iter().filter(|((is, ..), _)| *is == kind);
        at_least("kinds of pairs", of.clone().count() as u64, 4);
        for (pair, n) in of {
            at_least(&format!("pairs of {pair:?}"), *n as u64, requests / 200);
        }
    }
}
