//! The real client library understands it.

use std::pin::pin;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::WatchEvent;
use kube::{Api, ResourceExt as _};

use super::*;

fn pods(fake: &FakeKube) -> Api<Pod> {
    Api::namespaced(fake.client(), "default")
}

/// What the library makes of a whole watch, until it ends or breaks.
async fn watched(api: &Api<Pod>, params: &WatchParams, version: &str) -> Vec<String> {
    let stream = api.watch(params, version).await.unwrap();
    let mut stream = pin!(stream);
    let mut seen = Vec::new();
    loop {
        let at = |pod: &Pod| format!("{}@{}", pod.name_any(), pod.resource_version().unwrap_or_default());
        seen.push(match stream.try_next().await {
            Ok(Some(WatchEvent::Added(pod))) => format!("added {}", at(&pod)),
            Ok(Some(WatchEvent::Modified(pod))) => format!("modified {}", at(&pod)),
            Ok(Some(WatchEvent::Deleted(pod))) => format!("deleted {}", at(&pod)),
            Ok(Some(WatchEvent::Bookmark(mark))) => {
                format!("bookmark {} {}", mark.metadata.resource_version, mark.metadata.annotations.len())
            }
            Ok(Some(WatchEvent::Error(status))) => format!("error {} {}", status.code, status.reason),
            Ok(None) => return seen,
            Err(error) => {
                seen.push(format!("broken {error:?}"));
                return seen;
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_listed_page_by_page() {
    let fake = FakeKube::new();
    let uid = fake.create(pod("a").ip("192.0.2.1").port("http", 8000));
    fake.create(pod("b"));
    let pods = pods(&fake);
    let params = ListParams::default().labels("app=llm").limit(1);
    let first = pods.list(&params).await.unwrap();
    assert_eq!(first.metadata.resource_version.as_deref(), Some("102"));
    let a = &first.items[0];
    assert_eq!(a.metadata.uid.as_ref(), Some(&uid));
    assert_eq!(a.status.as_ref().unwrap().pod_ip.as_deref(), Some("192.0.2.1"));
    assert_eq!(a.spec.as_ref().unwrap().containers[0].ports.as_ref().unwrap()[0].container_port, 8000);
    let rest = pods.list(&params.continue_token(&first.metadata.continue_.unwrap())).await.unwrap();
    assert_eq!((rest.items[0].name_any(), rest.metadata.continue_), ("b".to_owned(), None));
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_event_is_understood() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    let pods = pods(&fake);
    let params = WatchParams::default().labels("app=llm").timeout(90);
    let (seen, ()) = tokio::join!(watched(&pods, &params, "101"), async {
        fake.until("a watch", |fake| fake.open_watches() == 1).await;
        fake.create(pod("b"));
        fake.delete("default", "a");
        fake.finish_delete("default", "a");
        fake.update("default", "b", |pod| pod["metadata"]["labels"] = Value::Null);
    });
    let expected = [
        "added b@102",
        "modified a@103",
        "deleted a@104",
        "deleted b@105",
        "bookmark 105 0",
        "bookmark 105 0",
    ];
    assert_eq!(seen, expected);
    assert_eq!(fake.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn initial_events_and_expiry_are_understood() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    let pods = pods(&fake);
    let initial = WatchParams::default().initial_events().timeout(2);
    assert_eq!(watched(&pods, &initial, "0").await, ["added a@101", "bookmark 101 1", "bookmark 101 0"]);
    fake.advance(9);
    fake.compact(105);
    assert_eq!(watched(&pods, &WatchParams::default(), "101").await, ["error 410 Expired"]);
    fake.watch_list(WatchList::NoProgress);
    assert_eq!(watched(&pods, &initial, "0").await, ["error 500 InternalError"]);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_understood() {
    let fake = FakeKube::new();
    let pods = pods(&fake);
    for (code, reason) in
        [(401, "Unauthorized"), (403, "Forbidden"), (410, "Expired"), (503, "ServiceUnavailable")]
    {
        fake.push(RequestKind::List, Fault::status(code));
        let Err(kube::Error::Api(status)) = pods.list(&ListParams::default()).await else { panic!("{code}") };
        assert_eq!((status.code, status.reason.as_str()), (code, reason));
    }
    let future = ListParams::default().at("200");
    let Err(kube::Error::Api(status)) = pods.list(&future).await else { panic!("not refused") };
    let details = status.details.unwrap();
    assert_eq!((status.code, details.retry_after_seconds), (504, 1));
    assert_eq!(details.causes[0].reason, "ResourceVersionTooLarge");
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_ends_or_fails_but_never_hangs() {
    let fake = FakeKube::new();
    let pods = pods(&fake);
    for command in [FakeKube::cut_watches as fn(&FakeKube), FakeKube::tear_watches] {
        let params = WatchParams::default();
        let (seen, ()) = tokio::join!(watched(&pods, &params, "100"), async {
            fake.until("a watch", |fake| fake.open_watches() == 1).await;
            command(&fake);
        });
        assert!(seen.is_empty(), "the library takes the end of a stream for an end: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_written_by_the_client() {
    let fake = FakeKube::new();
    let pods = pods(&fake);
    let wanted: Pod = serde_json::from_value(pod("a").build()).unwrap();
    let made = pods.create(&PostParams::default(), &wanted).await.unwrap();
    let status = Patch::Merge(json!({ "status": { "phase": "Running", "podIP": "192.0.2.1" } }));
    let running = pods.patch_status("a", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(running.status.unwrap().pod_ip.as_deref(), Some("192.0.2.1"));
    assert!(
        matches!(pods.replace("a", &PostParams::default(), &made).await, Err(kube::Error::Api(s)) if s.code == 409)
    );
    let going = pods.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(going.metadata.deletion_timestamp.is_some());
    pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(pods.get_opt("a").await.unwrap().is_none());
    let version = fake.client().apiserver_version().await.unwrap();
    assert_eq!(version.minor, "36");
}
