//! What the watch loses, lists make up for; old lists change nothing.

use std::collections::BTreeSet;

use tandem::config::Dialect;
use tandem::testkit::kube::{FakeKube, Fault, RequestKind};
use tandem::types::clock::now;
use tokio::time::sleep;

use super::rig::*;

fn three() -> FakeKube {
    let api = FakeKube::new();
    for (name, ip) in [("p1", A), ("p2", B), ("p3", C)] {
        api.create(pod(name, ip));
    }
    api
}

/// The server accepts a watch from the old version, and never tells of the delete.
#[tokio::test(start_paused = true)]
async fn b60_a_delete_that_no_watch_tells_is_found_by_the_next_list() {
    let world = World::new(plain(Dialect::Tandem), three());
    let (a, b, c) = (world.engine(A), world.engine(B), world.engine(C));
    world.ready().await;
    world.api.cut_watches();
    world.api.lose_next(1);
    world.api.force_delete("default", "p2");
    let deleted = now();
    let load = world.load(2, ms(20));
    world.until("withdrawn", || world.selectable() == [A, C]).await;
    assert!(now() - deleted <= RELIST, "{:?}", now() - deleted);
    assert_eq!(world.reason(B).as_deref(), Some("not_listed"));
    let found = now();
    sleep(secs(5)).await;
    load.end_well().await;
    none_after(&b, found);
    assert_eq!(world.metric("tandem_discovery_drift_total", &[]), 1.0, "it was missed, and that is counted");
    assert_eq!(world.metric("tandem_discovery_watch_ends_total", &[("kind", "connection")]), 1.0);
    assert!(world.metric("tandem_discovery_view_age_seconds", &[]) <= 15.0);
    world.end(&[&a, &b, &c]).await;
}

/// The watch is away for a while, and comes back from where it was: it tells what happened meanwhile.
#[tokio::test(start_paused = true)]
async fn b60_a_watch_that_is_opened_again_tells_what_happened_meanwhile() {
    let world = World::new(plain(Dialect::Tandem), three());
    let (a, b, c) = (world.engine(A), world.engine(B), world.engine(C));
    world.ready().await;
    world.api.push_n(RequestKind::Watch, &Fault::Refuse, 2);
    world.api.cut_watches();
    sleep(ms(10)).await;
    world.api.force_delete("default", "p2");
    let took = world.within(secs(7), "withdrawn", || world.selectable() == [A, C]).await;
    assert!(took > ms(500), "{took:?}: not before the watch was back");
    assert_eq!(world.reason(B).as_deref(), Some("deleted"), "told by the watch");
    sleep(secs(40)).await;
    assert_eq!(world.metric("tandem_discovery_drift_total", &[]), 0.0);
    world.end(&[&a, &b, &c]).await;
}

#[tokio::test(start_paused = true)]
async fn b60_a_watch_that_is_too_old_when_it_returns_is_replaced_by_a_list() {
    let world = World::new(plain(Dialect::Tandem), three());
    let (a, b, c) = (world.engine(A), world.engine(B), world.engine(C));
    world.ready().await;
    world.api.lose_next(1);
    world.api.force_delete("default", "p2");
    world.api.compact(world.api.version());
    world.api.advance(1);
    world.api.compact(world.api.version());
    world.api.cut_watches();
    world.within(secs(3), "withdrawn", || world.selectable() == [A, C]).await;
    assert_eq!(world.metric("tandem_discovery_watch_ends_total", &[("kind", "expired")]), 1.0);
    world.end(&[&a, &b, &c]).await;
}

/// 410 as a status, then as an event in the stream, three times in a row.
#[tokio::test(start_paused = true)]
async fn b63_410_again_and_again_ends_nothing_and_empties_nothing() {
    for in_stream in [false, true] {
        let world = World::new(plain(Dialect::Tandem), three());
        let (a, b, c) = (world.engine(A), world.engine(B), world.engine(C));
        world.ready().await;
        sleep(secs(1)).await;
        let lists = world.api.lists();
        let fault = if in_stream { Fault::InStream { code: 410 } } else { Fault::status(410) };
        world.api.push_n(RequestKind::Watch, &fault, 3);
        world.api.fail_watches(410);
        let load = world.load(2, ms(20));
        world.api.lose_next(1);
        world.api.force_delete("default", "p2");
        let mut sets = BTreeSet::new();
        for _ in 0..1500 {
            sets.insert(world.selectable());
            sleep(ms(10)).await;
        }
        load.end_well().await;
        let expected: BTreeSet<Vec<String>> =
            [vec![A.into(), B.into(), C.into()], vec![A.into(), C.into()]].into();
        assert_eq!(sets, expected, "in stream: {in_stream}; never an empty set, never another one");
        assert_eq!(world.api.faults_left(), 0);
        let more = world.api.lists() - lists;
        assert!((4..=6).contains(&more), "in stream: {in_stream}; {more} lists for four times 410");
        // The loop is alive.
        world.api.create(pod("p4", "192.0.2.4"));
        let d = world.engine("192.0.2.4");
        world.within(SOON, "told", || world.selectable() == [A, C, "192.0.2.4"]).await;
        world.end(&[&a, &b, &c, &d]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b65_an_empty_or_absent_continue_token_ends_the_list() {
    for empty in [true, false] {
        let api = three();
        api.empty_continue(empty);
        let world = World::new(plain(Dialect::Tandem), api);
        world.ready().await;
        sleep(secs(1)).await;
        assert_eq!((world.api.lists(), world.api.watches()), (1, 1));
        assert_eq!(world.selectable(), [A, B, C]);
        world.end(&[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b65_a_first_list_of_several_pages_is_one_list() {
    let api = FakeKube::new();
    for n in 0..1100 {
        api.create(pod(&format!("p{n:04}"), &format!("10.0.{}.{}", n / 250, n % 250 + 1)));
    }
    api.empty_continue(true);
    let world = World::new(plain(Dialect::Tandem), api);
    world.ready().await;
    assert_eq!(world.selectable().len(), 1100);
    let requests = world.api.requests();
    let limits: Vec<_> = requests.iter().filter_map(|r| r.param("limit")).collect();
    assert_eq!((world.api.lists(), limits.len()), (3, 3), "three pages");
    world.end(&[]).await;
}

/// The list after a 410 is a full one of the newest state; the watch goes on from there, not from the version in the error.
#[tokio::test(start_paused = true)]
async fn b68_after_too_old_comes_one_full_list_and_nothing_is_skipped() {
    let world = World::new(plain(Dialect::Tandem), three());
    let (a, b, c) = (world.engine(A), world.engine(B), world.engine(C));
    world.ready().await;
    sleep(ms(100)).await;
    let (lists, watches) = (world.api.lists(), world.api.watches());
    // Deleted while no watch is there, then forgotten by the server.
    world.api.push(RequestKind::Watch, Fault::Refuse);
    world.api.cut_watches();
    sleep(ms(10)).await;
    world.api.advance(50);
    world.api.force_delete("default", "p2");
    world.api.advance(30);
    world.api.compact(world.api.version());
    world.within(secs(7), "withdrawn", || world.selectable() == [A, C]).await;
    world.until("watching", || world.api.open_watches() == 1).await;
    assert!(world.api.lists() - lists <= 2, "{} lists", world.api.lists() - lists);
    let requests = world.api.requests();
    let watch = requests.iter().rfind(|r| r.kind == RequestKind::Watch).unwrap();
    let from: u64 = watch.param("resourceVersion").unwrap().parse().unwrap();
    assert_eq!(from, world.api.version(), "from the list");
    assert!(world.api.watches() - watches <= 3);
    let list = requests.iter().rfind(|r| r.kind == RequestKind::List).unwrap();
    assert_eq!((list.param("limit"), list.param("resourceVersion")), (None, None), "full and newest");
    world.end(&[&a, &b, &c]).await;
}

/// Two API servers, one behind: what it lists is older than what is known.
#[tokio::test(start_paused = true)]
async fn b69_a_list_from_a_server_that_lags_brings_nobody_back() {
    let api = FakeKube::with_replicas(2);
    for (name, ip) in [("p1", A), ("p2", B), ("p3", C)] {
        api.create(pod(name, ip));
    }
    let entry = api.balanced();
    let world = World::through(plain(Dialect::Tandem), api, entry);
    let (a, b, c) = (world.engine(A), world.engine(B), world.engine(C));
    world.ready().await;
    // Whichever the watch is on goes on; both lists are asked in turn.
    sleep(secs(40)).await;
    let lagging = usize::from(world.api.replica(0).open_watches() == 1);
    world.api.replica(lagging).freeze();
    world.api.force_delete("default", "p2");
    let deleted = now();
    world.within(SOON, "withdrawn", || world.selectable() == [A, C]).await;
    let load = world.load(2, ms(20));
    for _ in 0..6000 {
        assert_eq!(world.selectable(), [A, C], "after {:?}", now() - deleted);
        sleep(ms(10)).await;
    }
    load.end_well().await;
    none_after(&b, deleted);
    let requests = world.api.requests();
    let asked = |replica| requests.iter().filter(|r| r.at > deleted && r.replica == replica).count();
    assert!(asked(lagging) >= 1, "the lagging server was asked");
    world.end(&[&a, &b, &c]).await;
}

/// The first relist comes from a fresh server, the next from one that lags behind that: it is discarded and counted, and what
/// the watch lost in between is found by the next fresh one.
#[tokio::test(start_paused = true)]
async fn b69_lists_older_than_the_newest_applied_one_are_discarded_and_counted() {
    let api = FakeKube::with_replicas(2);
    api.create(pod("p1", A));
    api.create(pod("p2", B));
    let entry = api.balanced();
    let world = World::through(plain(Dialect::Tandem), api, entry);
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    world.api.replica(0).freeze();
    world.api.lose_next(1);
    world.api.force_delete("default", "p2");
    world.within(ms(30_200), "found", || world.selectable() == [A]).await;
    let load = world.load(1, ms(50));
    for _ in 0..9000 {
        assert_eq!(world.selectable(), [A]);
        sleep(ms(10)).await;
    }
    load.end_well().await;
    assert!(world.metric("tandem_discovery_relists_total", &[("result", "discarded")]) >= 2.0);
    world.api.replica(0).catch_up();
    world.end(&[&a, &b]).await;
}

/// The answer of a list is on its way for seconds: what the watch tells meanwhile is newer, in both directions.
#[tokio::test(start_paused = true)]
async fn i8_events_that_overtake_a_list_stay_in_force() {
    let world = World::new(plain(Dialect::Tandem), three());
    let (a, b, c) = (world.engine(A), world.engine(B), world.engine(C));
    let d = world.engine("192.0.2.4");
    world.ready().await;
    world.api.push(RequestKind::List, Fault::Late(secs(4)));
    let lists = world.api.lists();
    world.until("asked", || world.api.lists() > lists).await;
    world.api.force_delete("default", "p2");
    world.api.create(pod("p4", "192.0.2.4"));
    world.api.update("default", "p3", |pod| set_label(pod, ELIGIBLE, None));
    world.within(SOON, "told", || world.selectable() == [A, "192.0.2.4"]).await;
    let load = world.load(1, ms(10));
    for _ in 0..1000 {
        sleep(ms(10)).await;
        assert_eq!(world.selectable(), [A, "192.0.2.4"]);
    }
    load.end_well().await;
    assert!(chats(&d) > 0 && chats(&b) == 0 && chats(&c) == 0);
    assert!(world.metric("tandem_discovery_relists_total", &[("result", "ok")]) >= 2.0, "it was applied");
    world.end(&[&a, &b, &c, &d]).await;
}

/// An event from before the newest list, of a Pod that was gone by then.
#[tokio::test(start_paused = true)]
async fn i8_an_event_older_than_the_newest_list_brings_nobody_back() {
    let world = World::new(plain(Dialect::Tandem), three());
    let d = world.engine("192.0.2.4");
    world.ready().await;
    sleep(ms(100)).await;
    world.api.overtake_next(1, secs(20));
    world.api.create(pod("p4", "192.0.2.4"));
    world.api.force_delete("default", "p4");
    for _ in 0..2500 {
        sleep(ms(10)).await;
        assert_eq!(world.selectable(), [A, B, C]);
    }
    world.end(&[&d]).await;
}
