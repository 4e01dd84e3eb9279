//! What the engines recorded: how many requests of each split each release got, and whether both legs of a request were of
//! one. The router has no part in it but the headers in which it says what it decided.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::super::engines::{Engines, Member};
use super::RELEASES;
use crate::engine::{Records, Seen};

/// Where requests go: both legs of a pair, on either wire.
const PATH: &str = "/v1/chat/completions";
/// Requests whose other leg may still come.
const OPEN: usize = 4096;
/// Decodes of one request: an attempt may replace its own.
const LEGS: usize = 8;

/// Requests of one split, by release.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) prefills: [u64; 2],
    pub(super) decodes: [u64; 2],
    /// Decodes whose prefill was of their own release.
    pub(super) paired: u64,
    /// Of the other one.
    pub(super) crossed: u64,
}

impl Count {
    pub(super) fn requests(&self) -> u64 {
        self.decodes.iter().sum()
    }
}

/// Reads the engines' records on from where it was.
#[derive(Debug, Default)]
pub(super) struct Witness {
    /// First record of each engine that was not seen yet.
    next: HashMap<(bool, usize), u64>,
    open: HashMap<String, Legs>,
    /// Their ids, oldest first.
    order: VecDeque<String>,
    by_version: BTreeMap<u64, Count>,
}

/// The legs of one request, each with its release; decodes that wait for their prefill also with their version.
#[derive(Debug, Default)]
struct Legs {
    prefill: Option<usize>,
    decodes: Vec<(usize, u64)>,
}

/// One leg, as an engine recorded it.
#[derive(Debug)]
struct Leg {
    id: String,
    version: u64,
    release: usize,
    is_prefill: bool,
}

impl Witness {
    pub(super) fn look(&mut self, engines: &Engines) {
        for (is_prefill, all) in [(true, &engines.prefills), (false, &engines.decodes)] {
            for (n, Member { release, running }) in all.iter().enumerate() {
                let Some(release) = RELEASES.iter().position(|known| known == release) else { continue };
                let next = self.next.entry((is_prefill, n)).or_default();
                let legs = running.log.read(|records| fresh(records, next));
                for (id, version) in legs {
                    self.add(Leg { id, version, release, is_prefill });
                }
            }
        }
    }

    /// Of one version.
    pub(super) fn count(&self, version: u64) -> Count {
        self.by_version.get(&version).copied().unwrap_or_default()
    }

    /// Older ones are not asked for any more.
    pub(super) fn forget_before(&mut self, version: u64) {
        self.by_version = self.by_version.split_off(&version);
    }

    fn add(&mut self, leg: Leg) {
        let count = self.by_version.entry(leg.version).or_default();
        let role = if leg.is_prefill { &mut count.prefills } else { &mut count.decodes };
        role[leg.release] += 1;
        if !self.open.contains_key(&leg.id) {
            self.order.push_back(leg.id.clone());
        }
        let legs = self.open.entry(leg.id).or_default();
        if leg.is_prefill {
            legs.prefill = Some(leg.release);
        } else if legs.decodes.len() < LEGS {
            legs.decodes.push((leg.release, leg.version));
        }
        if let Some(prefill) = legs.prefill {
            for (decode, version) in legs.decodes.drain(..) {
                let count = self.by_version.entry(version).or_default();
                let which = if decode == prefill { &mut count.paired } else { &mut count.crossed };
                *which += 1;
            }
        }
        while self.order.len() > OPEN {
            self.order.pop_front().and_then(|id| self.open.remove(&id));
        }
    }
}

/// Id and version of the requests from `next` on, which moves behind them.
fn fresh(records: &Records, next: &mut u64) -> Vec<(String, u64)> {
    let header = |seen: &Seen, name: &str| Some(seen.headers.get(name)?.to_str().ok()?.to_owned());
    let leg = |seen: &Seen| {
        Some((header(seen, "x-request-id")?, header(seen, "x-tandem-split-version")?.parse().ok()?))
    };
    let from = *next;
    *next = records.requests.back().map_or(from, |last| last.id + 1);
    records.to(PATH).filter(|seen| seen.id >= from).filter_map(leg).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(id: &str, version: u64, release: usize, is_prefill: bool) -> Leg {
        Leg { id: id.to_owned(), version, release, is_prefill }
    }

    #[test]
    fn legs_of_one_request_are_of_one_release_or_crossed_whichever_comes_first() {
        let mut witness = Witness::default();
        for (id, first_is_prefill, prefill, decode) in
            [("a", true, 0, 0), ("b", false, 1, 1), ("c", true, 0, 1), ("d", false, 1, 0)]
        {
            let legs = [leg(id, 2, prefill, true), leg(id, 2, decode, false)];
            let [p, d] = legs;
            for leg in if first_is_prefill { [p, d] } else { [d, p] } {
                witness.add(leg);
            }
        }
        witness.add(leg("e", 2, 1, false));
        assert_eq!(witness.count(2), Count { prefills: [2, 2], decodes: [2, 3], paired: 2, crossed: 2 });
        // A decode that replaces another is judged by the same prefill.
        witness.add(leg("a", 2, 1, false));
        assert_eq!((witness.count(2).crossed, witness.count(1)), (3, Count::default()));
        witness.forget_before(3);
        assert_eq!(witness.count(2), Count::default());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut witness = Witness::default();
        for n in 0..3 * OPEN {
            witness.add(leg(&n.to_string(), 1, 0, true));
        }
        assert_eq!((witness.open.len(), witness.order.len()), (OPEN, OPEN));
        assert_eq!(witness.count(1).prefills, [3 * OPEN as u64, 0]);
    }
}
