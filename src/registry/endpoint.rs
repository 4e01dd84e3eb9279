//! One listener of one engine, with everything that must outlive snapshots.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;

use super::listener::{Listener, PodId};
use super::reason::Reason;
use crate::config::Upstream;
use crate::ledger::{Gate, Handoffs, Holder, Reservations};
use crate::metrics::EndpointMetrics;
use crate::types::clock::{self, Instant};
use crate::types::role::Role;
use crate::upstream::{Ejection, Pool};

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
    pub model: Option<String>,
    /// Version of its component; empty: none.
    pub revision: String,
    /// Pairing token; empty: pairs with any.
    pub token: String,
    /// `None`: listed in the configuration.
    pub pod: Option<Arc<PodId>>,
    /// Port of its bootstrap server, on `host`: every selectable SGLang prefill has one, nothing else does. 0: not known.
    bootstrap_port: AtomicU16,
    gate: Gate,
    /// Legs past their last look at the bit whose first byte is not written.
    pub reserved: Reservations,
    /// Milliseconds after `born` of the last leg's start, and of the last change of the reason; 0: none.
    dispatched: AtomicU64,
    changed: AtomicU64,
    born: Instant,
    reason: AtomicU8,
    /// Wakes attempts that hold the endpoint and have not begun their leg on it.
    withdrawals: Notify,
    /// More of the reason, in words.
    detail: ArcSwapOption<String>,
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

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Endpoint {
    pub fn new(
        at: &Listener,
        threads: usize,
        upstream: &Upstream,
        metrics: impl FnOnce(&str, &'static str) -> EndpointMetrics,
    ) -> Arc<Self> {
        let authority = at.authority();
        let url = format!("http://{authority}");
        let metrics = metrics(&url, at.role.as_str());
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            host: at.host.clone(),
            port: at.port,
            url,
            authority,
            role: at.role,
            model: at.model.clone(),
            revision: at.revision.clone(),
            token: at.token.clone(),
            pod: at.pod.clone(),
            bootstrap_port: AtomicU16::new(at.bootstrap_port.unwrap_or(0)),
            gate: Gate::new(),
            reserved: Reservations::default(),
            dispatched: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            born: clock::now(),
            reason: AtomicU8::new(Reason::Selectable as u8),
            withdrawals: Notify::new(),
            detail: ArcSwapOption::empty(),
            pool: Pool::of(&at.host, threads, upstream.idle),
            ejection: Ejection::default(),
            handoffs: Handoffs::default(),
            kv_guard: AtomicBool::new(false),
            metrics,
        })
    }

    /// Whether a source's entry means this very incarnation. A bootstrap port that the source does not know is no difference.
    pub(super) fn is_at(&self, at: &Listener) -> bool {
        let port = at.bootstrap_port.is_none_or(|port| self.bootstrap_port() == Some(port));
        (&self.host, self.port, self.role, port) == (&at.host, at.port, at.role, true)
            && (&self.model, &self.revision, &self.token) == (&at.model, &at.revision, &at.token)
    }

    /// Port of its bootstrap server, if it has one.
    #[inline]
    pub fn bootstrap_port(&self) -> Option<u16> {
        Some(self.bootstrap_port.load(Ordering::Relaxed)).filter(|port| *port != 0)
    }

    /// Whether requests of `self` (a prefill) may be decoded by `decode`: tokens pair when equal or when either is empty (I1).
    #[inline]
    pub fn pairs_with(&self, decode: &Self) -> bool {
        self.token == decode.token || self.token.is_empty() || decode.token.is_empty()
    }

    /// A leg starts now.
    #[inline]
    pub fn started(&self) {
        let age = clock::recent().saturating_duration_since(self.born).as_millis() as u64;
        self.dispatched.store(age.max(1), Ordering::Relaxed);
    }

    /// When its last leg started.
    pub fn last_dispatch(&self) -> Option<Instant> {
        self.after_birth(&self.dispatched)
    }

    /// When its reason changed last; at its birth if never.
    pub fn last_change(&self) -> Instant {
        self.after_birth(&self.changed).unwrap_or(self.born)
    }

    fn after_birth(&self, age_ms: &AtomicU64) -> Option<Instant> {
        let age = age_ms.load(Ordering::Relaxed);
        (age != 0).then(|| self.born + Duration::from_millis(age))
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

    /// More of the reason, in words.
    pub fn detail(&self) -> Option<Arc<String>> {
        self.detail.load_full()
    }

    /// Registry writer only.
    pub(super) fn explain(&self, detail: Option<String>) {
        self.detail.store(detail.map(Arc::new));
    }

    pub fn reason(&self) -> Reason {
        Reason::from_u8(self.reason.load(Ordering::Relaxed))
    }

    /// Registry writer only. Returns the holds still out. Again for another reason: only that changes.
    pub(super) fn withdraw(&self, reason: Reason) -> u64 {
        self.because(reason);
        let holds = self.gate.withdraw();
        self.pool.close();
        self.withdrawals.notify_waiters();
        holds
    }

    /// Registry writer only.
    pub(super) fn restore(&self) {
        self.because(Reason::Selectable);
        self.pool.reopen();
        self.gate.restore();
    }

    fn because(&self, reason: Reason) {
        if self.reason.swap(reason as u8, Ordering::Relaxed) != reason as u8 {
            let age = clock::now().saturating_duration_since(self.born).as_millis() as u64;
            self.changed.store(age.max(1), Ordering::Relaxed);
        }
    }

    /// Registry writer only, while it is withdrawn.
    pub(super) fn learn_bootstrap(&self, port: u16) {
        self.bootstrap_port.store(port, Ordering::Relaxed);
    }
}
