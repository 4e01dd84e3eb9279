//! The UID is the identity: names and addresses come back, and inherit nothing.

use serde_json::json;
use tandem::config::Dialect;
use tandem::testkit::kube::{FakeKube, set_ready};
use tandem::types::clock::now;
use tokio::time::sleep;

use super::rig::*;

fn one() -> World {
    let api = FakeKube::new();
    api.create(pod("x", A));
    World::new(plain(Dialect::Tandem), api)
}

/// The replacement is there before the watch tells that the old one is gone.
#[tokio::test(start_paused = true)]
async fn b78_a_late_delete_of_the_old_pod_leaves_its_namesake() {
    for round in 0..20 {
        let world = one();
        let (a, b) = (world.engine(A), world.engine(B));
        world.ready().await;
        world.api.overtake_next(1, ms(50 * round));
        world.api.force_delete("default", "x");
        let uid = world.api.create(pod("x", B));
        world.within(SOON, "the new one", || world.selectable().contains(&B.to_owned())).await;
        for _ in 0..150 {
            assert!(world.selectable().contains(&B.to_owned()), "round {round}");
            sleep(ms(10)).await;
        }
        assert_eq!(world.selectable(), [B]);
        assert_eq!(world.endpoint(B).unwrap().pod_uid.as_ref(), Some(&uid));
        assert_eq!(world.ask(5).await, [200; 5]);
        assert_eq!((chats(&a), chats(&b)), (0, 5));
        world.end(&[&a, &b]).await;
    }
}

/// Both at one address, and the old one's last word is that it is not ready.
#[tokio::test(start_paused = true)]
async fn b78_a_late_not_ready_of_the_old_pod_leaves_its_namesake_at_the_same_address() {
    for round in 0..20 {
        let world = one();
        let a = world.engine(A);
        world.ready().await;
        world.api.overtake_next(1, ms(500 + round));
        world.api.update("default", "x", |pod| set_ready(pod, "False", None));
        world.api.overtake_next(1, ms(250));
        world.api.force_delete("default", "x");
        let uid = world.api.create(pod("x", A));
        let is_new = || world.endpoint(A).is_some_and(|e| e.pod_uid.as_ref() == Some(&uid) && e.selectable);
        world.within(SOON, "the new one", is_new).await;
        for _ in 0..100 {
            assert!(is_new(), "round {round}");
            assert_eq!(world.selectable(), [A], "never twice");
            sleep(ms(10)).await;
        }
        assert_eq!(world.ask(5).await, [200; 5]);
        world.end(&[&a]).await;
    }
}

/// Holds, drains, ejections and connections belong to the one that had them.
#[tokio::test(start_paused = true)]
async fn ac1_5_a_namesake_inherits_nothing_and_waits_for_its_own_mark() {
    let world = one();
    let a = world.serve(A, slow("a", 40, ms(100)));
    world.ready().await;
    let stream = world.stream().await;
    let old = world.endpoint(A).unwrap();
    let drained = world.router.admin.endpoints.set_drain(&old.id, true).await;
    assert_eq!(drained, tandem::admin::DrainChange::Changed);
    world.api.force_delete("default", "x");
    let unmarked = bare("x", A).port("http", 8000);
    world.api.create(unmarked);
    let waits = || {
        let pods = world.fleet().pods;
        pods.iter().any(|pod| pod.name == "x" && pod.reason == "not_eligible")
    };
    world.within(SOON, "known, not used", waits).await;
    assert_eq!(world.selectable(), Vec::<String>::new());
    assert_eq!(world.ask(1).await, [503]);
    world.api.update("default", "x", |pod| set_label(pod, ELIGIBLE, Some("true")));
    world.within(SOON, "its own mark", || world.selectable() == [A]).await;
    let new = world.endpoint(A).unwrap();
    assert!(new.id != old.id && !new.draining && new.in_flight == 0, "{new:?}");
    let gone = world.fleet().endpoints.into_iter().find(|e| e.id == old.id).unwrap();
    assert_eq!((gone.in_flight, gone.reason.as_deref()), (1, Some("deleted")));
    assert_eq!(stream.await.unwrap(), (200, true), "what the old one carried ends as it should");
    assert_eq!(world.ask(3).await, [200; 3]);
    world.end(&[&a]).await;
}

#[tokio::test(start_paused = true)]
async fn ac2_3_the_same_name_and_address_with_another_uid_is_another_endpoint() {
    let world = one();
    let a = world.engine(A);
    world.ready().await;
    assert_eq!(world.ask(3).await, [200; 3]);
    let observed =
        || -> serde_json::Value { serde_json::from_slice(&(world.router.admin.observe)().unwrap()).unwrap() };
    let before = observed();
    let (old, revision) = (&before["workers"][0], before["registry_revision"].as_u64().unwrap());
    world.api.force_delete("default", "x");
    world.api.create(pod("x", A));
    world.within(SOON, "new", || world.fleet().endpoints.len() == 2 && world.selectable() == [A]).await;
    let after = observed();
    assert!(after["registry_revision"].as_u64().unwrap() > revision);
    let workers = after["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 2, "the old one is shown out of selection, the new one in it");
    let (gone, new) = (&workers[0], &workers[1]);
    assert_eq!((&gone["worker_id"], &gone["selection"]["in_selection"]), (&old["worker_id"], &json!(false)));
    assert_eq!(gone["last_job"], json!({ "recent_dispatch": true }));
    assert_eq!(new["selection"]["in_selection"], true);
    assert!(new["worker_id"] != old["worker_id"] && new.get("last_job").is_none(), "{new}");
    world.end(&[&a]).await;
}

/// An address that another program has by now gets nothing.
#[tokio::test(start_paused = true)]
async fn b80_a_pod_that_ended_is_not_routable_however_ready_it_says_it_is() {
    for phase in ["Failed", "Succeeded"] {
        let api = FakeKube::new();
        api.create(pod("ended", A).phase(phase));
        api.create(pod("x", B));
        let world = World::new(plain(Dialect::Tandem), api);
        let (other, b) = (world.engine(A), world.engine(B));
        world.ready().await;
        assert_eq!(world.ask(10).await, [200; 10]);
        assert_eq!((other.log.request_count(), other.log.conns().len(), chats(&b)), (0, 0, 10));
        assert_eq!(world.reason("ended").as_deref(), Some("not_running"));
        // One that ends while it serves, with everything else as it was.
        world.api.update("default", "x", |pod| pod["status"]["phase"] = phase.into());
        world.within(SOON, "withdrawn", || world.selectable().is_empty()).await;
        assert_eq!((world.reason(B).as_deref(), world.ask(1).await), (Some("not_running"), vec![503]));
        assert_eq!(chats(&b), 10);
        world.end(&[&other, &b]).await;
    }
}

/// An evicted Pod has no address in the very change that says so: what it had registered is what is withdrawn.
#[tokio::test(start_paused = true)]
async fn b81_a_pod_that_fails_and_loses_its_address_at_once_is_withdrawn_by_uid() {
    let api = FakeKube::new();
    api.create(pod("x", A));
    api.create(pod("y", B));
    let world = World::new(plain(Dialect::Tandem), api);
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    let load = world.load(2, ms(10));
    sleep(secs(1)).await;
    world.api.update("default", "x", |pod| {
        pod["status"] = json!({ "phase": "Failed", "reason": "Evicted" });
    });
    let at = now();
    world.within(SOON, "withdrawn", || world.selectable() == [B]).await;
    let dials = world.net.dials(A);
    sleep(secs(30)).await;
    load.end_well().await;
    none_after(&a, at);
    assert_eq!((world.net.dials(A), world.reason(A).as_deref()), (dials, Some("not_running")));
    // Only the address, and then all of it.
    world.api.update("default", "y", |pod| {
        pod["status"]["podIP"] = serde_json::Value::Null;
        pod["status"]["podIPs"] = serde_json::Value::Null;
    });
    world.within(SOON, "withdrawn", || world.selectable().is_empty()).await;
    assert_eq!(world.reason(B).as_deref(), Some("no_address"));
    world.end(&[&a, &b]).await;
}
