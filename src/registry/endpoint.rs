//! One listener of one engine, with everything that must outlive snapshots.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::config::{StaticEndpoint, Upstream};
use crate::ledger::{Gate, Handoffs, Holder};
use crate::metrics::EndpointMetrics;
use crate::types::role::Role;
use crate::upstream::{Ejection, Pool};

/// Why an endpoint is or is not selectable (I14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    Selectable,
    /// Withdrawn by an operator through the admin API: local to this router, lost at restart.
    AdminDrain,
    /// No source names it any more.
    Removed,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Selectable => "selectable",
            Self::AdminDrain => "admin_drain",
            Self::Removed => "removed",
        }
    }

    fn from_u8(n: u8) -> Self {
        match n {
            0 => Self::Selectable,
            1 => Self::AdminDrain,
            _ => Self::Removed,
        }
    }
}

/// One incarnation of an endpoint: a changed address, port or role is a new one.
#[derive(Debug)]
pub struct Endpoint {
    /// Unique in this process, never reused.
    pub id: u64,
    pub host: String,
    pub port: u16,
    /// `host:port`, IPv6 bracketed: the `Host` header and the end of `url`.
    pub authority: String,
    pub url: String,
    pub role: Role,
    /// Port of its bootstrap server, on `host`: every SGLang prefill has one, nothing else does.
    pub bootstrap_port: Option<u16>,
    gate: Gate,
    reason: AtomicU8,
    /// Wakes attempts that hold the endpoint and have not begun their leg on it.
    withdrawals: Notify,
    pub pool: Pool,
    pub ejection: Ejection,
    /// KV that it keeps for decodes to pull.
    pub handoffs: Handoffs,
    /// The engine keeps a cancelled decode's pages back while its prefill may still write (SGLang 0.5.23 and newer).
    pub kv_guard: AtomicBool,
    pub metrics: EndpointMetrics,
}

impl Holder for Endpoint {
    fn gate(&self) -> &Gate {
        &self.gate
    }
}

/// The host as it is dialled: IPv6 without brackets.
fn bare(at: &StaticEndpoint) -> &str {
    at.host.trim_start_matches('[').trim_end_matches(']')
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Endpoint {
    pub fn new(
        at: &StaticEndpoint,
        role: Role,
        threads: usize,
        upstream: &Upstream,
        metrics: impl FnOnce(&str, &'static str) -> EndpointMetrics,
    ) -> Arc<Self> {
        let bare = bare(at);
        let authority =
            if bare.contains(':') { format!("[{bare}]:{}", at.port) } else { format!("{bare}:{}", at.port) };
        let url = format!("http://{authority}");
        let metrics = metrics(&url, role.as_str());
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            host: bare.to_owned(),
            port: at.port,
            url,
            authority,
            role,
            bootstrap_port: at.bootstrap_port,
            gate: Gate::new(),
            reason: AtomicU8::new(Reason::Selectable as u8),
            withdrawals: Notify::new(),
            pool: Pool::new(threads, upstream.idle),
            ejection: Ejection::default(),
            handoffs: Handoffs::default(),
            kv_guard: AtomicBool::new(false),
            metrics,
        })
    }

    /// Whether a configuration's entry of this role means this very endpoint.
    pub(super) fn is_at(&self, at: &StaticEndpoint) -> bool {
        self.host == bare(at) && self.port == at.port && self.bootstrap_port == at.bootstrap_port
    }

    /// May be given a new request now. The very predicate the request path uses.
    #[inline]
    pub fn is_selectable(&self) -> bool {
        !self.gate.is_withdrawn()
    }

    /// After a failure that says it may be down: the last choice for a while.
    pub fn put_last(&self, fault: &dyn fmt::Display) {
        if let Some(time) = self.ejection.fail() {
            self.metrics.ejected();
            // One line for an engine that is down, not one for each time it is tried again.
            if Ejection::is_first(time) {
                tracing::warn!(endpoint = %self.url, role = self.role.as_str(), %fault, "engine fails: the last choice for a while");
            } else {
                tracing::debug!(endpoint = %self.url, %fault, ?time, "engine still fails");
            }
        }
    }

    /// The head of an answer came.
    #[inline]
    pub fn answered(&self) {
        if self.ejection.succeed() {
            tracing::info!(endpoint = %self.url, role = self.role.as_str(), "engine answers again");
        }
    }

    /// Requests it carries for this router.
    #[inline]
    pub fn holds(&self) -> u64 {
        self.gate.holds()
    }

    /// Completes once it is withdrawn: a waiting decode's hold is then given back.
    pub async fn withdrawn(&self) {
        let mut notice = std::pin::pin!(self.withdrawals.notified());
        notice.as_mut().enable();
        if self.is_selectable() {
            notice.await;
        }
    }

    pub fn reason(&self) -> Reason {
        Reason::from_u8(self.reason.load(Ordering::Relaxed))
    }

    /// Registry writer only. Returns the holds still out.
    pub(super) fn withdraw(&self, reason: Reason) -> u64 {
        self.reason.store(reason as u8, Ordering::Relaxed);
        let holds = self.gate.withdraw();
        self.pool.close();
        self.withdrawals.notify_waiters();
        holds
    }

    /// Registry writer only.
    pub(super) fn restore(&self) {
        self.reason.store(Reason::Selectable as u8, Ordering::Relaxed);
        self.pool.reopen();
        self.gate.restore();
    }
}
