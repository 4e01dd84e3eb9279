//! A router whose engines are Pods of a fake API server, all in memory on a paused clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tandem::admin::{EndpointStatus, Fleet};
use tandem::config::{Dialect, EngineKind, Labels, PodDiscovery, RouterConfig, Service};
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::kube::{FakeKube, PodSpec};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::metrics::Scrape;
use tandem::testkit::router::{TestRouter, config};
use tokio::time::sleep;

pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// What every Pod of the service carries.
pub(super) fn selector() -> Labels {
    BTreeMap::from([("app".to_owned(), "llm".to_owned())])
}

/// One plain service named `default`, its Pods by this dialect.
pub(super) fn plain(dialect: Dialect) -> RouterConfig {
    with(EngineKind::Plain, dialect)
}

/// One service named `default` of this kind of engine.
pub(super) fn with(engine: EngineKind, dialect: Dialect) -> RouterConfig {
    let pods = Some(PodDiscovery::of(dialect, selector()));
    let service = Service { engine, pods, ..Service::plain("default", Vec::new()) };
    RouterConfig { services: vec![service], ..config(&[]) }
}

/// A Pod of the service: running, ready, port 8000, endpoint-eligible in the dialect `tandem`.
pub(super) fn pod(name: &str, ip: &str) -> PodSpec {
    PodSpec::new(name)
        .label("app", "llm")
        .label("tandem.dev/endpoint-eligible", "true")
        .ip(ip)
        .port("http", 8000)
}

/// The whole scene.
pub(super) struct World {
    pub(super) api: FakeKube,
    pub(super) net: MemoryNet,
    pub(super) router: TestRouter,
}

impl World {
    /// Started at once; see [`Self::ready`].
    pub(super) fn new(config: RouterConfig, api: FakeKube) -> Self {
        let entry = Arc::new(api.entry());
        let net = MemoryNet::new();
        let router = TestRouter::in_memory_with_pods(config, &net, entry);
        Self { api, net, router }
    }

    /// Until the router says that it is ready.
    pub(super) async fn ready(&self) {
        self.until("ready", || (self.router.admin.readiness)().ready).await;
    }

    /// An engine that answers chats with its own name, at port 8000 of this address.
    pub(super) fn engine(&self, ip: &str) -> EngineHandle {
        Engine::in_memory(&self.net, ip, Script::always(chat_json(ip)))
    }

    pub(super) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        for _ in 0..6000 {
            if holds() {
                return;
            }
            sleep(ms(10)).await;
        }
        panic!("never {what}; now {:#?}", self.fleet());
    }

    pub(super) fn fleet(&self) -> Fleet {
        self.router.admin.endpoints.list()
    }

    pub(super) fn endpoint(&self, ip: &str) -> Option<EndpointStatus> {
        let url = format!("http://{ip}:8000");
        self.fleet().endpoints.into_iter().rfind(|e| e.url == url)
    }

    /// Addresses that may be given a new request now.
    pub(super) fn selectable(&self) -> Vec<String> {
        let fleet = self.fleet();
        let selectable = fleet.endpoints.iter().filter(|e| e.selectable);
        selectable.map(|e| e.url.trim_start_matches("http://").trim_end_matches(":8000").to_owned()).collect()
    }

    /// Why the endpoint at this address, or the Pod of this name, gets no requests.
    pub(super) fn reason(&self, ip_or_name: &str) -> Option<String> {
        if let Some(endpoint) = self.endpoint(ip_or_name) {
            return endpoint.reason.map(Into::into);
        }
        let pods = self.fleet().pods;
        pods.into_iter().find(|pod| pod.name == ip_or_name).map(|pod| pod.reason.into_owned())
    }

    pub(super) fn scrape(&self) -> Scrape {
        self.router.scrape()
    }

    /// Statuses of so many requests, one after the other.
    pub(super) async fn ask(&self, n: usize) -> Vec<u16> {
        let mut client = self.router.memory_client().await;
        let mut statuses = Vec::new();
        for _ in 0..n {
            statuses.push(client.request(&post_chat(chat_body("m", false))).await.unwrap().status());
        }
        statuses
    }
}
