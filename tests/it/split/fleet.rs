//! A router process before Pods of a stable release and a canary, and clients that never stop asking.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tandem::testkit::client::{RawClient, RawResponse};
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::{chat_body, post};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::rig::CHAT;
use crate::pods::{Cluster, pod};
use crate::process::{Process, SOON};

/// Header of a client's request that says what had happened when it was sent; engines get it too.
const WHEN: &str = "x-when";

pub(super) struct Fleet {
    pub(super) cluster: Cluster,
    stable: EngineHandle,
    canaries: Vec<EngineHandle>,
}

impl Fleet {
    /// The canary's Pod is listed first.
    pub(super) async fn start() -> Self {
        let mut fleet = Self {
            cluster: Cluster::start().await,
            stable: Engine::start_tcp(Script::always(chat_json("stable"))).await,
            canaries: Vec::new(),
        };
        fleet.canary("a-canary").await;
        fleet.cluster.api.create(pod("b-stable", &fleet.stable).label("tandem.dev/revision", "stable"));
        fleet
    }

    /// One more Pod of the canary.
    pub(super) async fn canary(&mut self, name: &str) {
        let engine = Engine::start_tcp(Script::always(chat_json("canary"))).await;
        self.cluster.api.create(pod(name, &engine).label("tandem.dev/revision", "canary"));
        self.canaries.push(engine);
    }

    /// The configuration file with these lines below `weights`.
    pub(super) fn config(&self, weights: &str) -> PathBuf {
        let kubeconfig = self.cluster.kubeconfig();
        let yaml = format!(
            "kubernetes: {{ kubeconfig: {:?} }}\n\
             services:\n  - name: chat\n    discovery: {{ kubernetes: {{ selector: {{ app: llm }} }} }}\n    \
             sticky: {{ headers: [x-session-id] }}\n    split: {{ weights: {weights} }}\n",
            kubeconfig.display().to_string()
        );
        let file = kubeconfig.parent().unwrap().join("router.yaml");
        std::fs::write(&file, yaml).unwrap();
        file
    }

    /// Serves when this returns; whether it knows any Pod yet is another matter.
    pub(super) async fn launch(&self, weights: &str) -> Process {
        Process::launch(&["--config", self.config(weights).to_str().unwrap()], true).await
    }

    /// Requests that canaries got and that were sent when this had happened; an empty word: all of them.
    pub(super) fn canary_requests(&self, when: &str) -> usize {
        self.canaries.iter().map(|engine| requests(engine, when)).sum()
    }

    pub(super) fn stable_requests(&self, when: &str) -> usize {
        requests(&self.stable, when)
    }
}

fn requests(engine: &EngineHandle, when: &str) -> usize {
    let all = engine.log.requests_to(CHAT).into_iter();
    all.filter(|request| request.headers.get(WHEN).is_some_and(|is| is.ends_with(when))).count()
}

/// `GET /observer/split`, the one service's.
pub(super) async fn observed(process: &Process) -> Value {
    process.admin_get("/observer/split").await.json()["services"][0].clone()
}

pub(super) async fn put_text(process: &Process, body: &str) -> RawResponse {
    let mut client = RawClient::connect(process.admin).await;
    let head = format!(
        "PUT /split HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.request(head + body).await.unwrap()
}

/// A split by hand: of `stable` and `canary`.
pub(super) async fn put(process: &Process, stable: u64, canary: u64) {
    let weights = json!([{"revision": "canary", "weight": canary}, {"revision": "stable", "weight": stable}]);
    let answer = put_text(process, &json!({"service": "chat", "weights": weights}).to_string()).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

/// Clients that ask as fast as they are answered, each with sessions and without, wherever the router is now.
pub(super) struct Load {
    shared: Arc<Shared>,
    /// They end with it.
    _clients: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    front: Mutex<Option<SocketAddr>>,
    when: Mutex<String>,
    good: AtomicU64,
}

impl Load {
    pub(super) fn start(clients: u64) -> Self {
        let shared = Arc::new(Shared::default());
        let mut set = JoinSet::new();
        for n in 0..clients {
            set.spawn(ask_for_ever(n, Arc::clone(&shared)));
        }
        Self { shared, _clients: set }
    }

    pub(super) fn at(&self, process: &Process) {
        *self.shared.front.lock() = Some(process.front);
    }

    /// What has happened, for requests sent from now on.
    pub(super) fn now(&self, when: &str) {
        when.clone_into(&mut self.shared.when.lock());
    }

    /// Waits for so many good answers from now on.
    pub(super) async fn answers(&self, n: u64) {
        let good = || self.shared.good.load(Ordering::Relaxed);
        let from = good();
        eventually(SOON, "good answers", || if good() >= from + n { Ok(()) } else { Err(good() - from) })
            .await;
    }
}

async fn ask_for_ever(n: u64, shared: Arc<Shared>) {
    let mut turn = 0;
    loop {
        let front = *shared.front.lock();
        if let Some(front) = front
            && let Ok(stream) = TcpStream::connect(front).await
        {
            let mut client = RawClient::new(stream, Duration::from_secs(1));
            loop {
                turn += 1;
                let when = format!("{WHEN}: {}", shared.when.lock());
                let session = format!("x-session-id: {n}-{turn}");
                let lines = [when.as_str(), session.as_str()];
                let lines = if turn % 2 == 0 { &lines[..1] } else { &lines };
                match client.request(post(CHAT, lines, chat_body("m", false))).await {
                    Ok(answer) if answer.status() == 200 => _ = shared.good.fetch_add(1, Ordering::Relaxed),
                    Ok(_) => sleep(Duration::from_millis(2)).await,
                    Err(_) => break,
                }
            }
        }
        sleep(Duration::from_millis(2)).await;
    }
}
