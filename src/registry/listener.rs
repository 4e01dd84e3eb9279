//! What a source says of one listener: the facts that make an endpoint this one and no other.

use std::sync::Arc;

use super::reason::Reason;
use crate::config::StaticEndpoint;
use crate::types::drain_order::DrainOrder;
use crate::types::role::Role;

/// The Pod that an endpoint belongs to. Its UID is its identity; names and addresses come back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodId {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// One port of one engine. Another value in any field is another incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// As it is dialled: a name or an address, IPv6 without brackets.
    pub host: String,
    pub port: u16,
    pub role: Role,
    /// Port of its bootstrap server on `host`, where that is known beforehand.
    pub bootstrap_port: Option<u16>,
    pub model: Option<String>,
    /// Version of its component; empty: none.
    pub revision: String,
    /// Pairing token; empty: pairs with any.
    pub token: String,
    /// `None`: listed in the configuration.
    pub pod: Option<Arc<PodId>>,
}

impl Listener {
    /// An endpoint of the configuration.
    pub fn listed(at: &StaticEndpoint, role: Role) -> Self {
        Self {
            host: at.host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: at.port,
            role,
            bootstrap_port: at.bootstrap_port,
            model: None,
            revision: at.revision.clone(),
            token: at.token.clone(),
            pod: None,
        }
    }

    /// `host:port`, IPv6 bracketed.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// Which of two Pods is the later one: by creation, then by the version at which each was first seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Born {
    /// `creationTimestamp`, seconds since the Unix epoch.
    pub created: i64,
    pub version: u64,
}

/// What a source says of one Pod for one service.
#[derive(Debug, Clone)]
pub struct PodUpdate {
    /// Position of the service.
    pub service: usize,
    pub pod: Arc<PodId>,
    pub born: Born,
    pub verdict: PodVerdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodVerdict {
    /// Qualifies now, with these listeners. Another `epoch` (a container restarted) is another process behind them.
    Register { listeners: Vec<Listener>, epoch: u64 },
    /// Takes no new request; what it had registered is what is withdrawn, whatever the object says now. `order`: of its drain
    /// annotation, whatever the reason is.
    Withdraw { reason: Reason, detail: Option<String>, order: Option<DrainOrder> },
    /// No longer there, or none of this service's.
    Gone(Reason),
}

impl PodVerdict {
    /// Withdrawn, with nothing more to say of it.
    pub fn withdraw(reason: Reason) -> Self {
        Self::Withdraw { reason, detail: None, order: None }
    }
}

/// Updates that become one change.
#[derive(Debug, Default)]
pub struct PodBatch {
    pub updates: Vec<PodUpdate>,
    /// Services whose complete list this is.
    pub listed: Vec<usize>,
}
