//! GPUStack's retirement beside us: a strict consumer of `/observer/endpoints` on two routers, walked through disqualification,
//! disagreement, restarts and namesakes (requirements §2.2.5, §2.2.6; acceptance 2.1 to 2.4 and 4.5).

mod consumer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tandem::config::{Dialect, Labels, PodDiscovery, RouterConfig, Service};
use tandem::testkit::client::RawClient;
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::fixtures::{chat_body, get, post_chat};
use tandem::testkit::kube::{FakeKube, Fault, PodSpec, RequestKind};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::{FRONT, TestRouter, config};
use tokio::time::{sleep, timeout};

use crate::by_schema;
use consumer::{COLLECTION, FRESH, Observer, Serving, View, residual, view};

const MARK: &str = "modeldeployment.gpustack.ai/endpoint-eligible";
const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";

/// A router Pod on an API server replica of its own.
struct RouterPod {
    net: MemoryNet,
    _router: TestRouter,
    engines: [EngineHandle; 2],
}

struct World {
    api: FakeKube,
    routers: Vec<RouterPod>,
    observer: Observer,
}

fn pod(name: &str, ip: &str) -> PodSpec {
    let pod = PodSpec::new(name).label("app", "llm").label("modeldeployment.gpustack.ai/role-kind", "server");
    pod.label(MARK, "true").annotation("prometheus.io/port", "8000").port("http", 8000).ip(ip)
}

fn service() -> RouterConfig {
    let selector: Labels = BTreeMap::from([("app".to_owned(), "llm".to_owned())]);
    let pods = Some(PodDiscovery::of(Dialect::Gpustack, selector));
    RouterConfig { services: vec![Service { pods, ..Service::plain("default", Vec::new()) }], ..config(&[]) }
}

impl World {
    /// Two Pods and two routers that know them.
    async fn start() -> (Self, [String; 2]) {
        let api = FakeKube::with_replicas(2);
        let uids = [api.create(pod("x", A)), api.create(pod("y", B))];
        let routers = vec![RouterPod::start(&api, 0), RouterPod::start(&api, 1)];
        let mut world = Self { routers, api, observer: Observer::default() };
        let all = BTreeSet::from(uids.clone());
        world.until(&Serving::Confirmed(all)).await;
        (world, uids)
    }

    /// One collection: each router Pod by itself, within its time.
    async fn views(&self) -> BTreeMap<String, Result<View, String>> {
        let mut views = BTreeMap::new();
        let pods = self.api.pods("default");
        for (n, router) in self.routers.iter().enumerate() {
            let read = timeout(COLLECTION, router.read());
            let said = match read.await {
                Ok(Some((status, body))) => view(status, &body, &pods),
                Ok(None) => Err("nobody listens".to_owned()),
                Err(_) => Err("no answer in time".to_owned()),
            };
            views.insert(format!("router-{n}"), said);
        }
        views
    }

    async fn serving(&mut self) -> Serving {
        let views = self.views().await;
        self.observer.aggregate(&views)
    }

    async fn until(&mut self, wanted: &Serving) {
        let mut last = Serving::NotConfigured;
        for _ in 0..3000 {
            last = self.serving().await;
            if last == *wanted {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("{last:?}, not {wanted:?}");
    }

    async fn residual(&self, uid: &str) -> Option<bool> {
        residual(&self.views().await, uid)
    }

    fn mark(&self, name: &str, value: Option<&str>) {
        self.api.update("default", name, |pod| {
            let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
            match value {
                Some(value) => drop(labels.insert(MARK.to_owned(), value.into())),
                None => drop(labels.remove(MARK)),
            }
        });
    }

    /// Requests at one router; how many each engine got.
    async fn traffic(&self, router: usize, n: usize) -> [usize; 2] {
        let at = &self.routers[router];
        let before = at.engines.each_ref().map(|engine| engine.log.request_count());
        let mut client = RawClient::in_memory(at.net.dial(FRONT).await.unwrap());
        for _ in 0..n {
            assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
        }
        let after = at.engines.each_ref().map(|engine| engine.log.request_count());
        [after[0] - before[0], after[1] - before[1]]
    }
}

impl RouterPod {
    fn start(api: &FakeKube, replica: usize) -> Self {
        let net = MemoryNet::new();
        let engines = [A, B].map(|at| Engine::in_memory(&net, at, Script::always(chat_json(at))));
        let entry = Arc::new(api.replica(replica).entry());
        Self { _router: TestRouter::in_memory_with_pods(service(), &net, entry), net, engines }
    }

    async fn read(&self) -> Option<(u16, Vec<u8>)> {
        let mut client = RawClient::in_memory(self.net.dial(FRONT).await.ok()?);
        let answer = client.request(&get("/observer/endpoints")).await.ok()?;
        Some((answer.status(), answer.body.clone()))
    }
}

fn confirmed(uids: &[&String]) -> Serving {
    Serving::Confirmed(uids.iter().map(|uid| (*uid).clone()).collect())
}

/// Acceptance 2.1 and 4.5: zero is confirmed when every router says so and none just gave it a request, and taken back with
/// the mark.
#[tokio::test(start_paused = true)]
async fn ac2_1_a_disqualified_replica_is_confirmed_out_everywhere_and_back_again() {
    let (mut world, [x, y]) = World::start().await;
    assert!(world.traffic(0, 10).await.iter().all(|n| *n > 0));
    assert!(world.traffic(1, 10).await.iter().all(|n| *n > 0));
    world.mark("x", None);
    world.until(&confirmed(&[&y])).await;
    assert_eq!(world.residual(&x).await, Some(true), "requests that began a moment ago");
    assert_eq!((world.traffic(0, 10).await[0], world.traffic(1, 10).await[0]), (0, 0));
    sleep(FRESH + Duration::from_secs(1)).await;
    assert_eq!((world.residual(&x).await, world.residual(&y).await), (Some(false), Some(true)));
    world.mark("x", Some("true"));
    world.until(&confirmed(&[&x, &y])).await;
    assert!(world.traffic(1, 10).await[0] > 0);
}

/// A router whose API server lags shows what it does: the target is residual there, and the two do not agree.
#[tokio::test(start_paused = true)]
async fn one_router_that_lags_holds_the_retirement() {
    let (mut world, [x, y]) = World::start().await;
    world.api.replica(1).freeze();
    world.mark("x", None);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(world.serving().await, Serving::NotConverged);
    assert_eq!(world.residual(&x).await, Some(true));
    assert!(world.traffic(1, 10).await[0] > 0, "and it does what it shows");
    world.api.replica(1).catch_up();
    world.until(&confirmed(&[&y])).await;
    sleep(FRESH + Duration::from_secs(1)).await;
    assert_eq!(world.residual(&x).await, Some(false));
}

/// Acceptance 2.2: a router that was restarted, is away, or does not know its Pods yet is no zero.
#[tokio::test(start_paused = true)]
async fn ac2_2_a_router_that_is_restarted_or_away_confirms_nothing() {
    let (mut world, [x, y]) = World::start().await;
    world.mark("x", None);
    world.until(&confirmed(&[&y])).await;
    world.routers[1].net = MemoryNet::new();
    assert!(matches!(world.serving().await, Serving::Unknown(_)));
    assert_eq!(world.residual(&x).await, None, "nobody knows");
    let replica = world.api.replica(1);
    replica.always(RequestKind::List, Some(Fault::status(500)));
    world.routers[1] = RouterPod::start(&world.api, 1);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        world.serving().await,
        Serving::Unknown("router-1: status 503".to_owned()),
        "no list, no word"
    );
    replica.clear_faults();
    let mut seen = Vec::new();
    while seen.last() != Some(&confirmed(&[&y])) {
        assert!(seen.len() < 3000, "{:?}", seen.last());
        seen.push(world.serving().await);
        sleep(Duration::from_millis(10)).await;
    }
    assert!(seen.contains(&Serving::NotConverged), "one process, two boots");
    assert!(
        seen.iter().all(|said| !matches!(said, Serving::Confirmed(all) if all.is_empty())),
        "never a zero"
    );
}

/// Acceptance 2.3: same name and address, another UID.
#[tokio::test(start_paused = true)]
async fn ac2_3_a_namesake_is_somebody_else() {
    let (mut world, [x, y]) = World::start().await;
    world.api.force_delete("default", "x");
    world.until(&confirmed(&[&y])).await;
    let new = world.api.create(pod("x", A));
    world.until(&confirmed(&[&new, &y])).await;
    assert_eq!(world.residual(&x).await, Some(false), "the old one is in nobody's selection");
    assert_eq!(world.residual(&new).await, Some(true));
}

/// A selected worker that is no live Pod makes the whole view unusable: here the router missed that the Pod is gone.
#[tokio::test(start_paused = true)]
async fn a_selected_worker_that_binds_to_no_live_pod_is_no_view() {
    let (mut world, [_, y]) = World::start().await;
    world.api.replica(1).freeze();
    world.api.force_delete("default", "x");
    sleep(Duration::from_secs(1)).await;
    let Serving::Unknown(why) = world.serving().await else { panic!("not unknown") };
    assert!(why.starts_with("router-1: http://192.0.2.1:8000: 0 live Pods"), "{why}");
    world.api.replica(1).catch_up();
    world.until(&confirmed(&[&y])).await;
}

/// What it refuses, so that the tests above mean something.
#[tokio::test(start_paused = true)]
async fn the_consumer_is_as_strict_as_its_requirements() {
    let (world, _) = World::start().await;
    let (status, body) = world.routers[0].read().await.unwrap();
    let pods = world.api.pods("default");
    assert!(view(status, &body, &pods).is_ok());
    let good: Value = serde_json::from_slice(&body).unwrap();
    let put = |path: &str, value: Value| by_schema::put(&good, path, value).to_string().into_bytes();
    let mut without = good.clone();
    without["workers"][0]["selection"].as_object_mut().unwrap().remove("healthy");
    for bad in [
        put("/more", json!(1)),
        put("/workers/0/in_flight", json!(0)),
        put("/workers/0/uid", json!("u")),
        put("/router/boot_generation", json!(0)),
        put("/workers", Value::Null),
        put("/workers/0/selection/circuit_open", json!(true)),
        put("/workers/0/role", json!("mixed")),
        put("/workers/0/port", json!(1)),
        [body.as_slice(), b"{}"].concat(),
        without.to_string().into_bytes(),
        b"null".to_vec(),
    ] {
        assert!(view(200, &bad, &pods).is_err(), "{}", String::from_utf8_lossy(&bad));
    }
    assert!(view(503, &body, &pods).is_err());
    let read = view(200, &body, &pods).unwrap();
    let mut observer = Observer::default();
    assert_eq!(observer.aggregate(&BTreeMap::new()), Serving::NotConfigured);
    sleep(FRESH + Duration::from_millis(1)).await;
    let stale = observer.aggregate(&BTreeMap::from([("r".to_owned(), Ok(read))]));
    assert_eq!(stale, Serving::Unknown("r: stale".to_owned()));
}
