//! Weights by hand, and every split that ever was in force.

use std::collections::BTreeMap;

use tandem::admin::SplitChange;
use tandem::config::SplitEntry;
use tandem::testkit::router::TestRouter;

use super::host::{KINDS, Kind, RELEASES};
use crate::split::rig::revision;

pub(super) type Weights = [u64; RELEASES.len()];

pub(super) const OF_FILE: Weights = [60, 30, 10];

pub(super) fn entries(weights: Weights) -> Vec<SplitEntry> {
    RELEASES.iter().zip(weights).map(|(name, weight)| revision(name, weight)).collect()
}

/// By service and version.
#[derive(Debug)]
pub(super) struct Splits {
    all: BTreeMap<(Kind, u64), Weights>,
    /// How often each release of a service was at 0.
    pub(super) zeros: [u64; RELEASES.len()],
}

impl Splits {
    pub(super) fn new() -> Self {
        Self { all: KINDS.map(|kind| ((kind, 1), OF_FILE)).into(), zeros: [0; RELEASES.len()] }
    }

    /// Another split for one of the services, or the file's again.
    pub(super) async fn change(&mut self, router: &TestRouter, random: &mut fastrand::Rng) -> (Kind, u64) {
        let kind = KINDS[random.usize(..KINDS.len())];
        let by_file = random.u8(..12) == 0;
        let weights = if by_file { OF_FILE } else { drawn(random) };
        let wanted = (!by_file).then(|| entries(weights));
        match router.admin.splits.set_split(kind.name(), wanted, None).await {
            SplitChange::Applied(version) => {
                let before = self.all.insert((kind, version), weights);
                assert_eq!(before, None, "version {version} twice");
                for (zeros, weight) in self.zeros.iter_mut().zip(weights) {
                    *zeros += u64::from(weight == 0);
                }
                (kind, version)
            }
            refused => panic!("{refused:?}"),
        }
    }

    /// The weight of a release at a version; `None`: there was no such split.
    pub(super) fn weight(&self, kind: Kind, version: u64, release: &str) -> Option<u64> {
        let at = RELEASES.iter().position(|name| *name == release)?;
        self.all.get(&(kind, version)).map(|weights| weights[at])
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }
}

/// Mostly one or two of them are at 0, seldom all.
fn drawn(random: &mut fastrand::Rng) -> Weights {
    let mut weights = [(); RELEASES.len()].map(|()| [0, 0, 1, 5, 50, 1_000_000][random.usize(..6)]);
    if weights.iter().sum::<u64>() == 0 && random.u8(..4) > 0 {
        weights[random.usize(..RELEASES.len())] = 1;
    }
    weights
}
