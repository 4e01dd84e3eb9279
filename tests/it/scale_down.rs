//! A fleet of two becomes one, by the worked example of `docs/drain.md`: label off, reports, zero, delete; and the same
//! stopped half-way, with traffic back. Routers, engines and the program are processes; the API server is the fake one.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tandem::testkit::client::RawClient;
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::{get, post_chat};
use tandem::testkit::kube::{FakeKube, PodSpec};
use tandem::testkit::task::spawn;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::pods::Cluster;
use crate::process::{Process, SOON, Sink, tandem};

const LABEL: &str = "tandem.dev/endpoint-eligible";

/// A mock engine of vLLM's wire that takes 100 ms for a token.
struct Engine {
    _child: Child,
    port: u16,
    out: Sink,
}

impl Engine {
    async fn start() -> Self {
        let mut command = tandem("engine");
        command.args(["--wire", "vllm", "--listen", "127.0.0.1:0", "--per-token", "100ms"]);
        let mut child = command.spawn().unwrap();
        let out = Sink::of(child.stdout.take().unwrap());
        let port = eventually(SOON, "the engine to serve", || {
            let text = out.text();
            let at =
                text.split("addr=").nth(1).and_then(|rest| rest.split_whitespace().next()?.rsplit_once(':'));
            at.and_then(|(_, port)| port.parse().ok()).ok_or(text.clone())
        })
        .await;
        Self { _child: child, port, out }
    }

    fn pod(&self, name: &str) -> PodSpec {
        PodSpec::new(name)
            .label("app", "llm")
            .label(LABEL, "true")
            .annotation("tandem.dev/ports", &self.port.to_string())
            .ip("127.0.0.1")
    }

    /// Bodies of the chats that it was given.
    async fn chats(&self) -> Vec<String> {
        let mut client = RawClient::connect(([127, 0, 0, 1], self.port).into()).await;
        let log = client.request(&get("/mock/log")).await.unwrap().json();
        let all = log["requests"].as_array().unwrap_or_else(|| panic!("{log}: {}", self.out.text()));
        let chats = all.iter().filter(|request| request["method"] == "POST");
        chats.map(|request| request["body"].as_str().unwrap().to_owned()).collect()
    }
}

/// Two engines as Pods, two routers, and clients that ask both all the time.
struct Fleet {
    cluster: Cluster,
    kube: String,
    engines: [Engine; 2],
    routers: [Process; 2],
    load: Vec<JoinHandle<Vec<u16>>>,
    stop: CancellationToken,
}

impl Fleet {
    async fn start() -> Self {
        let engines = [Engine::start().await, Engine::start().await];
        let cluster = Cluster::start().await;
        for (n, engine) in engines.iter().enumerate() {
            cluster.api.create(engine.pod(&format!("chat-{n}")));
        }
        let routers = [cluster.ready_router("").await, cluster.ready_router("").await];
        let stop = CancellationToken::new();
        let load = routers.iter().map(|router| spawn(ask_on(router.front, stop.clone()))).collect();
        let kube = cluster.url();
        Self { cluster, kube, engines, routers, load, stop }
    }

    fn api(&self) -> &FakeKube {
        &self.cluster.api
    }

    fn retire(&self, more: &[&str]) -> (Child, Sink) {
        let routers: Vec<String> = self.routers.iter().map(|r| format!("http://{}", r.admin)).collect();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/retire/retire.py");
        let mut command = Command::new(tandem::testkit::openai::python());
        command.arg(script).args(["chat-0", "--engine-port", &self.engines[0].port.to_string()]).args(more);
        command.env("KUBE", &self.kube).env("ROUTERS", routers.join(","));
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let out = Sink::of(child.stdout.take().unwrap());
        (child, out)
    }

    /// A stream of 60 tokens, 6 s, on the engine that is to leave, through this router.
    async fn stream(&self, router: usize) -> RawClient<TcpStream> {
        for n in 0..50 {
            let mut client = self.routers[router].client().await;
            client.send(&post_chat(chat(&format!("stream-{n}"), 60))).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
            let is_it = |body: &String| body.contains(&format!("\"stream-{n}\""));
            if self.engines[0].chats().await.iter().any(is_it) {
                return client;
            }
        }
        panic!("no stream comes to the engine");
    }

    fn pod(&self) -> Option<Value> {
        self.api().pod("default", "chat-0")
    }

    fn is_labelled(&self) -> bool {
        self.pod().is_some_and(|pod| pod["metadata"]["labels"][LABEL] == "true")
    }

    /// Every request was answered.
    async fn end_well(self) -> usize {
        self.stop.cancel();
        let mut answered = 0;
        for load in self.load {
            let statuses = load.await.unwrap();
            assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
            answered += statuses.len();
        }
        answered
    }
}

/// Streamed if it is for more than one token.
fn chat(user: &str, tokens: u32) -> String {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let (model, stream) = ("tiny", tokens > 1);
    json!({ "model": model, "messages": messages, "user": user, "stream": stream, "max_tokens": tokens, "ignore_eos": true })
        .to_string()
}

async fn ask_on(front: std::net::SocketAddr, stop: CancellationToken) -> Vec<u16> {
    let mut client = RawClient::connect(front).await;
    let mut statuses = Vec::new();
    while !stop.is_cancelled() {
        statuses.push(client.request(&post_chat(chat("load", 1))).await.unwrap().status());
    }
    statuses
}

#[tokio::test]
async fn two_replicas_become_one_and_no_request_is_lost() {
    let fleet = Fleet::start().await;
    let mut stream = fleet.stream(1).await;
    let (mut child, out) = fleet.retire(&[]);
    eventually(SOON, "to drain", || out.text().contains("draining").then_some(()).ok_or(out.text())).await;
    assert!(!fleet.is_labelled() && fleet.pod().is_some(), "{}", out.text());
    let answer = stream.read_response().await.unwrap();
    assert!(answer.is_complete() && answer.text().contains("data: [DONE]"), "it was not cut");
    let at_zero = fleet.engines[0].chats().await.len();
    assert!(child.wait().await.unwrap().success(), "{}", out.text());
    assert!(out.text().ends_with("deleting\n"), "{}", out.text());
    assert!(fleet.pod().is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null()));
    assert_eq!(
        fleet.engines[0].chats().await.len(),
        at_zero,
        "nothing was begun on it after it was withdrawn"
    );
    assert!(fleet.end_well().await > 10);
}

#[tokio::test]
async fn a_retirement_that_is_stopped_half_way_leaves_the_replica_in_service() {
    let fleet = Fleet::start().await;
    let _stream = fleet.stream(0).await;
    let (mut child, out) = fleet.retire(&[]);
    eventually(SOON, "to hold", || out.text().contains("the engine is busy").then_some(()).ok_or(out.text()))
        .await;
    assert!(!fleet.is_labelled());
    kill_process(Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(1));
    assert!(out.text().ends_with("aborted: asked to stop; the replica serves on\n"), "{}", out.text());
    let pod = fleet.pod().unwrap();
    assert!(fleet.is_labelled() && pod["metadata"]["deletionTimestamp"].is_null());
    let before = fleet.engines[0].chats().await.len();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(fleet.engines[0].chats().await.len() > before + 5, "traffic is back");
    assert!(fleet.end_well().await > 10);
}

/// A budget that is over, an engine that says nothing, a router that cannot be asked: nothing is deleted.
#[tokio::test]
async fn what_is_not_known_is_not_deleted() {
    let fleet = Fleet::start().await;
    let port = fleet.engines[1].port.to_string();
    for (more, why) in [
        (
            &["--drain-budget", "2", "--engine", "sglang"][..],
            "the engine does not say sglang:num_running_reqs",
        ),
        (&["--drain-budget", "2", "--engine-port", "1"], "unknown"),
        (&["--drain-budget", "0"], "the budget of 0 s is over"),
    ] {
        let (mut child, out) = fleet.retire(more);
        assert_eq!(child.wait().await.unwrap().code(), Some(1), "{more:?} {}", out.text());
        let said = out.text();
        assert!(said.contains(why) && said.ends_with("the replica serves on\n"), "{more:?} {said}");
        assert!(fleet.is_labelled() && fleet.pod().unwrap()["metadata"]["deletionTimestamp"].is_null());
    }
    // One router less than there were: it may still carry what it was given.
    let (mut child, out) = fleet.retire(&["--drain-budget", "4", "--engine-port", &port]);
    eventually(SOON, "to drain", || out.text().contains("draining").then_some(()).ok_or(out.text())).await;
    fleet.routers[1].signal(Signal::KILL);
    assert_eq!(child.wait().await.unwrap().code(), Some(1), "{}", out.text());
    assert!(out.text().contains("unknown: ") && fleet.is_labelled(), "{}", out.text());
}
