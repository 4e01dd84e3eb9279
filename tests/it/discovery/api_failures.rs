//! An API server that refuses, throttles or talks nonsense: asked at a decent pace, while the last good view serves.

use tandem::config::Dialect;
use tandem::testkit::kube::{FakeKube, Fault, Recorded, RequestKind};
use tandem::types::clock::{Instant, now};
use tokio::time::sleep;

use super::rig::*;

async fn serving() -> World {
    let api = FakeKube::new();
    api.create(pod("p1", A));
    api.create(pod("p2", B));
    let world = World::new(plain(Dialect::Tandem), api);
    world.ready().await;
    world
}

fn since(world: &World, at: Instant) -> Vec<Recorded> {
    world.api.requests().into_iter().filter(|r| r.at >= at).collect()
}

/// 429 ten times, each with `Retry-After: 5`, then 403 for a minute; the watch is cut, too.
#[tokio::test(start_paused = true)]
async fn b67_a_throttling_and_then_refusing_server_is_asked_slowly() {
    let world = serving().await;
    let (a, b) = (world.engine(A), world.engine(B));
    let load = world.load(2, ms(200));
    let began = now();
    world.api.push_n(RequestKind::List, &Fault::throttled(5), 10);
    world.api.always(RequestKind::List, Some(Fault::status(403)));
    world.api.always(RequestKind::Watch, Some(Fault::throttled(5)));
    world.api.cut_watches();
    while world.api.faults_left() > 0 {
        sleep(ms(10)).await;
        assert!(now() - began < secs(150), "5 s, later 15 s each");
    }
    let throttled: Vec<_> =
        since(&world, began).into_iter().filter(|r| r.kind == RequestKind::List).collect();
    assert_eq!(throttled.len(), 10);
    for pair in throttled.windows(2) {
        assert!(pair[1].at - pair[0].at >= secs(5), "not before the server wants it");
    }
    let refused = now();
    sleep(secs(60)).await;
    let asked = since(&world, refused);
    assert!((4..=6).contains(&asked.len()), "{} requests in a minute of 403", asked.len());
    assert!(asked.windows(2).all(|pair| pair[1].at - pair[0].at >= secs(11)), "at the pace of relists");
    assert_eq!(world.selectable(), [A, B]);
    let failures = |kind| world.metric("tandem_discovery_list_failures_total", &[("kind", kind)]);
    assert_eq!(failures("throttled"), 10.0);
    assert!(failures("forbidden") >= 4.0);
    assert!(world.metric("tandem_discovery_view_age_seconds", &[]) > 100.0, "the age says so");
    assert!(world.is_ready(), "what was ready stays ready");
    world.api.clear_faults();
    world.api.create(pod("p3", C));
    let c = world.engine(C);
    world.within(secs(16), "works again", || world.selectable() == [A, B, C]).await;
    assert!(world.metric("tandem_discovery_view_age_seconds", &[]) < 1.0);
    load.end_well().await;
    world.end(&[&a, &b, &c]).await;
}

/// Every kind of failure at the first list: the pace is 1, 2, 4, 8, then 15 s, jittered.
#[tokio::test(start_paused = true)]
async fn b67_a_failing_first_list_backs_off_and_is_counted_by_kind() {
    let faults = [
        (Fault::status(500), "server_error"),
        (Fault::status(401), "unauthorized"),
        (Fault::status(403), "forbidden"),
        (Fault::status(404), "not_found"),
        (Fault::Refuse, "connection"),
        (Fault::garbage("{\"kind\":\"PodList\""), "invalid"),
        (Fault::Raw { code: 502, content_type: "text/html", body: "<html>".into() }, "server_error"),
        (Fault::Cut { after: 20 }, "connection"),
    ];
    for (fault, kind) in faults {
        let api = FakeKube::new();
        api.create(pod("p1", A));
        api.always(RequestKind::List, Some(fault));
        let world = World::new(plain(Dialect::Tandem), api);
        sleep(secs(60)).await;
        let lists: Vec<_> = world.api.requests();
        assert!(lists.iter().all(|r| r.kind == RequestKind::List), "{kind}: no watch without a list");
        assert!((6..=9).contains(&lists.len()), "{kind}: {} lists", lists.len());
        for (pair, least) in lists.windows(2).zip([800, 1600, 3200, 6400, 12_000, 12_000]) {
            assert!(pair[1].at - pair[0].at >= ms(least), "{kind}: {:?}", pair[1].at - pair[0].at);
        }
        let counted = world.metric("tandem_discovery_list_failures_total", &[("kind", kind)]);
        assert_eq!(counted, lists.len() as f64, "{kind}");
        assert_eq!((world.is_ready(), world.ask(1).await), (false, vec![503]), "{kind}");
        world.api.clear_faults();
        world.within(secs(16), "ready", || world.is_ready()).await;
        assert_eq!(world.selectable(), [A]);
        world.end(&[]).await;
    }
}

/// A watch that can be opened and says nonsense is a new list each time, at the pace of the backoff.
#[tokio::test(start_paused = true)]
async fn b67_garbage_on_the_watch_is_no_tight_loop() {
    for fault in
        [Fault::garbage("nonsense\n"), Fault::huge_line(5 << 20), Fault::Cut { after: 0 }, Fault::status(500)]
    {
        let world = serving().await;
        sleep(ms(100)).await;
        let began = now();
        world.api.always(RequestKind::Watch, Some(fault.clone()));
        world.api.cut_watches();
        sleep(secs(60)).await;
        let asked = since(&world, began);
        let watches = asked.iter().filter(|r| r.kind == RequestKind::Watch).count();
        assert!((4..=8).contains(&watches), "{watches} watches for {fault:?}");
        assert!(asked.len() <= 20, "{} requests in a minute for {fault:?}", asked.len());
        world.api.force_delete("default", "p2");
        world.within(RELIST, "lists do without", || world.selectable() == [A]).await;
        world.api.clear_faults();
        world.until("watching", || world.api.open_watches() == 1).await;
        world.api.create(pod("p3", C));
        world.within(SOON, "told", || world.selectable() == [A, C]).await;
        world.end(&[]).await;
    }
}

/// A watch that ends at once, again and again, without a word.
#[tokio::test(start_paused = true)]
async fn b67_a_watch_that_ends_at_once_is_no_tight_loop() {
    let world = serving().await;
    world.api.watch_timeout(ms(1));
    let began = now();
    world.api.cut_watches();
    for _ in 0..600 {
        world.api.end_watches();
        sleep(ms(100)).await;
    }
    let watches = since(&world, began).iter().filter(|r| r.kind == RequestKind::Watch).count();
    assert!(watches <= 10, "{watches} watches in a minute");
    assert_eq!(world.selectable(), [A, B]);
    world.end(&[]).await;
}

/// I9: the API server is away for an hour; nothing changes but the age.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_for_an_hour_changes_no_endpoint() {
    let world = serving().await;
    let (a, b) = (world.engine(A), world.engine(B));
    for kind in [RequestKind::List, RequestKind::Watch] {
        world.api.always(kind, Some(Fault::Refuse));
    }
    world.api.cut_watches();
    let before = world.router.shared.view.load().version;
    sleep(secs(3600)).await;
    assert_eq!((world.selectable(), world.is_ready()), (vec![A.to_owned(), B.to_owned()], true));
    assert_eq!(world.router.shared.view.load().version, before);
    assert!(world.metric("tandem_discovery_view_age_seconds", &[]) >= 3590.0);
    assert_eq!(world.ask(10).await, [200; 10]);
    world.api.force_delete("default", "p1");
    world.api.clear_faults();
    world.within(secs(16), "only a completed list removes", || world.selectable() == [B]).await;
    world.end(&[&a, &b]).await;
}
