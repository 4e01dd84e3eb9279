//! Changes of the configuration file while the process runs: whole or not at all, and nobody notices (B177, B179).

#![expect(clippy::float_cmp, reason = "whole numbers, written and read as such")]

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tandem::testkit::engine::openai::{ChatStream, chat_json};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, Script};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::task::spawn;
use tandem::types::clock::now;

use super::process::{Process, SOON, poll, run, tandem};
use super::replay::scale;

/// A process, its file, and two engines.
struct Rig {
    process: Process,
    file: PathBuf,
    engines: [EngineHandle; 2],
    _dir: tempfile::TempDir,
}

fn script() -> Script {
    Script::new(|request| {
        if request.json()["stream"] == true {
            ChatStream::new(10).gap(Duration::from_millis(100)).into_steps()
        } else {
            chat_json("hello").into_steps()
        }
    })
}

impl Rig {
    /// The router knows the first engine only.
    async fn start() -> Self {
        let engines = [Engine::start_tcp(script()).await, Engine::start_tcp(script()).await];
        let dir = tempfile::tempdir().unwrap();
        let yaml = yaml(&[&engines[0]], "");
        let process = Process::from_yaml(&yaml, dir.path(), &["--shutdown-delay", "0"]).await;
        Self { process, file: dir.path().join("router.yaml"), engines, _dir: dir }
    }

    fn write(&self, yaml: &str) {
        std::fs::write(&self.file, yaml).unwrap();
    }

    /// Writes, and asks by signal. Waits until the process has judged it.
    async fn reload(&self, yaml: &str) -> bool {
        let before = self.reloads().await;
        self.write(yaml);
        self.process.signal(Signal::HUP);
        poll("the reload", async || self.reloads().await != before).await;
        let after = self.reloads().await;
        assert_eq!(after.0 + after.1, before.0 + before.1 + 1.0);
        assert_eq!(self.metric("tandem_config_last_reload_successful").await == 1.0, after.0 > before.0);
        after.0 > before.0
    }

    /// Taken over, and refused.
    async fn reloads(&self) -> (f64, f64) {
        let scrape = self.process.scrape().await;
        let of = |result| scrape.sum("tandem_config_reloads_total", &[("result", result)]);
        (of("ok"), of("error"))
    }

    async fn metric(&self, name: &str) -> f64 {
        self.process.scrape().await.sum(name, &[])
    }

    async fn chat(&self) -> u16 {
        let mut client = self.process.client().await;
        client.request(&post_chat(chat_body("m", false))).await.unwrap().status()
    }

    /// Which engines answer when asked several times.
    async fn serving(&self) -> [bool; 2] {
        let before = self.engines.each_ref().map(|e| e.log.request_count());
        for _ in 0..4 {
            assert_eq!(self.chat().await, 200);
        }
        let after = self.engines.each_ref().map(|e| e.log.request_count());
        [after[0] > before[0], after[1] > before[1]]
    }

    /// One of them as the admin listener has it.
    async fn endpoint(&self, engine: &EngineHandle) -> Option<Value> {
        self.endpoints().await.into_iter().find(|e| e["url"] == engine.url())
    }

    /// What the admin listener lists.
    async fn endpoints(&self) -> Vec<Value> {
        let listed = self.process.admin_get("/endpoints").await.json();
        listed["endpoints"].as_array().unwrap().clone()
    }
}

fn yaml(engines: &[&EngineHandle], more: &str) -> String {
    let mixed: Vec<_> = engines.iter().map(|e| json!({"url": e.url()})).collect();
    let service = json!({"name": "chat", "policy": {"mixed": "round_robin"}, "discovery": {"static": {"mixed": mixed}}});
    format!("{more}\nservices: [{service}]\n")
}

#[tokio::test]
async fn b177_a_bad_file_changes_nothing_and_the_next_good_one_is_taken() {
    let rig = Rig::start().await;
    let [a, b] = &rig.engines;
    let good = yaml(&[a, b], "");
    for bad in [
        "services: [".to_owned(),
        String::new(),
        "# nothing\n".to_owned(),
        format!("{good}unknown_key: 1\n"),
        good[..good.len() / 2].to_owned(),
        yaml(&[a, b], "limits: { body: 64MB, in_flight: many }"),
        good.replace("chat", "other"),
    ] {
        assert!(!rig.reload(&bad).await, "{bad}");
        assert_eq!(rig.serving().await, [true, false], "{bad}");
    }
    let told = |line: &Value| line["problem"].as_str().is_some_and(|p| p.contains("limits.in_flight"));
    assert!(rig.process.log_lines().iter().any(told), "{}", rig.process.stderr());
    assert!(rig.reload(&good).await);
    assert_eq!(rig.serving().await, [true, true]);
    assert!(rig.process.admin_get("/config").await.text().contains(&b.url()));
}

#[tokio::test]
async fn b177_the_file_is_watched_and_may_be_away_for_a_moment() {
    let rig = Rig::start().await;
    let [a, b] = &rig.engines;
    std::fs::remove_file(&rig.file).unwrap();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(rig.reloads().await, (0.0, 0.0));
    rig.write(&yaml(&[a, b], ""));
    poll("the change to be seen", async || rig.reloads().await == (1.0, 0.0)).await;
    assert_eq!(rig.serving().await, [true, true]);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(rig.reloads().await, (1.0, 0.0), "read once");
}

/// A ConfigMap's files are links into a directory that is swapped.
#[tokio::test]
async fn b177_a_swapped_directory_is_a_change() {
    let rig = Rig::start().await;
    let [a, b] = &rig.engines;
    let at = |name: &str| rig.file.with_file_name(name);
    std::fs::create_dir(at("v2")).unwrap();
    std::fs::write(at("v2").join("router.yaml"), yaml(&[a, b], "")).unwrap();
    std::os::unix::fs::symlink("v2/router.yaml", at("new")).unwrap();
    std::fs::rename(at("new"), &rig.file).unwrap();
    poll("the change to be seen", async || rig.reloads().await == (1.0, 0.0)).await;
    assert_eq!(rig.serving().await, [true, true]);
}

#[tokio::test]
async fn b179_reloads_under_load_refuse_and_cut_nothing() {
    let rig = std::sync::Arc::new(Rig::start().await);
    let time = scale(Duration::from_secs(4), Duration::from_mins(5));
    let pause = scale(Duration::from_millis(100), Duration::from_secs(2));
    let end = now() + time;
    let mut clients = Vec::new();
    for n in 0..30 {
        let rig = std::sync::Arc::clone(&rig);
        // Streams of a second on kept connections; and small requests, each on a new connection.
        let streams = n < 10;
        clients.push(spawn(async move {
            let mut asked = 0;
            let mut client = rig.process.client().await;
            while now() < end {
                if !streams {
                    client = rig.process.client().await;
                }
                let answer = client.request(&post_chat(chat_body("m", streams))).await.unwrap();
                assert!(answer.status() == 200 && answer.is_complete());
                asked += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            asked
        }));
    }
    let [a, b] = &rig.engines;
    let versions =
        [yaml(&[a, b], ""), yaml(&[b], "limits: { in_flight: 500 }"), "broken: [".to_owned(), yaml(&[a], "")];
    let mut taken = 0;
    for version in versions.iter().cycle() {
        if now() >= end {
            break;
        }
        taken += u32::from(rig.reload(version).await);
        tokio::time::sleep(pause).await;
    }
    let mut asked = 0;
    for client in clients {
        asked += client.await.unwrap();
    }
    assert!(asked > 100 && taken > 3, "{asked} {taken}");
    let outcomes = rig.process.scrape().await;
    assert_eq!(outcomes.sum("tandem_requests_total", &[("outcome", "ok")]), f64::from(asked));
    assert_eq!(outcomes.sum("tandem_requests_total", &[]), f64::from(asked));
}

#[tokio::test]
async fn an_endpoint_that_leaves_the_file_takes_nothing_new_and_finishes_what_it_has() {
    let rig = Rig::start().await;
    let [a, b] = &rig.engines;
    let mut client = rig.process.client().await;
    client.send(&post_chat(chat_body("m", true))).await.unwrap();
    a.log.wait_for(1, SOON).await;
    assert!(rig.reload(&yaml(&[b], "")).await);
    assert_eq!(rig.serving().await, [false, true]);
    // It is shown for as long as it carries something, and for 15 s.
    let left = rig.endpoint(a).await.unwrap();
    let shown = ["gone", "selectable", "reason", "in_flight"].map(|key| &left[key]);
    assert_eq!(shown, [&json!(true), &json!(false), &json!("removed"), &json!(1)]);
    assert_eq!(rig.endpoint(b).await.unwrap()["gone"], false);
    let path = format!("/endpoints/{}/drain", left["id"].as_str().unwrap());
    assert_eq!(rig.process.admin_call("DELETE", &path, &[]).await.status(), 404, "it takes no orders");
    // A drain of it waits for what it carries.
    let admin = format!("http://{}", rig.process.admin);
    let drain =
        async |more: &[&str]| run(tandem("drain").args([&a.url(), "--admin", &admin]).args(more)).await;
    let (code, out, err) = drain(&["--wait", "0s"]).await;
    assert!(code == Some(1) && out.ends_with(" 1 decode\n"), "{code:?} {out}{err}");
    let (code, out, err) = drain(&["--abort"]).await;
    assert!(code == Some(0) && out.contains("withdrawn by removed"), "{code:?} {out}{err}");
    let (code, out, _) = run(tandem("status").args(["--admin", &admin])).await;
    assert!(code == Some(0) && out.lines().any(|line| line.split_whitespace().eq(SERVES)), "{out}");
    let answer = client.read_response().await.unwrap();
    assert!(answer.is_complete() && answer.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(drain(&[]).await.0, Some(0), "nothing is open there any more");
}

/// One of one is selectable, and the one that has left carries a request.
const SERVES: [&str; 7] = ["chat", "plain", "any", "mixed", "1/1", "1", "0"];

#[tokio::test]
async fn an_endpoint_that_stays_keeps_its_drain_and_its_connections() {
    let rig = Rig::start().await;
    let [a, b] = &rig.engines;
    assert!(rig.reload(&yaml(&[a, b], "")).await);
    assert_eq!(rig.serving().await, [true, true]);
    let id = rig.endpoints().await;
    let id = id.iter().find(|e| e["url"] == a.url()).unwrap()["id"].as_str().unwrap().to_owned();
    assert!(rig.process.admin_call("PUT", &format!("/endpoints/{id}/drain"), &[]).await.status() < 300);
    assert!(rig.reload(&yaml(&[b, a], "limits: { in_flight: 9 }")).await);
    assert_eq!(rig.serving().await, [false, true]);
    assert_eq!(b.log.conns().len(), 1, "its pooled connection is used on");
}

#[tokio::test]
async fn limits_are_taken_over_and_keys_that_need_a_restart_are_named() {
    let rig = Rig::start().await;
    let [a, b] = &rig.engines;
    let big = chat_body(&"m".repeat(2000), false);
    let ask = async || {
        let mut client = rig.process.client().await;
        client.request(&post_chat(big.clone())).await.unwrap().status()
    };
    assert_eq!(ask().await, 200);
    let more = "limits: { body: 1KiB, connections: 77 }\nlog: { level: debug }";
    assert!(rig.reload(&yaml(&[a, b], more)).await);
    assert_eq!(ask().await, 413);
    assert_eq!(rig.serving().await, [true, true]);
    assert_eq!(rig.metric("tandem_config_restart_needed_keys").await, 2.0);
    rig.process.logged(&[("keys", json!("limits.connections, log.level"))]).await;
    let shown = rig.process.admin_get("/config").await.text();
    assert!(shown.contains("body: 1KiB") && shown.contains("connections: auto"), "{shown}");
    assert!(rig.reload(&yaml(&[a], "")).await);
    assert_eq!((ask().await, rig.metric("tandem_config_restart_needed_keys").await), (200, 0.0));
    assert!(
        !rig.reload(&yaml(&[a, b], "").replace("\"policy\"", "\"upstream\":{\"idle\":\"9s\"},\"policy\""))
            .await
    );
    assert_eq!(rig.serving().await, [true, false]);
    rig.process.logged(&[("keys", json!("services[chat].upstream.idle"))]).await;
}

#[tokio::test]
async fn without_a_file_sighup_says_so_and_changes_nothing() {
    let engine = Engine::start_tcp(script()).await;
    let process = Process::start(&["--worker", &engine.url()]).await;
    process.signal(Signal::HUP);
    process.logged(&[("message", json!("SIGHUP: there is no configuration file to read again"))]).await;
    let mut client = process.client().await;
    assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
}
