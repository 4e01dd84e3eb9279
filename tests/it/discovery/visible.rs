//! What the router says of its endpoints: the observer document, `/endpoints`, metrics (I14, requirements §2.2.6).

use serde_json::{Value, json};
use tandem::admin::DrainChange;
use tandem::config::Dialect;
use tandem::testkit::kube::{FakeKube, Fault, RequestKind, set_ready};
use tokio::time::sleep;

use super::rig::*;

fn two() -> World {
    let api = FakeKube::new();
    api.create(pod("p2", B));
    api.create(pod("p1", A));
    World::new(plain(Dialect::Tandem), api)
}

fn observe(world: &World) -> Value {
    serde_json::from_slice(&(world.router.admin.observe)().unwrap()).unwrap()
}

fn worker(world: &World, ip: &str) -> Value {
    let url = format!("http://{ip}:8000");
    let document = observe(world);
    document["workers"].as_array().unwrap().iter().find(|w| w["url"] == url.as_str()).unwrap().clone()
}

fn revision(world: &World) -> u64 {
    observe(world)["registry_revision"].as_u64().unwrap()
}

/// Exactly the fields that its strict consumer knows.
#[tokio::test(start_paused = true)]
async fn the_observer_document_has_its_fields_sorted_and_steps_only_when_it_changes() {
    let world = two();
    world.api.push(RequestKind::List, Fault::Late(secs(3)));
    let (a, b) = (world.engine(A), world.engine(B));
    sleep(secs(1)).await;
    assert!((world.router.admin.observe)().is_err(), "503 before the first list");
    world.ready().await;
    let document = observe(&world);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&document), ["registry_revision", "router", "workers"]);
    assert_eq!(keys(&document["router"]), ["boot_generation", "now_ms"]);
    assert!(document["router"]["boot_generation"].as_u64().unwrap() > 0);
    let workers = document["workers"].as_array().unwrap();
    let urls: Vec<_> = workers.iter().map(|w| w["url"].as_str().unwrap()).collect();
    assert_eq!(urls, ["http://192.0.2.1:8000", "http://192.0.2.2:8000"], "sorted");
    assert_eq!(keys(&workers[0]), ["lane", "pod_hint", "port", "role", "selection", "url", "worker_id"]);
    assert_eq!(
        (&workers[0]["port"], &workers[0]["role"], &workers[0]["pod_hint"]),
        (&json!(8000), &json!("regular"), &json!("p1"))
    );
    let all = json!({ "registered": true, "healthy": true, "circuit_open": false, "in_selection": true });
    assert_eq!(workers[0]["selection"], all);
    // Reading changes nothing; traffic neither.
    let first = revision(&world);
    for _ in 0..10 {
        assert_eq!(world.ask(3).await, [200; 3]);
        assert_eq!(revision(&world), first);
    }
    world.api.update("default", "p1", |_| {});
    sleep(secs(40)).await;
    assert_eq!(revision(&world), first, "nor do events and lists that change nothing");
    world.api.update("default", "p1", |pod| set_label(pod, ELIGIBLE, None));
    world.within(SOON, "out", || world.selectable() == [B]).await;
    let second = revision(&world);
    assert!(second > first);
    assert_eq!(revision(&world), second);
    world.end(&[&a, &b]).await;
}

/// Zero is said at once, and for 15 s after the last request that it was there.
#[tokio::test(start_paused = true)]
async fn ac2_1_a_withdrawn_endpoint_is_out_of_selection_at_once_and_was_recent_for_a_while() {
    let world = two();
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    assert_eq!(world.ask(20).await, [200; 20]);
    world.api.update("default", "p1", |pod| set_label(pod, ELIGIBLE, None));
    world.within(SOON, "out", || worker(&world, A)["selection"]["in_selection"] == false).await;
    let out = worker(&world, A);
    assert_eq!(out["last_job"], json!({ "recent_dispatch": true }));
    assert_eq!(worker(&world, B)["selection"]["in_selection"], true, "survivors are listed");
    assert!(worker(&world, B).get("last_job").is_none());
    let at = chats(&a);
    assert_eq!(world.ask(20).await, [200; 20]);
    sleep(secs(14)).await;
    assert_eq!(worker(&world, A)["last_job"], json!({ "recent_dispatch": true }));
    sleep(ms(1100)).await;
    assert!(worker(&world, A).get("last_job").is_none(), "no longer");
    assert_eq!(chats(&a), at);
    world.api.update("default", "p1", |pod| set_label(pod, ELIGIBLE, Some("true")));
    world.within(SOON, "requalified", || worker(&world, A)["selection"]["in_selection"] == true).await;
    // One that leaves for good is shown for 15 s, too.
    assert_eq!(world.ask(4).await, [200; 4]);
    world.api.force_delete("default", "p2");
    world.within(SOON, "out", || worker(&world, B)["selection"]["in_selection"] == false).await;
    assert_eq!(worker(&world, B)["last_job"], json!({ "recent_dispatch": true }));
    sleep(secs(17)).await;
    assert_eq!(observe(&world)["workers"].as_array().unwrap().len(), 1);
    world.end(&[&a, &b]).await;
}

/// Where its consumer reads it: at the front door, in the dialect of that consumer.
#[tokio::test(start_paused = true)]
async fn the_observer_document_is_at_the_front_door_of_gpustack_only() {
    for (dialect, known) in [(Dialect::Gpustack, true), (Dialect::Tandem, false)] {
        let api = FakeKube::new();
        api.push(RequestKind::List, Fault::Late(secs(2)));
        let world = World::new(plain(dialect), api);
        let ask = async || {
            let get = tandem::testkit::fixtures::get("/observer/endpoints");
            world.client().await.request(&get).await.unwrap()
        };
        let early = ask().await;
        assert_eq!(early.status(), if known { 503 } else { 404 });
        assert_eq!(early.header("retry-after").is_some(), known);
        world.ready().await;
        let answer = ask().await;
        if known {
            assert_eq!((answer.status(), answer.json()["workers"].clone()), (200, json!([])), "a real zero");
        } else {
            assert_eq!(answer.status(), 404);
        }
        world.router.assert_invariants(&[]).await;
    }
}

/// A new process, or another watch, comes to the same selection with no flap in between.
#[tokio::test(start_paused = true)]
async fn ac1_4_a_reconnect_or_a_restart_derives_the_same_set_with_no_flap() {
    let world = two();
    world.api.create(bare("unmarked", C).port("http", 8000));
    world.ready().await;
    let version = || world.router.shared.view.load().version;
    let before = version();
    for n in 0..20 {
        match n % 4 {
            0 => world.api.cut_watches(),
            1 => world.api.end_watches(),
            2 => world.api.tear_watches(),
            _ => world.api.fail_watches(410),
        }
        for _ in 0..500 {
            assert_eq!(world.selectable(), [A, B]);
            sleep(ms(10)).await;
        }
    }
    assert_eq!(version(), before, "not one new snapshot");
    assert_eq!(world.metric("tandem_discovery_drift_total", &[]), 0.0);
    world.end(&[]).await;
    let World { api, .. } = world;
    let world = World::new(plain(Dialect::Tandem), api);
    world.ready().await;
    assert_eq!(world.selectable(), [A, B], "whole when it says that it is ready");
    world.end(&[]).await;
}

/// An operator's drain, a lost label and a lost readiness are told apart, and none ends another.
#[tokio::test(start_paused = true)]
async fn an_operator_s_drain_outlives_flaps_of_the_pod() {
    let world = two();
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    let id = world.endpoint(A).unwrap().id;
    let control = &world.router.admin.endpoints;
    assert_eq!(control.set_drain(&id, true).await, DrainChange::Changed);
    assert_eq!(world.reason(A).as_deref(), Some("admin_drain"));
    world.api.update("default", "p1", |pod| set_ready(pod, "False", None));
    world.within(SOON, "the Pod's reason first", || world.reason(A).as_deref() == Some("not_ready")).await;
    world.api.update("default", "p1", |pod| set_ready(pod, "True", None));
    world.within(SOON, "drained still", || world.reason(A).as_deref() == Some("admin_drain")).await;
    assert_eq!((world.ask(5).await, chats(&a)), (vec![200; 5], 0));
    assert_eq!(control.set_drain(&id, false).await, DrainChange::Changed);
    assert_eq!(world.selectable(), [A, B]);
    world.end(&[&a, &b]).await;
}

/// `/endpoints` names every Pod with its reason; metrics count them by reason, and not by name.
#[tokio::test(start_paused = true)]
async fn every_pod_has_its_reason_and_series_are_few() {
    let api = FakeKube::new();
    api.create(pod("good", A));
    api.create(pod("starting", B).phase("Pending"));
    api.create(pod("no-address", "").build());
    let mut wrong = pod("wrong", C);
    wrong = wrong.label(ROLE, "prefill");
    api.create(wrong);
    api.create(pod("drained", "192.0.2.4").annotation("tandem.dev/drain", "kernel update"));
    let world = World::new(plain(Dialect::Tandem), api);
    world.ready().await;
    let reasons: Vec<(String, String, String)> = world
        .fleet()
        .pods
        .into_iter()
        .map(|pod| (pod.name, pod.reason.into_owned(), pod.detail.unwrap_or_default()))
        .collect();
    let wanted = [
        ("drained", "drain_annotation", "kernel update"),
        ("no-address", "no_address", ""),
        ("starting", "not_running", ""),
        ("wrong", "wrong_role", "tandem.dev/role is \"prefill\""),
    ];
    assert_eq!(reasons, wanted.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
    assert!(world.fleet().pods.iter().all(|pod| pod.service == "default" && !pod.uid.is_empty()));
    for (_, reason, _) in wanted {
        assert_eq!(world.metric("tandem_pods_without_endpoint", &[("reason", reason)]), 1.0, "{reason}");
    }
    assert_eq!(world.metric("tandem_endpoints", &[("reason", "selectable")]), 1.0);
    assert!(world.metric("tandem_snapshot_version", &[]) >= 1.0);
    // A hundred Pods that come and go leave as many series as there were.
    let series = || world.scrape().series_count();
    world.api.create(pod("one", "192.0.2.50"));
    sleep(ms(100)).await;
    world.api.force_delete("default", "one");
    sleep(secs(30)).await;
    let before = series();
    for n in 0..100 {
        let name = format!("n{n}");
        world.api.create(pod(&name, &format!("198.51.100.{n}")));
        sleep(ms(50)).await;
        world.api.force_delete("default", &name);
    }
    sleep(secs(30)).await;
    assert_eq!(series(), before);
    assert_eq!(world.fleet().endpoints.len(), 1);
    world.router.assert_invariants(&[]).await;
}
