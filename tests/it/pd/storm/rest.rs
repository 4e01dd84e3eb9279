//! What is left when a round is over: nothing.

use std::collections::HashMap;

use tandem::types::outcome::Outcome;

use super::world::World;

/// Holds, hand-offs, permits, buffered bytes: every one exactly zero.
pub(super) fn router(world: &World) -> Result<(), String> {
    let router = &world.router;
    let mut left = Vec::new();
    let mut zero = |what: &str, n: u64| {
        if n != 0 {
            left.push(format!("{what} {n}"));
        }
    };
    for endpoint in router.endpoints() {
        zero(&format!("holds on {}", endpoint.url), endpoint.holds());
        zero(&format!("hand-offs of {}", endpoint.url), endpoint.handoffs.count());
    }
    zero("permits", router.shared.in_flight.used());
    zero("buffered bytes", router.shared.buffered.used());
    if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
}

/// No request, room, page or lease; no connection but those that wait in the router's pools.
pub(super) fn engines(world: &World) -> Result<(), String> {
    let (mut left, mut open) = (Vec::new(), 0);
    for host in world.hosts() {
        let engine = host.engine();
        let state = engine.state();
        if !(state.is_idle() && state.pages_dirty == 0 && state.pages_deferred == 0 && state.blocks_held == 0)
        {
            left.push(format!("{}: {state:?}", host.name));
        }
        open += engine.log.read(|records| records.conns.iter().filter(|c| c.closed_at.is_none()).count());
    }
    let pooled: usize = world.router.endpoints().iter().map(|endpoint| endpoint.pool.len()).sum();
    if open > pooled {
        left.push(format!("{open} connections, {pooled} in pools"));
    }
    if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
}

/// No engine, living or dead, answered from wrong, late or shared KV.
pub(super) fn corrupted(world: &World) {
    for host in world.hosts() {
        for life in &host.lives {
            let state = life.state();
            for name in
                ["corrupted", "mismatched", "dirtied", "stale_pulls", "duplicate_rooms", "fatal_params"]
            {
                // The pages of an engine that was killed went with it.
                let gone = name == "dirtied" && life.is_dead();
                assert!(gone || state.count(name) == 0, "{name} {} at {}", state.count(name), host.name);
            }
        }
    }
}

/// As many requests of each outcome as the clients' own view asks for: their sum is the requests that were sent.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts")]
pub(super) fn tally(world: &World, wanted: &HashMap<String, &'static str>) -> Result<(), String> {
    let scrape = world.router.scrape();
    for outcome in Outcome::ALL.map(Outcome::as_str) {
        let counted = scrape.sum("tandem_requests_total", &[("outcome", outcome)]) as usize;
        let wanted = wanted.values().filter(|wanted| **wanted == outcome).count();
        if counted != wanted {
            return Err(format!("{counted} requests are {outcome}, not {wanted}"));
        }
    }
    Ok(())
}

/// One access line for each request, with the outcome that the client's own view asks for, and no more attempts than the
/// retries allow; the same sums in the metrics.
#[expect(clippy::cast_precision_loss, reason = "a count of requests")]
pub(super) fn outcomes(world: &World, wanted: &HashMap<String, &'static str>) {
    let scrape = world.router.scrape();
    assert_eq!(scrape.sum("tandem_requests_total", &[]), wanted.len() as f64);
    let lines = world.router.access_lines();
    assert_eq!(lines.len(), wanted.len());
    let mut retries = 0;
    for line in &lines {
        let id = line["request_id"].as_str().unwrap();
        assert_eq!(line["outcome"].as_str(), wanted.get(id).copied(), "{line}");
        let attempts = line["attempts"].as_u64().unwrap();
        assert!(attempts <= 3, "{line}");
        retries += attempts.saturating_sub(1);
    }
    assert_eq!(scrape.sum("tandem_retries_total", &[]), retries as f64);
    assert_eq!(scrape.sum("tandem_retry_budget_exhausted_total", &[]), 0.0);
}

/// One outcome for each leg: those that are an engine's doing are at most the legs that the engines had, and all of them,
/// with what was never sent or ended by us, at least.
#[expect(clippy::cast_precision_loss, reason = "a count of requests")]
pub(super) fn legs(world: &World, seen: [usize; 2]) {
    let scrape = world.router.scrape();
    for (role, seen) in ["prefill", "decode"].into_iter().zip(seen) {
        let sum = |labels: &[(&str, &str)]| {
            let labels = [&[("role", role)], labels].concat();
            scrape.sum("tandem_endpoint_requests_total", &labels)
        };
        let done = ["ok", "rejected", "busy", "error", "timeout"].map(|outcome| sum(&[("outcome", outcome)]));
        let (done, all) = (done.iter().sum::<f64>(), sum(&[]));
        assert!((done..=all).contains(&(seen as f64)), "{role}: {done} of {all} for {seen} at the engines");
    }
}
