//! What clients really got: noted when the bytes are taken, not when they are made.
//!
//! A simulation judges a client by this: from the moment it was told something it has to act on it.

use std::sync::Arc;

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
pub(super) struct Metadata {
    uid: Option<String>,
    resource_version: String,
}

/// Notes what pieces of a body say, as they are taken.
pub(super) fn note(
    shared: &Arc<Shared>,
    read: fn(&[u8]) -> Option<Metadata>,
) -> impl Fn(&[u8]) + Send + use<> {
    let shared = Arc::clone(shared);
    move |piece| {
        let Some(Metadata { uid, resource_version }) = read(piece) else { return };
        let Ok(version) = resource_version.parse() else { return };
        shared.write_quietly(|state| state.told.push(Told { at: now(), version, uid }));
    }
}

/// Of a list.
pub(super) fn list(body: &[u8]) -> Option<Metadata> {
    serde_json::from_slice::<Object>(body).ok().map(|list| list.metadata)
}

/// Of a line of a watch, if it is an event of a Pod.
pub(super) fn line(line: &[u8]) -> Option<Metadata> {
    let Line { kind, object } = serde_json::from_slice(line).ok()?;
    matches!(kind.as_str(), "ADDED" | "MODIFIED" | "DELETED").then_some(object.metadata)
}
