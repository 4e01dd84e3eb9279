//! Prefill and decode endpoints in the registry, in what operators see, and in the choice by role.

use std::time::Duration;

use tandem::config::{EngineKind, Policies, Policy, VllmConnector};
use tandem::ledger::Hold;
use tandem::proxy::route::{self, Excluded, has_other};
use tandem::registry::{Endpoint, Role, Service};
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::post;
use tandem::testkit::memory::{MemoryNet, MemoryStream};
use tandem::testkit::router::{TestRouter, config, pairs_config};
use tandem::upstream::{Conn, Io};

const KINDS: [EngineKind; 3] =
    [EngineKind::Sglang, EngineKind::Vllm(VllmConnector::Nixl), EngineKind::Vllm(VllmConnector::Store)];

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| format!("{name}:80")).collect()
}

/// Two prefills, three decodes, one mixed, and nobody behind them.
fn router(engine: EngineKind, policy: Policies, net: &MemoryNet) -> TestRouter {
    let mut config = pairs_config(engine, &names(&["p0", "p1"]), &names(&["d0", "d1", "d2"]));
    config.services[0].endpoints = self::config(&names(&["m0"])).services.remove(0).endpoints;
    config.services[0].policy = policy;
    TestRouter::in_memory(config, net)
}

fn by_role(router: &TestRouter, role: Role) -> Vec<&Endpoint> {
    router.endpoints().iter().map(AsRef::as_ref).filter(|e| e.role == role).collect()
}

async fn drain(router: &TestRouter, endpoint: &Endpoint, on: bool) {
    router.admin.endpoints.set_drain(&endpoint.id.to_string(), on).await;
}

/// From the one cohort that these services have.
fn pick_role(service: &Service, role: Role, excluded: &Excluded) -> Option<Hold<Endpoint>> {
    route::pick_role(service, &service.cohorts[0], role, excluded)
}

#[tokio::test(start_paused = true)]
async fn only_prefills_of_sglang_have_a_bootstrap_port() {
    for kind in KINDS {
        let router = router(kind, Policies::all(Policy::RoundRobin), &MemoryNet::new());
        let port = (kind == EngineKind::Sglang).then_some(8998);
        assert!(by_role(&router, Role::Prefill).iter().all(|e| e.bootstrap_port() == port), "{kind:?}");
        for role in [Role::Decode, Role::Mixed] {
            assert!(by_role(&router, role).iter().all(|e| e.bootstrap_port().is_none()), "{kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn operators_see_and_drain_endpoints_of_every_role() {
    let router = router(EngineKind::Sglang, Policies::all(Policy::RoundRobin), &MemoryNet::new());
    let listed = router.admin.endpoints.list();
    let shown: Vec<_> = listed.endpoints.iter().map(|e| (e.url.as_str(), &*e.role)).collect();
    let wanted = [
        ("http://d0:80", "decode"),
        ("http://d1:80", "decode"),
        ("http://d2:80", "decode"),
        ("http://m0:80", "mixed"),
        ("http://p0:80", "prefill"),
        ("http://p1:80", "prefill"),
    ];
    assert_eq!(shown, wanted);
    for (url, role) in wanted {
        let endpoint = router.endpoints().iter().find(|e| e.url == url).unwrap();
        let selectable =
            || router.scrape().get("tandem_endpoint_selectable", &[("role", role), ("url", url)]);
        assert_eq!(selectable(), Some(1.0), "{url}");
        drain(&router, endpoint, true).await;
        assert_eq!((endpoint.is_selectable(), selectable()), (false, Some(0.0)), "{url}");
        drain(&router, endpoint, false).await;
        assert_eq!((endpoint.is_selectable(), selectable()), (true, Some(1.0)), "{url}");
    }
}

/// A client that waits for `100 Continue` learns which role is missing.
#[tokio::test(start_paused = true)]
async fn pairs_serve_while_both_sides_or_a_mixed_one_are_selectable() {
    let router = router(EngineKind::Sglang, Policies::all(Policy::RoundRobin), &MemoryNet::new());
    let serves = || router.shared.view.load().has_selectable();
    let all = |role| by_role(&router, role);
    for missing in [Role::Prefill, Role::Decode] {
        for endpoint in all(missing) {
            assert!(serves());
            drain(&router, endpoint, true).await;
        }
        assert!(serves(), "the mixed endpoint still does");
        drain(&router, all(Role::Mixed)[0], true).await;
        assert!(!serves());
        assert_eq!(router.shared.view.load().services[0].lacks(), Some(missing));
        let mut client = router.memory_client().await;
        client.send(post("/v1/chat/completions", &["Expect: 100-continue"], "")).await.unwrap();
        let answer = client.read_response().await.unwrap();
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        let text = format!("no {} endpoint that takes new requests", missing.as_str());
        assert!(answer.status() == 503 && said.contains(&text), "{said}");
        drain(&router, all(missing)[0], false).await;
        assert!(serves(), "one of each is enough");
        for endpoint in router.endpoints().iter().filter(|e| !e.is_selectable()) {
            drain(&router, endpoint, false).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_role_has_its_own_turn() {
    let router = router(EngineKind::Sglang, Policies::all(Policy::RoundRobin), &MemoryNet::new());
    let service = router.shared.view.load().services[0].clone();
    let url = |role| pick_role(&service, role, &Excluded::default()).unwrap().endpoint().url.clone();
    let mut prefills = Vec::new();
    for n in 0..6 {
        prefills.push(url(Role::Prefill));
        for _ in 0..n {
            url(Role::Decode);
        }
        assert_eq!(
            pick_role(&service, Role::Mixed, &Excluded::default()).unwrap().endpoint().url,
            "http://m0:80"
        );
    }
    assert_eq!(
        prefills,
        ["http://p0:80", "http://p1:80"].repeat(3),
        "whatever decodes were chosen between them"
    );
    assert!(router.endpoints().iter().all(|e| e.holds() == 0));
}

#[tokio::test(start_paused = true)]
async fn each_role_has_its_own_policy() {
    for role in [Role::Prefill, Role::Decode] {
        let mut policy = Policies::all(Policy::RoundRobin);
        *(if role == Role::Decode { &mut policy.decode } else { &mut policy.prefill }) =
            Policy::LeastInFlight;
        let router = router(EngineKind::Sglang, policy, &MemoryNet::new());
        let service = router.shared.view.load().services[0].clone();
        let all = by_role(&router, role);
        // A hold on each but the first; by turns the next one would be another.
        let held: Vec<_> = (1..all.len())
            .map(|n| {
                let mut others = Excluded::default();
                all.iter().filter(|e| e.id != all[n].id).for_each(|e| others.add(e));
                pick_role(&service, role, &others).unwrap()
            })
            .collect();
        let next = pick_role(&service, role, &Excluded::default()).unwrap();
        assert_eq!((held.len(), next.endpoint().id), (all.len() - 1, all[0].id), "{role:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_excluded_or_withdrawn_is_not_chosen_in_its_role() {
    let router = router(EngineKind::Sglang, Policies::all(Policy::PowerOfTwo), &MemoryNet::new());
    let service = router.shared.view.load().services[0].clone();
    let mut excluded = Excluded::default();
    let (prefills, decodes) = (by_role(&router, Role::Prefill), by_role(&router, Role::Decode));
    excluded.add(decodes[0]);
    drain(&router, decodes[1], true).await;
    for _ in 0..20 {
        assert_eq!(pick_role(&service, Role::Decode, &excluded).unwrap().endpoint().id, decodes[2].id);
    }
    assert!(has_other(&service, Role::Decode, &excluded));
    excluded.add(decodes[2]);
    assert!(pick_role(&service, Role::Decode, &excluded).is_none());
    assert!(!has_other(&service, Role::Decode, &excluded));
    assert!(has_other(&service, Role::Prefill, &excluded) && has_other(&service, Role::Mixed, &excluded));
    excluded.add(by_role(&router, Role::Mixed)[0]);
    assert!(
        !has_other(&service, Role::Mixed, &excluded) && pick_role(&service, Role::Mixed, &excluded).is_none()
    );
    // An ejected one comes last.
    prefills[0].ejection.fail();
    for _ in 0..20 {
        assert_eq!(pick_role(&service, Role::Prefill, &excluded).unwrap().endpoint().id, prefills[1].id);
    }
    excluded.add(prefills[1]);
    assert_eq!(pick_role(&service, Role::Prefill, &excluded).unwrap().endpoint().id, prefills[0].id);
}

#[tokio::test(start_paused = true)]
async fn idle_connections_of_every_role_are_swept() {
    let router = router(EngineKind::Sglang, Policies::all(Policy::RoundRobin), &MemoryNet::new());
    let mut engines = Vec::new();
    for endpoint in router.endpoints() {
        let (ours, theirs) = MemoryStream::pair(1024);
        endpoint.pool.put(Conn::new(Io::Boxed(Box::new(ours)), 0));
        engines.push(theirs);
        assert_eq!(endpoint.pool.len(), 1);
    }
    eventually(Duration::from_secs(10), "pools are empty", || {
        let left: Vec<_> = router.endpoints().iter().filter(|e| !e.pool.is_empty()).map(|e| &e.url).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}
