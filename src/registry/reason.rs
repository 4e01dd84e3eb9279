//! Why an endpoint, or a Pod that gives none, is or is not selectable (I14).

/// One word; `docs/discovery.md` has a row for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    Selectable,
    /// Withdrawn by an operator through the admin API: local to this router, lost at restart.
    AdminDrain,
    /// No source names it any more.
    Removed,
    /// Its Pod is being deleted.
    Terminating,
    /// The API server said that its Pod is gone, or that it left the selector: the two look alike.
    Deleted,
    /// A complete list no longer has its Pod.
    NotListed,
    /// Its Pod does not carry the labels of the service.
    NotSelected,
    /// Its Pod has no role in this service.
    WrongRole,
    /// Its Pod serves another model.
    WrongModel,
    /// Its Pod is pending, or ended.
    NotRunning,
    /// Its Pod has no usable address.
    NoAddress,
    /// Its Pod declares no such port, or a port or bootstrap annotation that cannot be read.
    NoPort,
    /// Its Pod's Ready condition is False or missing.
    NotReady,
    /// Its Pod's Ready condition is Unknown: the node is out of reach.
    ReadyUnknown,
    /// The endpoint-eligible label is not there.
    NotEligible,
    /// The drain annotation is there.
    DrainAnnotation,
    /// Another Pod has its address.
    AddressTaken,
    /// Address, port, role, model, revision or token changed under the same Pod: a new incarnation took its place.
    Replaced,
    /// The engine has not yet answered as it has to before its first request.
    Probing,
    /// The engine's own word contradicts its labels.
    EngineDrift,
}

impl Reason {
    pub const ALL: [Self; 20] = [
        Self::Selectable,
        Self::AdminDrain,
        Self::Removed,
        Self::Terminating,
        Self::Deleted,
        Self::NotListed,
        Self::NotSelected,
        Self::WrongRole,
        Self::WrongModel,
        Self::NotRunning,
        Self::NoAddress,
        Self::NoPort,
        Self::NotReady,
        Self::ReadyUnknown,
        Self::NotEligible,
        Self::DrainAnnotation,
        Self::AddressTaken,
        Self::Replaced,
        Self::Probing,
        Self::EngineDrift,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Selectable => "selectable",
            Self::AdminDrain => "admin_drain",
            Self::Removed => "removed",
            Self::Terminating => "terminating",
            Self::Deleted => "deleted",
            Self::NotListed => "not_listed",
            Self::NotSelected => "not_selected",
            Self::WrongRole => "wrong_role",
            Self::WrongModel => "wrong_model",
            Self::NotRunning => "not_running",
            Self::NoAddress => "no_address",
            Self::NoPort => "no_port",
            Self::NotReady => "not_ready",
            Self::ReadyUnknown => "ready_unknown",
            Self::NotEligible => "not_eligible",
            Self::DrainAnnotation => "drain_annotation",
            Self::AddressTaken => "address_taken",
            Self::Replaced => "replaced",
            Self::Probing => "probing",
            Self::EngineDrift => "engine_drift",
        }
    }

    /// Nobody may restore it: the endpoint has left every snapshot.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Removed | Self::Deleted | Self::NotListed | Self::Replaced)
    }

    /// The engine may be another process when this is over: what was learnt of it has to be asked again.
    pub const fn ends_probes(self) -> bool {
        matches!(self, Self::NotRunning | Self::NoAddress | Self::NotReady | Self::ReadyUnknown)
    }

    pub(super) fn from_u8(n: u8) -> Self {
        Self::ALL.get(usize::from(n)).copied().unwrap_or(Self::Removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_its_own_number_and_word() {
        for (n, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(reason as u8), n);
            assert_eq!(Reason::from_u8(reason as u8), reason);
        }
        let words: std::collections::HashSet<_> = Reason::ALL.iter().map(|r| r.as_str()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
    }
}
