//! One listener of one engine, with everything that must outlive snapshots.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;

use super::in_flight::InFlight;
use super::listener::{Listener, PodId};
use super::moments::Moments;
use super::orders::Deadline;
use super::reason::Reason;
use crate::config::Upstream;
use crate::ledger::{Gate, Handoffs, Holder, Stages};
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
    /// How far its legs are.
    pub stages: Stages,
    moments: Moments,
    drained: AtomicBool,
    /// By when it is to carry nothing, where a drain says so.
    deadline: ArcSwapOption<Deadline>,
    /// How often everything that was open on it was cut.
    cuts: AtomicU32,
    forced: AtomicU64,
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

/// Whether an endpoint takes new requests, and what it carries.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Since when it takes none.
    pub withdrawn: Option<Instant>,
    pub in_flight: InFlight,
    /// Since when it takes none and carries nothing.
    pub quiesced: Option<Instant>,
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
            stages: Stages::default(),
            moments: Moments::now(),
            drained: AtomicBool::new(false),
            deadline: ArcSwapOption::empty(),
            cuts: AtomicU32::new(0),
            forced: AtomicU64::new(0),
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
        self.moments.mark(&self.moments.dispatched, clock::recent());
    }

    /// A leg is over now; before its hold is given back, so that who sees the lower count also sees when. Not the task's own
    /// time: legs end in tasks that do not refresh it, and it would say that the endpoint was quiet for longer than it was.
    #[inline]
    pub fn ended(&self) {
        self.moments.mark_latest(&self.moments.over, clock::now());
    }

    /// When its last leg started.
    pub fn last_dispatch(&self) -> Option<Instant> {
        self.moments.get(&self.moments.dispatched)
    }

    /// When its reason changed last; at its birth if never.
    pub fn last_change(&self) -> Instant {
        self.moments.get(&self.moments.changed).unwrap_or(self.moments.born())
    }

    /// Since when it takes no new requests. `None`: it does.
    pub fn withdrawn_at(&self) -> Option<Instant> {
        let at = self.moments.get(&self.moments.withdrawn);
        (!self.is_selectable()).then(|| at.unwrap_or(self.moments.born()))
    }

    /// What it carries for this router.
    pub fn in_flight(&self) -> InFlight {
        // The holds first: KV that a prefill's leg leaves behind is counted before that leg's hold ends.
        let (holds, stages, handoff) = (self.holds(), self.stages.counts(), self.handoffs.count());
        InFlight::new(self.role, holds, stages, handoff)
    }

    /// Whether it takes new requests, and what it carries: facts that agree with each other.
    pub fn load(&self) -> Load {
        // The bit first: nothing that is counted after it can have come after it (I3).
        let withdrawn = self.withdrawn_at();
        let in_flight = self.in_flight();
        let quiesced = withdrawn.filter(|_| in_flight.total() == 0).map(|withdrawn| {
            let over = self.moments.get(&self.moments.over);
            [over, self.handoffs.last_end()].into_iter().flatten().fold(withdrawn, Instant::max)
        });
        Load { withdrawn, in_flight, quiesced }
    }

    /// An operator withdraws it at this router alone; volatile.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed)
    }

    /// Registry writer only.
    pub(super) fn set_drained(&self, drained: bool) {
        self.drained.store(drained, Ordering::Relaxed);
    }

    /// By when it is to carry nothing, where a drain says so.
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline.load().as_deref().copied()
    }

    /// Registry writer only.
    pub(super) fn set_deadline(&self, deadline: Option<Deadline>) {
        self.deadline.store(deadline.map(Arc::new));
    }

    /// How often what was open on it was cut. A leg that began at another count is cut.
    #[inline]
    pub fn cuts(&self) -> u32 {
        self.cuts.load(Ordering::Acquire)
    }

    /// Everything that is open on it ends. Registry writer only, while it is withdrawn: nothing begins meanwhile.
    pub(super) fn cut(&self) {
        self.cuts.fetch_add(1, Ordering::Release);
    }

    /// One leg was cut on it.
    pub fn leg_forced(&self) {
        self.forced.fetch_add(1, Ordering::Relaxed);
        self.metrics.forced();
    }

    /// Requests that were cut on it because a drain's deadline asked for that.
    pub fn forced(&self) -> u64 {
        self.forced.load(Ordering::Relaxed)
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
        if self.is_selectable() {
            self.moments.mark(&self.moments.withdrawn, clock::now());
        }
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
            self.moments.mark(&self.moments.changed, clock::now());
        }
    }

    /// Registry writer only, while it is withdrawn.
    pub(super) fn learn_bootstrap(&self, port: u16) {
        self.bootstrap_port.store(port, Ordering::Relaxed);
    }
}
