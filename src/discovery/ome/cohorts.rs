//! Which revisions of each component go together.

use super::object::{DECODER, ENGINE, Object, RunTarget};
use crate::config::SplitEntry;

/// Which of a run's two sets of revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Target,
    Stable,
    /// The component does not change in this run, and nothing says which side is meant.
    Both,
}

impl Side {
    /// The side that a revision of the primary component stands for; `None`: it is of neither.
    pub(super) fn of(run: &RunTarget, hash: &str, tag: Option<&str>) -> Option<Self> {
        let (target, stable) = (hash == run.revision, hash == run.stable_revision);
        match (target, stable, tag) {
            (true, false, _) | (true, true, Some("canary" | "latest")) => Some(Self::Target),
            (false, true, _) | (true, true, Some("stable" | "prev")) => Some(Self::Stable),
            (true, true, _) => Some(Self::Both),
            (false, false, _) => None,
        }
    }
}

/// Revisions of both sides of a cohort; none listed: any.
#[derive(Debug, Default)]
pub(super) struct Revisions {
    pub(super) prefill: Vec<String>,
    pub(super) decode: Vec<String>,
}

impl Revisions {
    /// Of one side of the open run. `hash`: of the primary component. One that is not in the run does not change.
    pub(super) fn of_run(object: &Object, primary: &str, hash: &str, side: Side) -> Self {
        let of = |component: &str| {
            if component == primary {
                return vec![hash.to_owned()];
            }
            let run = object.run_of(component);
            let found = run.and_then(|run| match side {
                Side::Target => Some(&run.revision),
                Side::Stable => Some(&run.stable_revision),
                Side::Both => None,
            });
            found.filter(|revision| !revision.is_empty()).cloned().into_iter().collect()
        };
        Self { prefill: of(ENGINE), decode: of(DECODER) }
    }

    /// With no run open. A decoder that is rolled on its own meanwhile belongs to each.
    pub(super) fn at_rest(object: &Object, engine: &str) -> Self {
        let decode = object.settled(DECODER).map(str::to_owned);
        Self { prefill: vec![engine.to_owned()], decode: decode.into_iter().collect() }
    }

    /// What serves while nothing is written: the run's stable revisions, else those that the components run. `None`: the
    /// engine's is not to be read.
    pub(super) fn stable(object: &Object) -> Option<Self> {
        let of = |component: &str| {
            let run = object.run_of(component).map(|run| run.stable_revision.as_str());
            run.filter(|stable| !stable.is_empty()).or_else(|| object.current(component)).map(str::to_owned)
        };
        Some(Self { prefill: vec![of(ENGINE)?], decode: of(DECODER).into_iter().collect() })
    }

    pub(super) fn name(&self) -> String {
        self.prefill.join("+")
    }

    pub(super) fn entry(self, name: String, token: Option<&str>, weight: u64) -> SplitEntry {
        let Self { prefill, decode } = self;
        let token = token.map(str::to_owned);
        SplitEntry { name: Some(name), revision: None, prefill, decode, token, weight }
    }
}
