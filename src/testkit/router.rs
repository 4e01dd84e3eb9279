//! A whole router inside the test's own runtime: on loopback TCP, or in memory on a paused clock.
//!
//! [`TestRouter::assert_invariants`] is called at the end of every replay, after the test's clients are closed. It
//! checks what must hold whatever happened: nothing is in flight or held, every task and upstream connection beyond the
//! pools is gone, no gauge is negative, every request has exactly one outcome and one access line, no endpoint executed a
//! request twice, nothing panicked.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::{H2Client, RawClient};
use super::engine::{EngineHandle, RecordedRequest};
use super::eventually::eventually;
use super::front::{Front, NetDial};
use super::memory::{MemoryNet, MemoryStream};
use super::metrics::Scrape;
use super::task::spawn;
use crate::admin::AdminState;
use crate::app::{Router, build, discover};
use crate::config::{EngineKind, LogFormat, LogSink, RouterConfig, Service, StaticEndpoint};
use crate::discovery::kube::Connect;
use crate::drain::{Report, Tracker, run_sequence};
use crate::proxy::context::{Shared, Worker};
use crate::proxy::listener::{Accept, accept_loop, run_worker};
use crate::registry::Endpoint;
use crate::registry::report::Filter;
use crate::types::clock::Instant;
use crate::upstream::{Dial, TcpDial};

/// Name under which an in-memory router listens.
pub const FRONT: &str = "router";

static PANICS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWN_PANICS: Cell<usize> = const { Cell::new(0) };
}

/// How long a router may take to come to rest.
const SETTLE: Duration = Duration::from_secs(5);

/// A running router.
#[derive(Debug)]
pub struct TestRouter {
    pub shared: Arc<Shared>,
    pub admin: AdminState,
    addr: Option<SocketAddr>,
    net: Option<MemoryNet>,
    workers: Vec<Arc<Worker>>,
    ended: Vec<JoinHandle<()>>,
    /// Those of the configuration.
    endpoints: Vec<Arc<Endpoint>>,
    log: PathBuf,
    /// Discovery ends with the router.
    _stop: DropGuard,
    _dir: tempfile::TempDir,
}

/// One plain service named `default` on `endpoints` (`host:port`), quick to judge: no sampling, nothing else changed.
pub fn config(endpoints: &[String]) -> RouterConfig {
    let mut config = RouterConfig::defaults();
    config.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    config.threads = Some(1);
    config.services = vec![Service::plain("default", at(endpoints))];
    config
}

/// [`config`] for prefill/decode pairs.
pub fn pairs_config(engine: EngineKind, prefill: &[String], decode: &[String]) -> RouterConfig {
    let service = Service::pairs("default", engine, at(prefill), at(decode));
    RouterConfig { services: vec![service], ..config(&[]) }
}

fn at(endpoints: &[String]) -> Vec<StaticEndpoint> {
    endpoints.iter().map(|at| StaticEndpoint::parse(&format!("http://{at}")).unwrap()).collect()
}

/// [`config`] for engines on TCP.
pub fn config_for(engines: &[&EngineHandle]) -> RouterConfig {
    config(&engines.iter().map(|e| e.addr().to_string()).collect::<Vec<_>>())
}

impl TestRouter {
    /// On a free port of 127.0.0.1, dialling engines over TCP.
    pub async fn start(config: RouterConfig) -> Self {
        let listener = TcpListener::bind(config.listen).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut router = Self::with(config, Box::new(listener), Arc::new(TcpDial::default()), None);
        router.addr = Some(addr);
        router
    }

    /// Under the name [`FRONT`] of `net`, dialling engines there by the host part of their URL. For paused clocks.
    pub fn in_memory(config: RouterConfig, net: &MemoryNet) -> Self {
        let listener = Front(net.listen(FRONT));
        let mut router = Self::with(config, Box::new(listener), Arc::new(NetDial(net.clone())), None);
        router.net = Some(net.clone());
        router
    }

    /// [`Self::in_memory`], with Pods from an API server.
    pub fn in_memory_with_pods(config: RouterConfig, net: &MemoryNet, api: Arc<dyn Connect>) -> Self {
        let listener = Front(net.listen(FRONT));
        let mut router = Self::with(config, Box::new(listener), Arc::new(NetDial(net.clone())), Some(api));
        router.net = Some(net.clone());
        router
    }

    /// [`Self::start`], with Pods from an API server.
    pub async fn start_with_pods(config: RouterConfig, api: Arc<dyn Connect>) -> Self {
        let listener = TcpListener::bind(config.listen).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut router = Self::with(config, Box::new(listener), Arc::new(TcpDial::default()), Some(api));
        router.addr = Some(addr);
        router
    }

    fn with(
        mut config: RouterConfig,
        listener: Box<dyn Accept>,
        dial: Arc<dyn Dial>,
        api: Option<Arc<dyn Connect>>,
    ) -> Self {
        count_panics();
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("access.log");
        config.access_log.sink = LogSink::File(log.clone());
        config.access_log.format = LogFormat::Json;
        let Router { shared, writer, changes, workers, lanes, places, admin, access } =
            build(config, dial).unwrap();
        let tasks = Tracker::default();
        tasks.spawn("registry-writer", writer.run());
        let stop = CancellationToken::new();
        if let Some(api) = api {
            discover(&shared, &changes, api, &tasks, &stop).unwrap();
        }
        let phases = Arc::clone(&shared.phases);
        let metrics = shared.metrics.router.clone();
        tasks.spawn("accept", accept_loop(listener, lanes, places, metrics, phases));
        let threads: Vec<_> = workers.iter().map(|(worker, _)| Arc::clone(worker)).collect();
        let ended = workers.into_iter().map(|(worker, lane)| spawn(run_worker(worker, lane))).collect();
        // The sink's thread must outlive the router; it ends with the process.
        std::mem::forget(access);
        let endpoints = shared.view.load().services.iter().flat_map(|s| s.all().cloned()).collect();
        Self {
            shared,
            admin,
            addr: None,
            net: None,
            workers: threads,
            ended,
            endpoints,
            log,
            _stop: stop.drop_guard(),
            _dir: dir,
        }
    }

    /// Where clients connect; panics for an in-memory router.
    pub fn addr(&self) -> SocketAddr {
        self.addr.unwrap()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// A raw client over TCP.
    pub async fn client(&self) -> RawClient<TcpStream> {
        RawClient::connect(self.addr()).await
    }

    /// A raw client in memory.
    pub async fn memory_client(&self) -> RawClient<MemoryStream> {
        RawClient::in_memory(self.net.as_ref().unwrap().dial(FRONT).await.unwrap())
    }

    pub async fn h2_client(&self) -> H2Client {
        H2Client::connect(self.addr()).await
    }

    /// Both metric registries, as a scrape shows them.
    pub fn scrape(&self) -> Scrape {
        (self.admin.refresh)();
        Scrape::parse(&(self.shared.metrics.render() + &self.shared.metrics.render_endpoints()))
    }

    /// Every access line so far.
    pub fn access_lines(&self) -> Vec<Value> {
        for worker in &self.workers {
            worker.access.flush();
        }
        // One line per outcome: waiting for that many is the check that none is missing.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
        let wanted = self.scrape().sum("tandem_requests_total", &[]) as usize;
        // The sink writes on a real thread, whatever the test's clock does.
        for _ in 0..1000 {
            let text = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<Value> = text.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
            if lines.len() >= wanted {
                return lines;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{wanted} access lines never arrived in {}", self.log.display());
    }

    /// The access log as written.
    pub fn access_text(&self) -> String {
        let _ = self.access_lines();
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Prefills, then decodes, of the first service.
    pub fn endpoints_of_pairs(&self) -> Vec<Arc<Endpoint>> {
        let snapshot = self.shared.view.load();
        let service = &snapshot.services[0];
        service.prefills.iter().chain(&service.decodes).cloned().collect()
    }

    /// Endpoints of the configuration and all that the registry knows now, departed ones included.
    fn known(&self) -> Vec<Arc<Endpoint>> {
        let snapshot = self.shared.view.load();
        let mut all = self.endpoints.clone();
        all.extend(snapshot.known().map(|(_, endpoint)| Arc::clone(endpoint)));
        all.sort_by_key(|e| e.id);
        all.dedup_by_key(|e| e.id);
        all
    }

    /// Those of the configuration by service, there prefills first, then decodes, then mixed ones, each in configuration
    /// order.
    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// The shutdown sequence as after a first signal; `second` stands for the second one.
    pub async fn shut_down(&mut self, second: oneshot::Receiver<()>) -> Report {
        let ended = std::mem::take(&mut self.ended);
        let idle = async {
            for worker in ended {
                worker.await.unwrap();
            }
        };
        let second = async {
            if second.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let gauge = self.shared.metrics.router.in_flight.clone();
        let open = move || usize::try_from(gauge.get()).unwrap_or(0);
        let shutdown = self.shared.config.shutdown.clone();
        run_sequence(&self.shared.phases, &shutdown, second, idle, open).await
    }

    /// See the module text. `engines`: those of the test. Close the test's clients first.
    pub async fn assert_invariants(&self, engines: &[&EngineHandle]) {
        self.assert_pair_invariants(&[], engines).await;
    }

    /// The same with prefills, whose work is no execution and may be repeated (I5).
    pub async fn assert_pair_invariants(&self, prefills: &[&EngineHandle], others: &[&EngineHandle]) {
        let engines = [prefills, others].concat();
        eventually(SETTLE, "nothing is in flight, held or running", || self.at_rest()).await;
        let idle: usize = self.known().iter().map(|e| e.pool.len()).sum();
        eventually(SETTLE, "upstream connections are those in the pools", || {
            let open: usize = engines.iter().map(|e| e.log.open_connections()).sum();
            if open <= idle { Ok(()) } else { Err(format!("{open} open at engines, {idle} idle in pools")) }
        })
        .await;
        self.assert_one_outcome_each();
        for (id, n) in executions(others) {
            assert!(n <= 1, "request {id} was executed {n} times with an answer");
        }
        assert_eq!((PANICS.load(Ordering::SeqCst), OWN_PANICS.get()), (0, 0), "something panicked");
    }

    fn at_rest(&self) -> Result<(), String> {
        let mut wrong = Vec::new();
        let mut zero = |what: &str, n: u64| {
            if n != 0 {
                wrong.push(format!("{what} = {n}"));
            }
        };
        for endpoint in self.known() {
            zero(&format!("holds on {}", endpoint.url), endpoint.holds());
        }
        // What a drain protocol is told. Hand-offs outlive requests: whoever made some looks at them apart.
        for entry in self.admin.reporter.report(&Filter::default()).endpoints {
            let requests = entry.in_flight.total() - entry.in_flight.handoff;
            zero(&format!("requests on {} in the report", entry.url), requests);
        }
        zero("in-flight permits", self.shared.in_flight.used());
        zero("buffered bytes", self.shared.buffered.used());
        for worker in &self.workers {
            zero("connection and stream tasks", worker.tracker.len() as u64);
            zero("open streams of a thread", worker.load.streams.load(Ordering::SeqCst) as u64);
        }
        let scrape = self.scrape();
        for name in
            ["tandem_requests_in_flight", "tandem_downstream_connections", "tandem_endpoint_in_flight"]
        {
            let sum = scrape.sum(name, &[]);
            if sum != 0.0 {
                wrong.push(format!("{name} = {sum}"));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ")) }
    }

    fn assert_one_outcome_each(&self) {
        let lines = self.access_lines();
        let scrape = self.scrape();
        let outcomes = scrape.sum("tandem_requests_total", &[]);
        let durations = scrape.sum("tandem_request_duration_seconds_count", &[]);
        #[expect(clippy::cast_precision_loss, reason = "a handful of lines")]
        let wanted = lines.len() as f64;
        assert_eq!((outcomes, durations), (wanted, wanted), "outcomes and durations per access line");
        let mut ids: Vec<&str> = lines.iter().filter_map(|l| l["request_id"].as_str()).collect();
        assert_eq!(ids.len(), lines.len(), "every line has an id");
        ids.sort_unstable();
    }
}

/// How often each client request (by the end of the engine's request id) got a good answer's first byte from an engine.
fn executions(engines: &[&EngineHandle]) -> HashMap<String, usize> {
    let mut seen = HashMap::new();
    let aborts: Vec<Abort> =
        engines.iter().flat_map(|e| e.log.requests_to("/abort_request")).map(Abort::from).collect();
    for request in engines.iter().flat_map(|e| e.log.requests()) {
        let answered = request.response.status.is_some_and(|s| s < 400)
            && request
                .response
                .first_byte_at
                .is_some_and(|at| !aborts.iter().any(|abort| abort.before(&request, at)));
        let id = request.headers.get("x-request-id").and_then(|v| v.get(17..).map(str::to_owned));
        if let Some(id) = id
            && answered
        {
            *seen.entry(id).or_default() += 1;
        }
    }
    seen
}

/// An engine was told to end these requests (SGLang: ids that begin so). A script that answers all the same runs nothing.
struct Abort {
    rid: String,
    at: Instant,
}

impl From<RecordedRequest> for Abort {
    fn from(request: RecordedRequest) -> Self {
        Self { rid: request.json()["rid"].as_str().unwrap_or("?").to_owned(), at: request.head_at }
    }
}

impl Abort {
    fn before(&self, request: &RecordedRequest, at: Instant) -> bool {
        self.at <= at && request.headers.get("x-request-id").is_some_and(|id| id.starts_with(&self.rid))
    }
}

/// A test that fails by itself must not make the others fail too: a panic counts for the test of its own thread, which
/// runs that test's router, or for all when it is on a pool's thread.
fn count_panics() {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let pooled = std::thread::current().name().is_none_or(|name| name.starts_with("tokio-"));
            if pooled {
                PANICS.fetch_add(1, Ordering::SeqCst);
            } else {
                OWN_PANICS.set(OWN_PANICS.get() + 1);
            }
            before(info);
        }));
    });
}
