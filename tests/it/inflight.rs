//! `GET /observer/inflight` of a whole process: its form, its questions, its waiting answers, and what a restart or a reload
//! leaves of it.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tandem::testkit::client::RawResponse;
use tandem::testkit::engine::openai::{ChatStream, chat_json};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, Script, Step};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::types::clock::now;

use crate::by_schema;
use crate::pods::{Cluster, endpoint, pod};
use crate::process::{Process, SOON, poll};

const PATH: &str = "/observer/inflight";

fn mistakes(documents: &[&Value]) -> Vec<Value> {
    by_schema::mistakes("inflight.schema.json", documents)
}

/// The example of the documentation.
fn documented() -> Value {
    let document = include_str!("../../docs/admin-api.md");
    let line = document.lines().find(|line| line.starts_with(r#"{"schema""#)).unwrap();
    serde_json::from_str(line).unwrap()
}

async fn ask(process: &Process, query: &str) -> RawResponse {
    process.admin_get(&format!("{PATH}?{query}")).await
}

async fn report(process: &Process, query: &str) -> Value {
    let answer = ask(process, query).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.json()
}

/// The only endpoint of a report.
async fn only(process: &Process, query: &str) -> Value {
    let report = report(process, query).await;
    let [entry] = report["endpoints"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    entry.clone()
}

/// A stream that lasts until its client leaves, or a short answer.
fn script() -> Script {
    Script::new(|request| {
        if request.json()["stream"] == true {
            ChatStream::new(2).then(Step::Stall).into_steps()
        } else {
            chat_json("hi").into_steps()
        }
    })
}

/// Label off with a request open, and a Pod that never had one: the document of the example.
#[tokio::test]
async fn a_real_report_is_that_of_the_documentation_and_fits_the_schema() {
    let engine = Engine::start_tcp(script()).await;
    let cluster = Cluster::start().await;
    cluster.api.create(pod("chat-0", &engine));
    cluster.api.create(pod("chat-1", &engine).ready("False"));
    let process = cluster.ready_router("").await;
    let mut client = process.client().await;
    client.send(&post_chat(chat_body("m", true))).await.unwrap();
    engine.log.wait_for(1, SOON).await;
    let before = report(&process, "").await;
    cluster.api.update("default", "chat-0", |pod| {
        pod["metadata"]["labels"].as_object_mut().unwrap().remove("tandem.dev/endpoint-eligible");
    });
    poll("withdrawn", async || only(&process, "").await["selectable"] == false).await;
    let mut real = report(&process, "").await;
    let wanted = documented();
    assert_eq!(mistakes(&[&before, &real, &wanted]), [json!([]), json!([]), json!([])], "{real:#}");
    // What differs from run to run.
    real["router"] = wanted["router"].clone();
    real["registry_version"] = wanted["registry_version"].clone();
    for key in ["url", "uid", "withdrawn_age_ms", "last_dispatch_age_ms"] {
        real["endpoints"][0][key] = wanted["endpoints"][0][key].clone();
    }
    for key in ["uid", "known_for_ms"] {
        real["pods"][0][key] = wanted["pods"][0][key].clone();
    }
    assert_eq!(real, wanted);
}

#[test]
fn the_schema_refuses_what_would_mislead_and_takes_what_is_added() {
    let good = documented();
    let put = |path: &str, value: Value| by_schema::put(&good, path, value);
    let without = |of: &str, key: &str| {
        let mut document = good.clone();
        document.pointer_mut(of).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        document
    };
    let bad = [
        put("/schema", json!(2)),
        put("/router/boot_generation", json!(0)),
        put("/router/seq", json!(0)),
        put("/router/instance", json!("")),
        put("/endpoints", Value::Null),
        put("/endpoints/0/uid", json!("")),
        put("/endpoints/0/role", json!("regular")),
        put("/endpoints/0/in_flight/decode", json!(-1)),
        put("/endpoints/0/selectable", json!(true)),
        put("/endpoints/0/reason", Value::Null),
        put("/endpoints/0/withdrawn_age_ms", Value::Null),
        put("/endpoints/0/quiesced_for_ms", json!(5)),
        without("", "pods"),
        without("/router", "seq"),
        without("/endpoints/0", "uid"),
        without("/endpoints/0", "quiesced_for_ms"),
        without("/endpoints/0/in_flight", "handoff"),
        without("/pods/0", "reason"),
    ];
    let found = mistakes(&bad.iter().collect::<Vec<_>>());
    for (document, mistakes) in bad.iter().zip(found) {
        assert_ne!(mistakes, json!([]), "{document}");
    }
    let more = [
        put("/more", json!(1)),
        put("/endpoints/0/more", json!(1)),
        put("/endpoints/0/in_flight/more", json!(1)),
    ];
    assert_eq!(mistakes(&more.iter().collect::<Vec<_>>()), [json!([]), json!([]), json!([])]);
}

#[tokio::test]
async fn a_question_is_understood_or_refused() {
    let engine = Engine::start_tcp(script()).await;
    let cluster = Cluster::start().await;
    let uid = cluster.api.create(pod("chat-0", &engine));
    let process = cluster.ready_router("").await;
    let url = engine.url();
    for query in [
        String::new(),
        format!("uid={uid}"),
        "namespace=default".to_owned(),
        "namespace=default&pod=chat-0&service=chat".to_owned(),
        format!("url={url}"),
        format!("url={}", url.replace(':', "%3A").replace('/', "%2F")),
    ] {
        assert_eq!(only(&process, &query).await["uid"], uid, "{query}");
    }
    for query in
        ["uid=other", "namespace=llm", "pod=chat", "service=x", "url=http://h:1", "pod=chat-0&uid=other"]
    {
        let report = report(&process, query).await;
        assert_eq!((&report["endpoints"], &report["pods"]), (&json!([]), &json!([])), "{query}");
    }
    for (query, names) in [
        ("uuid=x", "uuid"),
        ("uid=", "uid"),
        ("uid=a&uid=b", "uid"),
        ("wait=30s", "wait"),
        ("until=quiesced", "until"),
        ("wait=30s&until=idle", "until"),
        ("wait=6m&until=quiesced", "wait"),
        ("wait=5&until=quiesced", "wait"),
        ("wait=&until=quiesced", "wait"),
    ] {
        let answer = ask(&process, query).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status(), &error["code"]), (400, &json!("bad_query")), "{query}");
        assert!(error["message"].as_str().unwrap().contains(names), "{query}: {error}");
    }
}

#[tokio::test]
async fn a_waiting_answer_comes_when_everything_is_quiet_and_never_before() {
    let engine = Engine::start_tcp(script()).await;
    let cluster = Cluster::start().await;
    let uid = cluster.api.create(pod("chat-0", &engine));
    let process = cluster.ready_router("").await;
    let mut client = process.client().await;
    client.send(&post_chat(chat_body("m", true))).await.unwrap();
    engine.log.wait_for(1, SOON).await;
    let wait = async |query: &str| {
        let began = now();
        let entry = report(&process, query).await["endpoints"][0].clone();
        (began.elapsed(), entry)
    };
    let quiet = format!("uid={uid}&wait=10s&until=quiesced");
    let short = format!("uid={uid}&wait=300ms&until=quiesced");
    let (took, entry) = wait(&short).await;
    assert!(took >= Duration::from_millis(300) && entry["selectable"] == true, "{took:?} {entry}");
    let (took, unknown) = wait("uid=other&wait=300ms&until=quiesced").await;
    assert!(took >= Duration::from_millis(300) && unknown == Value::Null, "absent is not quiet");
    let leave = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let id = endpoint(&process, &engine).await.unwrap()["id"].as_str().unwrap().to_owned();
        process.admin_call("PUT", &format!("/endpoints/{id}/drain"), &[]).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        client.close();
    };
    let ((took, entry), ()) = tokio::join!(wait(&quiet), leave);
    assert!(took >= Duration::from_millis(600) && took < SOON, "{took:?}");
    assert!(entry["quiesced_for_ms"].is_u64() && entry["in_flight"]["decode"] == 0, "{entry}");
    let (took, _) = wait(&quiet).await;
    assert!(took < Duration::from_secs(5), "it is so already: {took:?}");
}

#[tokio::test]
async fn no_more_than_64_answers_wait() {
    let engine = Engine::start_tcp(script()).await;
    let process = Process::start(&["--worker", &engine.url()]).await;
    let waiting = (0..64).map(|_| ask(&process, "wait=3s&until=quiesced"));
    let waiting: Vec<_> = waiting.collect();
    let one_more = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let answer = ask(&process, "wait=3s&until=quiesced").await;
        assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("1")));
        assert_eq!(answer.json()["error"]["code"], "too_many_waits");
        assert_eq!(ask(&process, "").await.status(), 200, "who does not wait is answered");
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(waiting), one_more);
    assert!(answers.iter().all(|answer| answer.status() == 200));
    assert_eq!(ask(&process, "wait=1ms&until=quiesced").await.status(), 200, "the places are free again");
}

/// sglang-omni#1049: what an operator disables by the API is said to be volatile; what the Pod says stays.
#[tokio::test]
async fn b92_an_operators_drain_is_called_volatile_and_an_annotation_outlives_a_restart() {
    let engine = Engine::start_tcp(script()).await;
    let cluster = Cluster::start().await;
    let uid = cluster.api.create(pod("chat-0", &engine));
    let mut process = cluster.ready_router("").await;
    let before = report(&process, "").await;
    let id = endpoint(&process, &engine).await.unwrap()["id"].as_str().unwrap().to_owned();
    let order = process.admin_call("PUT", &format!("/endpoints/{id}/drain"), &[]).await.json();
    assert_eq!((&order["draining"], &order["volatile"]), (&json!(true), &json!(true)));
    let entry = only(&process, "").await;
    assert_eq!((&entry["volatile_drain"], &entry["selectable"]), (&json!(true), &json!(false)));
    process.signal(Signal::KILL);
    process.exited(SOON).await;
    let mut process = cluster.ready_router("").await;
    let after = report(&process, "").await;
    assert_ne!(after["router"]["boot_generation"], before["router"]["boot_generation"]);
    assert_ne!(after["router"]["instance"], before["router"]["instance"]);
    assert_eq!(after["router"]["seq"], 1);
    let entry = &after["endpoints"][0];
    assert_eq!(
        (&entry["volatile_drain"], &entry["selectable"]),
        (&json!(false), &json!(true)),
        "as it was said"
    );
    // The Pod's own word.
    cluster
        .api
        .update("default", "chat-0", |pod| pod["metadata"]["annotations"]["tandem.dev/drain"] = "x".into());
    poll("drained", async || only(&process, "").await["reason"] == "drain_annotation").await;
    process.signal(Signal::KILL);
    process.exited(SOON).await;
    let process = cluster.ready_router("").await;
    let after = report(&process, &format!("uid={uid}")).await;
    assert_eq!((&after["endpoints"], &after["pods"][0]["reason"]), (&json!([]), &json!("drain_annotation")));
    let mut client = process.client().await;
    assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 503);
    assert_eq!(engine.log.request_count(), 0);
}

/// miles#2475, by the configuration file: an engine leaves with five requests, and is there again before they end.
#[tokio::test]
async fn b110_an_engine_that_is_listed_again_keeps_what_it_carries() {
    let script = || {
        Script::new(|request| {
            let events = if request.json()["stream"] == true { 40 } else { 1 };
            ChatStream::new(events).gap(Duration::from_millis(100)).into_steps()
        })
    };
    let [leaves, stays] = [Engine::start_tcp(script()).await, Engine::start_tcp(script()).await];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("router.yaml");
    let yaml = |engines: &[&EngineHandle]| {
        let urls: Vec<String> = engines.iter().map(|e| format!("{{ url: {:?} }}", e.url())).collect();
        format!("services: [{{ name: chat, discovery: {{ static: {{ mixed: [{}] }} }} }}]\n", urls.join(", "))
    };
    let process = Process::from_yaml(&yaml(&[&leaves]), dir.path(), &["--shutdown-delay", "0"]).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = process.client().await;
        client.send(&post_chat(chat_body("m", true))).await.unwrap();
        clients.push(client);
    }
    leaves.log.wait_for(5, SOON).await;
    let rows = async || report(&process, &format!("url={}", leaves.url())).await["endpoints"].clone();
    let reload = async |engines: &[&EngineHandle], what: &str, holds: &dyn Fn(&Value) -> bool| {
        std::fs::write(&file, yaml(engines)).unwrap();
        process.signal(Signal::HUP);
        poll(what, async || holds(&rows().await)).await;
    };
    assert_eq!(rows().await[0]["in_flight"]["decode"], 5);
    reload(&[&stays], "to leave", &|rows| rows[0]["reason"] == "removed").await;
    assert_eq!(rows().await[0]["in_flight"]["decode"], 5, "still there, and still counted");
    reload(&[&leaves, &stays], "to be back", &|rows| {
        rows.as_array().unwrap().iter().any(|row| row["selectable"] == true)
    })
    .await;
    let sum = |rows: &Value| -> u64 {
        rows.as_array().unwrap().iter().map(|row| row["in_flight"]["decode"].as_u64().unwrap()).sum()
    };
    assert_eq!(sum(&rows().await), 5);
    let new = rows().await.as_array().unwrap().iter().find(|row| row["selectable"] == true).unwrap().clone();
    assert!(new["in_flight"]["decode"] == 5 || new["in_flight"]["decode"] == 0, "its own: {new}");
    for mut client in clients {
        let answer = client.read_response().await.unwrap();
        assert!(
            answer.status() == 200 && answer.is_complete() && answer.text().ends_with("data: [DONE]\n\n")
        );
    }
    poll("zero", async || sum(&rows().await) == 0).await;
    let mut client = process.client().await;
    for _ in 0..4 {
        assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
    }
    assert_eq!(sum(&rows().await), 0);
}
