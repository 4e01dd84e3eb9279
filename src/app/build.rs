//! Every part of a router, wired, nothing running yet.

use std::borrow::Cow;
use std::fs::File;
use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use http::HeaderValue;
use tokio::sync::{Semaphore, mpsc};

use super::control::Control;
use super::limits;
use super::split::Splits;
use super::status::status;
use crate::admin::{AdminState, AdminToken, Readiness};
use crate::config::secret_file::{Mistake, Secret, Watched};
use crate::config::{self, Authorization, RouterConfig};
use crate::discovery::Probers;
use crate::drain::{Phase, Phases, Tracker};
use crate::metrics::{Metrics, NO_SERVICE, Vocabulary};
use crate::proxy::admission::{ApiKeys, Bound};
use crate::proxy::context::{Shared, Worker};
use crate::proxy::listener::{Accepted, Lane, Load, lane};
use crate::proxy::request::route::Route;
use crate::proxy::{dispatch, rescue};
use crate::registry::{Handle, Lanes, Observer, Reporter, Service, Synced, Writer};
use crate::telemetry::access::AccessSink;
use crate::types::boot::Boot;
use crate::types::clock;
use crate::upstream::{Dial, Pool};

/// A router that is ready to be run.
#[derive(Debug)]
pub struct Router {
    pub shared: Arc<Shared>,
    /// The registry's one writer.
    pub writer: Writer,
    /// The way to it.
    pub changes: Handle,
    /// Traffic threads and the receiving ends of their lanes.
    pub workers: Vec<(Arc<Worker>, mpsc::Receiver<Accepted>)>,
    pub lanes: Vec<Lane>,
    /// `limits.connections`.
    pub places: Arc<Semaphore>,
    pub admin: AdminState,
    pub access: AccessSink,
}

/// The bounded words of metric labels, as their owners define them.
fn vocabulary() -> Vocabulary {
    const PHASES: [&str; Phase::ALL.len()] = {
        let mut words = [""; Phase::ALL.len()];
        let mut i = 0;
        while i < words.len() {
            words[i] = Phase::ALL[i].as_str();
            i += 1;
        }
        words
    };
    Vocabulary {
        routes: Route::WORDS,
        error_codes: rescue::CODES,
        retry_reasons: dispatch::REASONS,
        phases: &PHASES,
    }
}

/// Wires a router. `dial` makes its connections to engines. Fails when a file it needs cannot be used.
pub fn build(config: RouterConfig, dial: Arc<dyn Dial>) -> anyhow::Result<Router> {
    build_logging_to(config, dial, None)
}

/// The same; with `access` the access lines go there and not where the configuration says.
pub(super) fn build_logging_to(
    config: RouterConfig,
    dial: Arc<dyn Dial>,
    access: Option<File>,
) -> anyhow::Result<Router> {
    let descriptors = limits::descriptors();
    let threads = config.threads.unwrap_or_else(limits::threads);
    let places = config.limits.connections.unwrap_or_else(|| limits::connections(descriptors));
    let endpoints =
        config.services.iter().map(|s| s.endpoints.len() + s.prefill.len() + s.decode.len()).sum();
    if let Some(needed) = limits::too_few(descriptors, places, endpoints, threads) {
        tracing::warn!(
            descriptors,
            needed,
            connections = places,
            endpoints,
            idle_per_endpoint = Pool::capacity(threads),
            "fewer descriptors than connections on both sides and full pools may take; raise the limit or lower limits.connections"
        );
    }
    let metrics = Metrics::new(&vocabulary()).context("metrics")?;
    let services =
        config.services.iter().map(|s| metrics.requests.service(&s.name)).collect::<Result<Vec<_>, _>>()?;
    let no_service = metrics.requests.service(NO_SERVICE)?;
    let keys = match &config.api_keys_file {
        Some(path) => {
            Some(Arc::new(ApiKeys::load(path, metrics.router.api_keys.clone()).context("api_keys_file")?))
        }
        None => None,
    };
    let token = Arc::new(AdminToken::load(config.admin.token_file.as_deref()).context("admin.token_file")?);
    let secrets = config.services.iter().map(secret).collect::<anyhow::Result<Vec<_>>>()?;
    let counters = metrics.router.access_log.clone();
    let access = match access {
        Some(to) => AccessSink::to(&config.access_log, counters, to),
        None => AccessSink::start(&config.access_log, counters),
    }
    .context("access_log.sink")?;
    let (mut writer, view, changes) = Writer::new(&config.services, threads, &metrics.endpoints);
    let probers =
        Probers::new(Arc::clone(&dial), Tracker::default(), &changes, metrics.discovery.lanes.clone());
    let probers: Arc<dyn Lanes> = Arc::new(probers);
    writer.ask(Arc::clone(&probers));
    writer.count_drift(metrics.discovery.engine_drift.clone());
    let boot = Boot::now();
    let observer = Arc::new(Observer::new(Arc::clone(&view), Arc::clone(&probers), &boot));
    let reporter = Arc::new(Reporter::new(Arc::clone(&view), boot));
    let gpustack =
        |s: &config::Service| s.pods.as_ref().is_some_and(|p| p.dialect == config::Dialect::Gpustack);
    let observer_in_front =
        config.observer.on_front_door.unwrap_or_else(|| config.services.iter().any(gpustack));
    let phases = Arc::new(Phases::default());
    writer.cut_through(Arc::clone(&phases));
    let config_text = Arc::new(ArcSwap::from_pointee(config::print(&config)));
    let shared = Arc::new(Shared {
        timeouts: Arc::new(config.timeouts.clone()),
        in_flight: Bound::new(config.limits.in_flight as u64),
        buffered: Bound::new(limits::budget(&config.limits)),
        limits: ArcSwap::from_pointee(config.limits.clone()),
        config: Arc::new(config),
        view,
        dial,
        phases,
        keys,
        secrets,
        metrics: Arc::clone(&metrics),
        observer: Arc::clone(&observer),
        observer_in_front,
        services,
        no_service,
    });
    let (mut workers, mut lanes) = (Vec::new(), Vec::new());
    for index in 0..threads {
        let (lane, receiver, load) = lane();
        let (shared, tracker, access) = (Arc::clone(&shared), Tracker::default(), access.handle());
        workers.push((
            Arc::new(Worker { index, shared, tracker, background: Tracker::default(), access, load }),
            receiver,
        ));
        lanes.push(lane);
    }
    let control = Arc::new(Control::new(Arc::clone(&shared), changes.clone(), probers));
    let splits = Arc::new(Splits::new(Arc::clone(&shared), changes.clone()));
    let refresh = Arc::clone(&control);
    let ready = Arc::clone(&shared);
    let loads: Vec<_> = workers.iter().map(|(worker, _)| Arc::clone(&worker.load)).collect();
    let readiness = Arc::new(move || readiness(&ready, &loads));
    let (shown, asked, since) = (Arc::clone(&shared), Arc::clone(&readiness), clock::now());
    let admin = AdminState {
        readiness,
        status: Arc::new(move || status(&shown, &asked(), since)),
        endpoints: control,
        splits,
        observe: Arc::new(move || observer.endpoints()),
        reporter,
        refresh: Arc::new(move || refresh.refresh()),
        config_text,
        metrics,
        token,
    };
    let places = Arc::new(Semaphore::new(places));
    Ok(Router { shared, writer, changes, workers, lanes, places, admin, access })
}

/// `upstream.authorization: from_secret`, as the header value it becomes.
fn secret(service: &config::Service) -> anyhow::Result<Option<Arc<Watched<HeaderValue>>>> {
    fn parse(text: &str) -> Result<HeaderValue, Mistake> {
        let token = text.trim();
        if token.is_empty() {
            return Err(Mistake::Empty);
        }
        let valid = Secret::new(token).and_then(|_| HeaderValue::try_from(format!("Bearer {token}")).ok());
        valid
            .map(|mut value| {
                value.set_sensitive(true);
                value
            })
            .ok_or(Mistake::NotASecret { line: 1 })
    }
    let Authorization::FromSecret(path) = &service.upstream.authorization else { return Ok(None) };
    let watched = Watched::load(path, parse)
        .with_context(|| format!("services[{}].upstream.authorization.from_secret", service.name))?;
    Ok(Some(Arc::new(watched)))
}

fn awaited(sync: Synced) -> Cow<'static, str> {
    match sync {
        Synced::Waiting => "first list".into(),
        Synced::Listed | Synced::Ready => "first verdicts".into(),
        Synced::Refused(status) => format!("refused with {status}").into(),
    }
}

/// No selectable endpoint is still ready: it answers 503 (I9). A traffic thread that died is not: part of the
/// connections would hang. Of services whose Pods are awaited one has to be known, and the others known or refused.
fn readiness(shared: &Shared, loads: &[Arc<Load>]) -> Readiness {
    let phase = shared.phases.now();
    let running = phase == Phase::Running;
    let dead = loads.iter().enumerate().filter(|(_, load)| load.died());
    let mut awaiting: Vec<_> = dead.map(|(index, _)| Cow::Owned(format!("traffic-{index}"))).collect();
    let mut passed = Vec::new();
    if running {
        passed.push(Cow::Borrowed("listening"));
        let snapshot = shared.view.load();
        let known = |s: &Service| (s.sync.now(), s.rollout.known());
        let some = snapshot.services.iter().any(|s| known(s) == (Synced::Ready, Synced::Ready));
        for service in &snapshot.services {
            let name = &service.config.name;
            let (endpoints, split) = known(service);
            let split = service.config.rollout.as_ref().map(|_| ("split", split));
            for (what, sync) in [("endpoints", endpoints)].into_iter().chain(split) {
                match sync {
                    Synced::Ready => passed.push(Cow::Owned(format!("{what} of {name}"))),
                    Synced::Refused(_) if some => {}
                    sync => awaiting.push(Cow::Owned(format!("{what} of {name} ({})", awaited(sync)))),
                }
            }
        }
    }
    Readiness { ready: running && awaiting.is_empty(), phase: phase.as_str(), awaiting, passed }
}
