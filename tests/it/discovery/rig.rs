//! A router whose engines are Pods of a fake API server, all in memory on a paused clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tandem::admin::{EndpointStatus, Fleet};
use tandem::config::{Dialect, EngineKind, Labels, PodDiscovery, RouterConfig, Service, VllmConnector};
use tandem::testkit::client::RawClient;
use tandem::testkit::engine::openai::{ChatStream, chat_json, kv_answer};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, Response, Script, Step};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::kube::{Entry, FakeKube, PodSpec};
use tandem::testkit::memory::{MemoryNet, MemoryStream};
use tandem::testkit::metrics::Scrape;
use tandem::testkit::router::{FRONT, TestRouter, config};
use tandem::testkit::task::spawn;
use tandem::types::clock::{Instant, now};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub(super) const CHAT: &str = "/v1/chat/completions";
pub(super) const ELIGIBLE: &str = "tandem.dev/endpoint-eligible";
pub(super) const ROLE: &str = "tandem.dev/role";
pub(super) const NIXL: EngineKind = EngineKind::Vllm(VllmConnector::Nixl);
pub(super) const A: &str = "192.0.2.1";
pub(super) const B: &str = "192.0.2.2";
pub(super) const C: &str = "192.0.2.3";
/// How soon what the watch tells is in force.
pub(super) const SOON: Duration = ms(50);
/// How soon at the latest a lost event is made up for: the relist, its answer, and the news' way.
pub(super) const RELIST: Duration = ms(15_100);

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
    RouterConfig { services: vec![service("default", engine, dialect)], ..config(&[]) }
}

/// A service of the Pods of [`selector`].
pub(super) fn service(name: &str, engine: EngineKind, dialect: Dialect) -> Service {
    let pods = Some(PodDiscovery::of(dialect, selector()));
    Service { engine, pods, ..Service::plain(name, Vec::new()) }
}

/// A Pod of the service: running, ready, port 8000, endpoint-eligible in the dialect `tandem`.
pub(super) fn pod(name: &str, ip: &str) -> PodSpec {
    bare(name, ip).label(ELIGIBLE, "true").port("http", 8000)
}

/// The same without a role, a mark or a port.
pub(super) fn bare(name: &str, ip: &str) -> PodSpec {
    PodSpec::new(name).label("app", "llm").ip(ip)
}

/// A label of a Pod; `None` takes it away.
pub(super) fn set_label(pod: &mut serde_json::Value, key: &str, value: Option<&str>) {
    let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
    match value {
        Some(value) => drop(labels.insert(key.to_owned(), value.into())),
        None => drop(labels.remove(key)),
    }
}

/// A stream of so many events, one each `gap`, to whoever asks for one; else a short answer after `gap`.
pub(super) fn slow(name: &str, events: usize, gap: Duration) -> Script {
    let name = name.to_owned();
    Script::new(move |request| {
        if request.json()["stream"] == true {
            ChatStream::new(events).gap(gap).into_steps()
        } else {
            [vec![Step::Sleep(gap)], chat_json(&name).into_steps()].concat()
        }
    })
}

/// A vLLM engine that does what it is asked: prefill, or decode.
pub(super) fn vllm_either(name: &str) -> Script {
    let name = name.to_owned();
    Script::new(move |request| {
        let prefill = request.json()["kv_transfer_params"]["do_remote_decode"] == true;
        if prefill {
            Response::json(200, kv_answer(&name).to_string()).into_steps()
        } else {
            chat_json(&name).into_steps()
        }
    })
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
        let entry = api.entry();
        Self::through(config, api, entry)
    }

    /// The router reaches the API server through this.
    pub(super) fn through(config: RouterConfig, api: FakeKube, entry: Entry) -> Self {
        let net = MemoryNet::new();
        Self { router: TestRouter::in_memory_with_pods(config, &net, Arc::new(entry)), api, net }
    }

    /// Until the router says that it is ready.
    pub(super) async fn ready(&self) {
        self.until("ready", || self.is_ready()).await;
    }

    pub(super) fn is_ready(&self) -> bool {
        (self.router.admin.readiness)().ready
    }

    /// An engine that answers chats with its own name, at this address (`ip`: every port of it).
    pub(super) fn engine(&self, at: &str) -> EngineHandle {
        self.serve(at, Script::always(chat_json(at)))
    }

    pub(super) fn serve(&self, at: &str, script: Script) -> EngineHandle {
        Engine::in_memory(&self.net, at, script)
    }

    pub(super) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        for _ in 0..12_000 {
            if holds() {
                return;
            }
            sleep(ms(10)).await;
        }
        panic!("never {what}; now {:#?}", self.fleet());
    }

    /// Waits until it holds; fails if that takes longer than `limit`.
    pub(super) async fn within(&self, limit: Duration, what: &str, holds: impl Fn() -> bool) -> Duration {
        let began = now();
        self.until(what, holds).await;
        let took = now() - began;
        assert!(took <= limit, "{what}: {took:?}, not within {limit:?}");
        took
    }

    pub(super) fn fleet(&self) -> Fleet {
        self.router.admin.endpoints.list()
    }

    /// The newest endpoint at this address.
    pub(super) fn endpoint(&self, ip: &str) -> Option<EndpointStatus> {
        let mut all: Vec<_> = self.fleet().endpoints.into_iter().filter(|e| shown(&e.url) == ip).collect();
        all.sort_by_key(|e| e.id.parse::<u64>().unwrap());
        all.pop()
    }

    /// Addresses that may be given a new request now; the port only where it is not 8000.
    pub(super) fn selectable(&self) -> Vec<String> {
        let fleet = self.fleet();
        fleet.endpoints.iter().filter(|e| e.selectable).map(|e| shown(&e.url)).collect()
    }

    /// Why the endpoint at this address, or the Pod of this name, gets no requests.
    pub(super) fn reason(&self, ip_or_name: &str) -> Option<String> {
        if let Some(endpoint) = self.endpoint(ip_or_name) {
            return endpoint.reason.map(Into::into);
        }
        let pods = self.fleet().pods;
        pods.into_iter().find(|pod| pod.name == ip_or_name).map(|pod| pod.reason.into_owned())
    }

    /// More of that, in words.
    pub(super) fn detail(&self, ip_or_name: &str) -> String {
        if let Some(endpoint) = self.endpoint(ip_or_name) {
            return endpoint.detail.unwrap_or_default();
        }
        let pods = self.fleet().pods;
        pods.into_iter().find(|pod| pod.name == ip_or_name).and_then(|pod| pod.detail).unwrap_or_default()
    }

    pub(super) fn scrape(&self) -> Scrape {
        self.router.scrape()
    }

    /// One metric of the service `default`, summed over whatever else labels it.
    pub(super) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.scrape().sum(name, labels)
    }

    pub(super) async fn client(&self) -> RawClient<MemoryStream> {
        self.router.memory_client().await
    }

    /// Statuses of so many requests, one after the other.
    pub(super) async fn ask(&self, n: usize) -> Vec<u16> {
        let mut client = self.client().await;
        let mut statuses = Vec::new();
        for _ in 0..n {
            statuses.push(client.request(&post_chat(chat_body("m", false))).await.unwrap().status());
        }
        statuses
    }

    /// The model's name of the service it goes to, its status and its text.
    pub(super) async fn ask_for(&self, model: &str) -> (u16, String) {
        let mut client = self.client().await;
        let answer = client.request(&post_chat(chat_body(model, false))).await.unwrap();
        let json = answer.json();
        let text = json["choices"][0]["message"]["content"].as_str().or(json["error"]["code"].as_str());
        (answer.status(), text.unwrap_or_default().to_owned())
    }

    /// Clients that ask one after the other, each every `gap`, until the load is ended.
    pub(super) fn load(&self, clients: usize, gap: Duration) -> Load {
        let stop = CancellationToken::new();
        let one = |_| {
            let (net, stop) = (self.net.clone(), stop.clone());
            spawn(async move {
                let mut client = RawClient::in_memory(net.dial(FRONT).await.unwrap());
                let mut seen = Vec::new();
                while !stop.is_cancelled() {
                    let at = now();
                    let answer = client.request(&post_chat(chat_body("m", false))).await.unwrap();
                    seen.push((at, answer.status()));
                    sleep(gap).await;
                }
                seen
            })
        };
        Load { clients: (0..clients).map(one).collect(), stop }
    }

    /// A streamed chat under way: its head was read. The task gives the status and whether it came to its end.
    pub(super) async fn stream(&self) -> JoinHandle<(u16, bool)> {
        let mut client = self.client().await;
        client.send(&post_chat(chat_body("m", true))).await.unwrap();
        let head = client.read_head().await.unwrap();
        spawn(async move {
            let answer = client.read_rest(head).await.unwrap();
            (answer.status(), answer.is_complete() && answer.text().ends_with("data: [DONE]\n\n"))
        })
    }

    /// What the API server's Pods mean for a service of the dialect `tandem` with one port: address and UID.
    fn implied(&self) -> Vec<(String, String)> {
        let pods = self.api.pods("default").into_iter().filter(|pod| {
            let (metadata, status) = (&pod["metadata"], &pod["status"]);
            metadata["deletionTimestamp"].is_null()
                && metadata["labels"]["app"] == "llm"
                && metadata["labels"][ELIGIBLE] == "true"
                && metadata["annotations"]["tandem.dev/drain"].is_null()
                && status["phase"] == "Running"
                && status["conditions"][0]["status"] == "True"
        });
        let shown = |pod: serde_json::Value| {
            let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
            (text(&pod["status"]["podIP"]), text(&pod["metadata"]["uid"]))
        };
        let mut implied: Vec<_> = pods.map(shown).filter(|(ip, _)| !ip.is_empty()).collect();
        implied.sort();
        implied
    }

    /// The endpoint set is what the API server's Pods imply, and everything is at rest.
    pub(super) async fn end(&self, engines: &[&EngineHandle]) {
        self.end_of_pairs(&[], engines).await;
    }

    pub(super) async fn end_of_pairs(&self, prefills: &[&EngineHandle], others: &[&EngineHandle]) {
        let fleet = self.fleet();
        let selectable = fleet.endpoints.into_iter().filter(|e| e.selectable);
        let mut known: Vec<_> = selectable.map(|e| (shown(&e.url), e.pod_uid.unwrap_or_default())).collect();
        known.sort();
        assert_eq!(known, self.implied(), "endpoints against Pods");
        self.router.assert_pair_invariants(prefills, others).await;
    }
}

fn shown(url: &str) -> String {
    url.trim_start_matches("http://").trim_end_matches(":8000").to_owned()
}

/// Clients at work.
pub(super) struct Load {
    clients: Vec<JoinHandle<Vec<(Instant, u16)>>>,
    stop: CancellationToken,
}

impl Load {
    /// When each request was sent, and its status.
    pub(super) async fn end(self) -> Vec<(Instant, u16)> {
        self.stop.cancel();
        let mut all = Vec::new();
        for client in self.clients {
            all.extend(client.await.unwrap());
        }
        all
    }

    /// Every request was answered with 200. How many there were.
    pub(super) async fn end_well(self) -> usize {
        let seen = self.end().await;
        let bad: Vec<_> = seen.iter().filter(|(_, status)| *status != 200).collect();
        assert!(bad.is_empty(), "{} of {} failed: {:?}", bad.len(), seen.len(), &bad[..bad.len().min(5)]);
        seen.len()
    }
}

/// The engine's own log: no chat began later than the leg of one that was decided before `at` may (I3).
pub(super) fn none_after(engine: &EngineHandle, at: Instant) {
    let late: Vec<_> = engine.log.requests_to(CHAT).into_iter().filter(|r| r.head_at > at + SOON).collect();
    assert!(
        late.is_empty(),
        "{} requests, the last {:?} after",
        late.len(),
        late.last().unwrap().head_at - at
    );
}

pub(super) fn chats(engine: &EngineHandle) -> usize {
    engine.log.requests_to(CHAT).len()
}
