//! B56: no request is served across models or groups, whatever becomes of the Pods meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tandem::config::{Dialect, Labels, ModelMatch, PodDiscovery, RouterConfig, Service};
use tandem::testkit::client::RawClient;
use tandem::testkit::engine::openai::{chat_json, kv_answer};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, Response, Script, Step};
use tandem::testkit::fixtures::{chat_body, post};
use tandem::testkit::kube::{FakeKube, PodSpec, set_ready};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::{FRONT, TestRouter, config};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::rig::{CHAT, NIXL};
use crate::replay::scale;

const MODELS: [&str; 2] = ["alpha", "alpha-2"];
const TOKENS: [&str; 2] = ["kv-v1", "kv-v2"];
const REQUESTS: usize = 5000;
/// Clients at a time.
const CLIENTS: usize = 50;

/// One engine: its model, role and group. What it keeps KV as says so.
struct One {
    model: &'static str,
    role: &'static str,
    token: &'static str,
    engine: EngineHandle,
}

/// Prefills say whose KV it is; both sides take a little while, so that requests overlap.
fn script(id: String) -> Script {
    Script::new(move |request| {
        let prefill = request.json()["kv_transfer_params"]["do_remote_decode"] == true;
        let answer = if prefill { Response::json(200, kv_answer(&id).to_string()) } else { chat_json(&id) };
        [Step::Sleep(Duration::from_millis(8))].into_iter().chain(answer.into_steps()).collect()
    })
}

/// The same names and labels in both namespaces, but for the model.
fn fleet(api: &FakeKube, net: &MemoryNet) -> Vec<One> {
    let mut all = Vec::new();
    for model in MODELS {
        for role in ["prefill", "decode"] {
            for token in TOKENS {
                let ip = format!("192.0.2.{}", all.len() + 1);
                let pod =
                    PodSpec::new(&format!("{role}-{token}")).namespace(model).ip(&ip).port("http", 8000);
                api.create(pod.label("app", "llm").label("model", model).labels(&[
                    ("tandem.dev/endpoint-eligible", "true"),
                    ("tandem.dev/role", role),
                    ("tandem.dev/pairing-token", token),
                ]));
                let id = format!("{model}/{token}");
                all.push(One { model, role, token, engine: Engine::in_memory(net, &ip, script(id)) });
            }
        }
    }
    all
}

fn service(model: &str) -> Service {
    let selector: Labels =
        [("app", "llm"), ("model", model)].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let pods =
        PodDiscovery { namespace: Some(model.to_owned()), ..PodDiscovery::of(Dialect::Tandem, selector) };
    Service {
        models: vec![model.to_owned()],
        model_match: ModelMatch::Listed,
        engine: NIXL,
        pods: Some(pods),
        // An engine that was not ready is asked again what it is; these flap quicker than they answer.
        cohorts_guard: false,
        ..Service::plain(model, Vec::new())
    }
}

/// Readiness comes and goes, and the news of it comes late, twice, in another order, or not at all.
async fn flaps(api: FakeKube, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        match random.u8(..8) {
            0 => api.reverse_next(random.usize(2..5)),
            1 => api.overtake_next(1, Duration::from_millis(random.u64(1..60))),
            2 => api.duplicate_next(2),
            3 => api.lose_next(1),
            4 => api.delay_next(2, Duration::from_millis(random.u64(1..60))),
            _ => {}
        }
        let (model, token) = (MODELS[random.usize(..2)], TOKENS[random.usize(..2)]);
        let role = ["prefill", "decode"][random.usize(..2)];
        let ready = if random.u8(..4) == 0 { "False" } else { "True" };
        api.update(model, &format!("{role}-{token}"), |pod| set_ready(pod, ready, None));
        sleep(Duration::from_millis(random.u64(0..5))).await;
    }
}

/// Answers by status.
async fn load(net: &MemoryNet, requests: usize) -> BTreeMap<u16, usize> {
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        let net = net.clone();
        clients.spawn(async move {
            let mut answers = Vec::new();
            for k in 0..requests / CLIENTS {
                let mut client = RawClient::in_memory(net.dial(FRONT).await.unwrap());
                let body = chat_body(MODELS[(n + k) % 2], false);
                answers.push(client.request(post(CHAT, &[], body)).await.unwrap().status());
                sleep(Duration::from_millis((n % 7) as u64)).await;
            }
            answers
        });
    }
    let mut by_status = BTreeMap::new();
    for status in clients.join_all().await.into_iter().flatten() {
        *by_status.entry(status).or_default() += 1;
    }
    by_status
}

#[tokio::test(start_paused = true)]
async fn b56_no_request_crosses_models_or_groups_while_readiness_flaps() {
    let (api, net) = (FakeKube::new(), MemoryNet::new());
    let all = fleet(&api, &net);
    let config = RouterConfig { services: MODELS.map(service).into(), ..config(&[]) };
    let router = TestRouter::in_memory_with_pods(config, &net, Arc::new(api.balanced()));
    let selectable =
        || router.admin.endpoints.list().endpoints.iter().filter(|endpoint| endpoint.selectable).count();
    while selectable() < all.len() {
        sleep(Duration::from_millis(10)).await;
    }
    let mut trouble = JoinSet::new();
    trouble.spawn(flaps(api.clone(), 56));
    let answers = load(&net, scale(REQUESTS, 20 * REQUESTS)).await;
    trouble.shutdown().await;
    // Most were served, and the trouble was felt: else nothing is proven.
    assert!(answers[&200] > REQUESTS / 2, "{answers:?}");
    let changes = router.shared.view.load().version;
    assert!(changes > 100, "{changes} snapshots");
    let mut pairs = BTreeMap::<(&str, &str), usize>::new();
    for one in &all {
        for request in one.engine.log.requests_to(CHAT) {
            let body = request.json();
            assert_eq!(body["model"], one.model, "at {} {} {}", one.model, one.role, one.token);
            if one.role == "decode" {
                let own = format!("{}/{}", one.model, one.token);
                assert_eq!(body["kv_transfer_params"]["remote_engine_id"], json!(own), "whose KV it is");
                *pairs.entry((one.model, one.token)).or_default() += 1;
            }
        }
    }
    assert!(pairs.len() == 4 && pairs.values().all(|n| *n > 200), "{pairs:?}");
    let of =
        |role: &str| all.iter().filter(|one| one.role == role).map(|one| &one.engine).collect::<Vec<_>>();
    router.assert_pair_invariants(&of("prefill"), &of("decode")).await;
}
