//! Connections to the API server that say nothing: dead ones are left, idle ones kept (B62).

use std::sync::Arc;
use std::time::Duration;

use tandem::config::{Dialect, Kubernetes, RouterConfig};
use tandem::discovery::kube::KubeConnect;
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, Script};
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::kube::{Credentials, FakeKube, Fault, RequestKind};
use tandem::testkit::router::TestRouter;
use tandem::types::clock::now;
use tokio::time::sleep;

use super::rig::*;

/// The watch hangs, and one list with it; nothing is ever closed.
#[tokio::test(start_paused = true)]
async fn b62_a_half_open_watch_is_replaced_and_what_it_missed_is_found() {
    let api = FakeKube::new();
    api.create(pod("p1", A));
    api.create(pod("p2", B));
    let world = World::new(plain(Dialect::Tandem), api);
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    sleep(ms(100)).await;
    world.api.silence_watches();
    world.api.push(RequestKind::List, Fault::BlackHole);
    world.api.force_delete("default", "p2");
    let began = now();
    let load = world.load(1, ms(50));
    // The relist, its limit of 5 s, a pause, and the next list.
    world.within(ms(21_500), "found", || world.selectable() == [A]).await;
    assert_eq!(world.metric("tandem_discovery_list_failures_total", &[("kind", "timeout")]), 1.0);
    // The watch is another one now: the next event is told at once.
    world.until("watching", || world.api.watches() >= 2).await;
    world.api.create(pod("p3", C));
    let c = world.engine(C);
    world.within(SOON, "told", || world.selectable() == [A, C]).await;
    load.end_well().await;
    assert!(now() - began < secs(25));
    assert_eq!(world.api.open_watches(), 1, "the silent one was closed");
    world.end(&[&a, &b, &c]).await;
}

/// Nothing else fails: the watch alone is dead, which the lists find out by what it does not tell.
#[tokio::test(start_paused = true)]
async fn b62_a_watch_that_alone_is_silent_is_replaced_after_the_first_thing_it_missed() {
    let api = FakeKube::new();
    api.create(pod("p1", A));
    api.create(pod("p2", B));
    let world = World::new(plain(Dialect::Tandem), api);
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    sleep(ms(100)).await;
    world.api.silence_watches();
    world.api.force_delete("default", "p2");
    world.within(RELIST, "found", || world.selectable() == [A]).await;
    world.within(secs(3), "another watch", || world.api.watches() == 2).await;
    assert_eq!(world.metric("tandem_discovery_drift_total", &[]), 1.0);
    sleep(ms(100)).await;
    world.api.create(pod("p3", C));
    world.within(SOON, "told", || world.selectable() == [A, C]).await;
    world.end(&[&a, &b]).await;
}

/// Nothing but bookmarks for ten minutes.
#[tokio::test(start_paused = true)]
async fn b62_a_healthy_idle_watch_is_not_torn_down() {
    let api = FakeKube::new();
    api.create(pod("p1", A));
    let world = World::new(plain(Dialect::Tandem), api);
    let a = world.engine(A);
    world.ready().await;
    let mut oldest: f64 = 0.0;
    for _ in 0..600 {
        sleep(secs(1)).await;
        oldest = oldest.max(world.metric("tandem_discovery_watch_age_seconds", &[]));
    }
    let watches: Vec<_> = world.api.requests().into_iter().filter(|r| r.kind == RequestKind::Watch).collect();
    assert!((2..=3).contains(&watches.len()), "{} watches", watches.len());
    for pair in watches.windows(2) {
        assert!(pair[1].at - pair[0].at >= secs(240), "not before the server ended it");
        assert!(pair[0].param("timeoutSeconds").is_some() && pair[0].param("allowWatchBookmarks").is_some());
    }
    // Every 12 to 15 s, and the first one.
    let lists = world.api.lists();
    assert!((40..=51).contains(&lists), "{lists} lists in ten minutes");
    assert!(oldest <= 61.0, "a bookmark a minute: {oldest}");
    let ends = world.scrape();
    let ended: f64 = ends.sum("tandem_discovery_watch_ends_total", &[]);
    assert_eq!(ends.sum("tandem_discovery_watch_ends_total", &[("kind", "end")]), ended);
    world.end(&[&a]).await;
}

/// Over HTTP with the product's own client: the server's port swallows everything.
#[tokio::test]
async fn b62_a_black_hole_on_the_wire_is_left_within_its_limits() {
    let api = FakeKube::new();
    let server = api.serve().await;
    let (one, two) = (engine().await, engine().await);
    for (name, engine) in [("p1", &one), ("p2", &two)] {
        api.create(at(name, engine.addr()));
    }
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = server.kubeconfig(dir.path(), Credentials::Nobody);
    let router = over_http(kubeconfig, secs(1)).await;
    let fleet = || router.admin.endpoints.list().endpoints;
    let selectable = || fleet().iter().filter(|e| e.selectable).count();
    wait("both", || selectable() == 2).await;
    server.black_hole(true);
    sleep(secs(1)).await;
    api.lose_next(1);
    api.force_delete("default", "p2");
    let failures = || router.scrape().sum("tandem_discovery_list_failures_total", &[("kind", "timeout")]);
    wait("a list out of time", || failures() >= 1.0).await;
    let mut client = router.client().await;
    let answer = client.request(&post_chat(chat_body("m", false))).await.unwrap();
    assert_eq!((answer.status(), selectable()), (200, 2), "the last good view serves");
    server.black_hole(false);
    wait("found", || selectable() == 1).await;
    wait("watching", || api.open_watches() >= 1).await;
    drop(client);
    router.assert_invariants(&[&one, &two]).await;
}

async fn engine() -> tandem::testkit::engine::EngineHandle {
    Engine::start_tcp(Script::always(chat_json("hello"))).await
}

/// A Pod at the address of an engine on loopback.
pub(super) fn at(name: &str, addr: std::net::SocketAddr) -> tandem::testkit::kube::PodSpec {
    bare(name, &addr.ip().to_string())
        .label(ELIGIBLE, "true")
        .annotation("tandem.dev/ports", &addr.port().to_string())
}

/// A router on TCP that reaches the API server by this kubeconfig.
pub(super) async fn over_http(kubeconfig: std::path::PathBuf, relist: Duration) -> TestRouter {
    let mut config: RouterConfig = plain(Dialect::Tandem);
    config.kubernetes = Kubernetes { kubeconfig: Some(kubeconfig), context: None };
    if let Some(pods) = &mut config.services[0].pods {
        pods.relist = relist;
    }
    let connect = Arc::new(KubeConnect(config.kubernetes.clone()));
    TestRouter::start_with_pods(config, connect).await
}

pub(super) async fn wait(what: &str, holds: impl Fn() -> bool) {
    eventually(secs(20), what, || if holds() { Ok(()) } else { Err("not yet") }).await;
}
