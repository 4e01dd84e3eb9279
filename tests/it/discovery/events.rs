//! What the watch tells, in whatever order and shape, and what it means for requests.

use serde_json::json;
use tandem::config::Dialect;
use tandem::testkit::kube::{FakeKube, set_ready};
use tandem::types::clock::now;
use tokio::time::sleep;

use super::rig::*;

fn two() -> World {
    let api = FakeKube::new();
    api.create(pod("p1", A));
    api.create(pod("p2", B));
    World::new(plain(Dialect::Tandem), api)
}

#[tokio::test(start_paused = true)]
async fn b59_a_deleted_event_alone_withdraws() {
    let world = two();
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    let load = world.load(2, ms(5));
    sleep(secs(1)).await;
    world.api.force_delete("default", "p2");
    let at = now();
    world.within(SOON, "withdrawn", || world.selectable() == [A]).await;
    assert_eq!(world.reason(B).as_deref(), Some("deleted"));
    sleep(secs(5)).await;
    load.end_well().await;
    none_after(&b, at);
    assert!(chats(&b) > 0 && chats(&a) > chats(&b));
    world.end(&[&a, &b]).await;
}

/// The event's object has no address, no labels, no status: the UID alone says who left.
#[tokio::test(start_paused = true)]
async fn b59_a_deleted_event_whose_object_says_nothing_withdraws_its_uid() {
    let world = two();
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    assert_eq!(world.ask(4).await, [200; 4]);
    let uid = world.api.pod("default", "p2").unwrap()["metadata"]["uid"].clone();
    world.api.lose_next(1);
    let version = world.api.force_delete("default", "p2");
    let object = json!({ "metadata": { "uid": uid, "resourceVersion": version.to_string() } });
    world.api.inject("DELETED", &object);
    let at = now();
    world.within(SOON, "withdrawn", || world.selectable() == [A]).await;
    assert_eq!(world.ask(10).await, [200; 10]);
    none_after(&b, at);
    world.end(&[&a, &b]).await;
}

#[tokio::test(start_paused = true)]
async fn b75_a_pod_that_leaves_the_selector_is_out_until_it_returns_and_ends_what_it_has() {
    let world = two();
    let b = world.engine(B);
    world.api.update("default", "p2", |pod| set_label(pod, "app", Some("other")));
    let a = world.serve(A, slow("a", 50, ms(100)));
    world.ready().await;
    let stream = world.stream().await;
    world.api.update("default", "p2", |pod| set_label(pod, "app", Some("llm")));
    world.within(SOON, "both", || world.selectable() == [A, B]).await;
    world.api.update("default", "p1", |pod| set_label(pod, "app", Some("other")));
    let at = now();
    world.within(SOON, "withdrawn", || world.selectable() == [B]).await;
    assert_eq!(world.ask(10).await, [200; 10]);
    none_after(&a, at);
    assert_eq!(world.endpoint(A).unwrap().in_flight, 1, "it still carries the stream");
    assert_eq!(stream.await.unwrap(), (200, true));
    world.api.update("default", "p1", |pod| set_label(pod, "app", Some("llm")));
    world.within(SOON, "back", || world.selectable() == [A, B]).await;
    world.end(&[&a, &b]).await;
}

/// The object of that DELETED event is the Pod as it was before, Ready and labelled: it is not judged.
#[tokio::test(start_paused = true)]
async fn b75_twenty_turns_of_the_label_leave_what_the_label_says() {
    let world = two();
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    for turn in 0..20 {
        let app = if turn % 2 == 0 { "other" } else { "llm" };
        world.api.update("default", "p1", |pod| set_label(pod, "app", Some(app)));
        let wanted: &[&str] = if app == "llm" { &[A, B] } else { &[B] };
        world.within(SOON, "turned", || world.selectable() == wanted).await;
    }
    let before = chats(&a);
    assert_eq!(world.ask(20).await, [200; 20]);
    assert!(chats(&a) > before);
    world.end(&[&a, &b]).await;
}

/// Late, doubled, reversed: the newest fact of each UID counts.
#[tokio::test(start_paused = true)]
async fn events_out_of_order_leave_the_newest_state() {
    let world = two();
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    for round in 0..10 {
        world.api.duplicate_next(2);
        world.api.reverse_next(2);
        let ready = if round % 2 == 0 { ["True", "False"] } else { ["False", "True"] };
        for status in ready {
            world.api.update("default", "p1", |pod| set_ready(pod, status, None));
        }
        sleep(ms(100)).await;
        let wanted: &[&str] = if ready[1] == "True" { &[A, B] } else { &[B] };
        assert_eq!(world.selectable(), wanted, "round {round}");
    }
    world.api.overtake_next(1, secs(3));
    world.api.update("default", "p1", |_| {});
    world.api.force_delete("default", "p1");
    for _ in 0..1000 {
        sleep(ms(10)).await;
        assert_eq!(world.selectable(), [B], "what was overtaken does not bring a deleted Pod back");
    }
    world.end(&[&a, &b]).await;
}

/// A lost label, a lost readiness and a drain are independent: none undoes another.
#[tokio::test(start_paused = true)]
async fn ac1_2_no_new_request_while_the_label_is_off_and_all_return_after_it() {
    let world = two();
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    let load = world.load(2, ms(12));
    for _ in 0..10 {
        world.api.update("default", "p2", |pod| set_label(pod, ELIGIBLE, None));
        let off = now();
        world.within(SOON, "off", || world.selectable() == [A]).await;
        sleep(ms(700)).await;
        // Readiness comes and goes meanwhile, and is no way back.
        world.api.update("default", "p2", |pod| set_ready(pod, "False", None));
        world.api.update("default", "p2", |pod| set_ready(pod, "True", None));
        sleep(ms(300)).await;
        none_after(&b, off);
        world.api.update("default", "p2", |pod| set_label(pod, ELIGIBLE, Some("true")));
        world.within(SOON, "on", || world.selectable() == [A, B]).await;
        let (before, count) = (chats(&b), chats(&a));
        sleep(ms(300)).await;
        assert!(chats(&b) > before && chats(&a) > count, "both serve again");
    }
    load.end_well().await;
    world.end(&[&a, &b]).await;
}
