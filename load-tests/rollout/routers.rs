//! The routers under test as processes: Tandem with its reports, or any other that watches Pods.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tandem::registry::report::Report;
use tandem::testkit::client::RawClient;
use tandem::testkit::fixtures::get;
use tandem::testkit::kube::{Credentials, FakeServer};
use tandem::types::clock::now;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::load::Target;

/// How long a router may take to be ready, or to leave.
const LIMIT: Duration = Duration::from_mins(1);
/// As a load balancer asks.
const PROBE: Duration = Duration::from_millis(100);

/// How a router is started.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Tandem's binary.
    pub(crate) tandem: PathBuf,
    /// Another router's command line, with `{listen}` and `{admin}` for its two ports; empty: Tandem.
    pub(crate) foreign: Vec<String>,
    pub(crate) kind: &'static str,
    pub(crate) split: bool,
}

/// A running router, ended with its owner.
#[derive(Debug)]
pub(crate) struct Router {
    child: Child,
    plan: Plan,
    pub(crate) target: Arc<Target>,
    front: SocketAddr,
    admin: SocketAddr,
    dir: tempfile::TempDir,
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a router says of one Pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) selectable: bool,
    /// It carries nothing there; how long that took from the withdrawal on, where it ever served.
    pub(crate) quiesced: Option<Duration>,
}

fn free() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Router {
    pub(crate) fn start(plan: &Plan, server: &FakeServer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = server.kubeconfig(dir.path(), Credentials::Nobody);
        let (front, admin) = (free(), free());
        let split = if plan.split { weights(100, 0) } else { String::new() };
        let config = format!(
            "listen: {front}\nthreads: 1\nadmin: {{ listen: {admin} }}\naccess_log: {{ sink: \"off\" }}\n\
             log: {{ level: warn }}\nshutdown: {{ delay: 1s, grace: 30s }}\nkubernetes: {{ kubeconfig: {} }}\n\
             services:\n  - name: llm\n    engine: {{ kind: {} }}\n    \
             discovery: {{ kubernetes: {{ namespace: default, selector: {{ app: llm }} }} }}\n{split}",
            kubeconfig.display(),
            plan.kind,
        );
        std::fs::write(dir.path().join("router.yaml"), config).unwrap();
        let child = spawn(plan, &dir, (front, admin));
        let target = Arc::new(Target::new(front));
        Self { child, plan: plan.clone(), target, front, admin, dir }
    }

    /// What it wrote, for a message about its end.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        text.lines().rev().take(12).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Until Tandem's `/readyz` is 200, or another router listens.
    pub(crate) async fn ready(&mut self) -> Result<(), String> {
        let began = now();
        loop {
            let there = if self.plan.foreign.is_empty() {
                is_ready(self.admin).await
            } else {
                TcpStream::connect(self.front).await.is_ok()
            };
            if there {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("the router ended: {status}\n{}", self.log()));
            }
            if began.elapsed() > LIMIT {
                return Err(format!("the router is not ready\n{}", self.log()));
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// A load balancer's view, from now on.
    pub(crate) fn watch(&self) {
        let (target, admin) = (Arc::clone(&self.target), self.admin);
        tokio::spawn(async move {
            loop {
                target.open.store(is_ready(admin).await, Ordering::Relaxed);
                sleep(PROBE).await;
            }
        });
    }

    /// SIGTERM, its end, and a new process on the same ports. How long it took to leave.
    pub(crate) async fn restart(&mut self) -> Result<Duration, String> {
        let began = now();
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or("no process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| error.to_string())?;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                _ if began.elapsed() > LIMIT => return Err("the router does not leave".to_owned()),
                _ => sleep(Duration::from_millis(5)).await,
            }
        };
        let left = began.elapsed();
        if !status.success() {
            return Err(format!("the router left with {status}\n{}", self.log()));
        }
        self.child = spawn(&self.plan, &self.dir, (self.front, self.admin));
        self.ready().await?;
        Ok(left)
    }
}

fn spawn(plan: &Plan, dir: &tempfile::TempDir, (front, admin): (SocketAddr, SocketAddr)) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(dir.path().join("log")).unwrap();
    let mut command = if let Some((program, args)) = plan.foreign.split_first() {
        let ports = [("{listen}", front.port().to_string()), ("{admin}", admin.port().to_string())];
        let filled = |arg: &String| ports.iter().fold(arg.clone(), |arg, (key, port)| arg.replace(key, port));
        let mut command = Command::new(program);
        command.args(args.iter().map(filled)).env("KUBECONFIG", dir.path().join("kubeconfig"));
        command
    } else {
        let mut command = Command::new(&plan.tandem);
        command.args(["router", "--config"]).arg(dir.path().join("router.yaml"));
        command
    };
    command
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .stdin(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{plan:?}: {error}"))
}

/// The split's line of the configuration.
fn weights(old: u32, new: u32) -> String {
    format!(
        "    split: {{ weights: [{{ revision: r1, weight: {old} }}, {{ revision: r2, weight: {new} }}] }}\n"
    )
}

/// What a controller knows of a router: its admin listener, where an error is "unknown", and its configuration file.
#[derive(Debug, Clone)]
pub(crate) struct Admin {
    at: SocketAddr,
    config: PathBuf,
}

impl Router {
    pub(crate) fn admin(&self) -> Admin {
        Admin { at: self.admin, config: self.dir.path().join("router.yaml") }
    }
}

impl Admin {
    /// What it says of a Pod.
    pub(crate) async fn word(&self, uid: &str) -> Option<Word> {
        let (status, body) = ask(self.at, &get(&format!("/observer/inflight?uid={uid}"))).await?;
        let report: Report = serde_json::from_slice(&body).ok().filter(|_| status == 200)?;
        let row = report.endpoints.iter().find(|row| row.uid.as_deref() == Some(uid));
        if let Some(row) = row {
            let quiet = row.quiesced_for_ms.zip(row.withdrawn_age_ms);
            let quiesced = quiet.map(|(quiet, age)| Duration::from_millis(age.saturating_sub(quiet)));
            return Some(Word { selectable: row.selectable, quiesced });
        }
        // A process that started after the withdrawal has never given it a request.
        let bare = report.pods.iter().any(|pod| pod.uid == uid);
        bare.then_some(Word { selectable: false, quiesced: Some(Duration::ZERO) })
    }

    /// Other weights in its file, which it reads by itself; a process that starts later has them too.
    pub(crate) fn write_split(&self, old: u32, new: u32) {
        let text = std::fs::read_to_string(&self.config).unwrap();
        let is_split = |line: &&str| line.trim_start().starts_with("split:");
        let rest: Vec<&str> = text.lines().filter(|line| !is_split(line)).collect();
        let fresh = self.config.with_extension("new");
        std::fs::write(&fresh, rest.join("\n") + "\n" + &weights(old, new)).unwrap();
        std::fs::rename(fresh, &self.config).unwrap();
    }

    /// Whether it decides by these weights.
    pub(crate) async fn has_split(&self, old: u32, new: u32) -> bool {
        let Some((200, body)) = ask(self.at, &get("/observer/split")).await else { return false };
        let split: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let cohorts = &split["services"][0]["cohorts"];
        cohorts[0]["weight"] == old && cohorts[1]["weight"] == new
    }
}

async fn is_ready(admin: SocketAddr) -> bool {
    ask(admin, &get("/readyz")).await.is_some_and(|(status, _)| status == 200)
}

async fn ask(admin: SocketAddr, request: &[u8]) -> Option<(u16, Vec<u8>)> {
    let stream = TcpStream::connect(admin).await.ok()?;
    let mut client = RawClient::new(stream, Duration::from_secs(5));
    let answer = client.request(request).await.ok()?;
    Some((answer.status(), answer.body.clone()))
}
