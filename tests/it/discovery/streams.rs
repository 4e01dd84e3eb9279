//! One stream of Pods for each namespace and selector, shared by the services that have both in common.

use tandem::config::{Dialect, EngineKind, PodDiscovery, RouterConfig, Service};
use tandem::testkit::kube::{FakeKube, RequestKind};
use tokio::time::sleep;

use super::rig::*;

fn named(name: &str) -> Service {
    Service { models: vec![name.to_owned()], ..service(name, EngineKind::Plain, Dialect::Tandem) }
}

fn services(list: Vec<Service>) -> RouterConfig {
    RouterConfig { services: list, ..plain(Dialect::Tandem) }
}

/// LISTs in a minute, and watches that are open.
async fn asked(world: &World) -> (usize, usize) {
    let before = world.api.lists();
    sleep(secs(60)).await;
    (world.api.lists() - before, world.api.open_watches())
}

#[tokio::test(start_paused = true)]
async fn services_of_the_same_pods_share_one_stream() {
    let api = FakeKube::new();
    api.create(pod("a", A).label("tandem.dev/model", "one"));
    api.create(pod("b", B).label("tandem.dev/model", "two"));
    api.create(pod("both", C));
    let world = World::new(services(vec![named("one"), named("two")]), api);
    let (a, b, c) = (world.engine(A), world.engine(B), world.engine(C));
    world.ready().await;
    assert_eq!((world.api.lists(), world.api.watches()), (1, 1), "one for both");
    let (lists, watches) = asked(&world).await;
    assert!((4..=5).contains(&lists) && watches == 1, "{lists} {watches}");
    // Each has what is its own; a Pod of no model is an endpoint of both.
    for _ in 0..10 {
        assert!([A, C].contains(&world.ask_for("one").await.1.as_str()));
        assert!([B, C].contains(&world.ask_for("two").await.1.as_str()));
    }
    let of = |name: &str| world.metric("tandem_endpoints", &[("service", name), ("reason", "selectable")]);
    assert_eq!((of("one"), of("two")), (2.0, 2.0));
    assert_eq!(world.reason(C), None, "the same Pod in two services takes no address from itself");
    // One event, both withdrawn; and both back.
    world.api.update("default", "both", |pod| set_label(pod, ELIGIBLE, None));
    world.within(SOON, "out of both", || world.selectable() == [A, B]).await;
    world.api.update("default", "both", |pod| set_label(pod, ELIGIBLE, Some("true")));
    world.within(SOON, "in both", || world.selectable() == [A, B, C, C]).await;
    // It becomes one's alone: the other gives it up, and the address stays with the Pod.
    world.api.update("default", "both", |pod| set_label(pod, "tandem.dev/model", Some("one")));
    world.within(SOON, "one's alone", || world.selectable() == [A, B, C]).await;
    sleep(secs(20)).await;
    assert_eq!(world.selectable(), [A, B, C]);
    world.router.assert_invariants(&[&a, &b, &c]).await;
}

#[tokio::test(start_paused = true)]
async fn other_namespaces_and_selectors_have_streams_of_their_own_at_the_quicker_pace() {
    let mut other_selector = named("two");
    other_selector.pods =
        Some(PodDiscovery::of(Dialect::Tandem, [("app".to_owned(), "other".to_owned())].into()));
    let mut other_namespace = named("three");
    other_namespace.pods.as_mut().unwrap().namespace = Some("elsewhere".to_owned());
    let mut quick = named("four");
    quick.pods.as_mut().unwrap().relist = secs(5);
    let api = FakeKube::new();
    api.create(pod("a", A));
    api.create(bare("b", B).label("app", "other").label(ELIGIBLE, "true"));
    api.create(pod("c", C).namespace("elsewhere"));
    let world = World::new(services(vec![named("one"), other_selector, other_namespace, quick]), api);
    let (a, b, c) = (world.engine(A), world.engine(B), world.engine(C));
    world.ready().await;
    assert_eq!((world.api.lists(), world.api.watches()), (3, 3));
    let (lists, watches) = asked(&world).await;
    // 12 to 15 of the shared one, 4 to 5 of the others each.
    assert!((20..=26).contains(&lists) && watches == 3, "{lists} {watches}");
    for (model, ip) in [("one", A), ("two", B), ("three", C), ("four", A)] {
        assert_eq!(world.ask_for(model).await, (200, ip.to_owned()));
    }
    for request in world.api.requests() {
        let own =
            request.path.ends_with("/namespaces/elsewhere/pods") || request.path.ends_with("/default/pods");
        let selector = request.param("labelSelector").unwrap();
        assert!(own && ["app=llm", "app=other"].contains(&selector.as_str()), "{request:?}");
        assert!(!selector.contains("eligible"), "a lost mark has to arrive as a change");
        assert!(matches!(request.kind, RequestKind::List | RequestKind::Watch), "no other verb: {request:?}");
    }
    world.router.assert_invariants(&[&a, &b, &c]).await;
}

/// A Pod that one of two services gives up keeps its address through the other: an older Pod there stays out.
#[tokio::test(start_paused = true)]
async fn an_address_is_held_while_any_service_has_its_pod() {
    let mut team = named("two");
    let selector = [("app".to_owned(), "llm".to_owned()), ("team".to_owned(), "x".to_owned())];
    team.pods = Some(PodDiscovery::of(Dialect::Tandem, selector.into()));
    let api = FakeKube::new();
    api.create(pod("older", A));
    let world = World::new(services(vec![named("one"), team]), api);
    let a = world.engine(A);
    world.ready().await;
    let later = world.api.create(pod("later", A).label("team", "x"));
    let owners = || {
        let all = world.fleet().endpoints.into_iter().filter(|e| e.selectable);
        all.map(|e| (e.service, e.pod_uid.unwrap())).collect::<Vec<_>>()
    };
    let of = |name: &str| (name.to_owned(), later.clone());
    world.within(SOON, "taken in both", || owners() == [of("one"), of("two")]).await;
    world.api.update("default", "later", |pod| set_label(pod, "team", None));
    world.within(SOON, "one's alone", || owners() == [of("one")]).await;
    for _ in 0..20 {
        world.api.update("default", "older", |_| {});
        sleep(secs(2)).await;
        assert_eq!(owners(), [of("one")], "news of the older one bring it back nowhere");
    }
    world.api.force_delete("default", "later");
    world.within(RELIST, "given up", || owners().len() == 1 && owners() != [of("one")]).await;
    world.router.assert_invariants(&[&a]).await;
}
