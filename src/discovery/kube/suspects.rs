//! What a list changed and the watch has not told yet. After two seconds it was missed: drift.

use std::collections::HashMap;
use std::time::Duration;

use crate::discovery::pod::Identity;
use crate::types::clock::Instant;

/// How long the watch may take to tell what a list has told.
const LATE: Duration = Duration::from_secs(2);

/// By UID: version and time of the change.
#[derive(Debug, Default)]
pub(super) struct Suspects(HashMap<String, (u64, Instant)>);

impl Suspects {
    /// A list changed these UIDs, with the version of each change.
    pub(super) fn listed(&mut self, changed: Vec<(String, u64)>, now: Instant) {
        for (uid, version) in changed {
            self.0.entry(uid).or_insert((version, now));
        }
    }

    /// The watch has told this.
    pub(super) fn told(&mut self, identity: &Identity) {
        let version = identity.version.unwrap_or(0);
        if let Some(uid) = &identity.uid
            && self.0.get(uid).is_some_and(|(wanted, _)| version >= *wanted)
        {
            self.0.remove(uid);
        }
    }

    /// Takes out those that were missed, and counts them.
    pub(super) fn missed(&mut self, now: Instant) -> usize {
        let before = self.0.len();
        self.0.retain(|_, (_, since)| now < *since + LATE);
        before - self.0.len()
    }

    /// When the next one is overdue.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().map(|(_, since)| *since + LATE).min()
    }
}
