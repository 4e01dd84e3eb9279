//! Drain orders: whose counts, when it cuts, and what ends it.

use std::time::Duration;

use tokio::time::advance;

use super::*;
use crate::types::clock::wall_ms;

const MINUTE: i64 = 60_000;

/// Forces in so many milliseconds, or has done so.
fn forcing(in_ms: i64) -> DrainOrder {
    let deadline_ms = Some(wall_ms().saturating_add_signed(in_ms));
    DrainOrder { reason: "why".to_owned(), deadline_ms, force: true }
}

fn said(uid: &str, reason: Reason, order: &DrainOrder) -> PodUpdate {
    update(0, uid, 0, PodVerdict::Withdraw { reason, detail: None, order: Some(order.clone()) })
}

impl Rig {
    fn drained(&mut self, uid: &str, order: &DrainOrder) {
        self.apply(vec![said(uid, Reason::DrainAnnotation, order)]);
    }

    /// So much later, woken as its own loop would be.
    async fn later(&mut self, seconds: u64) {
        advance(Duration::from_secs(seconds)).await;
        self.settle();
    }
}

fn one() -> (Rig, Arc<Endpoint>) {
    let mut rig = Rig::plain();
    rig.up("a", 1, "192.0.2.1");
    let endpoint = rig.of("a");
    (rig, endpoint)
}

#[tokio::test(start_paused = true)]
async fn an_annotation_cuts_once_at_its_deadline_and_wakes_the_writer_for_it() {
    let (mut rig, endpoint) = one();
    rig.drained("a", &forcing(MINUTE));
    let wakes = rig.writer.wakes_at().unwrap() - clock::now();
    assert!((Duration::from_secs(59)..=Duration::from_mins(1)).contains(&wakes), "{wakes:?}");
    assert!(endpoint.deadline().unwrap().force);
    rig.later(59).await;
    assert_eq!(endpoint.cuts(), 0);
    rig.later(1).await;
    assert_eq!(endpoint.cuts(), 1);
    assert_eq!(rig.writer.wakes_at(), None);
    rig.later(600).await;
    assert_eq!(endpoint.cuts(), 1, "once");
    assert!(endpoint.deadline().unwrap().due.left_ms() < -590_000);
}

#[tokio::test(start_paused = true)]
async fn a_removed_annotation_ends_the_order_and_a_changed_one_moves_it() {
    let (mut rig, endpoint) = one();
    rig.drained("a", &forcing(MINUTE));
    rig.up("a", 1, "192.0.2.1");
    assert_eq!((endpoint.deadline(), rig.writer.wakes_at()), (None, None));
    rig.later(120).await;
    assert_eq!((endpoint.cuts(), endpoint.is_selectable()), (0, true), "aborted");
    rig.drained("a", &forcing(MINUTE));
    rig.drained("a", &forcing(5 * MINUTE));
    rig.later(61).await;
    assert_eq!(endpoint.cuts(), 0, "later now");
    rig.drained("a", &DrainOrder { force: false, ..forcing(MINUTE) });
    rig.later(600).await;
    assert_eq!(endpoint.cuts(), 0, "without force nothing is cut, however late it is");
    rig.drained("a", &forcing(-MINUTE));
    assert_eq!(endpoint.cuts(), 1, "a deadline in the past acts at once");
}

/// Not ready, being deleted, or not marked: it is still drained, and the order is the same one.
#[tokio::test(start_paused = true)]
async fn the_order_stands_whatever_else_withdraws_the_pod_and_survives_its_end() {
    for gone in [false, true] {
        let (mut rig, endpoint) = one();
        let order = forcing(MINUTE);
        rig.drained("a", &order);
        for reason in [Reason::NotReady, Reason::NotEligible, Reason::DrainAnnotation, Reason::Terminating] {
            rig.apply(vec![said("a", reason, &order)]);
            assert_eq!(rig.words(), [format!("a {}", reason.as_str())]);
            rig.later(10).await;
        }
        let _hold = endpoint.handoffs.begin();
        if gone {
            rig.apply(vec![update(0, "a", 0, PodVerdict::Gone(Reason::Deleted))]);
            assert_eq!(rig.departed().len(), 1);
        }
        rig.later(15).await;
        assert_eq!(endpoint.cuts(), 0);
        rig.later(6).await;
        assert_eq!(endpoint.cuts(), 1, "gone: {gone}");
    }
}

/// An older incarnation of the Pod may still carry requests.
#[tokio::test(start_paused = true)]
async fn a_pods_word_counts_for_its_endpoints_that_have_left() {
    let (mut rig, old) = one();
    let _work = old.handoffs.begin();
    rig.up("a", 1, "192.0.2.2");
    let new = rig.of("a");
    let _more = new.handoffs.begin();
    rig.up("b", 1, "192.0.2.3");
    rig.drained("a", &forcing(MINUTE));
    rig.up("a", 1, "192.0.2.2");
    rig.later(120).await;
    assert_eq!((old.cuts(), new.cuts()), (0, 0), "aborted for both");
    rig.up("a", 1, "192.0.2.4");
    let newest = rig.of("a");
    rig.drained("a", &forcing(-1));
    assert_eq!((new.cuts(), newest.cuts(), rig.of("b").cuts()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_operators_order_is_replaced_by_the_next_and_ended_whole() {
    let (mut rig, endpoint) = one();
    let id = endpoint.id;
    let first = forcing(MINUTE);
    assert_eq!(rig.writer.order(id, Some(first.clone())), Ordered::Changed);
    assert_eq!(rig.writer.order(id, Some(first)), Ordered::Unchanged);
    assert!(endpoint.detail().unwrap().starts_with("why; deadline="));
    assert_eq!(rig.writer.order(id, Some(DrainOrder::default())), Ordered::Changed);
    assert_eq!((endpoint.deadline(), endpoint.detail()), (None, None));
    rig.writer.order(id, Some(forcing(MINUTE)));
    for reason in [Reason::NotReady, Reason::ReadyUnknown] {
        rig.apply(vec![withdraw("a", reason)]);
        rig.up("a", 1, "192.0.2.1");
        assert_eq!(rig.words(), ["a admin_drain"], "a flap undoes nothing");
        assert!(endpoint.detail().unwrap().starts_with("why; deadline="));
    }
    // Its Pod leaves the list and comes back.
    rig.apply(vec![update(0, "a", 0, PodVerdict::Gone(Reason::NotListed))]);
    rig.up("a", 1, "192.0.2.1");
    assert_eq!((rig.of("a").id, rig.words()), (id, vec!["a admin_drain".to_owned()]));
    assert_eq!(rig.writer.order(id, None), Ordered::Changed);
    rig.later(120).await;
    assert_eq!((endpoint.cuts(), endpoint.is_selectable()), (0, true));
    rig.writer.order(id, Some(forcing(MINUTE)));
    rig.later(61).await;
    assert_eq!(endpoint.cuts(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_two_orders_that_force_the_earlier_counts_and_neither_ends_the_other() {
    let (mut rig, endpoint) = one();
    rig.drained("a", &forcing(5 * MINUTE));
    rig.writer.order(endpoint.id, Some(forcing(MINUTE)));
    rig.later(61).await;
    assert_eq!(endpoint.cuts(), 1);
    rig.writer.order(endpoint.id, Some(forcing(10 * MINUTE)));
    rig.writer.order(endpoint.id, None);
    rig.later(240).await;
    assert_eq!(endpoint.cuts(), 2, "the Pod's own came");
}
