//! A split in force: the cohorts of a service and their weights, as an operator gives them. Whole or not at all.

use std::sync::Arc;

use super::Role;
use super::endpoint::Endpoint;
use crate::config::SplitEntry;

/// Where a split comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitSource {
    /// The configuration file.
    File,
    /// An operator, at this router alone; a restart, or another split in the file, forgets it.
    Admin,
    /// An OME InferenceService.
    Ome,
}

impl SplitSource {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Admin => "admin",
            Self::Ome => "ome",
        }
    }
}

/// The weights in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Grows with each split that is applied; 1 for the first.
    pub version: u64,
    pub source: SplitSource,
    pub entries: Vec<SplitEntry>,
}

impl Split {
    pub(super) fn new(version: u64, source: SplitSource, entries: Vec<SplitEntry>) -> Arc<Self> {
        Arc::new(Self { version, source, entries })
    }
}

/// Whether the endpoint is of this entry's cohort. One that serves alone is, if it is of either side's revisions.
pub(super) fn takes(entry: &SplitEntry, endpoint: &Endpoint) -> bool {
    let is = |revision: &String| *revision == endpoint.revision;
    let of = |side: &[String]| side.is_empty() || side.iter().any(is);
    let sides = match endpoint.role {
        Role::Prefill => of(&entry.prefill),
        Role::Decode => of(&entry.decode),
        Role::Mixed if entry.prefill.is_empty() || entry.decode.is_empty() => {
            of(&entry.prefill) && of(&entry.decode)
        }
        Role::Mixed => of(&entry.prefill) || of(&entry.decode),
    };
    entry.revision.as_ref().is_none_or(is)
        && sides
        && entry.token.as_ref().is_none_or(|token| endpoint.token.is_empty() || endpoint.token == *token)
}
