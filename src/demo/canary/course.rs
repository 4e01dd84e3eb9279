//! The steps, and what each came to.

use super::super::House;
use super::RELEASES;
use super::witness::{Count, Witness};
use crate::admin::{ServiceSplit, SplitChange};
use crate::config::SplitEntry;

/// Name of the demo's one service.
const SERVICE: &str = "demo";
/// Steps that are remembered; others may set as many splits as they like.
const MOST: usize = 10;

/// Weights, by release.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) what: &'static str,
    pub(super) weights: [u64; 2],
}

pub(super) const STEPS: [Step; 5] = [
    Step { what: "before", weights: [100, 0] },
    Step { what: "canary", weights: [90, 10] },
    Step { what: "half", weights: [50, 50] },
    Step { what: "abort", weights: [100, 0] },
    Step { what: "release", weights: [0, 100] },
];

/// A split that was in force, and what came of it.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) version: u64,
    /// `None`: the split, somebody else's, has no cohort of that name.
    pub(super) weights: [Option<u64>; 2],
    /// What the router says: target share, share since this version, and of how many requests.
    pub(super) target: [f64; 2],
    pub(super) observed: [Option<f64>; 2],
    pub(super) decided: u64,
    /// What the engines recorded.
    pub(super) count: Count,
    pub(super) failed: u64,
}

/// Where it is.
#[derive(Debug)]
pub(super) struct Course {
    step: usize,
    rows: Vec<Row>,
    witness: Witness,
    /// Failed ones before the last row.
    failed_before: u64,
    by_hand: bool,
}

pub(super) fn entries(weights: [u64; 2]) -> Vec<SplitEntry> {
    let entry = |(n, weight): (usize, u64)| SplitEntry {
        revision: Some(RELEASES[n].revision.to_owned()),
        weight,
        ..SplitEntry::default()
    };
    weights.into_iter().enumerate().map(entry).collect()
}

impl Course {
    pub(super) fn new(house: &House) -> Self {
        let mut course =
            Self { step: 0, rows: Vec::new(), witness: Witness::default(), failed_before: 0, by_hand: false };
        course.look(house, 0);
        course
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        self.rows.clone()
    }

    /// That the engines recorded of the split in force.
    pub(super) fn requests(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.count.requests())
    }

    pub(super) fn at_the_end(&self) -> bool {
        self.step + 1 >= STEPS.len()
    }

    /// There is a further step, and nobody else has set a split.
    pub(super) fn goes_on(&self) -> bool {
        !self.by_hand && !self.at_the_end()
    }

    pub(super) fn is_by_hand(&self) -> bool {
        self.by_hand
    }

    pub(super) fn following(&self) -> Option<Step> {
        STEPS.get(self.step + 1).copied().filter(|_| !self.by_hand)
    }

    /// Moves the weights, only over the split that it knows. `false`: somebody else moved them.
    pub(super) async fn step(&mut self, house: &House) -> bool {
        let Some(step) = self.following() else { return false };
        let known = self.rows.last().map(|row| row.version);
        let change = house.splits.set_split(SERVICE, Some(entries(step.weights)), known).await;
        let SplitChange::Applied(version) = change else { return false };
        self.step += 1;
        self.begin(step.what, version);
        true
    }

    fn begin(&mut self, what: &'static str, version: u64) {
        self.failed_before += self.rows.last().map_or(0, |row| row.failed);
        self.rows.push(Row {
            what,
            version,
            weights: [None; 2],
            target: [0.0; 2],
            observed: [None; 2],
            decided: 0,
            count: Count::default(),
            failed: 0,
        });
        self.rows.drain(..self.rows.len().saturating_sub(MOST));
        self.witness.forget_before(self.rows.first().map_or(0, |row| row.version));
    }

    /// What is in force and what came of it. `failed`: requests, so far.
    pub(super) fn look(&mut self, house: &House, failed: u64) {
        let view = house.splits.split();
        let Some(split) = view.services.iter().find(|service| service.service == SERVICE) else { return };
        if self.rows.last().is_none_or(|row| row.version != split.version) {
            self.by_hand = !self.rows.is_empty();
            self.begin(if self.by_hand { "by hand" } else { STEPS[0].what }, split.version);
        }
        self.witness.look(&house.engines);
        for row in &mut self.rows {
            row.count = self.witness.count(row.version);
        }
        let failed = failed.saturating_sub(self.failed_before);
        if let Some(row) = self.rows.last_mut() {
            row.read(split);
            row.failed = failed;
        }
    }
}

impl Row {
    fn read(&mut self, split: &ServiceSplit) {
        let of = |n: usize| split.cohorts.iter().find(|cohort| cohort.cohort == RELEASES[n].revision);
        for n in 0..RELEASES.len() {
            self.weights[n] = of(n).map(|cohort| cohort.weight);
            self.target[n] = of(n).map_or(0.0, |cohort| cohort.target_share);
            self.observed[n] = of(n).and_then(|cohort| cohort.share_since_version);
        }
        self.decided = split.cohorts.iter().map(|cohort| cohort.requests_since_version).sum();
    }
}
