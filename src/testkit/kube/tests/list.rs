use super::*;

fn with_pods(names: &[&str]) -> FakeKube {
    let fake = FakeKube::new();
    for name in names {
        fake.create(pod(name).label("name", name));
    }
    fake
}

fn token(page: &Got) -> String {
    page.body["metadata"]["continue"].as_str().unwrap_or("none").to_owned()
}

#[tokio::test(start_paused = true)]
async fn identities_and_versions_are_deterministic() {
    let fake = FakeKube::new();
    assert_eq!(fake.create(pod("a")), "00000000-0000-4000-8000-000000000001");
    assert_eq!(fake.create(pod("b")), "00000000-0000-4000-8000-000000000002");
    let got = list(&fake, "").await;
    assert_eq!((got.version(), got.names()), ("102", vec!["a", "b"]));
    let first = &got.body["items"][0];
    assert_eq!(first["metadata"]["uid"], "00000000-0000-4000-8000-000000000001");
    assert_eq!(first["metadata"]["resourceVersion"], "101");
    assert_eq!(first["metadata"]["creationTimestamp"], CREATED);
    assert_eq!((first.get("kind"), &got.body["kind"]), (None, &json!("PodList")));
}

#[tokio::test(start_paused = true)]
async fn namespaces_and_selectors_narrow_a_list() {
    let fake = with_pods(&["a", "b", "c"]);
    fake.create(pod("d").namespace("other"));
    assert_eq!(get(&fake, "/api/v1/pods").await.names(), ["a", "b", "c", "d"]);
    assert_eq!(list(&fake, "labelSelector=name+in+(a,c)").await.names(), ["a", "c"]);
    assert_eq!(list(&fake, "labelSelector=name!%3Da,name").await.names(), ["b", "c"]);
    assert_eq!(list(&fake, "fieldSelector=metadata.name%3Db").await.names(), ["b"]);
    assert_eq!(list(&fake, "labelSelector=a+like+b").await.code, 400);
    assert_eq!(list(&fake, "fieldSelector=spec.hostIP%3Db").await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_version_whatever_happens_between_them() {
    let fake = with_pods(&["a", "b", "c"]);
    let first = list(&fake, "limit=2").await;
    assert_eq!((first.names(), first.version()), (vec!["a", "b"], "103"));
    assert_eq!(first.body["metadata"]["remainingItemCount"], 1);
    fake.force_delete("default", "c");
    fake.create(pod("d"));
    let second = list(&fake, &format!("limit=2&continue={}", token(&first))).await;
    assert_eq!((second.names(), second.version()), (vec!["c"], "103"));
    assert_eq!(token(&second), "none");
    assert_eq!(list(&fake, "continue=zz").await.code, 400);
    assert_eq!(list(&fake, &format!("resourceVersion=103&continue={}", token(&first))).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_offers_an_inconsistent_rest() {
    let fake = with_pods(&["a", "b", "c"]);
    let first = list(&fake, "limit=1").await;
    fake.force_delete("default", "b");
    fake.compact(fake.version());
    let expired = list(&fake, &format!("limit=1&continue={}", token(&first))).await;
    assert_eq!((expired.code, &expired.body["reason"]), (410, &json!("Expired")));
    let rest = list(&fake, &format!("continue={}", token(&expired))).await;
    assert_eq!((rest.names(), rest.version()), (vec!["c"], "104"));
}

#[tokio::test(start_paused = true)]
async fn the_last_page_has_no_token_or_an_empty_one() {
    let fake = with_pods(&["a"]);
    assert_eq!(list(&fake, "limit=5").await.body["metadata"].get("continue"), None);
    fake.empty_continue(true);
    assert_eq!(list(&fake, "limit=5").await.body["metadata"]["continue"], "");
    assert_eq!(list(&fake, "limit=5&continue=").await.names(), ["a"], "an empty token is no token");
}

#[tokio::test(start_paused = true)]
async fn a_future_version_is_waited_for_three_seconds() {
    let fake = with_pods(&["a"]);
    let started = crate::types::clock::now();
    let got = list(&fake, "resourceVersion=105&resourceVersionMatch=NotOlderThan").await;
    assert_eq!(started.elapsed().as_secs(), 3);
    assert_eq!((got.code, got.retry_after.as_deref()), (504, Some("1")));
    assert_eq!(got.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(got.body["details"]["retryAfterSeconds"], 1);
    let (waiting, _) = tokio::join!(list(&fake, "resourceVersion=105"), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fake.advance(4)
    });
    assert_eq!((waiting.code, waiting.version()), (200, "105"));
}

#[tokio::test(start_paused = true)]
async fn an_exact_version_is_that_version_or_expired() {
    let fake = with_pods(&["a", "b"]);
    let exact = "resourceVersion=101&resourceVersionMatch=Exact";
    let got = list(&fake, exact).await;
    assert_eq!((got.names(), got.version()), (vec!["a"], "101"));
    assert_eq!(list(&fake, "resourceVersion=101").await.names(), ["a", "b"]);
    fake.compact(102);
    let got = list(&fake, exact).await;
    assert_eq!((got.code, &got.body["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn contradictory_options_are_refused() {
    let fake = with_pods(&["a"]);
    for query in [
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Newest",
        "watch=1&resourceVersion=100&resourceVersionMatch=NotOlderThan",
        "watch=1&sendInitialEvents=true",
    ] {
        assert_eq!(list(&fake, query).await.code, 422, "{query}");
    }
    for query in ["limit=x", "resourceVersion=x", "watch=1&timeoutSeconds=x"] {
        assert_eq!(list(&fake, query).await.code, 400, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_replica_is_consistent_only_on_request() {
    let fake = with_pods(&["a"]);
    fake.replica(0).freeze();
    fake.create(pod("b"));
    assert_eq!(list(&fake, "").await.names(), ["a"]);
    fake.consistent_reads(true);
    assert_eq!(list(&fake, "").await.names(), ["a", "b"]);
    assert_eq!(list(&fake, "resourceVersion=0").await.names(), ["a"], "a cached read stays one");
    fake.replica(0).lag_to(100);
    assert!(list(&fake, "resourceVersion=0").await.names().is_empty());
}
