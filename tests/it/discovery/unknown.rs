//! Nodes out of reach: Ready *Unknown*, alone or in masses (design §5 rule 8).

use tandem::config::{Dialect, RouterConfig};
use tandem::testkit::kube::{FakeKube, set_ready};
use tokio::time::sleep;

use super::rig::*;

fn fail_static(on: bool) -> RouterConfig {
    let mut config = plain(Dialect::Tandem);
    config.services[0].eligibility.fail_static = on;
    config
}

fn four() -> FakeKube {
    let api = FakeKube::new();
    (1..=4).for_each(|n| drop(api.create(pod(&format!("p{n}"), &format!("192.0.2.{n}")))));
    api
}

fn alarms(world: &World) -> f64 {
    world.metric("tandem_mass_withdrawals_total", &[("role", "mixed")])
}

fn lose(world: &World, n: usize) {
    world.api.update("default", &format!("p{n}"), |pod| set_ready(pod, "Unknown", Some("NodeStatusUnknown")));
}

#[tokio::test(start_paused = true)]
async fn more_than_half_of_a_role_within_a_minute_is_one_alarm() {
    let world = World::new(fail_static(false), four());
    world.ready().await;
    lose(&world, 1);
    lose(&world, 2);
    sleep(secs(1)).await;
    assert_eq!((world.selectable().len(), alarms(&world)), (2, 0.0), "half is not more than half");
    assert_eq!(world.reason(A).as_deref(), Some("ready_unknown"));
    lose(&world, 3);
    sleep(secs(1)).await;
    assert_eq!((world.selectable().len(), alarms(&world)), (1, 1.0));
    lose(&world, 4);
    sleep(secs(40)).await;
    assert_eq!(
        (world.selectable().len(), alarms(&world), world.ask(1).await),
        (0, 1.0, vec![503]),
        "one incident"
    );
    for n in 1..=4 {
        world.api.update("default", &format!("p{n}"), |pod| set_ready(pod, "True", None));
    }
    sleep(secs(1)).await;
    assert_eq!(world.selectable().len(), 4);
    (1..=4).for_each(|n| lose(&world, n));
    sleep(secs(1)).await;
    assert_eq!(alarms(&world), 2.0, "another one");
    world.end(&[]).await;
}

/// One after the other over a long time, and through Ready False, is no such incident.
#[tokio::test(start_paused = true)]
async fn a_slow_loss_and_a_loss_for_other_reasons_are_no_alarm() {
    let world = World::new(fail_static(false), four());
    world.ready().await;
    for n in 1..=3 {
        lose(&world, n);
        sleep(secs(61)).await;
    }
    assert_eq!((world.selectable().len(), alarms(&world)), (1, 0.0));
    world.end(&[]).await;
    let world = World::new(fail_static(false), four());
    world.ready().await;
    for n in 1..=4 {
        world.api.update("default", &format!("p{n}"), |pod| set_ready(pod, "False", None));
    }
    sleep(secs(1)).await;
    assert_eq!((world.selectable().len(), alarms(&world)), (0, 0.0));
    world.end(&[]).await;
}

/// Kept are Pods that were in use; False, a lost label and deletion withdraw all the same.
#[tokio::test(start_paused = true)]
async fn fail_static_keeps_what_was_in_use_and_nothing_else() {
    let api = four();
    api.create(pod("late", "192.0.2.5").ready("Unknown"));
    let world = World::new(fail_static(true), api);
    let engines: Vec<_> = (1..=5).map(|n| world.engine(&format!("192.0.2.{n}"))).collect();
    world.ready().await;
    (1..=4).for_each(|n| lose(&world, n));
    sleep(secs(40)).await;
    assert_eq!((world.selectable().len(), alarms(&world)), (4, 0.0));
    assert_eq!(world.reason("late").as_deref(), Some("ready_unknown"), "it was never in use");
    assert_eq!(world.ask(20).await, [200; 20]);
    assert_eq!(chats(&engines[4]), 0);
    world.api.update("default", "p1", |pod| set_ready(pod, "False", None));
    world.api.update("default", "p2", |pod| set_label(pod, ELIGIBLE, None));
    world.api.delete("default", "p3");
    world.within(SOON, "withdrawn", || world.selectable() == ["192.0.2.4"]).await;
    // Once withdrawn, Unknown is no way back.
    lose(&world, 1);
    world.api.update("default", "p2", |pod| set_label(pod, ELIGIBLE, Some("true")));
    sleep(secs(20)).await;
    assert_eq!(world.selectable(), ["192.0.2.4"]);
    world.api.update("default", "p1", |pod| set_ready(pod, "True", None));
    world.within(SOON, "back", || world.selectable() == [A, "192.0.2.4"]).await;
    world.router.assert_invariants(&engines.iter().collect::<Vec<_>>()).await;
}
