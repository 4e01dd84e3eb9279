//! The in-flight report over the life of a Pod: withdrawn by label or annotation, deleted, its name and address back.

use serde_json::Value;
use tandem::config::Dialect;
use tandem::registry::report::{Entry, Filter, Report};
use tandem::testkit::engine::openai::{ChatStream, kv_answer};
use tandem::testkit::engine::{IntoSteps, Response, Script, Step};
use tandem::testkit::kube::{FakeKube, PodSpec, set_ready};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::TestRouter;
use tokio::time::sleep;

use super::rig::*;

const DRAIN: &str = "tandem.dev/drain";

fn report(router: &TestRouter) -> Report {
    router.admin.reporter.report(&Filter::default())
}

/// What the report says of this UID; none: it is unknown.
fn entry(world: &World, uid: &str) -> Option<Entry> {
    report(&world.router).endpoints.into_iter().find(|e| e.uid.as_deref() == Some(uid))
}

/// Requests and KV that the Pod carries.
fn carries(world: &World, uid: &str) -> u64 {
    entry(world, uid).unwrap().in_flight.total()
}

fn annotate(world: &World, name: &str, value: Option<&str>) {
    world.api.update("default", name, |pod| {
        let annotations = &mut pod["metadata"]["annotations"];
        if !annotations.is_object() {
            *annotations = Value::Object(serde_json::Map::new());
        }
        match value {
            Some(value) => annotations[DRAIN] = value.into(),
            None => drop(annotations.as_object_mut().unwrap().remove(DRAIN)),
        }
    });
}

/// A stream of eight events, one each second.
fn streams() -> Script {
    slow("x", 8, secs(1))
}

#[tokio::test(start_paused = true)]
async fn one_that_left_stays_until_it_carries_nothing_and_15_s_more() {
    let api = FakeKube::new();
    let uid = api.create(pod("x", A));
    let world = World::new(plain(Dialect::Tandem), api);
    let a = world.serve(A, streams());
    world.ready().await;
    let stream = world.stream().await;
    let said = entry(&world, &uid).unwrap();
    assert!(said.selectable && said.reason.is_none() && said.quiesced_for_ms.is_none());
    assert_eq!((said.pod.as_deref(), said.namespace.as_deref()), (Some("x"), Some("default")));
    assert_eq!((said.in_flight.decode, said.in_flight.total()), (1, 1));
    world.api.update("default", "x", |pod| set_label(pod, ELIGIBLE, None));
    world.until("withdrawn", || !entry(&world, &uid).unwrap().selectable).await;
    let said = entry(&world, &uid).unwrap();
    assert_eq!((said.reason.as_deref(), said.quiesced_for_ms), (Some("not_eligible"), None));
    world.api.force_delete("default", "x");
    world.until("gone", || entry(&world, &uid).unwrap().reason.as_deref() == Some("deleted")).await;
    assert_eq!(carries(&world, &uid), 1);
    let series = || world.metric("tandem_endpoint_carried", &[("kind", "decode")]);
    assert_eq!(series(), 1.0);
    assert_eq!(stream.await.unwrap(), (200, true));
    let said = entry(&world, &uid).unwrap();
    assert_eq!((said.in_flight.total(), said.quiesced_for_ms), (0, Some(0)));
    assert!(
        said.withdrawn_age_ms > Some(5000),
        "since the label was lost, whatever withdrew it later: {said:?}"
    );
    assert_eq!((series(), world.metric("tandem_endpoint_quiesced", &[])), (0.0, 1.0));
    sleep(ms(14_900)).await;
    assert_eq!(entry(&world, &uid).unwrap().quiesced_for_ms, Some(14_900));
    assert_eq!(world.scrape().series("tandem_endpoint_quiesced").len(), 1);
    sleep(ms(1200)).await;
    assert_eq!(entry(&world, &uid), None, "absent: not known, and not a zero");
    assert!(world.scrape().series("tandem_endpoint_quiesced").is_empty(), "nor are its series left");
    world.end(&[&a]).await;
}

/// The annotation is the truth: a flap of readiness does not undo it, a router that starts later sees it, and without it
/// the Pod takes requests again.
#[tokio::test(start_paused = true)]
async fn an_annotation_drains_at_every_router_until_it_is_taken_away() {
    let api = FakeKube::new();
    let uid = api.create(pod("x", A));
    api.create(pod("y", B));
    let world = World::new(plain(Dialect::Tandem), api);
    let (a, b) = (world.serve(A, streams()), world.engine(B));
    world.ready().await;
    let reason = || entry(&world, &uid).unwrap().reason;
    annotate(&world, "x", Some("new disk"));
    world.within(SOON, "drained", || reason().as_deref() == Some("drain_annotation")).await;
    assert_eq!(world.detail(A), "new disk");
    for ready in ["False", "True"] {
        world.api.update("default", "x", |pod| set_ready(pod, ready, None));
        sleep(ms(20)).await;
        assert!(!entry(&world, &uid).unwrap().selectable, "ready {ready}");
    }
    assert_eq!(reason().as_deref(), Some("drain_annotation"));
    let later = TestRouter::in_memory_with_pods(
        plain(Dialect::Tandem),
        &MemoryNet::new(),
        std::sync::Arc::new(world.api.entry()),
    );
    world.until("the later one knows it", || !report(&later).pods.is_empty()).await;
    let known = report(&later);
    assert_eq!((known.pods[0].uid.as_str(), known.pods[0].reason.as_str()), (&*uid, "drain_annotation"));
    assert!(known.endpoints.iter().all(|e| e.uid.as_deref() != Some(&uid)), "it never gave it a request");
    assert_eq!(world.ask(6).await, [200; 6]);
    assert_eq!(chats(&a), 0);
    annotate(&world, "x", None);
    world.within(SOON, "taken back", || entry(&world, &uid).unwrap().selectable).await;
    assert_eq!(entry(&world, &uid).unwrap().withdrawn_age_ms, None);
    world.until("there too", || report(&later).endpoints.len() == 2).await;
    assert_eq!(world.ask(6).await, [200; 6]);
    assert!(chats(&a) > 0, "traffic is back");
    world.end(&[&a, &b]).await;
}

/// Of a role, as vLLM pairs need it.
fn member(name: &str, ip: &str, role: &str) -> PodSpec {
    pod(name, ip).label(ROLE, role)
}

/// kthena#1589: a scale-down marks a decode with ten streams, and deletes it 30 s later.
#[tokio::test(start_paused = true)]
async fn b104_a_marked_decode_gets_nothing_new_and_its_count_reaches_zero_before_it_is_deleted() {
    let api = FakeKube::new();
    let prefill = api.create(member("p", A, "prefill"));
    let leaving = api.create(member("d1", B, "decode"));
    let world = World::new(with(NIXL, Dialect::Tandem), api);
    let answer = Response::json(200, kv_answer("p").to_string()).into_steps();
    let p = world.serve(A, Script::always([vec![Step::Sleep(ms(500))], answer].concat()));
    let d1 = world.serve(B, Script::always(ChatStream::new(60).gap(secs(1))));
    world.ready().await;
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(world.stream().await);
    }
    assert_eq!(carries(&world, &leaving), 10);
    world.api.create(member("d2", C, "decode"));
    let d2 = world.serve(C, Script::always(ChatStream::new(3)));
    world.until("the next one", || world.selectable().len() == 3).await;
    annotate(&world, "d1", Some("scale-down"));
    world.within(SOON, "drained", || !entry(&world, &leaving).unwrap().selectable).await;
    let load = (0..10).map(async |_| world.stream().await.await.unwrap());
    for stream in load {
        assert_eq!(stream.await, (200, true));
    }
    assert_eq!((chats(&d1), chats(&d2)), (10, 10), "what is new goes elsewhere");
    let mut seen = vec![10];
    while carries(&world, &leaving) > 0 {
        sleep(ms(50)).await;
        let now = carries(&world, &leaving);
        assert!(now <= *seen.last().unwrap(), "{now} after {seen:?}");
        seen.push(now);
    }
    for stream in streams {
        assert_eq!(stream.await.unwrap(), (200, true), "none of them was cut");
    }
    sleep(secs(10)).await;
    world.api.force_delete("default", "d1");
    // A prefill that is marked while it works still hands over what it made.
    let last = world.stream();
    let mark = async {
        sleep(ms(250)).await;
        annotate(&world, "p", Some("scale-down"));
        sleep(ms(50)).await;
        assert_eq!((entry(&world, &prefill).unwrap().selectable, carries(&world, &prefill)), (false, 1));
    };
    let (last, ()) = tokio::join!(last, mark);
    assert_eq!(last.await.unwrap(), (200, true));
    assert!(entry(&world, &prefill).unwrap().quiesced_for_ms.is_some());
    world.end_of_pairs(&[&p], &[&d1, &d2]).await;
}

/// llm-d#1950: the release of an old request must not land on its namesake's count.
#[tokio::test(start_paused = true)]
async fn b109_a_namesake_has_a_count_of_its_own() {
    let api = FakeKube::new();
    let old = api.create(pod("x", A));
    let world = World::new(plain(Dialect::Tandem), api);
    let a = world.serve(A, streams());
    world.ready().await;
    let first = world.stream().await;
    world.api.force_delete("default", "x");
    let new = world.api.create(pod("x", A));
    world.until("the namesake", || entry(&world, &new).is_some_and(|e| e.selectable)).await;
    assert_eq!((carries(&world, &old), carries(&world, &new)), (1, 0));
    sleep(secs(2)).await;
    let second = world.stream().await;
    assert_eq!((carries(&world, &old), carries(&world, &new)), (1, 1));
    assert_eq!(world.metric("tandem_endpoint_carried", &[("kind", "decode")]), 2.0, "one URL, both");
    assert_eq!(first.await.unwrap(), (200, true));
    assert_eq!((carries(&world, &old), carries(&world, &new)), (0, 1));
    assert!(entry(&world, &old).unwrap().quiesced_for_ms.is_some());
    assert_eq!(second.await.unwrap(), (200, true));
    assert_eq!((carries(&world, &old), carries(&world, &new)), (0, 0));
    world.end(&[&a]).await;
}

/// The same with one UID throughout: the Pod flaps, its count does not.
#[tokio::test(start_paused = true)]
async fn b109_a_flap_of_one_pod_keeps_its_count() {
    let api = FakeKube::new();
    let uid = api.create(pod("x", A));
    let world = World::new(plain(Dialect::Tandem), api);
    let a = world.serve(A, streams());
    world.ready().await;
    let first = world.stream().await;
    for round in 0..5 {
        world.api.update("default", "x", |pod| set_label(pod, ELIGIBLE, None));
        world.until("out", || !entry(&world, &uid).unwrap().selectable).await;
        assert_eq!((carries(&world, &uid), round), (1, round));
        world.api.update("default", "x", |pod| set_label(pod, ELIGIBLE, Some("true")));
        world.until("back", || entry(&world, &uid).unwrap().selectable).await;
    }
    let second = world.stream().await;
    assert_eq!(carries(&world, &uid), 2);
    assert_eq!(first.await.unwrap(), (200, true));
    assert_eq!(carries(&world, &uid), 1);
    assert_eq!(second.await.unwrap(), (200, true));
    assert_eq!(carries(&world, &uid), 0);
    world.end(&[&a]).await;
}

/// Ages and numbers of one boot only grow; reading them is no event.
#[tokio::test(start_paused = true)]
async fn reading_changes_nothing_but_the_number_of_the_answer() {
    let api = FakeKube::new();
    api.create(pod("x", A));
    api.create(pod("y", B).ready("False"));
    let world = World::new(plain(Dialect::Tandem), api);
    let a = world.engine(A);
    world.ready().await;
    let version = || world.router.shared.view.load().version;
    let (first, before) = (report(&world.router), version());
    for n in 1..20 {
        let next = report(&world.router);
        assert_eq!(next.router.seq, first.router.seq + n);
        assert_eq!(
            (next.router.boot_generation, &next.router.instance, next.registry_version),
            (first.router.boot_generation, &first.router.instance, first.registry_version)
        );
        assert_eq!((&next.endpoints, next.pods.len()), (&first.endpoints, 1));
    }
    assert_eq!(version(), before);
    world.end(&[&a]).await;
}
