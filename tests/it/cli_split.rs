//! `tandem split` before a running router, and the two documents it reads against their schemas.

use serde_json::{Value, json};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, Response, Script};
use tandem::testkit::fixtures::{chat_body, post_chat};

use super::by_schema;
use super::process::{Process, run, tandem};

/// Two releases that serve alone, a pair with one decode too few, and a service without a split.
struct Rig {
    router: Process,
    engines: [EngineHandle; 2],
    folder: tempfile::TempDir,
}

impl Rig {
    async fn start(more: &str) -> Self {
        let engines =
            [Engine::start_tcp(Script::openai("m")).await, Engine::start_tcp(Script::openai("m")).await];
        let [one, two] = engines.each_ref().map(EngineHandle::url);
        let yaml = format!(
            r"{more}
services:
  - name: chat
    models: [m]
    engine: {{ kind: plain }}
    discovery: {{ static: {{ mixed: [{{ url: '{one}', revision: r1 }}, {{ url: '{two}', revision: r2 }}] }} }}
    split:
      weights:
        - {{ revision: r1, token: kv, weight: 3 }}
        - {{ name: next, prefill: [r2], decode: [r2, r3], weight: 0 }}
  - name: pairs
    models: [p]
    engine: {{ kind: vllm }}
    discovery:
      static:
        prefill: [{{ url: 'http://127.0.0.1:1', token: kv-v1 }}, {{ url: 'http://127.0.0.1:2', token: kv-v2 }}]
        decode: [{{ url: 'http://127.0.0.1:3', token: kv-v1 }}]
"
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "secret\n").unwrap();
        let yaml = yaml.replace("TOKEN", folder.path().join("token").to_str().unwrap());
        let router = Process::from_yaml(&yaml, folder.path(), &[]).await;
        Self { router, engines, folder }
    }

    async fn split(&self, more: &[&str]) -> (Option<i32>, String, String) {
        let url = format!("http://{}", self.router.admin);
        run(tandem("split").args(["--admin", &url]).args(more)).await
    }

    async fn document(&self, path: &str) -> Value {
        self.router.admin_get(path).await.json()
    }

    /// What the router has of `chat`: version, source, and each entry.
    async fn chat(&self) -> (Value, Value, Vec<Value>) {
        let mut document = self.document("/observer/split").await;
        let chat = &mut document["services"][0];
        let entries = chat["cohorts"].as_array().unwrap().iter().map(|c| c["entry"].clone()).collect();
        (chat["version"].take(), chat["source"].take(), entries)
    }

    /// Chats, and how many of them each release got since the last time.
    async fn ask(&self, n: usize) -> [usize; 2] {
        let before = self.seen();
        let mut client = self.router.client().await;
        for _ in 0..n {
            assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
        }
        let after = self.seen();
        [after[0] - before[0], after[1] - before[1]]
    }

    fn seen(&self) -> [usize; 2] {
        self.engines.each_ref().map(|engine| engine.log.requests_to("/v1/chat/completions").len())
    }
}

fn row(out: &str, cohort: &str) -> Vec<String> {
    let line = out.lines().find(|line| line.split_whitespace().next() == Some(cohort));
    line.unwrap_or_else(|| panic!("{out}")).split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn it_shows_what_each_cohort_should_get_and_got() {
    let rig = Rig::start("").await;
    assert_eq!(rig.ask(5).await, [5, 0]);
    let (code, out, err) = rig.split(&[]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.starts_with("chat: version 1, source file\nCOHORT"), "{out}");
    assert_eq!(row(&out, "r1")[1..3], ["3", "100.0%"]);
    assert_eq!(row(&out, "r1")[5..], ["100.0%", "5", "yes", "1/1"]);
    assert_eq!(row(&out, "next")[1..3], ["0", "0.0%"]);
    assert!(out.contains("\npairs: version 0, source none: cohorts"), "{out}");
    assert_eq!(row(&out, "kv-v1")[7..], ["yes", "1/1", "1/1", "kv-v1", "1"]);
    assert_eq!(row(&out, "kv-v2")[7..], ["NO:", "no_decode", "1/1", "-", "kv-v2", "0"]);

    let (_, out, _) = rig.split(&["pairs"]).await;
    assert!(out.starts_with("pairs: ") && !out.contains("chat"), "{out}");
    let mut whole = json!({"split": rig.document("/observer/split").await, "cohorts": rig.document("/observer/cohorts").await});
    for form in [&["--json"][..], &["--output", "json"]] {
        let (code, out, _) = rig.split(form).await;
        assert_eq!((code, serde_json::from_str::<Value>(&out).unwrap()), (Some(0), whole.clone()));
    }
    let (_, out, _) = rig.split(&["chat", "--json"]).await;
    for document in ["split", "cohorts"] {
        whole[document]["services"].as_array_mut().unwrap().truncate(1);
    }
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), whole);
}

#[tokio::test]
async fn it_sets_the_named_weights_leaves_the_rest_and_takes_it_back() {
    let rig = Rig::start("").await;
    let (_, _, before) = rig.chat().await;
    let (code, out, err) = rig.split(&["chat", "--set", "next=9"]).await;
    assert_eq!((code, out.as_str()), (Some(0), "chat: version 2 is in force: r1 3, next 9\n"), "{err}");
    assert!(err.contains("this router's alone, and forgotten at its restart"), "{err}");
    let (version, source, mut after) = rig.chat().await;
    assert_eq!((version, source), (json!(2), json!("admin")));
    assert_eq!(after[1]["weight"].take(), 9);
    after[1]["weight"] = json!(0);
    assert_eq!(after, before, "whole but for the weight");
    let (_, out, _) = rig.split(&["chat"]).await;
    assert!(out.starts_with("chat: version 2, source admin (volatile)\n"), "{out}");

    let (code, out, _) = rig.split(&["chat", "--set", "r1=0,next=1", "--json"]).await;
    let done: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, done), (Some(0), json!({"service": "chat", "version": 3, "volatile": true})));
    assert_eq!(rig.ask(8).await, [0, 8]);

    let (code, out, err) = rig.split(&["chat", "--reset"]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out, "chat: version 4 is in force: the configured split again\n");
    assert_eq!(rig.chat().await, (json!(4), json!("file"), before));
    assert_eq!(rig.ask(8).await, [8, 0]);
}

#[tokio::test]
async fn what_is_not_there_or_wrong_changes_nothing_and_is_said() {
    let rig = Rig::start("").await;
    for (command, code, said) in [
        (&["chatt"][..], 2, "no service is named \"chatt\"; there are: chat, pairs"),
        (&["chatt", "--set", "r1=1"], 2, "no service is named \"chatt\""),
        (&["chatt", "--reset"], 2, "no service is named \"chatt\""),
        (&["chat", "--set", "r1=1", "--set", "r2=1"], 2, "no cohort is named \"r2\"; there are: r1, next"),
        (&["chat", "--set", "r1=1000001"], 1, "weights[0].weight: 1000001 is more than 1000000"),
        (&["pairs", "--set", "kv-v1=1"], 1, "no split is in force"),
        (&["--set", "r1=1"], 2, "SERVICE"),
        (&["--reset"], 2, "SERVICE"),
        (&["chat", "--reset", "--set", "r1=1"], 2, "cannot be used with"),
        (&["chat", "--set", "r1"], 2, "not NAME=WEIGHT"),
        (&["chat", "--set", "r1=1", "--token-file", "/nowhere"], 2, "--token-file: /nowhere"),
    ] {
        let (exit, out, err) = rig.split(command).await;
        assert!(exit == Some(code) && out.is_empty() && err.contains(said), "{command:?}: {exit:?} {err}");
    }
    assert_eq!(rig.chat().await.0, 1);
    let (code, _, err) = run(tandem("split").args(["--admin", "http://127.0.0.1:1"])).await;
    assert!(code == Some(3) && err.contains("is the router running"), "{err}");
}

/// A router whose split another operator changes between the reading and the order.
#[tokio::test]
async fn a_split_that_was_applied_meanwhile_is_not_undone() {
    let rig = Rig::start("").await;
    let stale = rig.document("/observer/split").await;
    rig.split(&["chat", "--set", "next=5"]).await;
    let script = Script::new(move |request| {
        if request.method == "PUT" {
            Response::json(409, r#"{"error":{"code":"split_version_conflict"}}"#).into_steps()
        } else {
            Response::json(200, stale.to_string()).into_steps()
        }
    });
    let between = Engine::start_tcp(script).await;
    let (code, out, err) =
        run(tandem("split").args(["chat", "--set", "r1=1", "--admin", &between.url()])).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("chat: another split was applied meanwhile; look and try again"), "{err}");
    // What it was told is what the router itself refuses now.
    let told = between.log.requests_to("/split")[0].json();
    assert_eq!((&told["expected_version"], &told["service"]), (&json!(1), &json!("chat")));
    let lines =
        ["Content-Type: application/json".to_owned(), format!("Content-Length: {}", told.to_string().len())];
    let head = tandem::testkit::fixtures::request_head("PUT", "/split", &lines.each_ref().map(|l| &**l));
    let mut client = tandem::testkit::client::RawClient::connect(rig.router.admin).await;
    let answer = client.request(&[&head[..], told.to_string().as_bytes()].concat()).await.unwrap();
    assert_eq!((answer.status(), &answer.json()["error"]["code"]), (409, &json!("split_version_conflict")));
    assert_eq!(rig.chat().await.2[1]["weight"], 5);
}

#[tokio::test]
async fn a_change_takes_the_token_and_a_look_does_not() {
    let rig = Rig::start("admin: { token_file: TOKEN }").await;
    assert_eq!(rig.split(&[]).await.0, Some(0));
    let set = ["chat", "--set", "next=1"];
    let (code, _, err) = rig.split(&set).await;
    assert!(code == Some(1) && err.contains("401") && err.contains("--token-file"), "{err}");
    let token = rig.folder.path().join("token");
    let with = [&set[..], &["--token-file", token.to_str().unwrap()]].concat();
    assert_eq!(rig.split(&with).await.0, Some(0));
    let reset = ["chat", "--reset", "--token-file", token.to_str().unwrap()];
    assert_eq!(rig.split(&reset).await.0, Some(0));
    assert_eq!(rig.chat().await.0, 3);
}

/// The examples of the documentation.
fn documented() -> [Value; 2] {
    let page = include_str!("../../docs/admin-api.md");
    [r#"{"schema":1,"services":[{"service":"chat","version""#, r#"{"schema":1,"registry_version""#].map(
        |begins| {
            let line = page.lines().find(|line| line.starts_with(begins)).unwrap();
            serde_json::from_str(line).unwrap()
        },
    )
}

#[tokio::test]
async fn real_documents_and_those_of_the_documentation_fit_the_schemas() {
    let rig = Rig::start("").await;
    let [mut splits, mut cohorts] = documented().map(|document| vec![document]);
    let mut look = async |splits: &mut Vec<Value>| {
        splits.push(rig.document("/observer/split").await);
        cohorts.push(rig.document("/observer/cohorts").await);
    };
    look(&mut splits).await;
    rig.ask(5).await;
    look(&mut splits).await;
    for set in ["r1=1,next=2", "r1=0,next=0"] {
        assert_eq!(rig.split(&["chat", "--set", set]).await.0, Some(0));
        look(&mut splits).await;
    }
    let endpoints = rig.document("/endpoints").await;
    let id = endpoints["endpoints"][0]["id"].as_str().unwrap();
    rig.router.admin_call("PUT", &format!("/endpoints/{id}/drain"), &[]).await;
    look(&mut splits).await;
    for (schema, documents) in [("split.schema.json", &splits), ("cohorts.schema.json", &cohorts)] {
        let documents: Vec<&Value> = documents.iter().collect();
        let mistakes = by_schema::mistakes(schema, &documents);
        assert_eq!(mistakes, vec![json!([]); documents.len()], "{documents:#?}");
    }
    // Both know the same fields.
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for path in ["", "/services/0", "/services/0/cohorts/0"] {
        let [example, real] = [&splits[0], &splits[1]].map(|d| keys(d.pointer(path).unwrap()));
        assert_eq!(example, real, "{path}");
    }
}

#[test]
fn the_schemas_refuse_what_would_mislead_and_take_what_is_added() {
    let [split, cohorts] = documented();
    let put = |path: &str, value: Value| by_schema::put(&split, path, value);
    let one = "/services/0/cohorts/0";
    let of = |key: &str, value: Value| put(&format!("{one}/{key}"), value);
    let bad = [
        put("/schema", json!(2)),
        put("/services", Value::Null),
        put("/services/0/service", json!("")),
        put("/services/0/version", json!(-1)),
        put("/services/0/version", json!(0)),
        put("/services/0/volatile", json!(false)),
        put("/services/0/cohorts", json!([])),
        of("entry", Value::Null),
        of("entry", json!({"weight": 1})),
        of("entry", json!({"revision": "r1"})),
        of("weight", json!(0)),
        of("weight", json!(0.9)),
        of("target_share", json!(90)),
        of("share_1m", json!(1.1)),
        of("lacks", json!("no_pair")),
        of("covered", json!(false)),
        of("passed_on", json!({"busy": 1})),
        of("passed_on", json!({"no_pair": 0})),
        put("/services/0/source", json!("none")),
    ];
    let good = [
        of("new", json!(1)),
        of("share_5m", Value::Null),
        of("entry", json!({"decode": ["d2"], "weight": 90, "new": 1})),
        put("/services/0/new", json!({})),
    ];
    judge("split.schema.json", &bad, &good);
    let put = |path: &str, value: Value| by_schema::put(&cohorts, path, value);
    let bad = [
        put("/schema", json!(0)),
        put("/registry_version", json!(0)),
        put("/services/0/cohorts", json!([])),
        put("/services/0/cohorts/0/cohort", json!("")),
        put("/services/0/cohorts/0/prefill/total", json!(-1)),
        put("/services/0/cohorts/0/decode/revisions", json!(["r1", "r1"])),
        put("/services/0/cohorts/0/mixed", Value::Null),
        put("/services/0/cohorts/0/tokens/0/pairs", json!("6")),
    ];
    judge(
        "cohorts.schema.json",
        &bad,
        &[put("/new", json!(1)), put("/services/0/cohorts/0/tokens/0/token", json!(""))],
    );
}

fn judge(schema: &str, bad: &[Value], good: &[Value]) {
    let all: Vec<&Value> = bad.iter().chain(good).collect();
    for (n, mistakes) in by_schema::mistakes(schema, &all).iter().enumerate() {
        assert_eq!(mistakes == &json!([]), n >= bad.len(), "{schema} {n}: {} {mistakes}", all[n]);
    }
}
