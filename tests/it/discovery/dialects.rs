//! One fleet for each dialect, as its operator labels it.

use tandem::config::{Dialect, EligibleKey, EngineKind, Mode, RouterConfig};
use tandem::testkit::engine::{Response, Script};
use tandem::testkit::kube::{FakeKube, PodSpec, set_ready};
use tokio::time::sleep;

use super::rig::*;

const SGLANG: EngineKind = EngineKind::Sglang;
const MARK: &str = "modeldeployment.gpustack.ai/endpoint-eligible";
const KIND: &str = "modeldeployment.gpustack.ai/role-kind";

/// Address and port, role, model, revision and token of every selectable endpoint.
fn facts(world: &World) -> Vec<[String; 5]> {
    let one = |e: tandem::admin::EndpointStatus| {
        let named = [e.model, e.revision, e.pairing_token].map(Option::unwrap_or_default);
        let [model, revision, token] = named;
        [e.url.replace("http://", ""), e.role.into_owned(), model, revision, token]
    };
    world.fleet().endpoints.into_iter().filter(|e| e.selectable).map(one).collect()
}

fn row(at: &str, role: &str, model: &str, revision: &str, token: &str) -> [String; 5] {
    [at, role, model, revision, token].map(str::to_owned)
}

async fn fleet(config: RouterConfig, pods: Vec<PodSpec>) -> World {
    let api = FakeKube::new();
    for pod in pods {
        api.create(pod);
    }
    let world = World::new(config, api);
    world.ready().await;
    world
}

#[tokio::test(start_paused = true)]
async fn tandem() {
    let of = |name: &str, ip: &str, role: &str| {
        pod(name, ip)
            .label(ROLE, role)
            .label("tandem.dev/model", "m")
            .label("tandem.dev/revision", "r1")
            .label("tandem.dev/pairing-token", "kv-v1")
    };
    let unmarked = bare("u", "192.0.2.4").label(ROLE, "decode").port("http", 8000);
    let all = vec![of("p", A, "prefill"), of("d", B, "decode"), of("m", C, "mixed"), unmarked];
    let world = fleet(with(NIXL, Dialect::Tandem), all).await;
    let wanted = [("192.0.2.1:8000", "prefill"), ("192.0.2.2:8000", "decode"), ("192.0.2.3:8000", "mixed")];
    assert_eq!(facts(&world), wanted.map(|(at, role)| row(at, role, "m", "r1", "kv-v1")));
    assert_eq!(world.reason("u").as_deref(), Some("not_eligible"));
    world.router.assert_invariants(&[]).await;
}

fn gpustack(name: &str, ip: &str, kind: &str) -> PodSpec {
    bare(name, ip).label(KIND, kind).annotation("prometheus.io/port", "30000").port("http", 30000)
}

/// Mixed needs the mark from the start; prefill and decode from when the fleet carries it; what a role has learnt outlives
/// the process.
#[tokio::test(start_paused = true)]
async fn gpustack_s_mark_counts_for_pairs_once_the_fleet_carries_it_and_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = with(NIXL, Dialect::Gpustack);
    config.state_file = Some(dir.path().join("state.json"));
    let all = vec![gpustack("p", A, "prefill"), gpustack("d", B, "decode"), gpustack("m", C, "server")];
    let world = fleet(config.clone(), all).await;
    let at = |ip: &str| format!("{ip}:30000");
    assert_eq!(world.selectable(), [at(A), at(B)], "no mark needed yet, except of a server");
    assert_eq!(world.reason("m").as_deref(), Some("not_eligible"));
    sleep(secs(120)).await;
    assert_eq!(world.selectable(), [at(A), at(B)], "none marked never latches");
    world.api.update("default", "p", |pod| set_label(pod, MARK, Some("true")));
    world
        .within(SOON, "latched", || world.metric("tandem_eligibility_latched", &[("role", "prefill")]) > 0.5)
        .await;
    assert_eq!(world.metric("tandem_eligibility_latched", &[("role", "decode")]), 0.0);
    world.api.update("default", "p", |pod| set_label(pod, MARK, None));
    world.within(SOON, "withdrawn", || world.selectable() == [at(B)]).await;
    assert_eq!(world.reason(&at(A)).as_deref(), Some("not_eligible"));
    // A new process knows it from the file, and asks for the mark from its first list on.
    let World { api, router, .. } = world;
    drop(router);
    let world = World::new(config, api);
    world.ready().await;
    assert_eq!(world.selectable(), [at(B)]);
    assert_eq!(world.metric("tandem_eligibility_latched", &[("role", "prefill")]), 1.0);
    world.api.update("default", "p", |pod| set_label(pod, MARK, Some("true")));
    world.within(SOON, "back", || world.selectable() == [at(A), at(B)]).await;
    let observed = world.router.shared.observer_in_front;
    assert!(observed, "its consumer reads the observer document at the front door");
    world.router.assert_invariants(&[]).await;
}

/// Half of a role for two relists with no newly marked one is enough.
#[tokio::test(start_paused = true)]
async fn gpustack_s_mark_on_half_of_a_role_counts_after_two_quiet_relists() {
    let of = |n: usize| gpustack(&format!("d{n}"), &format!("192.0.2.{}", n + 10), "decode");
    let mut all: Vec<_> = (0..4).map(of).collect();
    all.push(gpustack("p", A, "prefill"));
    let world = fleet(with(NIXL, Dialect::Gpustack), all).await;
    assert_eq!(world.selectable().len(), 5);
    for n in 0..2 {
        world.api.update("default", &format!("d{n}"), |pod| set_label(pod, MARK, Some("true")));
    }
    sleep(secs(5)).await;
    assert_eq!(world.selectable().len(), 5, "not yet");
    world.within(secs(46), "latched", || world.selectable().len() == 3).await;
    assert_eq!(world.reason("192.0.2.12:30000").as_deref(), Some("not_eligible"));
    world.router.assert_invariants(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn ome() {
    let of = |name: &str, ip: &str, component: &str, hash: &str| {
        bare(name, ip)
            .label("component", component)
            .label("ome.io/revision-hash", hash)
            .label("ome.io/pairing-protocol", "v1")
            .port("http", 8080)
    };
    let boot = "sglang.ai/bootstrap-port";
    let all = vec![
        of("e", A, "engine", "e1").annotation(boot, "8998"),
        of("d", B, "decoder", "d1"),
        of("r", C, "router", "r1"),
    ];
    let world = fleet(with(SGLANG, Dialect::Ome), all).await;
    let server = world.serve(&format!("{A}:8998"), Script::always(Response::json(200, "{}")));
    world.until("both", || world.selectable().len() == 2).await;
    let wanted =
        [row("192.0.2.1:8080", "prefill", "", "e1", "v1"), row("192.0.2.2:8080", "decode", "", "d1", "v1")];
    assert_eq!(facts(&world), wanted);
    assert_eq!(
        (world.reason("r"), world.detail("r")),
        (Some("wrong_role".into()), "component is \"router\"".into())
    );
    world.router.assert_invariants(&[&server]).await;
    // An engine alone is a whole one.
    let whole =
        fleet(plain(Dialect::Ome), vec![of("e", A, "engine", "e1"), of("r", C, "router", "r1")]).await;
    assert_eq!(facts(&whole), [row("192.0.2.1:8080", "mixed", "", "e1", "v1")]);
}

#[tokio::test(start_paused = true)]
async fn infera() {
    let info = "infera.amd.com/worker-info";
    let of = |name: &str, ip: &str, mode: &str, more: &str| {
        let document =
            format!(r#"{{"url":"http://{ip}:9000","model_name":"m","disagg_mode":"{mode}"{more}}}"#);
        bare(name, ip).annotation(info, &document)
    };
    let all = vec![
        of("p", A, "prefill", r#","disagg_meta":{"bootstrap_addr":"192.0.2.1:8555"}"#),
        of("d", B, "decode", ""),
        of("m", C, "mixed", ""),
        bare("waiting", "192.0.2.4"),
        bare("broken", "192.0.2.5").annotation(info, "{\"url\":"),
        bare("portless", "192.0.2.6").annotation(info, r#"{"url":"http://192.0.2.6"}"#),
    ];
    let world = fleet(with(SGLANG, Dialect::Infera), all).await;
    let server = world.serve(&format!("{A}:8555"), Script::always(Response::json(200, "{}")));
    world.until("all", || world.selectable().len() == 3).await;
    let wanted = [("192.0.2.1:9000", "prefill"), ("192.0.2.2:9000", "decode"), ("192.0.2.3:9000", "mixed")];
    assert_eq!(facts(&world), wanted.map(|(at, role)| row(at, role, "m", "", "")));
    assert!(world.reason("waiting").is_some(), "it has not registered");
    assert_eq!(
        (world.reason("broken").as_deref(), world.reason("portless").as_deref()),
        (Some("no_port"), Some("no_port"))
    );
    // A worker that takes its document back is out.
    world.api.update("default", "m", |pod| pod["metadata"]["annotations"] = serde_json::json!({}));
    world.within(SOON, "out", || world.selectable().len() == 2).await;
    world.router.assert_invariants(&[&server]).await;
}

#[tokio::test(start_paused = true)]
async fn llm_d() {
    let of = |name: &str, ip: &str, role: &str| {
        bare(name, ip)
            .label("llm-d.ai/role", role)
            .label("llm-d.ai/model", "m")
            .label("disaggregatedset.x-k8s.io/revision", "7")
            .annotation("llm-d.ai/active-ports", "8000,8001")
    };
    let roles = ["prefill", "decode", "both", "mixed", "prefill-decode", "decode-prefill"];
    let all =
        roles.iter().enumerate().map(|(n, role)| of(&format!("x{n}"), &format!("192.0.2.{}", n + 1), role));
    let world = fleet(with(NIXL, Dialect::LlmD), all.collect()).await;
    let found: Vec<String> = facts(&world).into_iter().map(|[_, role, ..]| role).collect();
    let wanted = ["prefill", "decode", "mixed", "mixed", "mixed", "mixed"];
    assert_eq!(found, wanted.iter().flat_map(|role| [*role; 2]).collect::<Vec<_>>(), "two ports each");
    assert_eq!(facts(&world)[1], row("192.0.2.1:8001", "prefill", "m", "7", ""));
    world.router.assert_invariants(&[]).await;
}

/// Their gateways tell roles by selectors of their own.
#[tokio::test(start_paused = true)]
async fn sglang_and_vllm_tell_roles_by_selectors() {
    for (dialect, key) in
        [(Dialect::Sglang, "sglang.ai/bootstrap-port"), (Dialect::Vllm, "vllm.ai/bootstrap-port")]
    {
        let kind = if dialect == Dialect::Sglang { SGLANG } else { NIXL };
        let mut config = with(kind, dialect);
        let roles = &mut config.services[0].pods.as_mut().unwrap().role_selectors;
        let labels = |value: &str| [("part".to_owned(), value.to_owned())].into();
        (roles.prefill, roles.decode) = (labels("prefill"), labels("decode"));
        let part = |name: &str, ip: &str, part: &str| bare(name, ip).label("part", part).port("http", 8000);
        let all = vec![
            part("p", A, "prefill").annotation(key, "8998"),
            part("d", B, "decode"),
            part("x", C, "frontend"),
        ];
        let world = fleet(config, all).await;
        let server = world.serve(&format!("{A}:8998"), Script::always(Response::json(200, "{}")));
        world.until("both", || world.selectable() == [A, B]).await;
        assert_eq!(world.reason("x").as_deref(), Some("wrong_role"));
        if dialect == Dialect::Sglang {
            world.api.update("default", "d", |pod| {
                pod["metadata"]["annotations"] = serde_json::json!({ "smg.ai/worker-ports": "8000,8001" });
            });
            let second = format!("{B}:8001");
            world.within(SOON, "two ports", || world.selectable().contains(&second)).await;
        }
        // A Pod whose role label goes is no more of the service, whatever else it is.
        world.api.update("default", "d", |pod| set_label(pod, "part", None));
        world.within(SOON, "out", || world.selectable() == [A]).await;
        world.router.assert_invariants(&[&server]).await;
    }
}

/// Every key can be another one; a mode can be another one for each role.
#[tokio::test(start_paused = true)]
async fn keys_and_modes_can_be_others_than_the_dialect_s() {
    let mut config = with(NIXL, Dialect::Vllm);
    let keys = &mut config.services[0].pods.as_mut().unwrap().keys;
    keys.role = Some("x/role".to_owned());
    keys.eligible = Some(EligibleKey { key: "x/mark".to_owned(), value: None });
    keys.token = Some("x/token".to_owned());
    config.services[0].eligibility.decode = Some(Mode::Required);
    let of = |name: &str, ip: &str, role: &str| bare(name, ip).label("x/role", role).label("x/token", "t");
    let all = vec![
        of("p", A, "prefill"),
        of("d", B, "decode"),
        of("d2", C, "decode").annotation("x/mark", "anything"),
    ];
    let world = fleet(config, all).await;
    let wanted =
        [row("192.0.2.1:8000", "prefill", "", "", "t"), row("192.0.2.3:8000", "decode", "", "", "t")];
    assert_eq!(facts(&world), wanted);
    world.api.update("default", "d2", |pod| set_ready(pod, "False", None));
    world.within(SOON, "out", || world.selectable() == [A]).await;
    world.router.assert_invariants(&[]).await;
}
