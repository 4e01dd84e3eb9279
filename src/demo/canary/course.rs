//! The steps, and what each came to.

use super::super::engines::Engines;
use super::RELEASES;
use super::witness::{Count, Witness};
use crate::admin::{ServiceSplit, SplitChange, SplitControl};
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
    pub(super) fn new(splits: &dyn SplitControl, engines: &Engines) -> Self {
        let mut course =
            Self { step: 0, rows: Vec::new(), witness: Witness::default(), failed_before: 0, by_hand: false };
        course.look(splits, engines, 0);
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
    pub(super) async fn step(&mut self, splits: &dyn SplitControl) -> bool {
        let Some(step) = self.following() else { return false };
        let known = self.rows.last().map(|row| row.version);
        let change = splits.set_split(SERVICE, Some(entries(step.weights)), known).await;
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
    pub(super) fn look(&mut self, splits: &dyn SplitControl, engines: &Engines, failed: u64) {
        let view = splits.split();
        let Some(split) = view.services.iter().find(|service| service.service == SERVICE) else { return };
        if self.rows.last().is_none_or(|row| row.version != split.version) {
            self.by_hand = !self.rows.is_empty();
            self.begin(if self.by_hand { "by hand" } else { STEPS[0].what }, split.version);
        }
        self.witness.look(engines);
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

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use parking_lot::Mutex;

    use super::*;
    use crate::admin::{CohortView, SplitView};
    use crate::engine::Wire;

    /// A router's split, with every order that it took.
    struct Router(Mutex<Vec<Vec<u64>>>);

    impl Router {
        fn taken(&self) -> Vec<Vec<u64>> {
            self.0.lock().clone()
        }

        fn by_hand(&self) {
            self.0.lock().push(vec![1, 1]);
        }
    }

    impl SplitControl for Router {
        fn split(&self) -> SplitView {
            let version = self.0.lock().len() as u64 + 1;
            let (service, source) = (SERVICE.to_owned(), "file".to_owned());
            let split =
                ServiceSplit { service, version, source, rollout: None, volatile: false, cohorts: vec![] };
            SplitView { schema: 1, services: vec![split] }
        }

        fn cohorts(&self) -> CohortView {
            CohortView { schema: 1, registry_version: 1, services: vec![] }
        }

        fn set_split<'a>(
            &'a self,
            _: &'a str,
            entries: Option<Vec<SplitEntry>>,
            expected: Option<u64>,
        ) -> Pin<Box<dyn Future<Output = SplitChange> + Send + 'a>> {
            let mut taken = self.0.lock();
            let version = taken.len() as u64 + 1;
            let change = if expected == Some(version) {
                taken.push(entries.into_iter().flatten().map(|entry| entry.weight).collect());
                SplitChange::Applied(version + 1)
            } else {
                SplitChange::Conflict(version)
            };
            Box::pin(async move { change })
        }
    }

    #[tokio::test]
    async fn steps_follow_each_other_until_the_last() {
        let (router, engines) = (Router(Mutex::default()), Engines::none(Wire::Vllm));
        let mut course = Course::new(&router, &engines);
        while course.goes_on() {
            assert!(course.step(&router).await);
            course.look(&router, &engines, 0);
        }
        assert!(course.at_the_end() && !course.is_by_hand() && !course.step(&router).await);
        assert_eq!(router.taken(), STEPS[1..].iter().map(|step| step.weights.to_vec()).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_split_of_somebody_else_is_theirs() {
        let (router, engines) = (Router(Mutex::default()), Engines::none(Wire::Vllm));
        let mut course = Course::new(&router, &engines);
        assert!(course.step(&router).await);
        router.by_hand();
        assert!(!course.step(&router).await, "over another than it knows");
        course.look(&router, &engines, 0);
        assert!(course.is_by_hand() && !course.goes_on() && !course.step(&router).await);
        assert_eq!(router.taken(), [[90, 10], [1, 1]]);
        assert_eq!(course.rows().last().map(|row| (row.what, row.version)), Some(("by hand", 3)));
    }

    #[tokio::test]
    async fn failures_are_of_the_split_in_which_they_came_and_rows_are_bounded() {
        let (router, engines) = (Router(Mutex::default()), Engines::none(Wire::Vllm));
        let mut course = Course::new(&router, &engines);
        course.look(&router, &engines, 2);
        course.step(&router).await;
        course.look(&router, &engines, 5);
        assert_eq!(course.rows().iter().map(|row| row.failed).collect::<Vec<_>>(), [2, 3]);
        for _ in 0..3 * MOST {
            router.by_hand();
            course.look(&router, &engines, 5);
        }
        assert_eq!(course.rows().len(), MOST);
    }
}
