//! What the engines of deploy/ run when they leave and come back, by the program and by `drain.py`, with two routers of the real
//! binary for the replicas behind the headless Service. What `tandem drain` does beyond that: `cli_drain.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tandem::testkit::client::RawClient;
use tandem::testkit::engine::openai::{ChatStream, chat_json, kv_answer};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Response, Script, Step};
use tandem::testkit::eventually::eventually_async;
use tandem::testkit::fixtures::{chat_body, post_chat};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::files::{CONTAINER, Deploy, PODS, PROGRAM, SCRIPT};
use crate::pods::{Cluster, endpoint, pod};
use crate::process::{Process, SOON, poll};
use tandem::testkit::openai::python;

/// Longest wait for the script: a Python has to start, on a machine that is shared.
const LONG: Duration = Duration::from_mins(1);

/// Where an engine's container says what to run.
const LEAVE: &str = "lifecycle/preStop";
const RETURN: &str = "startupProbe";

/// A stream that lasts until its client leaves, or a short answer.
fn answer(request: &RecordedRequest) -> Vec<Step> {
    if request.path() == "/v1/chat/completions" && request.json()["stream"] == true {
        ChatStream::new(2).then(Step::Stall).into_steps()
    } else {
        chat_json("hi").into_steps()
    }
}

struct Rig {
    form: &'static str,
    leaving: EngineHandle,
    staying: EngineHandle,
    routers: Vec<Process>,
    directory: tempfile::TempDir,
    /// Of the leaving engine's Pod, if it is one.
    uid: String,
}

impl Rig {
    async fn start(form: &'static str) -> Self {
        let leaving = Engine::start_tcp(Script::new(answer)).await;
        let staying = Engine::start_tcp(Script::new(answer)).await;
        let (a, b) = (leaving.url(), staying.url());
        let flags = ["--worker", &a, "--worker", &b, "--policy", "round_robin"];
        Self::with(form, leaving, staying, &flags).await
    }

    async fn with(form: &'static str, leaving: EngineHandle, staying: EngineHandle, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let token = directory.path().join("token").display().to_string();
        std::fs::write(&token, "admin-token-1\n").unwrap();
        let flags = [flags, &["--admin-token-file", &token]].concat();
        let routers = vec![Process::start(&flags).await, Process::start(&flags).await];
        Self { form, leaving, staying, routers, directory, uid: String::new() }
    }

    fn admins(&self) -> String {
        self.routers.iter().map(|router| format!("http://{}", router.admin)).collect::<Vec<_>>().join(",")
    }

    /// The manifest's command with its last word replaced, and what it names being where it is here; proxies of the environment
    /// included.
    fn hook(&self, handler: &str, last: &str) -> Command {
        let deploy = Deploy::with(self.form);
        let script = self.directory.path().join("drain.py");
        let words = deploy.at(deploy.engines(), &format!("{CONTAINER}/{handler}/exec/command"));
        let mut words: Vec<&str> =
            words.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        words.pop();
        let mut words = words.into_iter().map(|word| match word {
            "python3" => python(),
            "/opt/tandem/tandem" => env!("CARGO_BIN_EXE_tandem").into(),
            "/etc/tandem-drain/drain.py" => {
                let text = deploy.at("ConfigMap/tandem-drain", "/data/drain.py").as_str().unwrap();
                std::fs::write(&script, text).unwrap();
                script.clone()
            }
            word => word.into(),
        });
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg(last);
        command.env_remove("KUBECONFIG").env("HOME", "/none");
        let env = deploy.at(deploy.engines(), &format!("{CONTAINER}/env")).as_array().unwrap();
        for name in env.iter().map(|variable| variable["name"].as_str().unwrap()) {
            command.env(
                name,
                match name {
                    "POD_NAME" => continue,
                    "POD_NAMESPACE" => "default".to_owned(),
                    "POD_UID" => self.uid.clone(),
                    "TANDEM_ENGINE" if self.form == PODS => "pod/chat-0".to_owned(),
                    "TANDEM_ENGINE" => self.leaving.url(),
                    "TANDEM_ADMIN" => self.admins(),
                    "TANDEM_TOKEN_FILE" => self.directory.path().join("token").display().to_string(),
                    other => panic!("{other} is not known here"),
                },
            );
        }
        command.env("http_proxy", "http://127.0.0.1:1").stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped()).kill_on_drop(true);
        command
    }

    fn leave(&self, seconds: u32) -> Command {
        self.hook(LEAVE, &if self.form == SCRIPT { seconds.to_string() } else { format!("{seconds}s") })
    }

    fn come_back(&self) -> Command {
        self.hook(RETURN, &(self.leaving.url() + "/health"))
    }

    fn start_drain(&self, seconds: u32) -> Child {
        self.leave(seconds).spawn().unwrap()
    }

    /// What each router says of the leaving engine.
    async fn drained(&self) -> Vec<bool> {
        let mut said = Vec::new();
        for router in &self.routers {
            let list = router.admin_get("/endpoints").await.json();
            let all = list["endpoints"].as_array().unwrap().clone();
            said.push(all.iter().any(|e| e["url"] == self.leaving.url() && e["draining"] == true));
        }
        said
    }

    /// A stream on each engine through this router.
    async fn streams(&self, router: &Process) -> [RawClient<TcpStream>; 2] {
        let before = self.leaving.log.request_count();
        let mut clients = [router.client().await, router.client().await];
        for client in &mut clients {
            client.send(&post_chat(chat_body("m", true))).await.unwrap();
        }
        self.leaving.log.wait_for(before + 1, SOON).await;
        clients
    }
}

/// Exit code and standard error.
async fn ran(command: &mut Command) -> (Option<i32>, String) {
    let output = tokio::time::timeout(LONG, command.output()).await.unwrap().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test]
async fn an_engine_leaves_every_router_when_nothing_is_open_on_it_and_comes_back() {
    for form in [PROGRAM, SCRIPT] {
        let rig = Rig::start(form).await;
        let streams = rig.streams(&rig.routers[1]).await;
        let mut drain = rig.start_drain(60);
        eventually_async(LONG, "both routers to know", async || {
            let said = rig.drained().await;
            if said == [true, true] { Ok(()) } else { Err(said) }
        })
        .await;
        for router in &rig.routers {
            for _ in 0..4 {
                let answer = router.client().await.request(&post_chat(chat_body("m", false))).await.unwrap();
                assert_eq!(answer.status(), 200);
            }
        }
        assert!(drain.try_wait().unwrap().is_none(), "it did not wait for the stream");
        drop(streams);
        let output = tokio::time::timeout(LONG, drain.wait_with_output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{output:?}");
        let chats = |engine: &EngineHandle| engine.log.requests_to("/v1/chat/completions").len();
        assert_eq!((chats(&rig.leaving), chats(&rig.staying)), (1, 9));

        let (code, err) = ran(&mut rig.come_back()).await;
        assert_eq!((code, err), (Some(0), String::new()));
        assert_eq!(rig.drained().await, [false, false]);
    }
}

/// An engine that is not up yet stays out: the startup probe asks again.
#[tokio::test]
async fn an_engine_that_does_not_answer_is_not_given_back() {
    for form in [PROGRAM, SCRIPT] {
        let mut rig = Rig::start(form).await;
        assert_eq!(ran(&mut rig.leave(5)).await.0, Some(0));
        rig.leaving.refuse().await;
        assert_ne!(ran(&mut rig.come_back()).await.0, Some(0));
        assert_eq!(rig.drained().await, [true, true]);
        rig.leaving.accept_again().await;
        assert_eq!(ran(&mut rig.come_back()).await.0, Some(0));
        assert_eq!(rig.drained().await, [false, false]);
    }
}

/// A vLLM prefill whose decode is silent: its own part is over, and the KV is not yet pulled.
#[tokio::test]
async fn the_script_waits_for_hand_offs_too() {
    let prefill = Engine::start_tcp(Script::always(Response::json(200, kv_answer("e").to_string()))).await;
    let decode = Engine::start_tcp(Script::always(Step::Stall)).await;
    let (p, d) = (prefill.url(), decode.url());
    let pair =
        ["--engine", "vllm", "--prefill", &p, "--decode", &d, "--kv-lease", "2s", "--handoff-max-age", "1s"];
    let rig = Rig::with(SCRIPT, prefill, decode, &pair).await;
    let mut client = rig.routers[0].client().await;
    client.send(&post_chat(chat_body("m", true))).await.unwrap();
    rig.staying.log.wait_for(1, SOON).await;
    let (code, err) = ran(&mut rig.leave(0)).await;
    assert_eq!(code, Some(1), "{err}");
    rig.staying.reset_connections();
    assert_eq!(ran(&mut rig.leave(30)).await, (Some(0), String::new()));
}

/// The `n`th answer of a router; the engine's entry is put in.
type Quiet = fn(u64) -> Value;

fn said(boot: u64, seq: u64) -> Value {
    json!({"schema": 1, "registry_version": 1, "pods": [], "endpoints": [],
        "router": {"instance": "r", "boot_generation": boot, "seq": seq, "now_ms": seq}})
}

/// Both forms want two quiet answers, one after the other, of the same process, the second one being new.
#[tokio::test]
async fn one_quiet_answer_or_the_same_one_twice_is_no_proof() {
    let cases: [(&str, Quiet, bool); 6] = [
        ("new each time", |n| said(1, n), true),
        ("the same answer", |_| said(1, 1), false),
        ("another process each time", |n| said(n, n), false),
        ("one that restarted", |n| said(u64::from(n > 1), n), false),
        ("another schema", |n| json!({"schema": 2, "router": said(1, n)["router"], "endpoints": []}), false),
        ("open each other time", |n| said(1, n), false),
    ];
    for form in [PROGRAM, SCRIPT] {
        let rig = Rig::start(form).await;
        assert_eq!(ran(&mut rig.leave(20)).await.0, Some(0));
        let entry = rig.routers[0].admin_get("/observer/inflight").await.json();
        let entry = entry["endpoints"].as_array().unwrap().iter().find(|e| e["url"] == rig.leaving.url());
        let entry = entry.unwrap().clone();
        for (what, quiet, good) in cases {
            let (entry, asked) = (entry.clone(), AtomicU64::new(0));
            let router = Engine::start_tcp(Script::new(move |_| {
                let n = asked.fetch_add(1, Ordering::Relaxed) + 1;
                let mut report = quiet(n);
                report["endpoints"] = json!([entry]);
                if what.starts_with("open") && n % 2 == 0 {
                    report["endpoints"][0]["in_flight"]["handoff"] = json!(1);
                }
                Response::json(200, report.to_string()).into_steps()
            }))
            .await;
            let (code, err) = ran(rig.leave(3).env("TANDEM_ADMIN", router.url())).await;
            assert_eq!(code == Some(0), good, "{form} {what}: {code:?} {err}");
        }
    }
}

#[tokio::test]
async fn what_is_still_open_or_unknown_is_not_drained() {
    let rig = Rig::start(SCRIPT).await;
    let _streams = rig.streams(&rig.routers[0]).await;
    let (code, err) = ran(&mut rig.leave(0)).await;
    assert_eq!(code, Some(1));
    assert!(err.contains("not drained after 0 s"), "{err}");
    assert_eq!(rig.drained().await, [true, true]);

    // A replica that does not answer may have something open.
    let silent = format!("http://{},http://127.0.0.1:1", rig.routers[1].admin);
    let (code, err) = ran(rig.leave(0).env("TANDEM_ADMIN", &silent)).await;
    assert!(code == Some(1) && err.contains("127.0.0.1:1") && err.contains("refused"), "{err}");
    let (code, err) = ran(rig.come_back().env("TANDEM_ADMIN", &silent)).await;
    assert!(code == Some(1) && err.contains("not restored at"), "{err}");
    let nobody = ran(rig.come_back().env("TANDEM_ADMIN", "http://no-such-service.invalid:9090")).await;
    assert_eq!(nobody.0, Some(0), "no router is no reason to stay down");
}

#[tokio::test]
async fn a_wrong_token_and_a_name_that_no_router_lists_are_said() {
    let rig = Rig::start(SCRIPT).await;
    let (code, err) = ran(rig.leave(0).env("TANDEM_ENGINE", "http://engine-9.engine:8000")).await;
    assert_eq!(code, Some(1));
    assert!(err.contains("no router lists http://engine-9.engine:8000"), "{err}");
    std::fs::write(rig.directory.path().join("other"), "admin-token-2").unwrap();
    let (code, err) = ran(rig.leave(0).env("TANDEM_TOKEN_FILE", rig.directory.path().join("other"))).await;
    assert!(code == Some(1) && err.contains("401"), "{err}");
    assert_eq!(rig.drained().await, [false, false]);
}

/// Routers give a Pod that is being deleted nothing new by themselves; its hook keeps the engine until what it carries is over.
#[tokio::test]
async fn an_engine_that_is_found_is_kept_until_its_requests_are_over() {
    for form in [PODS, SCRIPT] {
        let engine = Engine::start_tcp(Script::new(answer)).await;
        let cluster = Cluster::start().await;
        let uid = cluster.api.create(pod("chat-0", &engine));
        let process = cluster.ready_router("").await;
        let mut client = process.client().await;
        client.send(&post_chat(chat_body("m", true))).await.unwrap();
        engine.log.wait_for(1, SOON).await;
        cluster.api.delete("default", "chat-0");
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("token"), "none is asked for here").unwrap();
        let staying = Engine::start_tcp(Script::new(answer)).await;
        let rig = Rig { form, leaving: engine, staying, routers: vec![process], directory, uid };
        let listed = async || endpoint(&rig.routers[0], &rig.leaving).await.unwrap();
        poll("its deletion", async || listed().await["reason"] == "terminating").await;
        let mut other = rig.routers[0].client().await;
        assert_eq!(other.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 503);
        let (code, err) = ran(&mut rig.leave(0)).await;
        assert!(code == Some(1) && err.contains("not drained"), "{err}");
        let mut drain = rig.start_drain(60);
        // Not only until the API server has forgotten it.
        cluster.api.finish_delete("default", "chat-0");
        poll("it to be gone", async || listed().await["gone"] == true).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(drain.try_wait().unwrap().is_none(), "it did not wait for the stream");
        drop(client);
        let output = tokio::time::timeout(LONG, drain.wait_with_output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}
