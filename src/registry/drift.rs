//! Engines whose own word contradicts their labels. A label is a claim of whoever deployed the Pod; two engines under one label
//! that speak different KV formats corrupt or fail requests.
//!
//! Pure, and of facts that every router learns for itself: all of them come to the same verdict with nothing shared.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::facts::EngineFacts;
use crate::config::{EngineKind, VllmConnector};
use crate::types::fact::Fact;
use crate::types::role::Role;

/// What an endpoint's labels say, and what its engine says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim<'a> {
    pub(super) id: u64,
    pub(super) role: Role,
    pub(super) revision: &'a str,
    pub(super) token: &'a str,
    /// Creation of its Pod, then what tells two of one second apart, the same at every router.
    pub(super) age: Age<'a>,
    pub(super) facts: &'a EngineFacts,
}

/// Earlier is older.
type Age<'a> = (i64, &'a str, u16);

/// One contradiction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Drift {
    pub(super) fact: Fact,
    /// In words for an operator.
    pub(super) detail: String,
}

/// What two engines of one pairing token have to agree on: what the engines themselves compare before they move KV, and what
/// moves it. vLLM takes different block sizes; a store is filled by one version and read by another.
const fn paired(engine: EngineKind) -> &'static [Fact] {
    match engine {
        EngineKind::Plain => &[],
        EngineKind::Sglang => &[Fact::TransferBackend, Fact::PageSize, Fact::KvCacheDtype],
        EngineKind::Vllm(VllmConnector::Nixl) => {
            &[Fact::Model, Fact::Version, Fact::TransferBackend, Fact::KvCompatibility, Fact::KvCacheDtype]
        }
        EngineKind::Vllm(VllmConnector::Store) => &[Fact::Model, Fact::TransferBackend, Fact::KvCacheDtype],
    }
}

/// Who contradicts its labels, by id. The order of the claims does not matter. Of each label at least one stays, as far as
/// that label is concerned: one that is outvoted on a fact has no vote on the next.
pub(super) fn contradictions(engine: EngineKind, claims: &[Claim<'_>]) -> HashMap<u64, Drift> {
    let mut found = HashMap::new();
    for claim in claims {
        let (label, says) = (claim.role.as_str(), claim.facts.get(Fact::Role));
        if let Some(says) = says.filter(|says| *says != label) {
            let detail = format!("the engine reports role {says}, its label says {label}");
            found.insert(claim.id, Drift { fact: Fact::Role, detail });
        }
    }
    let mut tokens: BTreeMap<&str, Vec<&Claim<'_>>> = BTreeMap::new();
    let mut revisions: BTreeMap<(Role, &str), Vec<&Claim<'_>>> = BTreeMap::new();
    for claim in claims {
        // No label is no claim.
        if !claim.token.is_empty() {
            tokens.entry(claim.token).or_default().push(claim);
        }
        if !claim.revision.is_empty() {
            revisions.entry((claim.role, claim.revision)).or_default().push(claim);
        }
    }
    for (token, group) in &tokens {
        for fact in paired(engine) {
            vote(*fact, group, &format!("pairing token {token}"), &mut found);
        }
    }
    for ((role, revision), group) in &revisions {
        for fact in Fact::ALL {
            vote(fact, group, &format!("{} revision {revision}", role.as_str()), &mut found);
        }
    }
    found
}

/// What most of the group report is right; of two that as many report, that of the oldest Pod.
fn vote(fact: Fact, group: &[&Claim<'_>], label: &str, found: &mut HashMap<u64, Drift>) {
    let heard = group.iter().filter(|claim| !found.contains_key(&claim.id));
    let heard: Vec<_> = heard.filter_map(|claim| Some((*claim, claim.facts.get(fact)?))).collect();
    let mut votes: BTreeMap<&str, (usize, Reverse<Age<'_>>)> = BTreeMap::new();
    for (claim, value) in &heard {
        let (count, oldest) = votes.entry(value).or_insert((0, Reverse(claim.age)));
        *count += 1;
        *oldest = (*oldest).max(Reverse(claim.age));
    }
    let Some((right, _)) = votes.into_iter().max_by_key(|(_, vote)| *vote) else { return };
    for (claim, value) in heard.into_iter().filter(|(_, value)| *value != right) {
        let fact_word = fact.as_str();
        let detail = format!("the engine reports {fact_word} {value}, others of {label} report {right}");
        found.insert(claim.id, Drift { fact, detail });
    }
}

#[cfg(test)]
#[path = "tests/drift.rs"]
mod tests;
