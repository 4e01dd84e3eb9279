//! One API server, three routers, the engines, and the reader of every router's report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tandem::config::{
    Dialect, EngineKind, Labels, ModelMatch, PodDiscovery, Policies, Policy, Probe, RouterConfig, Service,
    VllmConnector,
};
use tandem::registry::Endpoint;
use tandem::registry::report::Filter;
use tandem::testkit::kube::FakeKube;
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::quiet::{Limits, Logs, Reports};
use tandem::testkit::router::{TestRouter, config};
use tandem::testkit::task::spawn;
use tandem::types::clock::now;

use super::clients::{Load, client};
use super::host::{GRACE, Guard, Host, KINDS, Kind, LEASE, Make, SIDE_PORT};
use super::{ms, secs};

pub(super) const ROUTERS: usize = 3;
/// Between two lists: what an event did not say is known after it.
pub(super) const RELIST: std::time::Duration = secs(3);
/// Clients of each router.
const CLIENTS: usize = 6;

pub(super) struct World {
    pub(super) api: FakeKube,
    /// One for each router: what befalls its dials befalls no other.
    pub(super) nets: Vec<MemoryNet>,
    pub(super) routers: Vec<TestRouter>,
    pub(super) hosts: Vec<Host>,
    pub(super) load: Arc<Load>,
    pub(super) reports: Reports,
    pub(super) logs: Logs,
    /// By router: every endpoint that was ever there.
    seen: Vec<BTreeMap<u64, Arc<Endpoint>>>,
    versions: [u64; ROUTERS],
}

impl World {
    pub(super) fn new(guard: Guard, seed: u64) -> Self {
        let api = FakeKube::with_replicas(ROUTERS);
        let nets: Vec<MemoryNet> = (0..ROUTERS).map(|_| MemoryNet::new()).collect();
        let router = |(n, net): (usize, &MemoryNet)| {
            TestRouter::in_memory_with_pods(settings(guard), net, Arc::new(api.replica(n).entry()))
        };
        let routers: Vec<TestRouter> = nets.iter().enumerate().map(router).collect();
        let load = Arc::new(Load::default());
        for (n, net) in nets.iter().enumerate() {
            for k in 0..CLIENTS {
                let own = seed.wrapping_mul(1000) + (n * CLIENTS + k) as u64;
                spawn(client(n, own, net.clone(), Arc::clone(&load)));
            }
        }
        // Nothing takes time on this clock but what is meant to: the report's word and the engine's log agree to the
        // millisecond.
        let limits = Limits { slack: ms(2), stale: ms(0) };
        Self {
            api,
            nets,
            routers,
            hosts: Vec::new(),
            load,
            reports: Reports::new(ROUTERS, limits),
            logs: Logs::default(),
            seen: vec![BTreeMap::new(); ROUTERS],
            versions: [0; ROUTERS],
        }
    }

    /// The process of a Pod that was created just now.
    pub(super) fn start(&mut self, uid: String, make: Make) {
        self.hosts.push(Host::start(uid, make, &self.nets));
    }

    pub(super) fn host(&mut self, uid: &str) -> &mut Host {
        self.hosts.iter_mut().find(|host| host.uid == uid).unwrap()
    }

    pub(super) fn restart(&mut self, uid: &str) {
        let host = self.hosts.iter_mut().find(|host| host.uid == uid).unwrap();
        host.restart(&self.nets);
    }

    /// Reads every router's report.
    pub(super) fn read(&mut self) -> Result<(), String> {
        for (n, router) in self.routers.iter().enumerate() {
            let report = router.admin.reporter.report(&Filter::default());
            self.reports.read(n, now(), now(), &report)?;
            if std::mem::replace(&mut self.versions[n], report.registry_version) != report.registry_version {
                let snapshot = router.shared.view.load();
                let listed = snapshot.services.iter().flat_map(|service| service.all());
                let all = listed.chain(snapshot.departed.iter().map(|gone| &gone.endpoint));
                self.seen[n].extend(all.map(|endpoint| (endpoint.id, Arc::clone(endpoint))));
            }
        }
        Ok(())
    }

    /// Judges what the engines did.
    pub(super) fn judge(&mut self) -> Result<(), String> {
        self.logs.judge(&self.reports, |_, _| ms(0))?;
        let hosts = self.hosts.iter();
        self.logs.take(hosts.flat_map(|host| host.lives.iter().map(|life| (&host.site, &**life))));
        Ok(())
    }

    /// What is left on any endpoint that ever was, of these kinds.
    pub(super) fn left(&self, kinds: &[Kind]) -> Vec<String> {
        let all = self.seen.iter().enumerate().flat_map(|(n, all)| all.values().map(move |e| (n, e)));
        let names: BTreeSet<u8> = self
            .hosts
            .iter()
            .filter(|host| kinds.contains(&host.make.kind))
            .map(|host| host.make.ip)
            .collect();
        let of = |endpoint: &Endpoint| names.iter().any(|ip| endpoint.host == super::host::address(*ip));
        all.filter(|(_, endpoint)| of(endpoint) && endpoint.load().in_flight.total() > 0)
            .map(|(n, endpoint)| format!("router {n}: {} {:?}", endpoint.url, endpoint.load().in_flight))
            .collect()
    }

    pub(super) fn endpoints(&self) -> usize {
        self.seen.iter().map(BTreeMap::len).sum()
    }
}

fn settings(guard: Guard) -> RouterConfig {
    let service = |kind: Kind| {
        let mut service = Service::plain(kind.name(), Vec::new());
        service.models = vec![kind.name().to_owned()];
        service.model_match = ModelMatch::Listed;
        service.engine = match kind {
            Kind::Plain => EngineKind::Plain,
            Kind::Pull => EngineKind::Vllm(VllmConnector::Nixl),
            Kind::Rooms => EngineKind::Sglang,
        };
        let selector: Labels = [("app".to_owned(), kind.name().to_owned())].into();
        let pods = PodDiscovery::of(Dialect::Tandem, selector);
        service.pods = Some(PodDiscovery {
            namespace: Some("default".to_owned()),
            relist: RELIST,
            probe: Probe::Off,
            bootstrap_port: Some(SIDE_PORT),
            ..pods
        });
        service.policy = Policies::all(Policy::PowerOfTwo);
        // Many requests of a storm fail: with the usual budget hardly any would be tried again.
        service.retries.floor = 100_000;
        let upstream = &mut service.upstream;
        upstream.cancel_decode_grace = Some(if guard == Guard::On { ms(0) } else { GRACE });
        (upstream.kv_lease, upstream.handoff_max_age) = (LEASE, ms(500));
        upstream.idle = ms(400);
        service
    };
    let mut config = RouterConfig { services: KINDS.map(service).into(), ..config(&[]) };
    config.timeouts.first_byte = Some(secs(2));
    config.timeouts.idle = Some(secs(2));
    config.timeouts.connect = Some(secs(1));
    config
}
