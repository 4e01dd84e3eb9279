use super::*;

#[tokio::test(start_paused = true)]
async fn what_was_made_between_list_and_watch_is_not_forgotten() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    fake.create(pod("b"));
    let listed = list(&fake, "").await;
    fake.force_delete("default", "a");
    fake.create(pod("a"));
    fake.delete("default", "b");
    fake.finish_delete("default", "b");
    let mut watch = Lines::open(&fake.entry(), &format!("resourceVersion={}", listed.version())).await;
    let expected = ["DELETED a@103", "ADDED a@104", "MODIFIED b@105", "DELETED b@106", "Nothing"];
    assert_eq!(watch.events(5).await, expected);
    assert_eq!(list(&fake, "").await.names(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_label_is_a_delete_of_the_object_before_and_its_return_an_add() {
    let fake = FakeKube::new();
    fake.create(pod("a").ip("192.0.2.1"));
    let mut watch = Lines::open(&fake.entry(), "resourceVersion=101&labelSelector=app%3Dllm").await;
    fake.update("default", "a", |pod| {
        pod["metadata"]["labels"] = json!({ "app": "other" });
        pod["status"]["podIP"] = "192.0.2.9".into();
    });
    let Said::Line(gone) = watch.next().await else { panic!("no event") };
    assert_eq!(short(&gone), "DELETED a@102");
    assert_eq!(gone["object"]["metadata"]["labels"]["app"], "llm", "as it was before");
    assert_eq!(gone["object"]["status"]["podIP"], "192.0.2.1", "as it was before");
    fake.update("default", "a", |_| {});
    fake.update("default", "a", |pod| pod["metadata"]["labels"] = json!({ "app": "llm" }));
    assert_eq!(watch.events(2).await, ["ADDED a@104", "Nothing"], "103 concerns nobody who selects");
}

#[tokio::test(start_paused = true)]
async fn deletes_are_graceful_or_not() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    fake.create(pod("b"));
    let mut watch = Lines::open(&fake.entry(), "resourceVersion=102").await;
    fake.delete("default", "a");
    let Said::Line(going) = watch.next().await else { panic!("no event") };
    assert_eq!(short(&going), "MODIFIED a@103");
    assert_eq!(going["object"]["metadata"]["deletionTimestamp"], DELETED);
    assert_eq!(going["object"]["metadata"]["deletionGracePeriodSeconds"], 30);
    fake.finish_delete("default", "a");
    fake.force_delete("default", "b");
    assert_eq!(watch.events(3).await, ["DELETED a@104", "DELETED b@105", "Nothing"]);
}

#[tokio::test(start_paused = true)]
async fn a_too_old_version_is_an_error_inside_of_a_good_answer() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    fake.advance(100);
    fake.compact(180);
    let mut watch = Lines::open(&fake.entry(), "resourceVersion=150").await;
    let Said::Line(error) = watch.next().await else { panic!("no event") };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version: 150 (180)", "reason": "Expired", "code": 410,
    });
    assert_eq!(error, json!({ "type": "ERROR", "object": status }));
    assert_eq!(watch.next().await, Said::End);
    let mut good = Lines::open(&fake.entry(), "resourceVersion=180").await;
    assert_eq!(good.next().await, Said::Nothing);
}

#[tokio::test(start_paused = true)]
async fn a_warm_cache_serves_what_storage_compacted_until_it_is_lost() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    fake.create(pod("b"));
    let first = list(&fake, "limit=1").await;
    let rest = format!("limit=1&continue={}", first.body["metadata"]["continue"].as_str().unwrap());
    fake.delete("default", "b");
    fake.compact_storage(103);
    let mut watch = Lines::open(&fake.entry(), "resourceVersion=102").await;
    assert_eq!(watch.event().await, "MODIFIED b@103");
    assert_eq!(list(&fake, &rest).await.code, 200);
    fake.replica(0).lose_cache();
    let mut watch = Lines::open(&fake.entry(), "resourceVersion=102").await;
    assert_eq!(watch.events(2).await, ["ERROR 410", "End"]);
    assert_eq!(list(&fake, &rest).await.code, 410);
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_bookmark_asked_for_or_not() {
    let fake = FakeKube::new();
    fake.create(pod("b"));
    fake.create(pod("a"));
    let asked = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for query in [asked, "allowWatchBookmarks=true", "allowWatchBookmarks=true&resourceVersion=0"] {
        let mut watch = Lines::open(&fake.entry(), query).await;
        assert_eq!(watch.events(2).await, ["ADDED a@102", "ADDED b@101"], "{query}");
        let object = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": { "resourceVersion": "102", "annotations": { "k8s.io/initial-events-end": "true" } },
            "spec": { "containers": null }, "status": {},
        });
        assert_eq!(
            watch.next().await,
            Said::Line(json!({ "type": "BOOKMARK", "object": object })),
            "{query}"
        );
        assert_eq!(watch.next().await, Said::Nothing, "{query}");
    }
    let mut quiet = Lines::open(&fake.entry(), "").await;
    assert_eq!(quiet.events(3).await, ["ADDED a@102", "ADDED b@101", "Nothing"]);
}

#[tokio::test(start_paused = true)]
async fn servers_without_watch_list_say_so_in_their_own_ways() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    let asked = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    fake.watch_list(WatchList::NoProgress);
    let mut watch = Lines::open(&fake.entry(), asked).await;
    let Said::Line(error) = watch.next().await else { panic!("no event") };
    assert_eq!((short(&error).as_str(), watch.event().await.as_str()), ("ERROR 500", "End"));
    assert_eq!(error["object"]["message"], "required storage feature RequestWatchProgress is disabled");
    fake.watch_list(WatchList::Absent);
    assert_eq!(list(&fake, &format!("watch=1&{asked}")).await.code, 422);
    let mut legacy = Lines::open(&fake.entry(), "allowWatchBookmarks=true").await;
    assert_eq!(legacy.events(2).await, ["ADDED a@101", "Nothing"], "no bookmark ends them");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_a_second_before_the_clean_end() {
    let fake = FakeKube::new();
    let query = "resourceVersion=100&allowWatchBookmarks=true&timeoutSeconds=150";
    let mut watch = Lines::open(&fake.entry(), query).await;
    fake.advance(7);
    for (pause, expected) in [(59, "Nothing"), (2, "BOOKMARK -@107"), (58, "Nothing"), (2, "BOOKMARK -@107")]
    {
        let said = watch.within(Duration::from_secs(pause)).await;
        let said = if let Said::Line(line) = &said { short(line) } else { format!("{said:?}") };
        assert_eq!(said, expected);
    }
    let started = crate::types::clock::now();
    let Said::Line(last) = watch.within(Duration::from_secs(40)).await else { panic!("no last bookmark") };
    assert_eq!(last["object"]["metadata"], json!({ "resourceVersion": "107" }));
    assert_eq!(watch.within(Duration::from_secs(5)).await, Said::End);
    assert_eq!(started.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_bookmarks_is_silent_to_its_clean_end() {
    let fake = FakeKube::new();
    let mut watch = Lines::open(&fake.entry(), "resourceVersion=100&timeoutSeconds=150").await;
    assert_eq!(watch.within(Duration::from_secs(149)).await, Said::Nothing);
    assert_eq!(fake.open_watches(), 1);
    assert_eq!(watch.within(Duration::from_secs(2)).await, Said::End);
    assert_eq!(fake.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_replica_tells_what_it_knows_and_then_the_rest() {
    let fake = FakeKube::with_replicas(2);
    let (fresh, stale) = (fake.replica(0), fake.replica(1));
    fake.create(pod("a"));
    stale.freeze();
    fake.force_delete("default", "a");
    let mut watch = Lines::open(&stale.entry(), "resourceVersion=100").await;
    assert_eq!(watch.events(2).await, ["ADDED a@101", "Nothing"]);
    assert_eq!(send(&stale.entry(), "GET", PODS, "", &Value::Null).await.names(), ["a"]);
    assert!(send(&fresh.entry(), "GET", PODS, "", &Value::Null).await.names().is_empty());
    stale.catch_up();
    assert_eq!(watch.events(2).await, ["DELETED a@102", "Nothing"]);
}
