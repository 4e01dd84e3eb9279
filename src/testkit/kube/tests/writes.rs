use super::*;

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

async fn ask(fake: &FakeKube, method: &str, target: &str, body: Value) -> Got {
    send(&fake.entry(), method, target, "application/json", &body).await
}

fn at(name: &str) -> String {
    format!("{PODS}/{name}")
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_created_pending_once_and_only_in_a_namespace() {
    let fake = FakeKube::new();
    let made = ask(&fake, "POST", PODS, pod("a").ip("192.0.2.1").build()).await;
    assert_eq!((made.code, &made.body["metadata"]["resourceVersion"]), (201, &json!("101")));
    assert_eq!(made.body["status"], json!({ "phase": "Pending", "qosClass": "BestEffort" }));
    let again = ask(&fake, "POST", PODS, pod("a").build()).await;
    assert_eq!((again.code, &again.body["message"]), (409, &json!("pods \"a\" already exists")));
    let other = "/api/v1/namespaces/other/pods";
    assert_eq!(ask(&fake, "POST", other, pod("b").namespace("other").build()).await.code, 404);
    let namespace = json!({ "metadata": { "name": "other", "labels": { "team": "x" } } });
    let made = ask(&fake, "POST", "/api/v1/namespaces", namespace.clone()).await;
    assert_eq!(
        made.body["metadata"]["labels"],
        json!({ "kubernetes.io/metadata.name": "other", "team": "x" })
    );
    assert_eq!(ask(&fake, "POST", "/api/v1/namespaces", namespace).await.code, 409);
    assert_eq!(ask(&fake, "POST", other, pod("b").namespace("other").build()).await.code, 201);
    assert_eq!(ask(&fake, "POST", other, pod("b").build()).await.code, 400, "names another namespace");
    assert_eq!(ask(&fake, "POST", PODS, json!({ "metadata": {} })).await.code, 422);
    assert_eq!(ask(&fake, "POST", PODS, json!([])).await.code, 400);
    assert_eq!(ask(&fake, "DELETE", "/api/v1/namespaces/other", Value::Null).await.code, 200);
    assert!(fake.pods("other").is_empty());
    assert_eq!(get(&fake, "/api/v1/namespaces/other").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_stale_put_conflicts() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    let mut mine = get(&fake, &at("a")).await.body;
    fake.update("default", "a", |pod| pod["metadata"]["labels"]["app"] = "other".into());
    mine["metadata"]["labels"]["mine"] = "yes".into();
    let stale = ask(&fake, "PUT", &at("a"), mine.clone()).await;
    assert_eq!((stale.code, &stale.body["reason"]), (409, &json!("Conflict")));
    assert!(stale.body["message"].as_str().unwrap().contains("the object has been modified"));
    mine["metadata"]["resourceVersion"] = "102".into();
    mine["status"]["phase"] = "Failed".into();
    let good = ask(&fake, "PUT", &at("a"), mine.clone()).await;
    assert_eq!((good.code, &good.body["metadata"]["resourceVersion"]), (200, &json!("103")));
    assert_eq!(good.body["status"]["phase"], "Running", "the status is another resource");
    mine["metadata"]["resourceVersion"] = Value::Null;
    mine["metadata"]["uid"] = "other".into();
    assert_eq!(ask(&fake, "PUT", &at("a"), mine).await.code, 409);
    assert_eq!(ask(&fake, "PUT", &at("none"), json!({})).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn patches_merge_each_into_its_own_resource() {
    let fake = FakeKube::new();
    fake.create(pod("a").label("gone", "soon"));
    let patch = json!({
        "metadata": { "labels": { "gone": null, "new": "x" }, "uid": null },
        "spec": { "nodeName": "node-2" },
        "status": { "phase": "Failed" },
    });
    let got = send(&fake.entry(), "PATCH", &at("a"), MERGE, &patch).await.body;
    assert_eq!(got["metadata"]["labels"], json!({ "app": "llm", "new": "x" }));
    assert_eq!(got["metadata"]["uid"], "00000000-0000-4000-8000-000000000001", "not to be changed");
    assert_eq!((&got["spec"]["nodeName"], &got["status"]["phase"]), (&json!("node-2"), &json!("Running")));
    let status = json!({ "spec": { "nodeName": "node-3" }, "status": { "phase": "Failed", "podIP": null } });
    let target = format!("{}/status", at("a"));
    let got = send(&fake.entry(), "PATCH", &target, STRATEGIC, &status).await.body;
    assert_eq!((&got["spec"]["nodeName"], &got["status"]["phase"]), (&json!("node-2"), &json!("Failed")));
    let version = fake.version();
    assert_eq!(send(&fake.entry(), "PATCH", &target, MERGE, &status).await.code, 200);
    assert_eq!(fake.version(), version, "what changes nothing is no change");
    let json_patch = "application/json-patch+json";
    assert_eq!(send(&fake.entry(), "PATCH", &at("a"), json_patch, &json!({})).await.code, 415);
    let stale = json!({ "metadata": { "resourceVersion": "1" } });
    assert_eq!(send(&fake.entry(), "PATCH", &at("a"), MERGE, &stale).await.code, 409);
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_terminates_until_it_is_deleted_with_no_grace() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    fake.create(pod("unbound").unbound());
    fake.create(pod("over").phase("Failed"));
    let mut watch = Lines::open(&fake.entry(), "resourceVersion=103").await;
    let going = ask(&fake, "DELETE", &at("a"), Value::Null).await;
    assert_eq!((going.code, &going.body["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(30)));
    ask(&fake, "DELETE", &at("a"), Value::Null).await;
    ask(&fake, "DELETE", &format!("{}?gracePeriodSeconds=7", at("a")), Value::Null).await;
    assert_eq!(watch.events(3).await, ["MODIFIED a@104", "MODIFIED a@105", "Nothing"], "only shorter counts");
    let other = json!({ "preconditions": { "uid": "other" }, "gracePeriodSeconds": 0 });
    let refused = ask(&fake, "DELETE", &at("a"), other).await;
    assert_eq!((refused.code, &refused.body["reason"]), (409, &json!("Conflict")));
    let uid = &going.body["metadata"]["uid"];
    ask(&fake, "DELETE", &at("a"), json!({ "preconditions": { "uid": uid }, "gracePeriodSeconds": 0 })).await;
    ask(&fake, "DELETE", &at("unbound"), Value::Null).await;
    ask(&fake, "DELETE", &at("over"), Value::Null).await;
    assert_eq!(watch.events(3).await, ["DELETED a@106", "DELETED unbound@107", "DELETED over@108"]);
    assert_eq!(ask(&fake, "DELETE", &at("a"), Value::Null).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn many_are_deleted_by_selector() {
    let fake = FakeKube::new();
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        fake.create(PodSpec::new(name).label("app", app));
    }
    let target = format!("{PODS}?labelSelector=app%3Dx&gracePeriodSeconds=0");
    assert_eq!(ask(&fake, "DELETE", &target, Value::Null).await.names(), ["a", "c"]);
    assert_eq!(list(&fake, "").await.names(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_says_so() {
    let fake = FakeKube::new();
    let missing = get(&fake, &at("a")).await;
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "pods \"a\" not found",
        "reason": "NotFound", "details": { "name": "a", "kind": "pods" }, "code": 404,
    });
    assert_eq!((missing.code, missing.body), (404, status));
    assert_eq!(get(&fake, "/api/v1/nodes").await.body["reason"], "NotFound");
    assert_eq!(ask(&fake, "POST", &at("a"), json!({})).await.code, 405);
    assert_eq!(get(&fake, "/version").await.body["gitVersion"], "v1.36.2");
    assert_eq!(get(&fake, "/api/v1").await.body["kind"], "APIResourceList");
    assert_eq!(get(&fake, "/apis").await.body["groups"], json!([]));
    assert_eq!(get(&fake, "/api/v1/namespaces").await.names(), ["default"]);
}

#[tokio::test(start_paused = true)]
async fn a_poisoned_pod_is_shown_as_it_is() {
    let fake = FakeKube::new();
    fake.create(json!({ "metadata": { "name": "bare", "labels": null }, "spec": { "containers": null } }));
    fake.create(pod("good"));
    let got = list(&fake, "").await;
    assert_eq!(got.names(), ["bare", "good"]);
    assert_eq!(
        (got.body["items"][0].get("status"), &got.body["items"][0]["spec"]["containers"]),
        (None, &Value::Null)
    );
    assert_eq!(list(&fake, "labelSelector=app").await.names(), ["good"]);
    fake.delete("default", "bare");
    fake.finish_delete("default", "bare");
}
