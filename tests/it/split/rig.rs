//! Pods of several releases behind a router on a paused clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tandem::admin::{CohortShare, SplitChange};
use tandem::config::{
    Dialect, EngineKind, Labels, PodDiscovery, RouterConfig, Service, SplitEntry, VllmConnector,
};
use tandem::registry;
use tandem::testkit::client::RawClient;
use tandem::testkit::engine::openai::{chat_json, kv_answer};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, Response, Script};
use tandem::testkit::fixtures::{chat_body, post};
use tandem::testkit::kube::{FakeKube, PodSpec};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::{FRONT, TestRouter, config};
use tokio::time::sleep;

pub(super) const CHAT: &str = "/v1/chat/completions";
pub(super) const NIXL: EngineKind = EngineKind::Vllm(VllmConnector::Nixl);

/// What one engine is: role, revision, token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Is(pub &'static str, pub &'static str, pub &'static str);

pub(super) struct Rig {
    pub(super) api: FakeKube,
    pub(super) net: MemoryNet,
    pub(super) router: TestRouter,
    pub(super) engines: Vec<(Is, EngineHandle)>,
}

/// An answer to a request of the client.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) code: String,
}

pub(super) fn revision(name: &str, weight: u64) -> SplitEntry {
    SplitEntry { revision: Some(name.to_owned()), weight, ..SplitEntry::default() }
}

/// An engine of any role, which answers what it is asked.
fn script(is: Is) -> Script {
    Script::new(move |request| {
        let prefill = request.json()["kv_transfer_params"]["do_remote_decode"] == true;
        if prefill {
            Response::json(200, kv_answer(is.1).to_string()).into_steps()
        } else {
            chat_json(is.1).into_steps()
        }
    })
}

/// The ready Pod `e{n}` at this address.
pub(super) fn pod(n: usize, is: Is, ip: &str) -> PodSpec {
    let pod = PodSpec::new(&format!("e{n}"))
        .label("app", "llm")
        .label("tandem.dev/endpoint-eligible", "true")
        .label("tandem.dev/role", is.0)
        .port("http", 8000)
        .ip(ip);
    let labels = [("tandem.dev/revision", is.1), ("tandem.dev/pairing-token", is.2)];
    labels
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .fold(pod, |pod, (key, value)| pod.label(key, value))
}

impl Rig {
    /// These engines as ready Pods `e0`, `e1`, …, each at an address of its own.
    pub(super) async fn start(
        engine: EngineKind,
        all: &[Is],
        split: Option<Vec<SplitEntry>>,
        change: impl FnOnce(&mut Service),
    ) -> Self {
        Self::start_on(FakeKube::new(), engine, all, split, change).await
    }

    /// The same in a cluster that has something already.
    pub(super) async fn start_on(
        api: FakeKube,
        engine: EngineKind,
        all: &[Is],
        split: Option<Vec<SplitEntry>>,
        change: impl FnOnce(&mut Service),
    ) -> Self {
        let net = MemoryNet::new();
        let mut engines = Vec::new();
        for (n, is) in all.iter().enumerate() {
            let ip = format!("192.0.2.{}", n + 1);
            api.create(pod(n, *is, &ip));
            engines.push((*is, Engine::in_memory(&net, &ip, script(*is))));
        }
        let selector: Labels = BTreeMap::from([("app".to_owned(), "llm".to_owned())]);
        let pods = Some(PodDiscovery::of(Dialect::Tandem, selector));
        let mut service = Service { engine, pods, split, ..Service::plain("chat", Vec::new()) };
        change(&mut service);
        let config = RouterConfig { services: vec![service], ..config(&[]) };
        let router = TestRouter::in_memory_with_pods(config, &net, Arc::new(api.entry()));
        let rig = Self { api, net, router, engines };
        rig.until("all are selectable", || rig.selectable() == all.len()).await;
        rig
    }

    pub(super) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        for _ in 0..6000 {
            if holds() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("never {what}");
    }

    pub(super) fn selectable(&self) -> usize {
        self.router.admin.endpoints.list().endpoints.iter().filter(|e| e.selectable).count()
    }

    /// Takes the mark of a Pod away, or gives it back, and waits until that counts.
    pub(super) async fn mark(&self, n: usize, marked: bool) {
        self.api.update("default", &format!("e{n}"), |pod| {
            let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
            if marked {
                labels.insert("tandem.dev/endpoint-eligible".to_owned(), "true".into());
            } else {
                labels.remove("tandem.dev/endpoint-eligible");
            }
        });
        let url = format!("http://192.0.2.{}:8000", n + 1);
        let is = || {
            let all = self.router.admin.endpoints.list().endpoints;
            all.iter().any(|e| e.url == url && e.selectable == marked)
        };
        self.until("the mark counts", is).await;
    }

    pub(super) async fn client(&self) -> RawClient<tandem::testkit::memory::MemoryStream> {
        RawClient::in_memory(self.net.dial(FRONT).await.unwrap())
    }

    /// Chats one after the other, each with these header lines.
    pub(super) async fn ask(&self, n: usize, lines: &[&str]) -> Vec<Reply> {
        let mut client = self.client().await;
        let mut replies = Vec::new();
        for _ in 0..n {
            let answer = client.request(&post(CHAT, lines, chat_body("m", false))).await.unwrap();
            let code = answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
            replies.push(Reply { status: answer.status(), code });
        }
        replies
    }

    pub(super) async fn ask_well(&self, n: usize) {
        assert!(self.ask(n, &[]).await.iter().all(|reply| reply.status == 200));
    }

    /// Requests by revision, as the engines of this role saw them.
    pub(super) fn seen(&self, role: &str) -> BTreeMap<&'static str, usize> {
        let mut seen = BTreeMap::new();
        for (is, engine) in self.engines.iter().filter(|(is, _)| is.0 == role) {
            *seen.entry(is.1).or_default() += engine.log.requests_to(CHAT).len();
        }
        seen
    }

    /// Ids of the requests, by the client's own part, with the revision or token of the engine that saw them.
    pub(super) fn ids(&self, role: &str, word: fn(&Is) -> &'static str) -> BTreeMap<String, &'static str> {
        let of_role = self.engines.iter().filter(|(is, _)| is.0 == role);
        let ids = of_role.flat_map(|(is, engine)| {
            let requests = engine.log.requests_to(CHAT);
            let id = |r: tandem::testkit::engine::RecordedRequest| {
                Some((r.headers.get("x-request-id")?.get(17..)?.to_owned(), word(is)))
            };
            requests.into_iter().filter_map(id).collect::<Vec<_>>()
        });
        ids.collect()
    }

    pub(super) async fn put(&self, entries: Vec<SplitEntry>, expected: Option<u64>) -> SplitChange {
        self.router.admin.splits.set_split("chat", Some(entries), expected).await
    }

    /// The service as requests are decided on it now.
    pub(super) fn service(&self) -> Arc<registry::Service> {
        Arc::clone(&self.router.shared.view.load().services[0])
    }

    pub(super) fn share(&self, cohort: &str) -> CohortShare {
        let view = self.router.admin.splits.split();
        view.services[0].cohorts.iter().find(|c| c.cohort == cohort).cloned().unwrap()
    }

    pub(super) fn lines(&self) -> Vec<Value> {
        self.router.access_lines()
    }

    pub(super) async fn end(&self) {
        let of = |role: &str, yes: bool| {
            let all = self.engines.iter().filter(move |(is, _)| (is.0 == role) == yes);
            all.map(|(_, engine)| engine).collect::<Vec<_>>()
        };
        self.router.assert_pair_invariants(&of("prefill", true), &of("prefill", false)).await;
    }
}
