//! The one writer: applies changes in order and publishes whole snapshots.
//!
//! A withdrawal acts on the gate at once; the snapshot that says so follows. What is added is published once everything that
//! it displaces is withdrawn.

mod guard;
mod orders;
mod pods;
mod split;
mod statics;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep_until;
use tracing::info;

use super::endpoint::Endpoint;
use super::lanes::{Lanes, Probed};
use super::listener::PodBatch;
use super::member::Member;
use super::reason::Reason;
use super::rollout::Said;
use super::snapshot::{Departed, Service, Snapshot, View};
use super::sync::Synced;
use crate::config;
use crate::drain::Phases;
use crate::metrics::EndpointFamilies;
use crate::types::clock::{self, Instant};
use crate::types::drain_order::DrainOrder;
use guard::Guard;
use pods::Books;
pub use split::{SplitApplied, SplitOrder};

/// Changes waiting for the writer; senders wait when it is full.
const QUEUE: usize = 256;
/// Most changes that become one snapshot.
const AT_ONCE: usize = 256;
/// How long a service waits for first verdicts after its first complete list (I9).
const VERDICTS: Duration = Duration::from_secs(5);
/// How long an endpoint that left is kept after its last request, for reports.
const RETENTION: Duration = Duration::from_secs(15);
/// How often those are looked at.
const SWEEP: Duration = Duration::from_secs(1);

/// What can be asked of the writer.
#[derive(Debug)]
pub enum Change {
    /// Take no new request on this endpoint (admin; volatile). Instead of an earlier order, if there was one.
    Withdraw(u64, DrainOrder, oneshot::Sender<Ordered>),
    /// Take new requests again; ends all of the order.
    Restore(u64, oneshot::Sender<Ordered>),
    /// The services as configured now, the same ones in the same order. Endpoints that stay keep everything; others are new,
    /// or withdrawn for good.
    Services(Vec<config::Service>, oneshot::Sender<Replaced>),
    /// Another split of this service, or with `None` the file's again.
    Split(SplitOrder, oneshot::Sender<SplitApplied>),
    /// What the rollout object of these services says, at which version of it.
    Sourced(Vec<usize>, Said, u64),
    /// The rollout object of these services is refused by the API server with this status.
    SourceRefused(Vec<usize>, u16),
    /// What a source of Pods saw: one atomic change.
    Pods(PodBatch),
    /// What an engine answered.
    Probed(Probed),
    /// The source of these services is refused by the API server with this status.
    Refused(Vec<usize>, u16),
}

/// What an operator's order came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordered {
    /// No such endpoint.
    Unknown,
    /// It was ordered before. Whether the endpoint is selectable is another matter: an order also stands for the time when
    /// nothing else withdraws it any more.
    Unchanged,
    Changed,
}

/// What a change of the services came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    pub added: usize,
    pub removed: usize,
    /// Of the snapshot with the change.
    pub version: u64,
}

/// Senders' side.
pub type Handle = mpsc::Sender<Change>;

/// Owner of the endpoint set.
#[derive(Debug)]
pub struct Writer {
    view: View,
    /// By endpoint id.
    members: HashMap<u64, Member>,
    books: Books,
    departed: Vec<Departed>,
    changes: mpsc::Receiver<Change>,
    threads: usize,
    families: EndpointFamilies,
    lanes: Option<Arc<dyn Lanes>>,
    /// Whom to tell that what is open on an endpoint is cut.
    phases: Option<Arc<Phases>>,
    /// Weights of rollout objects, by service: the last ones that could be followed. `None`: it is no source.
    sourced: HashMap<usize, Option<Vec<config::SplitEntry>>>,
    guard: Guard,
    /// Number of the last probe.
    job: u64,
    /// When services that have their list stop waiting for verdicts.
    verdicts_by: HashMap<usize, Instant>,
    dirty: Dirty,
    /// Version of the newest snapshot.
    published: watch::Sender<u64>,
}

/// What the next snapshot has to take over.
#[derive(Debug, Default)]
struct Dirty {
    /// Something did change.
    any: bool,
    notes: bool,
    departed: bool,
    /// By service: endpoints that came.
    added: HashMap<usize, Vec<Arc<Endpoint>>>,
    /// By service: ids that left.
    left: HashMap<usize, HashSet<u64>>,
}

impl Writer {
    /// Builds the first snapshot from the configuration's static endpoints.
    pub fn new(
        services: &[config::Service],
        threads: usize,
        families: &EndpointFamilies,
    ) -> (Self, View, Handle) {
        let services: Vec<_> = services
            .iter()
            .enumerate()
            .map(|(i, s)| Arc::new(statics::service(i, s, None, threads, families)))
            .collect();
        let members = services.iter().flat_map(statics::members).collect();
        let books = Books::new(services.len());
        let view = Arc::new(ArcSwap::from_pointee(Snapshot::new(1, services)));
        let (handle, changes) = mpsc::channel(QUEUE);
        let writer = Self {
            view: Arc::clone(&view),
            members,
            books,
            departed: Vec::new(),
            changes,
            threads,
            families: families.clone(),
            lanes: None,
            phases: None,
            sourced: HashMap::new(),
            guard: Guard::default(),
            job: 0,
            verdicts_by: HashMap::new(),
            dirty: Dirty::default(),
            published: watch::Sender::new(1),
        };
        (writer, view, handle)
    }

    /// Asks engines behind Pods there before their first request. Without lanes they stay out.
    pub fn ask(&mut self, lanes: Arc<dyn Lanes>) {
        self.lanes = Some(lanes);
    }

    /// Wakes requests through `phases` when a drain cuts them. Without, they notice when they are woken by something else.
    pub fn cut_through(&mut self, phases: Arc<Phases>) {
        self.phases = Some(phases);
    }

    /// Version of the newest snapshot, as it changes.
    pub fn versions(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }

    /// Runs until every [`Handle`] is gone.
    pub async fn run(mut self) {
        loop {
            let wake = self.wakes_at();
            let change = tokio::select! {
                biased;
                change = self.changes.recv() => change,
                () = sleep_until(wake.unwrap_or_else(clock::now)), if wake.is_some() => {
                    self.tick();
                    self.flush();
                    continue;
                }
            };
            let Some(change) = change else { return };
            self.apply(change);
            // What waits already is taken together: one snapshot for a burst. Gates do not wait for it.
            for _ in 1..AT_ONCE {
                let Ok(change) = self.changes.try_recv() else { break };
                self.apply(change);
            }
            self.tick();
            self.flush();
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        let sweep = (!self.departed.is_empty()).then(|| clock::now() + SWEEP);
        let timers = sweep.into_iter().chain(self.guard.asks_at()).chain(self.cuts_at());
        self.verdicts_by.values().copied().chain(timers).min()
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Withdraw(id, order, done) => _ = done.send(self.order(id, Some(order))),
            Change::Restore(id, done) => _ = done.send(self.order(id, None)),
            Change::Services(services, done) => {
                // What came before belongs to the services as they were.
                self.flush();
                _ = done.send(self.replace(&services));
            }
            Change::Split(order, done) => _ = done.send(self.split(order)),
            Change::Sourced(services, said, version) => {
                for service in services {
                    self.sourced(service, &said, version);
                }
            }
            Change::SourceRefused(services, status) => {
                let snapshot = self.view.load();
                for service in services.iter().filter_map(|index| snapshot.services.get(*index)) {
                    service.rollout.refused(status);
                }
            }
            Change::Pods(batch) => self.pods(batch),
            Change::Probed(probed) => self.probed(probed),
            Change::Refused(services, status) => {
                for service in &services {
                    self.set_sync(*service, Synced::Refused(status));
                }
            }
        }
    }

    fn probed(&mut self, Probed { id, job, result }: Probed) {
        let Some(member) = self.members.get_mut(&id) else { return };
        member.judge(job, result);
        self.dirty.any |= member.settle();
        self.guard.suspect(member.service);
    }

    /// What the changes before it come to, and what time alone changes: engines that contradict their labels, services that waited long enough for verdicts, drains whose deadline came, endpoints that left
    /// long enough ago.
    fn tick(&mut self) {
        let now = clock::now();
        self.judge_claims(now);
        self.ask_again(now);
        self.judge_readiness();
        self.cut_due(now);
        let before = self.departed.len();
        self.departed.retain(|gone| {
            let endpoint = &gone.endpoint;
            let quiet = endpoint.load().quiesced.map(|since| since.max(gone.at));
            quiet.is_none_or(|since| now.saturating_duration_since(since) < RETENTION)
        });
        self.dirty.departed |= self.departed.len() != before;
    }

    /// A service is ready when it has its list and every endpoint of that its first verdict, or had its time for it.
    fn judge_readiness(&mut self) {
        if self.verdicts_by.is_empty() {
            return;
        }
        let now = clock::now();
        let snapshot = self.view.load_full();
        let waiting = std::mem::take(&mut self.verdicts_by);
        for (index, by) in waiting {
            let Some(service) = snapshot.services.get(index) else { continue };
            let pending = |member: &Member| member.service == index && member.is_pending();
            if now < by && self.members.values().any(pending) {
                self.verdicts_by.insert(index, by);
                continue;
            }
            service.sync.set(Synced::Ready);
            let endpoints = self.members.values().filter(|member| member.service == index).count();
            info!(service = %service.config.name, endpoints, "endpoints are known");
        }
    }

    fn set_sync(&mut self, service: usize, to: Synced) {
        let snapshot = self.view.load();
        let Some(service) = snapshot.services.get(service) else { return };
        let before = service.sync.now();
        service.sync.set(to);
        if to == Synced::Listed && !matches!(before, Synced::Listed | Synced::Ready) {
            self.verdicts_by.insert(service.index, clock::now() + VERDICTS);
        }
    }

    /// Publishes what changed, if anything did.
    fn flush(&mut self) {
        let Dirty { any, notes, departed, added, left } = std::mem::take(&mut self.dirty);
        if !(any || notes || departed || !added.is_empty() || !left.is_empty()) {
            return;
        }
        let before = self.view.load_full();
        let mut services = before.services.clone();
        for (index, service) in services.iter_mut().enumerate() {
            let (added, left) = (added.get(&index), left.get(&index));
            if added.is_some() || left.is_some() {
                let none = HashSet::new();
                *service =
                    Arc::new(changed(service, added.map_or(&[], Vec::as_slice), left.unwrap_or(&none)));
            }
        }
        let notes = if notes { self.books.notes() } else { Arc::clone(&before.notes) };
        let departed = if departed { self.departed.as_slice().into() } else { Arc::clone(&before.departed) };
        self.publish(Snapshot::with(before.version + 1, services, notes, departed));
    }

    fn publish(&self, snapshot: Snapshot) -> u64 {
        let version = snapshot.version;
        self.view.store(Arc::new(snapshot));
        self.published.send_replace(version);
        version
    }

    /// Withdraws an endpoint for good. It stays known until its last request is over.
    fn depart(&mut self, id: u64, reason: Reason) {
        let Some(member) = self.members.remove(&id) else { return };
        let (endpoint, service, orders) =
            (Arc::clone(&member.endpoint), member.service, member.orders.clone());
        let holds = endpoint.withdraw(reason);
        info!(endpoint = %endpoint.url, role = endpoint.role.as_str(), reason = reason.as_str(), holds, "endpoint left");
        self.dirty.left.entry(service).or_default().insert(id);
        if let Some(added) = self.dirty.added.get_mut(&service) {
            added.retain(|e| e.id != id);
        }
        self.dirty.departed = true;
        self.departed.push(Departed { service, endpoint, at: clock::now(), orders });
    }
}

/// A service without those that left and with those that came, each list sorted by URL.
fn changed(service: &Service, added: &[Arc<Endpoint>], left: &HashSet<u64>) -> Service {
    let mut lists = service.lists();
    for list in &mut lists {
        list.retain(|e| !left.contains(&e.id));
    }
    for endpoint in added {
        lists[endpoint.role as usize].push(Arc::clone(endpoint));
    }
    if !added.is_empty() {
        for list in &mut lists {
            list.sort_by(|a, b| (&a.url, a.id).cmp(&(&b.url, b.id)));
        }
    }
    Service::new(service.index, service.config.clone(), lists, service.kept())
}

#[cfg(test)]
#[path = "../tests/writer.rs"]
mod tests;
