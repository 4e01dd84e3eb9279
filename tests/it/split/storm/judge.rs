//! What the engines got, held against every split there was and against each other.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use tandem::testkit::engine::RecordedRequest;
use tandem::types::clock::Instant;

use super::clients::SENT_AT;
use super::host::{Facts, KINDS, Kind, kv};
use super::splits::Splits;
use super::world::World;
use crate::split::rig::CHAT;

/// One leg, as its engine saw it.
struct Leg {
    at: Facts,
    /// The router's, the same for each leg of a request.
    id: String,
    version: u64,
    /// What both legs of an attempt have in common, and no other: whose KV it is, or the room.
    pair: String,
    when: Instant,
}

/// What there was, and what of it must not be.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) legs: usize,
    /// Attempts of which both legs were seen, by release and token.
    pub(super) pairs: BTreeMap<(Kind, &'static str, &'static str), usize>,
    /// Further attempts, those of them that went to another cohort, and those that stayed though there was another.
    pub(super) again: usize,
    pub(super) moved: usize,
    pub(super) stayed: usize,
    /// Moves from a cohort that could have taken it.
    pub(super) strayed: usize,
    pub(super) wrong: Vec<String>,
}

impl Verdict {
    fn expect(&mut self, holds: bool, wrong: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(wrong());
        }
    }
}

pub(super) fn judge(world: &World, splits: &Splits, lines: &[Value]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut legs = Vec::new();
    for host in &world.hosts {
        for request in host.engine.log.requests_to(CHAT) {
            legs.push(leg(host.facts, &request, splits, &mut verdict));
        }
    }
    verdict.legs = legs.len();
    pairs(&legs, &mut verdict);
    attempts(world, splits, &legs, &mut verdict);
    told(&legs, splits, lines, &mut verdict);
    verdict
}

/// One leg, and whether the split that its attempt was decided on lets it be there.
fn leg(at: Facts, request: &RecordedRequest, splits: &Splits, verdict: &mut Verdict) -> Leg {
    let header = |name| request.headers.get(name).unwrap_or_default().to_owned();
    let (id, cohort) = (header("x-request-id"), header("x-tandem-cohort"));
    let version: u64 = header("x-tandem-split-version").parse().unwrap_or(0);
    let sent: u64 = header(SENT_AT).parse().unwrap_or(u64::MAX);
    verdict.expect(cohort == at.release, || format!("{id}: for {cohort:?}, and at {at:?}"));
    let weight = splits.weight(at.kind, version, at.release);
    verdict.expect(weight.is_some(), || format!("{id}: no split {version}, at {at:?}"));
    verdict.expect(weight != Some(0), || format!("{id}: at 0 in split {version}, at {at:?}"));
    verdict.expect(version >= sent, || format!("{id}: sent under {sent}, decided on {version}, at {at:?}"));
    let body = request.json();
    let pair = match at.kind {
        Kind::Rooms => body["bootstrap_room"].as_u64().map(|room| room.to_string()),
        Kind::Pull if at.prefill => Some(kv(at, request)),
        Kind::Pull => body["kv_transfer_params"]["remote_engine_id"].as_str().map(str::to_owned),
    };
    verdict.expect(pair.is_some(), || format!("{id}: of no pair, at {at:?}"));
    let id = id.get(17..).unwrap_or_default().to_owned();
    Leg { at, id, version, pair: pair.unwrap_or_default(), when: request.head_at }
}

/// Both legs of an attempt are of one cohort, one token and one decision.
fn pairs(legs: &[Leg], verdict: &mut Verdict) {
    let mut prefills = HashMap::new();
    for leg in legs.iter().filter(|leg| leg.at.prefill) {
        let before = prefills.insert((leg.at.kind, &leg.pair), leg);
        verdict.expect(before.is_none(), || format!("{}: two prefills of one attempt", leg.id));
    }
    for d in legs.iter().filter(|leg| !leg.at.prefill) {
        let Some(p) = prefills.get(&(d.at.kind, &d.pair)) else {
            // SGLang's are sent at once: one of them may never have arrived.
            verdict.expect(d.at.kind == Kind::Rooms, || format!("{}: nobody's KV, at {:?}", d.id, d.at));
            continue;
        };
        let same =
            (p.at.release, p.at.token, p.version, &p.id) == (d.at.release, d.at.token, d.version, &d.id);
        verdict.expect(same, || {
            format!("{}: {:?} by {} and {:?} by {}", d.id, p.at, p.version, d.at, d.version)
        });
        *verdict.pairs.entry((d.at.kind, d.at.release, d.at.token)).or_default() += 1;
    }
}

fn attempts(world: &World, splits: &Splits, legs: &[Leg], verdict: &mut Verdict) {
    let mut by_id = HashMap::<&str, Vec<&Leg>>::new();
    for leg in legs {
        by_id.entry(&leg.id).or_default().push(leg);
    }
    for all in by_id.values_mut() {
        all.sort_by_key(|leg| leg.when);
        let attempts: Vec<&Leg> = all.iter().filter(|leg| leg.at.prefill).copied().collect();
        verdict.again += attempts.len().saturating_sub(1);
        for two in attempts.windows(2) {
            if two[0].at.release == two[1].at.release {
                verdict.stayed += 1;
                continue;
            }
            verdict.moved += 1;
            let given = splits.weight(two[1].at.kind, two[1].version, two[0].at.release);
            if given.is_some_and(|weight| weight > 0) && could_stay(world, all, two[0], two[1]) {
                verdict.strayed += 1;
            }
        }
        // A later attempt is decided on what is newer.
        for two in attempts.windows(2) {
            verdict.expect(two[0].version <= two[1].version || two[0].when == two[1].when, || {
                let each = two.iter().map(|leg| format!("{:?} {} {:?}", leg.when, leg.version, leg.at));
                format!(
                    "{}: an attempt on an older split than the one before: {:#?}",
                    two[0].id,
                    each.collect::<Vec<_>>()
                )
            });
        }
    }
}

/// Whether a pair of the first leg's cohort that this request had not used was well all the while between them.
fn could_stay(world: &World, used: &[&Leg], from: &Leg, to: &Leg) -> bool {
    let first = world.well.partition_point(|(at, _)| *at < from.when).saturating_sub(1);
    let last = world.well.partition_point(|(at, _)| *at <= to.when).min(world.well.len() - 1);
    let mut looks = world.well[first..=last].iter().map(|(_, well)| well);
    let well = looks.next().cloned().unwrap_or_default();
    let well = looks.fold(well, |all, look| all.intersection(look).copied().collect());
    let free = |prefill: bool| {
        let all = well.iter().map(|n| world.hosts[*n].facts);
        let of =
            all.filter(move |f| (f.kind, f.release, f.prefill) == (from.at.kind, from.at.release, prefill));
        of.filter(|facts| used.iter().all(|leg| leg.at.number != facts.number)).collect::<Vec<_>>()
    };
    let decodes = free(false);
    free(true).iter().any(|p| decodes.iter().any(|d| d.token == p.token))
}

/// The access log says the same: no cohort at 0, and the one that served.
fn told(legs: &[Leg], splits: &Splits, lines: &[Value], verdict: &mut Verdict) {
    let mut decodes = HashMap::<&str, Vec<&Leg>>::new();
    for leg in legs.iter().filter(|leg| !leg.at.prefill) {
        decodes.entry(&leg.id).or_default().push(leg);
    }
    for line in lines {
        let word = |key: &str| line[key].as_str().unwrap_or_default();
        let (Some(kind), Some(version)) =
            (KINDS.into_iter().find(|kind| kind.name() == word("service")), line["split_version"].as_u64())
        else {
            continue;
        };
        let (cohort, id) = (word("cohort"), word("request_id"));
        let weight = splits.weight(kind, version, cohort);
        verdict.expect(weight.is_some_and(|weight| weight > 0), || format!("{weight:?}: {line}"));
        if word("outcome") == "ok" && line["status"] == 200 {
            let served = decodes.get(id).is_some_and(|legs| {
                legs.iter().any(|leg| leg.at.release == cohort && leg.version == version)
            });
            verdict.expect(served, || format!("no such leg: {line}"));
        }
    }
}
