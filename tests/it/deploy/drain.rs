//! `drain.py` of deploy/engine, with two routers of the real binary for the replicas behind the headless Service.

use std::time::Duration;

use tandem::testkit::client::RawClient;
use tandem::testkit::engine::openai::{ChatStream, chat_json};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Script, Step};
use tandem::testkit::eventually::eventually_async;
use tandem::testkit::fixtures::{chat_body, post_chat};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::files::Deploy;
use super::python;
use crate::process::{Process, SOON};

/// Longest wait for the script: a Python has to start, on a machine that is shared.
const LONG: Duration = Duration::from_mins(1);

/// A stream that lasts until its client leaves, or a short answer.
fn answer(request: &RecordedRequest) -> Vec<Step> {
    if request.path() == "/v1/chat/completions" && request.json()["stream"] == true {
        ChatStream::new(2).then(Step::Stall).into_steps()
    } else {
        chat_json("hi").into_steps()
    }
}

struct Rig {
    leaving: EngineHandle,
    staying: EngineHandle,
    routers: Vec<Process>,
    directory: tempfile::TempDir,
}

impl Rig {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script =
            Deploy::read().at("ConfigMap/tandem-drain", "/data/drain.py").as_str().unwrap().to_owned();
        std::fs::write(directory.path().join("drain.py"), script).unwrap();
        std::fs::write(directory.path().join("token"), "admin-token-1\n").unwrap();
        let leaving = Engine::start_tcp(Script::new(answer)).await;
        let staying = Engine::start_tcp(Script::new(answer)).await;
        let token = directory.path().join("token").display().to_string();
        let (a, b) = (leaving.url(), staying.url());
        let flags = ["--worker", &a, "--worker", &b, "--policy", "round_robin", "--admin-token-file", &token];
        let routers = vec![Process::start(&flags).await, Process::start(&flags).await];
        Self { leaving, staying, routers, directory }
    }

    fn admins(&self) -> String {
        self.routers.iter().map(|router| router.admin.to_string()).collect::<Vec<_>>().join(",")
    }

    /// As the hook of the leaving engine's Pod runs it, proxies of the environment included.
    fn script(&self, routers: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(python());
        command.arg(self.directory.path().join("drain.py")).args(arguments);
        command.env("ENGINE_URL", self.leaving.url()).env("ENGINE_HEALTH", self.leaving.url() + "/health");
        command.env("ROUTERS", routers).env("ROUTER_TOKEN_FILE", self.directory.path().join("token"));
        command.env("http_proxy", "http://127.0.0.1:1").stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped()).kill_on_drop(true);
        command
    }

    fn start_drain(&self, seconds: &str) -> Child {
        self.script(&self.admins(), &["drain", seconds]).spawn().unwrap()
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
    let rig = Rig::start().await;
    let streams = rig.streams(&rig.routers[1]).await;
    let mut drain = rig.start_drain("60");
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

    let (code, err) = ran(&mut rig.script(&rig.admins(), &["restore"])).await;
    assert_eq!((code, err), (Some(0), String::new()));
    assert_eq!(rig.drained().await, [false, false]);
}

#[tokio::test]
async fn what_is_still_open_or_unknown_is_not_drained() {
    let rig = Rig::start().await;
    let _streams = rig.streams(&rig.routers[0]).await;
    let (code, err) = ran(&mut rig.script(&rig.admins(), &["drain", "0"])).await;
    assert_eq!(code, Some(1));
    assert!(err.contains("not drained after 0 s"), "{err}");
    assert_eq!(rig.drained().await, [true, true]);

    // A replica that does not answer may have something open.
    let silent = format!("{},127.0.0.1:1", rig.routers[1].admin);
    let (code, err) = ran(&mut rig.script(&silent, &["drain", "0"])).await;
    assert!(code == Some(1) && err.contains("127.0.0.1:1") && err.contains("refused"), "{err}");
    let (code, err) = ran(&mut rig.script(&silent, &["restore"])).await;
    assert!(code == Some(1) && err.contains("not restored at"), "{err}");
}

#[tokio::test]
async fn a_wrong_token_and_a_name_that_no_router_lists_are_said() {
    let rig = Rig::start().await;
    let mut drain = rig.script(&rig.admins(), &["drain", "0"]);
    let (code, err) = ran(drain.env("ENGINE_URL", "http://engine-9.engine:8000")).await;
    assert_eq!(code, Some(1));
    assert!(err.contains("no router lists http://engine-9.engine:8000"), "{err}");
    std::fs::write(rig.directory.path().join("other"), "admin-token-2").unwrap();
    let mut drain = rig.script(&rig.admins(), &["drain", "0"]);
    let (code, err) = ran(drain.env("ROUTER_TOKEN_FILE", rig.directory.path().join("other"))).await;
    assert!(code == Some(1) && err.contains("401"), "{err}");
    assert_eq!(rig.drained().await, [false, false]);
}

/// An engine that is not up yet stays out: the startup probe asks again.
#[tokio::test]
async fn an_engine_that_does_not_answer_is_not_given_back() {
    let mut rig = Rig::start().await;
    assert_eq!(ran(&mut rig.script(&rig.admins(), &["drain", "5"])).await.0, Some(0));
    rig.leaving.refuse().await;
    assert_eq!(ran(&mut rig.script(&rig.admins(), &["restore"])).await.0, Some(1));
    assert_eq!(rig.drained().await, [true, true]);
    rig.leaving.accept_again().await;
    assert_eq!(ran(&mut rig.script(&rig.admins(), &["restore"])).await.0, Some(0));
    assert_eq!(rig.drained().await, [false, false]);
    let nobody = ran(&mut rig.script("no-such-service.invalid:9090", &["restore"])).await;
    assert_eq!(nobody.0, Some(0), "no router is no reason to stay down");
}
