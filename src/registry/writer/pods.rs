//! Endpoints that Pods give. Everything is kept by UID: a namesake, or a Pod at the same address, inherits nothing.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::warn;

use super::super::listener::{Born, Listener, PodBatch, PodId, PodUpdate, PodVerdict};
use super::super::orders::Orders;
use super::super::snapshot::PodNote;
use super::super::sync::Synced;
use super::statics::series;
use super::{Departed, Endpoint, Member, Reason, Writer, clock, info};
use crate::config::Service as Config;

/// What is known of Pods, by service and UID, and who owns which address.
#[derive(Debug)]
pub(super) struct Books {
    services: Vec<HashMap<String, Entry>>,
    /// By `host:port`: the Pod that qualifies there.
    owners: HashMap<String, Owner>,
    /// Two Pods had one address, some time.
    contended: bool,
}

#[derive(Debug)]
struct Entry {
    pod: Arc<PodId>,
    /// Ids of its endpoints.
    endpoints: Vec<u64>,
    born: Born,
    epoch: Option<u64>,
    /// Shown while it has no endpoint.
    note: Option<Arc<PodNote>>,
}

#[derive(Debug)]
struct Owner {
    uid: String,
    born: Born,
}

impl Books {
    pub(super) fn new(services: usize) -> Self {
        Self {
            services: (0..services).map(|_| HashMap::new()).collect(),
            owners: HashMap::new(),
            contended: false,
        }
    }

    pub(super) fn notes(&self) -> Arc<[Arc<PodNote>]> {
        let mut notes: Vec<_> = self
            .services
            .iter()
            .flat_map(HashMap::values)
            .filter(|entry| entry.endpoints.is_empty())
            .filter_map(|entry| entry.note.clone())
            .collect();
        notes.sort_by(|a, b| {
            (&a.pod.namespace, &a.pod.name, a.service).cmp(&(&b.pod.namespace, &b.pod.name, b.service))
        });
        notes.into()
    }

    /// Creation of a Pod, seconds since the Unix epoch.
    pub(super) fn created(&self, service: usize, uid: &str) -> i64 {
        let entry = self.services.get(service).and_then(|book| book.get(uid));
        entry.map_or(0, |entry| entry.born.created)
    }

    /// Ids of the Pod's endpoints.
    pub(super) fn endpoints(&self, service: usize, uid: &str) -> Vec<u64> {
        let entry = self.services.get(service).and_then(|book| book.get(uid));
        entry.map_or_else(Vec::new, |entry| entry.endpoints.clone())
    }

    fn entry(&mut self, service: usize, pod: &Arc<PodId>) -> Option<&mut Entry> {
        let book = self.services.get_mut(service)?;
        let (endpoints, born) = (Vec::new(), Born::default());
        let fresh = || Entry { pod: Arc::clone(pod), endpoints, born, epoch: None, note: None };
        Some(book.entry(pod.uid.clone()).or_insert_with(fresh))
    }
}

impl Writer {
    pub(super) fn pods(&mut self, batch: PodBatch) {
        // Withdrawals first: one change can move an address from one Pod to another.
        let (register, withdraw): (Vec<_>, Vec<_>) =
            batch.updates.into_iter().partition(|u| matches!(u.verdict, PodVerdict::Register { .. }));
        for update in withdraw.into_iter().chain(register) {
            self.pod(update);
        }
        // A service is not called known, and soon ready, before readers can see what is known of it.
        if batch.listed.iter().any(|service| !self.is_known(*service)) {
            self.flush();
        }
        for service in batch.listed {
            self.set_sync(service, Synced::Listed);
        }
    }

    fn is_known(&self, service: usize) -> bool {
        let snapshot = self.view.load();
        let sync = snapshot.services.get(service).map(|service| service.sync.now());
        matches!(sync, Some(Synced::Listed | Synced::Ready))
    }

    fn pod(&mut self, PodUpdate { service, pod, born, verdict }: PodUpdate) {
        self.guard.suspect(service);
        match verdict {
            PodVerdict::Gone(reason) => self.pod_gone(service, &pod, reason),
            PodVerdict::Withdraw { reason, detail, order } => {
                self.withdraw_pod(service, &pod, reason, detail);
                self.pod_order(service, &pod, order.as_ref());
            }
            PodVerdict::Register { listeners, epoch } => {
                // Before anything can come back: an order that ended forces nothing.
                self.pod_order(service, &pod, None);
                self.register_pod(service, &pod, born, listeners, epoch);
            }
        }
    }

    fn pod_gone(&mut self, service: usize, pod: &PodId, reason: Reason) {
        let entry = self.books.services.get_mut(service).and_then(|book| book.remove(&pod.uid));
        let Some(entry) = entry else { return };
        self.release(service, &entry.endpoints);
        self.dirty.notes |= entry.endpoints.is_empty();
        for id in entry.endpoints {
            self.depart(id, reason);
        }
    }

    /// Withdraws what the Pod had registered, wherever its object points to now.
    fn withdraw_pod(&mut self, service: usize, pod: &Arc<PodId>, reason: Reason, detail: Option<String>) {
        let Some(config) = self.view.load().services.get(service).map(Arc::clone) else { return };
        let Some(entry) = self.books.entry(service, pod) else { return };
        let endpoints = entry.endpoints.clone();
        if endpoints.is_empty() {
            let same = entry.note.as_ref().is_some_and(|n| n.reason == reason && n.detail == detail);
            if !same {
                let (pod, since) = (Arc::clone(&entry.pod), clock::now());
                entry.note = Some(Arc::new(PodNote { service, pod, reason, detail, since }));
                self.dirty.notes = true;
            }
            return;
        }
        // An address stays with its Pod while that may still listen there: an older one that was overlooked must not get
        // its requests.
        if matches!(reason, Reason::NotRunning | Reason::NoAddress) {
            self.release(service, &endpoints);
        }
        for id in endpoints {
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.source = Some(reason);
            member.endpoint.explain(detail.clone());
            if reason.ends_probes() {
                member.forget(&config.config);
            } else {
                member.stop();
            }
            self.dirty.any |= member.settle();
        }
    }

    fn register_pod(
        &mut self,
        service: usize,
        pod: &Arc<PodId>,
        born: Born,
        listeners: Vec<Listener>,
        epoch: u64,
    ) {
        let Some(config) = self.view.load().services.get(service).map(Arc::clone) else { return };
        let Some(entry) = self.books.entry(service, pod) else { return };
        entry.born = born;
        let restarted = entry.epoch.replace(epoch).is_some_and(|before| before != epoch);
        let known = std::mem::take(&mut entry.endpoints);
        self.dirty.notes |= known.is_empty();
        let mut kept = Vec::with_capacity(listeners.len());
        let mut new = Vec::new();
        for listener in listeners {
            let same = |id: &&u64| {
                !kept.contains(*id) && self.members.get(id).is_some_and(|m| m.endpoint.is_at(&listener))
            };
            match known.iter().find(same) {
                Some(id) => kept.push(*id),
                None => new.push(listener),
            }
        }
        // The old incarnation before the new one: at no instant both.
        let replaced: Vec<u64> = known.into_iter().filter(|id| !kept.contains(id)).collect();
        self.release(service, &replaced);
        for id in replaced {
            self.depart(id, Reason::Replaced);
        }
        for listener in new {
            let (endpoint, orders) = self.revived(&listener).unwrap_or_else(|| {
                let metrics = |url: &str, role| series(&self.families, &config.config, &listener, url, role);
                let endpoint = Endpoint::new(&listener, self.threads, &config.config.upstream, metrics);
                (endpoint, Orders::default())
            });
            if config.sync.now() == Synced::Ready {
                let (url, role) = (&endpoint.url, endpoint.role.as_str());
                info!(endpoint = %url, role, pod = %pod.name, uid = %pod.uid, "endpoint registered");
            }
            kept.push(endpoint.id);
            let mut member = Member::new(Arc::clone(&endpoint), &config.config, service);
            member.orders = orders;
            self.members.insert(endpoint.id, member);
            self.dirty.added.entry(service).or_default().push(endpoint);
        }
        for id in &kept {
            let Some(member) = self.members.get_mut(id) else { continue };
            member.returns();
            if restarted {
                member.forget(&config.config);
            }
            self.seat(*id, &pod.uid, born, &config.config);
        }
        if let Some(entry) = self.books.entry(service, pod) {
            entry.endpoints = kept;
            entry.note = None;
        }
    }

    /// Gives the endpoint its address, if no later Pod has that, and asks its engine what is still to be asked.
    fn seat(&mut self, id: u64, uid: &str, born: Born, config: &Config) {
        let taken = !self.claim(id, uid, born);
        let Some(member) = self.members.get_mut(&id) else { return };
        member.seat(taken);
        if taken {
            member.stop();
        } else if let Some(lanes) = &self.lanes {
            member.probe(config, &mut self.job, &**lanes);
        }
        self.dirty.any |= member.settle();
    }

    /// Makes the Pod the owner of this endpoint's address, and withdraws who was. `false`: a later Pod has it.
    fn claim(&mut self, id: u64, uid: &str, born: Born) -> bool {
        let Some(address) = self.members.get(&id).map(|m| m.endpoint.authority.clone()) else { return false };
        match self.books.owners.get(&address) {
            Some(owner) if owner.uid == uid => return true,
            Some(owner) if owner.born > born => {
                self.books.contended = true;
                return false;
            }
            Some(owner) => {
                warn!(
                    address,
                    pod_uid = uid,
                    before = owner.uid,
                    "a later Pod has the address of another; that one is withdrawn"
                );
                self.books.contended = true;
                self.evict(&address, uid);
            }
            None => {}
        }
        self.books.owners.insert(address, Owner { uid: uid.to_owned(), born });
        true
    }

    /// Withdraws every endpoint of other Pods at this address, whatever its service.
    fn evict(&mut self, address: &str, uid: &str) {
        for member in self.members.values_mut() {
            let other = member.endpoint.pod.as_ref().is_some_and(|pod| pod.uid != uid);
            if other && member.endpoint.authority == address {
                member.taken = true;
                member.stop();
                self.guard.suspect(member.service);
                self.dirty.any |= member.settle();
            }
        }
    }

    /// The same incarnation, if it left a short time ago or still carries requests: its counts stay its own. Also: the orders
    /// it had.
    fn revived(&mut self, listener: &Listener) -> Option<(Arc<Endpoint>, Orders)> {
        let same = |gone: &Departed| gone.endpoint.pod == listener.pod && gone.endpoint.is_at(listener);
        let at = self.departed.iter().position(same)?;
        self.dirty.departed = true;
        let Departed { endpoint, orders, .. } = self.departed.swap_remove(at);
        Some((endpoint, orders))
    }

    /// Gives the addresses of these endpoints up, where no other service of this Pod still qualifies there. Who waited for one
    /// has it then.
    fn release(&mut self, service: usize, endpoints: &[u64]) {
        for id in endpoints {
            let Some(member) = self.members.get(id) else { continue };
            let address = member.endpoint.authority.clone();
            let Some(pod) = member.endpoint.pod.clone() else { continue };
            let owner = self.books.owners.get(&address);
            if owner.is_none_or(|owner| owner.uid != pod.uid) || self.qualifies(service, &pod, &address) {
                continue;
            }
            self.books.owners.remove(&address);
            if !self.books.contended {
                continue;
            }
            let next = self
                .members
                .iter()
                .filter(|(_, m)| m.taken && m.source.is_none() && m.endpoint.authority == address);
            let next: Vec<(u64, Arc<PodId>, usize)> = next
                .filter_map(|(id, m)| Some((*id, m.endpoint.pod.clone()?, m.service)))
                .filter(|(_, other, _)| other.uid != pod.uid)
                .collect();
            for (id, pod, service) in next {
                self.hand_over(id, &pod, service);
            }
        }
    }

    /// Gives an address that became free to the endpoint that waited for it.
    fn hand_over(&mut self, id: u64, pod: &PodId, service: usize) {
        let Some(config) = self.view.load().services.get(service).map(Arc::clone) else { return };
        let entry = self.books.services.get(service).and_then(|book| book.get(&pod.uid));
        let Some(born) = entry.map(|entry| entry.born) else { return };
        self.seat(id, &pod.uid, born, &config.config);
        self.guard.suspect(service);
    }

    /// Whether the Pod has an endpoint at this address that qualifies in another service.
    fn qualifies(&self, service: usize, pod: &PodId, address: &str) -> bool {
        let others = self.books.services.iter().enumerate().filter(|(other, _)| *other != service);
        let entries = others.filter_map(|(_, book)| book.get(&pod.uid));
        entries
            .flat_map(|entry| &entry.endpoints)
            .filter_map(|id| self.members.get(id))
            .any(|member| member.source.is_none() && member.endpoint.authority == address)
    }
}

#[cfg(test)]
#[path = "../tests/listed.rs"]
mod tests;
