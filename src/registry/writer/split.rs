//! An operator's split.

use std::sync::Arc;

use tracing::info;

use super::super::snapshot::Snapshot;
use super::super::split::{Split, SplitSource};
use super::Writer;
use crate::config;

/// An operator's split. Its entries were looked at already.
#[derive(Debug)]
pub struct SplitOrder {
    /// Position of the service.
    pub service: usize,
    pub entries: Option<Vec<config::SplitEntry>>,
    /// Only over this version.
    pub expected: Option<u64>,
}

/// What an operator's split came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitApplied {
    /// In force, with this version.
    Applied(u64),
    /// Another version is in force.
    Conflict(u64),
    Unknown,
}

impl Writer {
    /// Whole or not at all, and in force when this returns.
    pub(super) fn split(&mut self, order: SplitOrder) -> SplitApplied {
        self.flush();
        let before = self.view.load_full();
        let Some(service) = before.services.get(order.service) else { return SplitApplied::Unknown };
        if order.expected.is_some_and(|expected| expected != service.split_version) {
            return SplitApplied::Conflict(service.split_version);
        }
        let version = service.split_version + 1;
        let split = match order.entries {
            Some(entries) => Some(Split::new(version, SplitSource::Admin, entries)),
            None => service.config.split.clone().map(|e| Split::new(version, SplitSource::File, e)),
        };
        let mut services = before.services.clone();
        services[order.service] = Arc::new(service.with_split(split, version));
        let (notes, departed) = (Arc::clone(&before.notes), Arc::clone(&before.departed));
        self.publish(Snapshot::with(before.version + 1, services, notes, departed));
        info!(service = %service.config.name, version, "another split is in force");
        SplitApplied::Applied(version)
    }
}
