//! A split that takes orders.

use std::pin::Pin;

use super::Fleet;
use crate::admin::{CohortView, SplitChange, SplitControl, SplitView};
use crate::config::SplitEntry;

/// One service whose split has version 3.
impl SplitControl for Fleet {
    fn split(&self) -> SplitView {
        SplitView { schema: 1, services: vec![] }
    }

    fn cohorts(&self) -> CohortView {
        CohortView { schema: 1, registry_version: 4, services: vec![] }
    }

    fn set_split<'a>(
        &'a self,
        service: &'a str,
        _: Option<Vec<SplitEntry>>,
        expected: Option<u64>,
    ) -> Pin<Box<dyn Future<Output = SplitChange> + Send + 'a>> {
        let change = match (service, expected) {
            ("chat", None | Some(3)) => SplitChange::Applied(4),
            ("chat", Some(_)) => SplitChange::Conflict(3),
            _ => SplitChange::UnknownService,
        };
        Box::pin(async move { if self.ended { SplitChange::Unavailable } else { change } })
    }
}
