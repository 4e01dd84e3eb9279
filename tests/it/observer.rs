//! `GET /observer/endpoints` as a strict consumer reads it: these fields, the truth, or nothing.

use serde_json::{Value, json};
use tandem::testkit::engine::openai::ChatStream;
use tandem::testkit::engine::{Engine, IntoSteps, Script, Step};
use tandem::testkit::fixtures::{chat_body, post_chat, request_head};
use tandem::testkit::kube::{Fault, RequestKind};

use crate::by_schema;
use crate::pods::{Cluster, endpoint, pod};
use crate::process::{Process, SOON, poll};

const PATH: &str = "/observer/endpoints";

fn mistakes(document: &Value) -> Vec<Value> {
    let mistakes = by_schema::mistakes("observer-endpoints.schema.json", &[document]);
    mistakes[0].as_array().unwrap().clone()
}

/// The example of the documentation.
fn documented() -> Value {
    let document = include_str!("../../docs/admin-api.md");
    let line = document.lines().find(|line| line.starts_with(r#"{"router""#)).unwrap();
    serde_json::from_str(line).unwrap()
}

async fn worker(process: &Process, url: &str) -> Value {
    let answer = process.admin_get(PATH).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let document = answer.json();
    document["workers"].as_array().unwrap().iter().find(|w| w["url"] == url).cloned().unwrap_or_default()
}

/// Two Pods, of which one has just left with a request open on it: the document of the example.
#[tokio::test]
async fn a_real_answer_is_that_of_the_documentation_and_fits_the_schema() {
    let script = || Script::new(|_| ChatStream::new(2).then(Step::Stall).into_steps());
    let mut engines = [Engine::start_tcp(script()).await, Engine::start_tcp(script()).await];
    engines.sort_by_key(tandem::testkit::engine::EngineHandle::url);
    let [stays, leaves] = engines;
    let cluster = Cluster::start().await;
    cluster.api.create(pod("chat-1", &leaves));
    let process = cluster.ready_router("").await;
    let mut client = process.client().await;
    client.send(&post_chat(chat_body("m", true))).await.unwrap();
    leaves.log.wait_for(1, SOON).await;
    cluster.api.create(pod("chat-0", &stays));
    cluster.api.force_delete("default", "chat-1");
    poll("one to come and one to leave", async || {
        let (stays, leaves) = (endpoint(&process, &stays).await, endpoint(&process, &leaves).await);
        stays.is_some() && leaves.is_some_and(|e| e["gone"] == true)
    })
    .await;
    let answer = process.admin_get(PATH).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let mut real = answer.json();
    assert_eq!(mistakes(&real), [] as [Value; 0], "{real:#}");
    let wanted = documented();
    assert_eq!(mistakes(&wanted), [] as [Value; 0]);
    // What differs from run to run.
    real["router"] = wanted["router"].clone();
    real["registry_revision"] = wanted["registry_revision"].clone();
    for n in 0..2 {
        for key in ["url", "port", "worker_id"] {
            real["workers"][n][key] = wanted["workers"][n][key].clone();
        }
    }
    assert_eq!(real, wanted);
}

#[test]
fn the_schema_refuses_what_a_strict_consumer_would() {
    let good = documented();
    let put = |path: &str, value: Value| by_schema::put(&good, path, value);
    for (path, value) in [
        ("/more", json!(1)),
        ("/workers", Value::Null),
        ("/router/boot_generation", json!(0)),
        ("/router/instance", json!("a")),
        ("/workers/0/in_flight", json!(0)),
        ("/workers/0/url", json!("http://10.0.0.1:8000/")),
        ("/workers/0/role", json!("mixed")),
        ("/workers/0/selection/healthy", Value::Null),
        ("/workers/0/selection/reason", json!("deleted")),
        ("/workers/0/lane/url", json!("a")),
        ("/workers/0/last_job", json!({"recent_dispatch": false})),
    ] {
        assert!(!mistakes(&put(path, value)).is_empty(), "{path}");
    }
    for (of, key) in [
        ("", "workers"),
        ("/workers/0/selection", "registered"),
        ("/workers/0/selection", "healthy"),
        ("/workers/0/selection", "circuit_open"),
        ("/workers/0/selection", "in_selection"),
    ] {
        let mut document = good.clone();
        document.pointer_mut(of).unwrap().as_object_mut().unwrap().remove(key);
        assert!(!mistakes(&document).is_empty(), "{of}/{key}");
    }
}

#[tokio::test]
async fn before_the_first_list_it_says_nothing_at_either_door() {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let cluster = Cluster::start().await;
    cluster.api.create(pod("chat-0", &engine));
    cluster.api.always(RequestKind::List, Some(Fault::status(500)));
    let process = cluster.router("observer: { on_front_door: true }").await;
    let in_front = async || {
        let mut client = process.client().await;
        client.request(&request_head("GET", PATH, &[])).await.unwrap()
    };
    for answer in [process.admin_get(PATH).await, in_front().await] {
        assert_eq!(answer.status(), 503);
        let error = &answer.json()["error"];
        assert_eq!(
            (&error["code"], answer.header("retry-after")),
            (&json!("observer_unavailable"), Some("1"))
        );
        assert_eq!(error["message"], "the endpoints of service chat are not known yet");
    }
    cluster.api.clear_faults();
    poll("the first list", async || in_front().await.status() == 200).await;
    let [at_admin, in_front] = [process.admin_get(PATH).await, in_front().await].map(|answer| answer.json());
    assert_eq!(
        (&at_admin["workers"], at_admin["workers"][0]["url"].as_str()),
        (&in_front["workers"], Some(&*engine.url()))
    );
    // The view of an API server that is lost is still the one that requests are decided on.
    cluster.api.always(RequestKind::List, Some(Fault::Refuse));
    cluster.api.always(RequestKind::Watch, Some(Fault::Refuse));
    cluster.api.cut_watches();
    assert_eq!(worker(&process, &engine.url()).await["selection"]["in_selection"], true);
}

/// Not a path of the front door unless it is asked for.
#[tokio::test]
async fn the_front_door_has_it_where_the_configuration_says_so() {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let process = Process::start(&["--worker", &engine.url()]).await;
    let mut client = process.client().await;
    assert_eq!(client.request(&request_head("GET", PATH, &[])).await.unwrap().status(), 404);
    let listed = worker(&process, &engine.url()).await;
    assert_eq!((&listed["pod_hint"], &listed["selection"]["in_selection"]), (&json!(""), &json!(true)));
}

/// An operator's drain is no reason of the Pod's: it stays registered.
#[tokio::test]
async fn a_drain_stands_while_its_pod_is_not_ready_and_after_that() {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let cluster = Cluster::start().await;
    cluster.api.create(pod("chat-0", &engine).ready("False"));
    let process = cluster.ready_router("").await;
    let reason = async || endpoint(&process, &engine).await.map(|e| e["reason"].clone());
    // A Pod that never was ready has no endpoint to drain.
    assert_eq!(reason().await, None);
    let ready = |is: &'static str| {
        cluster.api.update("default", "chat-0", |pod| tandem::testkit::kube::set_ready(pod, is, None))
    };
    ready("True");
    poll("selectable", async || reason().await == Some(Value::Null)).await;
    ready("False");
    poll("withdrawn", async || reason().await == Some(json!("not_ready"))).await;
    let id = endpoint(&process, &engine).await.unwrap()["id"].as_str().unwrap().to_owned();
    let path = format!("/endpoints/{id}/drain");
    assert_eq!(process.admin_call("PUT", &path, &[]).await.json()["changed"], true);
    let selection = async || worker(&process, &engine.url()).await["selection"].clone();
    assert_eq!(selection().await["registered"], false);
    ready("True");
    poll("the drain alone", async || reason().await == Some(json!("admin_drain"))).await;
    let drained = json!({"registered": true, "healthy": false, "circuit_open": false, "in_selection": false});
    assert_eq!(selection().await, drained);
    assert_eq!(process.admin_call("PUT", &path, &[]).await.json()["changed"], false);
    assert_eq!(process.admin_call("DELETE", &path, &[]).await.json()["changed"], true);
    assert_eq!(selection().await["in_selection"], true);
}
