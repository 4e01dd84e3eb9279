//! The process: one thread per traffic runtime, one for the admin listener, and this one for accepting, the registry's
//! writer and the signals.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::build::{Router, build_logging_to};
use super::pods;
use super::probe::Probes;
use super::reload::Reload;
use super::split;
use crate::admin::{self, AdminState};
use crate::config::{self, Origin, RouterConfig};
use crate::discovery::kube::KubeConnect;
use crate::drain::{Phase, Signals, Tracker, run_sequence};
use crate::proxy::admission::keys;
use crate::proxy::context::{Shared, Worker};
use crate::proxy::listener::{Accepted, accept_loop, run_worker};
use crate::telemetry::{self, access::AccessSink};
use crate::types::build as facts;
use crate::upstream::TcpDial;

/// Connections the kernel keeps waiting for us.
const BACKLOG: u32 = 4096;
/// How long the access log may take to be written at the end.
const LOG_FLUSH: Duration = Duration::from_secs(2);

/// Runs the router until a signal has led it through its shutdown. Errors are those of starting.
pub fn run(config: RouterConfig, origin: Origin) -> anyhow::Result<()> {
    telemetry::init(&config.log, std::io::stderr)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(serve(config, origin));
    // Not waiting for a secret file on a file system that hangs.
    runtime.shutdown_background();
    served
}

async fn serve(config: RouterConfig, origin: Origin) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("signal handlers")?;
    let started = start(config, Some(origin), None)?;
    let name = signals.next().await;
    info!(signal = name, "asked to leave; a second signal does not wait");
    let second = async {
        let name = signals.next().await;
        warn!(signal = name, "second signal: not waiting any longer");
    };
    started.leave(second).await;
    Ok(())
}

/// A router whose threads are up and whose front door is open.
#[derive(Debug)]
pub struct Started {
    /// The front door's address, and the admin listener's.
    pub front: SocketAddr,
    pub admin_at: SocketAddr,
    /// What the admin routes show and change, for who shares the process.
    pub admin: AdminState,
    shared: Arc<Shared>,
    access: AccessSink,
    /// One for each traffic thread.
    ended: Vec<oneshot::Receiver<()>>,
    stop: CancellationToken,
}

/// Starts a router; its accept loop and its helpers run on the current runtime. With `origin` it follows the changes of its
/// file, and SIGHUP asks for that. With `access` the access lines go there and not where the configuration says.
pub fn start(config: RouterConfig, origin: Option<Origin>, access: Option<File>) -> anyhow::Result<Started> {
    let origin = origin.map(|origin| Reload::signal().map(|hangup| (origin, hangup)));
    let origin = origin.transpose().context("signal handlers")?;
    let (front_at, admin_at) = (config.listen, config.admin.listen);
    for note in config::notes(&config) {
        info!("{note}");
    }
    let Router { shared, writer, changes, workers, lanes, places, admin, access } =
        build_logging_to(config, Arc::new(TcpDial::default()), access)?;
    let front = bind(front_at).with_context(|| cannot_listen(front_at, "--listen"))?;
    let admin_listener = bind(admin_at).with_context(|| cannot_listen(admin_at, "--admin-listen"))?;
    let addresses = (front.local_addr()?, admin_listener.local_addr()?);

    let phases = Arc::clone(&shared.phases);
    let mut ended = Vec::new();
    for (worker, lane) in workers {
        ended.push(traffic_thread(worker, lane)?);
    }
    admin_thread(admin_listener.into_std()?, admin.clone(), &shared)?;
    shared.metrics.tasks.watch("main", &Handle::current());
    let tasks = Tracker::default();
    let versions = writer.versions();
    tasks.spawn("registry-writer", writer.run());
    tasks.spawn("phase-metric", follow_phase(Arc::clone(&shared)));
    tasks.spawn("cohort-shares", split::sample(Arc::clone(&shared)));
    let stop = CancellationToken::new();
    watch_files(&tasks, &shared, &stop);
    let probes = Probes::new(&tasks, &shared, &stop);
    tasks.spawn("engine-versions", probes.run(versions));
    if pods::are_asked_for(&shared.config) {
        let connect = Arc::new(KubeConnect(shared.config.kubernetes.clone()));
        pods::thread(Arc::clone(&shared), changes.clone(), connect, stop.clone())?;
    }
    if let Some((origin, hangup)) = origin {
        let reload = Reload::new(origin, Arc::clone(&shared), changes, Arc::clone(&admin.config_text));
        tasks.spawn("reload", reload.run(hangup, stop.clone()));
    }
    let router_metrics = shared.metrics.router.clone();
    tasks.spawn("accept", accept_loop(Box::new(front), lanes, places, router_metrics, phases));
    info!(
        version = facts::VERSION, listen = %addresses.0, admin = %addresses.1, threads = ended.len(),
        services = shared.config.services.len(), "serving"
    );
    Ok(Started { front: addresses.0, admin_at: addresses.1, admin, shared, access, ended, stop })
}

impl Started {
    /// The shutdown, phase by phase. `second` completes when it should not wait any longer.
    pub async fn leave(self, second: impl Future<Output = ()>) {
        let idle = async {
            for thread in self.ended {
                let _ = thread.await;
            }
        };
        let gauge = self.shared.metrics.router.in_flight.clone();
        let open = || usize::try_from(gauge.get()).unwrap_or(0);
        run_sequence(&self.shared.phases, &self.shared.config.shutdown, second, idle, open).await;
        self.stop.cancel();
        if !self.access.close(LOG_FLUSH) {
            warn!("the access log took too long; its last lines may be missing");
        }
    }
}

/// What, and what next; why is the cause that follows.
fn cannot_listen(at: SocketAddr, flag: &str) -> String {
    format!("cannot listen on {at} (choose another with {flag} IP:PORT; port 0: any free one)")
}

fn bind(at: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

/// One traffic thread with a runtime of its own. The receiver completes when its last connection has ended.
fn traffic_thread(
    worker: Arc<Worker>,
    lane: mpsc::Receiver<Accepted>,
) -> anyhow::Result<oneshot::Receiver<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (done, ended) = oneshot::channel();
    let name = format!("traffic-{}", worker.index);
    worker.shared.metrics.tasks.watch(&name, runtime.handle());
    thread::Builder::new().name(name).spawn(move || {
        runtime.block_on(run_worker(worker, lane));
        let _ = done.send(());
    })?;
    Ok(ended)
}

/// The admin listener outlives the front door: probes and scrapes are answered until the end.
fn admin_thread(listener: std::net::TcpListener, state: AdminState, shared: &Shared) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    shared.metrics.tasks.watch("admin", runtime.handle());
    let phases = Arc::clone(&shared.phases);
    thread::Builder::new().name("admin".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let served = async {
                let listener = TcpListener::from_std(listener)?;
                let routes = admin::routes(state).into_make_service_with_connect_info::<SocketAddr>();
                axum::serve(listener, routes).await
            };
            tokio::select! {
                result = served => if let Err(error) = result { warn!(%error, "the admin listener ended") },
                () = phases.reached(Phase::Stopped) => {}
            }
        });
    })?;
    Ok(())
}

async fn follow_phase(shared: Arc<Shared>) {
    loop {
        let changed = shared.phases.changed();
        shared.metrics.router.phase(shared.phases.now().as_str());
        changed.await;
    }
}

/// Secret files that are read again when they change.
fn watch_files(tasks: &Tracker, shared: &Arc<Shared>, stop: &CancellationToken) {
    if let Some(keys) = &shared.keys {
        tasks.spawn("api-keys", Arc::clone(keys).watch(keys::POLL, stop.clone()));
    }
    for secret in shared.secrets.iter().flatten() {
        let (secret, stop) = (Arc::clone(secret), stop.clone());
        tasks.spawn("engine-secret", async move {
            while stop.run_until_cancelled(sleep(keys::POLL)).await.is_some() {
                let secret = Arc::clone(&secret);
                let polled = tokio::task::spawn_blocking(move || secret.poll()).await;
                if let Ok(crate::config::secret_file::Change::Refused(error)) = polled {
                    warn!(%error, "engine credential not reloaded; the last good one stays in force");
                }
            }
        });
    }
}
