//! What an OME InferenceService says of request weights (OME v1.3, `ome.io/v1beta1`; requirements OME-54…56, §2.1.1, §3).
//!
//! The weights stand in `status.components.<primary>.traffic[]`, by revisions of that component alone; what the other components
//! of a cohort are is in the run that is open, `status.rollout.activeRun.targetRevisions[]`. OME's own router does not follow
//! them.

mod cohorts;
mod object;

use std::collections::HashSet;

use crate::config::SplitEntry;
use crate::registry::Said;
use cohorts::{Revisions, Side};
use object::{Object, Target};

/// Where the API has it.
pub const RESOURCE: &str = "apis/ome.io/v1beta1";
/// Most entries that are followed: a rollout has two, a blue-green one that is overtaken a few more.
const MOST: usize = 64;

/// What the object says. `json`: the object as the API server gives it.
pub fn said(json: &str) -> Said {
    match serde_json::from_str::<Object>(json) {
        Ok(object) if object.metadata.name.is_empty() => {
            Said::Unusable("it cannot be read: no name".to_owned())
        }
        Ok(object) => of(&object).unwrap_or_else(Said::Unusable),
        Err(error) => Said::Unusable(format!("it cannot be read: {error}")),
    }
}

/// # Errors
/// Why it cannot be followed, in words for an operator.
fn of(object: &Object) -> Result<Said, String> {
    let primary = object.primary();
    let traffic = object.traffic(primary);
    if traffic.is_empty() {
        if !object.has_canary() {
            return Ok(Said::Nothing);
        }
        let stable = Revisions::stable(object).ok_or(
            "a canary is declared, status has no weights yet, and nothing names the stable revision",
        )?;
        let name = stable.name();
        return Ok(Said::Stable(vec![stable.entry(name, None, 1)]));
    }
    if traffic.len() > MOST {
        return Err(format!("{} entries in traffic; at most {MOST} are followed", traffic.len()));
    }
    let entries: Vec<SplitEntry> =
        traffic.iter().map(|target| entry(object, primary, traffic, target)).collect::<Result<_, _>>()?;
    let sum: u64 = entries.iter().map(|entry| entry.weight).sum();
    if sum != 100 {
        return Err(format!("the percents of traffic sum to {sum}, not to 100"));
    }
    let mut names = HashSet::new();
    if let Some(twice) = entries.iter().map(SplitEntry::name).find(|name| !names.insert(name.clone())) {
        return Err(format!("traffic has two entries for revision {twice}"));
    }
    Ok(Said::Weights(entries))
}

/// One entry of `traffic[]` as a cohort.
fn entry(object: &Object, primary: &str, all: &[Target], target: &Target) -> Result<SplitEntry, String> {
    let named = target.revision_name.as_deref().unwrap_or_default();
    let hash = named.rsplit_once("-rev-").map(|(_, hash)| hash).filter(|hash| is_word(hash));
    let hash = hash.ok_or_else(|| format!("revisionName {named:?} is no NAME-COMPONENT-rev-HASH"))?;
    let percent = target.percent().ok_or_else(|| {
        format!("percent of {named:?} is {}, no whole number from 0 to 100", target.shown_percent())
    })?;
    let token = target.pairing_protocol.as_deref().filter(|token| !token.is_empty());
    let revisions = match object.run_of(primary) {
        Some(run) => {
            let side = Side::of(run, hash, target.tag.as_deref()).ok_or_else(|| {
                format!("revision {hash} of {named:?} is neither target nor stable of the open run")
            })?;
            Revisions::of_run(object, primary, hash, side)
        }
        None if primary == object::ENGINE => Revisions::at_rest(object, hash),
        // Revisions of a router say nothing of engines; only one that has everything needs no more.
        None if all.len() == 1 => Revisions::default(),
        None => {
            return Err(format!("no open run says which engines go with revision {hash} of the {primary}"));
        }
    };
    // An unchanged component's hash is that of both sides.
    let name = match revisions.decode.as_slice() {
        [decode] if all.iter().filter(|other| other.revision_name == target.revision_name).count() > 1 => {
            format!("{hash}/{decode}")
        }
        _ => hash.to_owned(),
    };
    Ok(revisions.entry(name, token, percent))
}

/// Fit for a label value, as every revision hash is.
fn is_word(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 63 && text.chars().all(fits)
}

#[cfg(test)]
#[path = "../tests/ome.rs"]
mod tests;
