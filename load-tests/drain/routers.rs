//! The router processes, and the readers of their reports.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tandem::registry::report::Report;
use tandem::testkit::client::RawClient;
use tandem::testkit::fixtures::{get, request_head};
use tandem::testkit::kube::{Credentials, FakeKube, FakeServer};
use tandem::testkit::metrics::Scrape;
use tandem::testkit::quiet::Reports;
use tandem::types::clock::now;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::fleet::{LEASE, NAMES};

/// What was wrong with a report.
pub(crate) type Wrong = Arc<Mutex<Option<String>>>;

/// A running router, ended with its owner.
#[derive(Debug)]
pub(crate) struct Router {
    number: usize,
    child: Child,
    pub(crate) front: SocketAddr,
    admin: SocketAddr,
    _server: FakeServer,
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

fn service(name: &str, engine: &str) -> String {
    let lease = LEASE.as_millis();
    let upstream = match name {
        "pull" => format!("\n    upstream: {{ kv_lease: {lease}ms, handoff_max_age: 500ms }}"),
        "rooms" => "\n    upstream: { cancel_decode_grace: 0s }".to_owned(),
        _ => String::new(),
    };
    format!(
        "  - name: {name}\n    models: [{name}]\n    model_match: listed\n    engine: {{ {engine} }}\n    \
         retries: {{ floor: 1000 }}\n    discovery:\n      kubernetes:\n        namespace: default\n        \
         selector: {{ app: {name} }}\n        relist: 3s\n{}",
        upstream.trim_start_matches('\n').to_owned() + if upstream.is_empty() { "" } else { "\n" }
    )
}

impl Router {
    pub(crate) async fn start(number: usize, api: &FakeKube) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = api.replica(number).serve().await;
        let kubeconfig = server.kubeconfig(dir.path(), Credentials::Nobody);
        let (front, admin) = (free(), free());
        let engines = ["kind: plain", "kind: vllm, connector: nixl", "kind: sglang"];
        let services: String =
            NAMES.iter().zip(engines).map(|(name, engine)| service(name, engine)).collect();
        let config = format!(
            "listen: {front}\nthreads: 1\nadmin: {{ listen: {admin} }}\naccess_log: {{ sink: \"off\" }}\n\
             timeouts: {{ first_byte: 2s, idle: 2s }}\nlog: {{ level: warn }}\n\
             kubernetes: {{ kubeconfig: {} }}\nservices:\n{services}",
            kubeconfig.display()
        );
        let path = dir.path().join("router.yaml");
        std::fs::write(&path, config).unwrap();
        let program = beside();
        let child = Command::new(&program)
            .args(["router", "--config"])
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(dir.path().join("log")).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; build it with the same profile", program.display()));
        let mut router = Self { number, child, front, admin, _server: server, _dir: dir };
        while router.get("/readyz").await.is_none_or(|(status, _)| status != 200) {
            if let Some(status) = router.child.try_wait().unwrap() {
                let log = std::fs::read_to_string(path.with_file_name("log")).unwrap();
                panic!("the router ended: {status}\n{log}");
            }
            sleep(Duration::from_millis(5)).await;
        }
        router
    }

    async fn get(&self, path: &str) -> Option<(u16, Vec<u8>)> {
        self.ask(&get(path)).await
    }

    async fn ask(&self, request: &[u8]) -> Option<(u16, Vec<u8>)> {
        let stream = TcpStream::connect(self.admin).await.ok()?;
        let mut client = RawClient::new(stream, Duration::from_secs(5));
        let answer = client.request(request).await.ok()?;
        Some((answer.status(), answer.body.clone()))
    }

    /// Reads its report again and again; until one is wrong, which then stands in `wrong`.
    pub(crate) fn read(&self, every: Duration, reports: Arc<Mutex<Reports>>, wrong: Wrong) -> JoinHandle<()> {
        let (number, admin) = (self.number, self.admin);
        tokio::spawn(async move {
            let mut client = RawClient::connect(admin).await;
            let request = get("/observer/inflight");
            let failed = loop {
                let asked = now();
                let Ok(answer) = client.request(&request).await else { break "no report".to_owned() };
                let got = now();
                let Ok(report) = serde_json::from_slice::<Report>(&answer.body) else { break answer.text() };
                if let Err(wrong) = reports.lock().read(number, asked, got, &report) {
                    break wrong;
                }
                sleep(every).await;
            };
            wrong.lock().get_or_insert(format!("router {number}: {failed}"));
        })
    }

    /// An operator's order for the endpoint of a Pod.
    pub(crate) async fn order(&self, uid: &str, drain: bool) -> Option<u16> {
        let (_, body) = self.get("/endpoints").await?;
        let list: serde_json::Value = serde_json::from_slice(&body).ok()?;
        let endpoint = list["endpoints"].as_array()?.iter().find(|e| e["pod_uid"] == uid)?;
        let path = format!("/endpoints/{}/drain", endpoint["id"].as_str()?);
        let request = request_head(if drain { "PUT" } else { "DELETE" }, &path, &["Content-Length: 0"]);
        self.ask(&request).await.map(|(status, _)| status)
    }

    /// Outcomes that it counted, of requests that came to a service: others may ask here too, for none.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of requests")]
    pub(crate) async fn outcomes(&self) -> Option<u64> {
        let (_, body) = self.get("/metrics").await?;
        let scrape = Scrape::parse(&String::from_utf8_lossy(&body));
        Some(NAMES.iter().map(|name| scrape.sum("tandem_requests_total", &[("service", name)])).sum::<f64>()
            as u64)
    }
}

/// The product, beside this example.
fn beside() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(std::path::Path::parent).unwrap().join("tandem")
}
