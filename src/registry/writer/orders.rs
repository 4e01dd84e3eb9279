//! Drain orders: an operator's, a Pod's, and what is cut when the deadline of one that forces comes.

use tracing::info;

use super::super::listener::PodId;
use super::super::orders::{From, Orders};
use super::{Instant, Ordered, Writer};
use crate::types::drain_order::DrainOrder;

impl Writer {
    /// An operator's order, or its end.
    pub(super) fn order(&mut self, id: u64, order: Option<DrainOrder>) -> Ordered {
        let Some(member) = self.members.get_mut(&id) else { return Ordered::Unknown };
        let drain = order.is_some();
        if !member.order(From::Operator, order) {
            return Ordered::Unchanged;
        }
        member.endpoint.set_drained(drain);
        member.settle();
        let action = if drain { "withdrawn by an operator; volatile" } else { "restored by an operator" };
        info!(endpoint = %member.endpoint.url, holds = member.endpoint.holds(), "{action}");
        // A gate alone already decides; a new version tells readers that something changed.
        self.dirty.any = true;
        self.flush();
        Ordered::Changed
    }

    /// What a Pod's annotation says now, for endpoints of that Pod which have left too: they may still carry requests.
    pub(super) fn pod_order(&mut self, service: usize, pod: &PodId, order: Option<&DrainOrder>) {
        let left = self.departed.iter_mut().filter(|gone| gone.service == service);
        for gone in left.filter(|gone| gone.endpoint.pod.as_ref().is_some_and(|of| of.uid == pod.uid)) {
            if gone.orders.set(From::Pod, order.cloned()) {
                gone.endpoint.set_deadline(gone.orders.deadline());
            }
        }
        let entry = self.books.endpoints(service, &pod.uid);
        for id in entry {
            if let Some(member) = self.members.get_mut(&id) {
                member.order(From::Pod, order.cloned());
            }
        }
    }

    /// The next deadline of an order that forces.
    pub(super) fn cuts_at(&self) -> Option<Instant> {
        let members = self.members.values().map(|member| &member.orders);
        let left = self.departed.iter().map(|gone| &gone.orders);
        members.chain(left).filter_map(Orders::cuts_at).min()
    }

    /// Cuts what is open where such a deadline has come.
    pub(super) fn cut_due(&mut self, now: Instant) {
        let members = self.members.values_mut().map(|member| (&member.endpoint, &mut member.orders));
        let left = self.departed.iter_mut().map(|gone| (&gone.endpoint, &mut gone.orders));
        let mut cut = Vec::new();
        for (endpoint, orders) in members.chain(left) {
            let Some(order) = orders.take_due(now) else { continue };
            if endpoint.is_selectable() {
                continue;
            }
            let (url, role, reason) = (&endpoint.url, endpoint.role.as_str(), endpoint.reason().as_str());
            let (holds, handoffs) = (endpoint.holds(), endpoint.handoffs.count());
            info!(
                endpoint = %url, role, holds, handoffs, reason, order = ?order,
                "a drain's deadline came: what is open is cut; hand-offs end as ever"
            );
            endpoint.cut();
            cut.push(endpoint.id);
        }
        if let Some(phases) = self.phases.as_ref().filter(|_| !cut.is_empty()) {
            phases.cut(&cut);
        }
    }
}
