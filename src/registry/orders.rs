//! Who wants an endpoint drained, in his own words, and when what is open on it is cut: its Pod's annotation, and an operator.
//! Each keeps its own order, and ends it himself: neither undoes the other's.

use crate::types::clock::{Due, Instant};
use crate::types::drain_order::DrainOrder;

/// By when an endpoint is to carry nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    pub due: Due,
    /// What is open then is cut.
    pub force: bool,
}

/// Whose order it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Pod,
    Operator,
}

/// The orders that stand for one endpoint.
#[derive(Debug, Clone, Default)]
pub(super) struct Orders([Option<Order>; 2]);

#[derive(Debug, Clone)]
struct Order {
    said: DrainOrder,
    deadline: Option<Deadline>,
    /// Its deadline came, and what was open then was cut.
    done: bool,
}

impl Orders {
    /// The newest word of one side; `None` ends its order. The same again changes nothing: an order cuts once. Whether it
    /// was another.
    pub(super) fn set(&mut self, from: From, order: Option<DrainOrder>) -> bool {
        let standing = &mut self.0[from as usize];
        if standing.as_ref().map(|standing| &standing.said) == order.as_ref() {
            return false;
        }
        *standing = order.map(|said| {
            let due = said.deadline_ms.map(Due::at);
            let deadline = due.map(|due| Deadline { due, force: said.force });
            Order { said, deadline, done: false }
        });
        true
    }

    pub(super) fn of(&self, from: From) -> Option<&DrainOrder> {
        self.0[from as usize].as_ref().map(|order| &order.said)
    }

    /// The one that counts: the earliest that forces, else the earliest.
    pub(super) fn deadline(&self) -> Option<Deadline> {
        let all = self.0.iter().flatten().filter_map(|order| order.deadline);
        all.min_by_key(|deadline| (!deadline.force, deadline.due.instant()))
    }

    /// When something has to be cut next.
    pub(super) fn cuts_at(&self) -> Option<Instant> {
        self.0.iter().flatten().filter_map(Order::cuts_at).min()
    }

    /// The words of an order whose time to cut has come, and which has done so now.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<String> {
        let mut due = self.0.iter_mut().flatten().filter(|order| order.cuts_at().is_some_and(|at| at <= now));
        let first = due.next()?;
        first.done = true;
        let words = first.said.to_string();
        due.for_each(|other| other.done = true);
        Some(words)
    }
}

impl Order {
    fn cuts_at(&self) -> Option<Instant> {
        let forcing = self.deadline.filter(|deadline| deadline.force && !self.done);
        forcing.map(|deadline| deadline.due.instant())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::clock::{now, wall_ms};
    use std::time::Duration;

    fn order(reason: &str, in_ms: Option<i64>, force: bool) -> DrainOrder {
        let deadline_ms = in_ms.map(|ms| wall_ms().saturating_add_signed(ms));
        DrainOrder { reason: reason.to_owned(), deadline_ms, force }
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_that_forces_counts_and_each_cuts_once() {
        let mut orders = Orders::default();
        assert!(orders.set(From::Pod, Some(order("a", Some(60_000), true))));
        assert!(orders.set(From::Operator, Some(order("b", Some(30_000), false))));
        assert!(orders.deadline().unwrap().force && orders.deadline().unwrap().due.left_ms() > 59_000);
        let mine = order("c", Some(45_000), true);
        assert!(orders.set(From::Operator, Some(mine.clone())));
        assert!(!orders.set(From::Operator, Some(mine)), "the same word again");
        let at = orders.cuts_at().unwrap();
        assert!(at < now() + Duration::from_secs(46));
        assert_eq!(orders.take_due(at - Duration::from_millis(1)), None);
        assert!(orders.take_due(at).unwrap().starts_with("c; deadline="));
        assert_eq!(orders.take_due(at), None, "once");
        assert!(orders.cuts_at().unwrap() > at, "the other's own time comes still");
        assert!(orders.set(From::Pod, None));
        assert_eq!(orders.cuts_at(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_past_deadline_is_due_at_once_and_one_without_force_never() {
        let mut orders = Orders::default();
        orders.set(From::Pod, Some(order("a", Some(-60_000), false)));
        assert_eq!((orders.cuts_at(), orders.take_due(now())), (None, None));
        assert!(orders.deadline().unwrap().due.left_ms() <= -60_000);
        orders.set(From::Pod, Some(order("a", Some(-60_000), true)));
        assert_eq!(orders.cuts_at(), Some(now()));
        assert!(orders.take_due(now()).is_some());
    }
}
