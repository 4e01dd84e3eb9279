//! What clients really got: noted when the bytes are taken, not when they are made.
//!
//! A simulation judges a client by this: from the moment it was told something it has to act on it.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;

use super::handle::FakeKube;
use super::state::Shared;
use crate::types::clock::{Instant, now};

/// One thing that a client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub at: Instant,
    /// Of the Pod's change, or of the list.
    pub version: u64,
    /// Of the Pod; none: a whole list.
    pub uid: Option<String>,
}

impl FakeKube {
    /// What clients were told, from the `first`th on: events of Pods, and lists whose last byte was taken.
    pub fn told_from(&self, first: usize) -> Vec<Told> {
        self.shared.read(|state| state.told.get(first..).unwrap_or_default().to_vec())
    }
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: Option<String>,
    resource_version: String,
}

impl Shared {
    /// A line of a watch was taken; of those that are no event of a Pod nothing is noted.
    pub(super) fn tell_line(&self, line: &[u8]) {
        let Ok(Line { kind, object }) = serde_json::from_slice(line) else { return };
        if matches!(kind.as_str(), "ADDED" | "MODIFIED" | "DELETED") {
            self.tell(object.metadata);
        }
    }

    fn tell(&self, Metadata { uid, resource_version }: Metadata) {
        let Ok(version) = resource_version.parse() else { return };
        self.write_quietly(|state| state.told.push(Told { at: now(), version, uid }));
    }
}

/// Notes a list when its body is taken.
pub(super) fn list_note(shared: &Arc<Shared>, body: &Bytes) -> impl FnOnce() + Send + use<> {
    let (shared, list) = (Arc::clone(shared), serde_json::from_slice::<Object>(body));
    move || {
        if let Ok(Object { metadata }) = list {
            shared.tell(metadata);
        }
    }
}
