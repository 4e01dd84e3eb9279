//! How quick and how safe discovery is, as a whole process sees it: `docs/benchmarks.md`, "Discovery".
//!
//! A fake API server over HTTP, engines on loopback, and the real `tandem router` beside this binary. Figures: from the start
//! to ready with so many Pods (T10); from a change of a Pod to the last request on it (R1); the same when the watch is lost or
//! its connection half-open; and an API server that is away and comes back with other Pods (R7).

#![expect(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic, reason = "a program that measures")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::Value;
use tandem::testkit::client::RawClient;
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::fixtures::{chat_body, get, post_chat};
use tandem::testkit::kube::{Credentials, FakeKube, FakeServer, PodSpec, set_ready};
use tokio::time::sleep;

/// Measures discovery.
#[derive(Debug, Parser)]
struct Args {
    /// Pods for the time from start to ready.
    #[arg(long, default_value_t = 500)]
    pods: usize,
    /// Withdrawals of each kind.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Seconds for which the API server is away.
    #[arg(long, default_value_t = 60)]
    away: u64,
}

/// A running router, ended with its owner.
struct Router {
    child: Child,
    front: SocketAddr,
    admin: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Router {
    fn start(server: &FakeServer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = server.kubeconfig(dir.path(), Credentials::Nobody);
        let (front, admin) = (free(), free());
        let config = format!(
            "listen: {front}\nadmin: {{ listen: {admin} }}\naccess_log: {{ sink: \"off\" }}\n\
             kubernetes: {{ kubeconfig: {} }}\nservices:\n  - name: llm\n    discovery:\n      kubernetes:\n        \
             namespace: default\n        selector: {{ app: llm }}\n",
            kubeconfig.display()
        );
        let path = dir.path().join("router.yaml");
        std::fs::write(&path, config).unwrap();
        let program = beside();
        let child = Command::new(&program)
            .args(["router", "--config"])
            .arg(&path)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; build it with the same profile", program.display()));
        Self { child, front, admin, _dir: dir }
    }

    async fn ready(&self) {
        while self.get("/readyz").await.is_none_or(|(status, _)| status != 200) {
            sleep(Duration::from_millis(2)).await;
        }
    }

    async fn get(&self, path: &str) -> Option<(u16, Vec<u8>)> {
        let stream = tokio::net::TcpStream::connect(self.admin).await.ok()?;
        let mut client = RawClient::new(stream, Duration::from_secs(5));
        let answer = client.request(&get(path)).await.ok()?;
        Some((answer.status(), answer.body.clone()))
    }

    /// Selectable endpoints by URL.
    async fn selectable(&self) -> Vec<String> {
        let (_, body) = self.get("/endpoints").await.unwrap();
        let fleet: Value = serde_json::from_slice(&body).unwrap();
        let all = fleet["endpoints"].as_array().unwrap().iter();
        all.filter(|e| e["selectable"] == true).map(|e| e["url"].as_str().unwrap().to_owned()).collect()
    }
}

/// The product, beside this example.
fn beside() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(std::path::Path::parent).unwrap().join("tandem")
}

fn pod(name: &str, at: SocketAddr) -> PodSpec {
    PodSpec::new(name)
        .label("app", "llm")
        .label("tandem.dev/endpoint-eligible", "true")
        .annotation("tandem.dev/ports", &at.port().to_string())
        .at(at.ip())
}

/// Clients that ask all the time.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

impl Load {
    fn start(front: SocketAddr, clients: usize, pace: Duration) -> Self {
        let load = Self { stop: Arc::default(), done: Arc::default(), failed: Arc::default() };
        for _ in 0..clients {
            let (stop, done, failed) = (load.stop.clone(), load.done.clone(), load.failed.clone());
            tokio::spawn(async move {
                let mut client = RawClient::connect(front).await;
                let request = post_chat(chat_body("m", false));
                while !stop.load(Ordering::Relaxed) {
                    match client.request(&request).await {
                        Ok(answer) if answer.status() == 200 => done.fetch_add(1, Ordering::Relaxed),
                        _ => {
                            client = RawClient::connect(front).await;
                            failed.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                    sleep(pace).await;
                }
            });
        }
        load
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Scene {
    api: FakeKube,
    server: FakeServer,
    engines: BTreeMap<String, EngineHandle>,
}

impl Scene {
    async fn new(pods: usize) -> Self {
        let api = FakeKube::new();
        let mut engines = BTreeMap::new();
        for n in 0..pods {
            let engine = Engine::start_tcp(Script::always(chat_json("hi"))).await;
            let name = format!("p{n}");
            api.create(pod(&name, engine.addr()));
            engines.insert(name, engine);
        }
        let server = api.entry().serve().await;
        Self { api, server, engines }
    }

    /// From now to the last request on `name`, once there was none for `quiet`.
    async fn last_request(&self, name: &str, since: Instant, quiet: Duration) -> Duration {
        let log = &self.engines[name].log;
        let (mut count, mut at) = (log.request_count(), since);
        let mut silent_since = Instant::now();
        while silent_since.elapsed() < quiet {
            sleep(Duration::from_millis(1)).await;
            let now = log.request_count();
            if now != count {
                (count, at, silent_since) = (now, Instant::now(), Instant::now());
            }
        }
        at.duration_since(since)
    }
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let ms = |d: Duration| d.as_secs_f64() * 1000.0;
    let median = times[times.len() / 2];
    println!(
        "{what:58} median {:8.1} ms  max {:8.1} ms  ({} rounds)",
        ms(median),
        ms(times[times.len() - 1]),
        times.len()
    );
}

async fn start_to_ready(pods: usize) {
    let api = FakeKube::new();
    for n in 0..pods {
        let at = SocketAddr::from(([10, 0, (n / 250) as u8, (n % 250) as u8 + 1], 8000));
        api.create(pod(&format!("p{n}"), at));
    }
    let server = api.entry().serve().await;
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let router = Router::start(&server);
        router.ready().await;
        times.push(start.elapsed());
        assert_eq!(router.selectable().await.len(), pods);
    }
    show(&format!("start to ready with {pods} Pods (T10)"), times);
}

async fn withdrawals(rounds: usize) {
    type Change = fn(&mut Value);
    let label_off: Change = |pod| {
        pod["metadata"]["labels"].as_object_mut().unwrap().remove("tandem.dev/endpoint-eligible");
    };
    let label_on: Change = |pod| pod["metadata"]["labels"]["tandem.dev/endpoint-eligible"] = "true".into();
    let not_ready: Change = |pod| set_ready(pod, "False", None);
    let ready: Change = |pod| set_ready(pod, "True", None);
    let scene = Scene::new(4).await;
    let router = Router::start(&scene.server);
    router.ready().await;
    let load = Load::start(router.front, 8, Duration::from_millis(1));
    for (what, off, on) in [("label off", label_off, label_on), ("NotReady", not_ready, ready)] {
        let mut times = Vec::new();
        for _ in 0..rounds {
            sleep(Duration::from_millis(200)).await;
            let at = Instant::now();
            scene.api.update("default", "p0", off);
            times.push(scene.last_request("p0", at, Duration::from_millis(300)).await);
            scene.api.update("default", "p0", on);
        }
        show(&format!("{what}: event to last request under load (R1)"), times);
    }
    let mut times = Vec::new();
    for _ in 0..rounds.min(4) {
        sleep(Duration::from_secs(1)).await;
        scene.api.lose_next(1);
        let at = Instant::now();
        scene.api.update("default", "p0", label_off);
        times.push(scene.last_request("p0", at, Duration::from_secs(17)).await);
        scene.api.update("default", "p0", label_on);
        while router.selectable().await.len() < 4 {
            sleep(Duration::from_millis(50)).await;
        }
    }
    show("lost event: change to last request (R1, one tick + list)", times);
    println!(
        "{:58} {} answered, {} failed",
        "requests meanwhile",
        load.done.load(Ordering::Relaxed),
        load.failed.load(Ordering::Relaxed)
    );
}

async fn away(seconds: u64) {
    let mut scene = Scene::new(4).await;
    let router = Router::start(&scene.server);
    router.ready().await;
    let load = Load::start(router.front, 8, Duration::from_millis(20));
    sleep(Duration::from_secs(1)).await;
    scene.server.stop().await;
    sleep(Duration::from_secs(seconds)).await;
    let failed_away = load.failed.load(Ordering::Relaxed);
    for name in ["p0", "p1"] {
        scene.api.force_delete("default", name);
    }
    for name in ["p8", "p9"] {
        let engine = Engine::start_tcp(Script::always(chat_json("hi"))).await;
        scene.api.create(pod(name, engine.addr()));
        scene.engines.insert(name.to_owned(), engine);
    }
    scene.server.restart().await;
    let back = Instant::now();
    let wanted: Vec<String> = ["p2", "p3", "p8", "p9"].iter().map(|n| scene.engines[*n].url()).collect();
    loop {
        let now = router.selectable().await;
        if now.len() == wanted.len() && wanted.iter().all(|url| now.contains(url)) {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    println!(
        "{:58} converged {:.1} s after its return; {failed_away} failed while away, {} in all of {}",
        format!("API server away for {seconds} s, back with other Pods (R7)"),
        back.elapsed().as_secs_f64(),
        load.failed.load(Ordering::Relaxed),
        load.done.load(Ordering::Relaxed)
    );
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    start_to_ready(args.pods).await;
    withdrawals(args.rounds).await;
    away(args.away).await;
}
