//! Pods that start, flap and are replaced while requests run.

use tandem::config::Dialect;
use tandem::testkit::engine::Script;
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::kube::{FakeKube, set_ready};
use tandem::types::clock::now;
use tokio::time::sleep;

use super::rig::*;

/// It runs, has an address and takes connections, and loads weights for a minute.
#[tokio::test(start_paused = true)]
async fn b86_a_pod_gets_nothing_before_it_is_ready() {
    let api = FakeKube::new();
    api.create(pod("loading", A).ready_because("False", "ContainersNotReady"));
    api.create(pod("bare", C).no_condition());
    api.create(pod("old", B));
    let world = World::new(plain(Dialect::Tandem), api);
    let (a, b, c) = (world.engine(A), world.engine(B), world.engine(C));
    a.blackhole(true);
    world.ready().await;
    let load = world.load(2, ms(20));
    for _ in 0..60 {
        sleep(secs(1)).await;
        assert_eq!(world.selectable(), [B]);
    }
    assert_eq!(world.net.dials(A), 0);
    assert_eq!(
        (world.reason("loading").as_deref(), world.reason("bare").as_deref()),
        (Some("not_ready"), Some("not_ready"))
    );
    a.blackhole(false);
    world.api.update("default", "loading", |pod| set_ready(pod, "True", None));
    world.within(SOON, "ready", || world.selectable() == [A, B]).await;
    sleep(secs(1)).await;
    load.end_well().await;
    assert!(chats(&a) > 10 && chats(&b) > 10 && chats(&c) == 0);
    world.end(&[&a, &b, &c]).await;
}

/// Ready flaps ten times a second: what runs goes on, what is new goes where it may.
#[tokio::test(start_paused = true)]
async fn b86_flapping_readiness_loses_no_request() {
    let api = FakeKube::new();
    api.create(pod("flaps", A));
    api.create(pod("stays", B));
    let world = World::new(plain(Dialect::Tandem), api);
    let (a, b) = (world.serve(A, slow("a", 100, ms(50))), world.serve(B, slow("b", 100, ms(50))));
    world.ready().await;
    let mut streams = Vec::new();
    for _ in 0..6 {
        streams.push(world.stream().await);
    }
    assert!(a.log.request_count() >= 1);
    let load = world.load(4, ms(5));
    for turn in 0..50 {
        let ready = turn % 2 == 1;
        world
            .api
            .update("default", "flaps", |pod| set_ready(pod, if ready { "True" } else { "False" }, None));
        let at = now();
        sleep(ms(60)).await;
        let during = chats(&a);
        sleep(ms(40)).await;
        if !ready {
            assert_eq!(chats(&a), during, "a new request {:?} after it was not ready", now() - at);
        }
    }
    load.end_well().await;
    for stream in streams {
        assert_eq!(stream.await.unwrap(), (200, true));
    }
    world.end(&[&a, &b]).await;
}

/// One replica, its successor ready first. The old one stops accepting 100 ms after it was told to go.
#[tokio::test(start_paused = true)]
async fn b88_a_rolling_update_of_one_replica_loses_nothing() {
    let api = FakeKube::new();
    api.create(pod("d1", A));
    let world = World::new(plain(Dialect::Tandem), api);
    let mut old = world.serve(A, slow("old", 100, ms(100)).keep_alive(secs(30)));
    world.ready().await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(world.stream().await);
    }
    // 5 clients, each 100 ms for its answer: 50 a second.
    let load = world.load(5, ms(0));
    sleep(secs(2)).await;
    let new = world.serve(B, slow("new", 100, ms(100)));
    world.api.create(pod("d2", B).ready("False"));
    sleep(ms(500)).await;
    world.api.update("default", "d2", |pod| set_ready(pod, "True", None));
    world.within(SOON, "the successor", || world.selectable() == [A, B]).await;
    world.api.delete("default", "d1");
    let told = now();
    world.within(SOON, "withdrawn", || world.selectable() == [B]).await;
    sleep(ms(100)).await;
    old.refuse().await;
    sleep(ms(150)).await;
    // Short requests are over by now: only the streams' connections are left, none waits in the pool.
    assert_eq!(old.log.open_connections(), 5);
    sleep(secs(2)).await;
    none_after(&old, told);
    for stream in streams {
        assert_eq!(stream.await.unwrap(), (200, true), "long streams end as they should");
    }
    world.api.finish_delete("default", "d1");
    sleep(secs(1)).await;
    let asked = load.end_well().await;
    assert!(asked > 400 && chats(&new) > 100, "{asked} requests");
    assert_eq!(old.log.open_connections(), 0);
    world.end(&[&old, &new]).await;
}

/// The whole fleet is replaced, one after the other, by a controller that waits for readiness each time.
#[tokio::test(start_paused = true)]
async fn b88_a_rollout_of_a_fleet_under_load_loses_nothing() {
    let api = FakeKube::new();
    let ip = |n: usize| format!("192.0.2.{}", n + 1);
    (0..4).for_each(|n| drop(api.create(pod(&format!("v1-{n}"), &ip(n)))));
    let world = World::new(plain(Dialect::Tandem), api);
    let mut engines: Vec<_> = (0..4).map(|n| world.serve(&ip(n), Script::always(chat_json("v1")))).collect();
    world.ready().await;
    let load = world.load(5, ms(3));
    for n in 0..4 {
        engines.push(world.serve(&ip(n + 10), Script::always(chat_json("v2"))));
        world.api.create(pod(&format!("v2-{n}"), &ip(n + 10)));
        sleep(ms(200)).await;
        world.api.delete("default", &format!("v1-{n}"));
        sleep(ms(100)).await;
        engines[n].stop().await;
        world.api.finish_delete("default", &format!("v1-{n}"));
        sleep(ms(200)).await;
    }
    load.end_well().await;
    assert_eq!(world.selectable(), (10..14).map(ip).collect::<Vec<_>>());
    world.end(&engines.iter().collect::<Vec<_>>()).await;
}
