//! What an endpoint carries for this router, by kind.

use serde::{Deserialize, Serialize};

use crate::ledger::Counts;
use crate::metrics::KINDS;
use crate::types::role::Role;

/// Counts, each a number of requests (`handoff`: of KV transfers). All of them zero on a withdrawn endpoint: it carries
/// nothing for this router, and never will again unless it is restored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InFlight {
    /// Decided, not begun: may still go elsewhere.
    pub waiting: u64,
    /// Begun, first byte not written: microseconds.
    pub reserved: u64,
    /// Running on a prefill.
    pub prefill: u64,
    /// Running on a decode, or on an endpoint that serves alone.
    pub decode: u64,
    /// KV that it keeps, or may keep, for a decode to pull.
    pub handoff: u64,
}

impl InFlight {
    /// `holds` were read before `stages`: a leg that ended in between makes the sum too large, never too small.
    pub(super) fn new(role: Role, holds: u64, stages: Counts, handoff: u64) -> Self {
        let Counts { reserved, running } = stages;
        let waiting = holds.saturating_sub(reserved + running);
        let (prefill, decode) = if role == Role::Prefill { (running, 0) } else { (0, running) };
        Self { waiting, reserved, prefill, decode, handoff }
    }

    /// In the order of [`KINDS`].
    pub fn values(&self) -> [u64; KINDS.len()] {
        let Self { waiting, reserved, prefill, decode, handoff } = *self;
        [waiting, reserved, prefill, decode, handoff]
    }

    /// Each kind's word and count.
    pub fn by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KINDS.into_iter().zip(self.values())
    }

    pub fn total(&self) -> u64 {
        self.values().iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hold_is_in_one_kind() {
        let stages = Counts { reserved: 1, running: 2 };
        let of = |role, holds| InFlight::new(role, holds, stages, 4).values();
        assert_eq!(of(Role::Prefill, 6), [3, 1, 2, 0, 4]);
        assert_eq!(of(Role::Decode, 6), [3, 1, 0, 2, 4]);
        assert_eq!(of(Role::Mixed, 3), [0, 1, 0, 2, 4]);
        assert_eq!(of(Role::Mixed, 0), [0, 1, 0, 2, 4], "read while a leg ended");
        let all = InFlight::new(Role::Prefill, 6, stages, 4);
        assert_eq!(all.total(), 10);
        let document = serde_json::to_value(all).unwrap();
        let by_kind = KINDS.map(|kind| document[kind].as_u64().unwrap());
        assert_eq!(by_kind, all.values(), "metrics and report say the same");
    }
}
