//! Roles, models and revisions change under a Pod, and addresses move between them: each is one thing at a time.

use std::sync::Arc;

use tandem::config::{Dialect, RouterConfig};
use tandem::registry::Role;
use tandem::testkit::engine::EngineHandle;
use tandem::testkit::kube::FakeKube;
use tandem::types::clock::{Instant, now};
use tokio::time::sleep;

use super::rig::*;

/// Every endpoint in the service's lists that is selectable, at this address: its roles.
fn roles(world: &World, ip: &str) -> Vec<Role> {
    let snapshot = world.router.shared.view.load();
    let all = snapshot.services.iter().flat_map(|service| service.all());
    all.filter(|e| e.host == ip && e.is_selectable()).map(|e| e.role).collect()
}

fn is_prefill(request: &tandem::testkit::engine::RecordedRequest) -> bool {
    request.json()["kv_transfer_params"]["do_remote_decode"] == true
}

/// A role that the Pod was given: when that was said, and when the router had seen it.
struct Turn {
    said: Instant,
    seen: Instant,
    role: Role,
}

/// No work of a role before the Pod had it, none after the router knew that it has another. A leg that started before may
/// be seen up to 50 ms later (I3).
fn assert_roles_kept(engine: &EngineHandle, turns: &[Turn]) {
    for request in engine.log.requests_to(CHAT) {
        let (role, at) = (if is_prefill(&request) { Role::Prefill } else { Role::Decode }, request.head_at);
        let over = |n: usize| turns.get(n + 1).is_some_and(|next| at > next.seen + SOON);
        let fits = turns.iter().enumerate().any(|(n, turn)| turn.role == role && turn.said <= at && !over(n));
        assert!(fits, "{role:?} at {at:?}");
    }
}

async fn flip(revisions: bool) {
    let api = FakeKube::new();
    api.create(pod("p0", A).label(ROLE, "prefill"));
    api.create(pod("d0", B).label(ROLE, "decode"));
    api.create(pod("flips", C).label(ROLE, "prefill"));
    let world = World::new(with(NIXL, Dialect::Tandem), api);
    let (p, d, f) = (
        world.serve(A, vllm_either("p")),
        world.serve(B, vllm_either("d")),
        world.serve(C, vllm_either("f")),
    );
    world.ready().await;
    let load = world.load(2, ms(4));
    let mut turns = vec![Turn { said: now() - secs(1), seen: now(), role: Role::Prefill }];
    for turn in 0..50 {
        let (label, role) = if turn % 2 == 0 { ("decode", Role::Decode) } else { ("prefill", Role::Prefill) };
        let said = now();
        world.api.update("default", "flips", |pod| {
            set_label(pod, ROLE, Some(label));
            if revisions {
                set_label(pod, "tandem.dev/revision", Some(&format!("r{turn}")));
            }
        });
        loop {
            let now_is = roles(&world, C);
            assert!(now_is.len() <= 1, "{now_is:?}");
            assert_eq!(
                (roles(&world, A), roles(&world, B)),
                (vec![Role::Prefill], vec![Role::Decode]),
                "untouched"
            );
            if now_is == [role] {
                break;
            }
            sleep(ms(1)).await;
        }
        turns.push(Turn { said, seen: now(), role });
        sleep(ms(120)).await;
        assert_eq!(roles(&world, C), [role]);
    }
    let asked = load.end_well().await;
    assert_roles_kept(&f, &turns);
    let (as_prefill, as_decode): (Vec<_>, Vec<_>) = f.log.requests_to(CHAT).into_iter().partition(is_prefill);
    assert!(
        as_prefill.len() > 50 && as_decode.len() > 50,
        "{} and {} of {asked}",
        as_prefill.len(),
        as_decode.len()
    );
    assert!(
        p.log.requests_to(CHAT).iter().all(is_prefill) && !d.log.requests_to(CHAT).iter().any(is_prefill)
    );
    if revisions {
        assert_eq!(world.endpoint(C).unwrap().revision.as_deref(), Some("r49"));
    }
    sleep(secs(40)).await;
    world.end_of_pairs(&[&p, &f], &[&d]).await;
}

#[tokio::test(start_paused = true)]
async fn b76_a_role_that_flips_under_load_is_one_role_at_every_instant() {
    flip(false).await;
}

#[tokio::test(start_paused = true)]
async fn b76_a_group_label_that_changes_with_the_role_leaves_one_incarnation() {
    flip(true).await;
}

fn two_models() -> RouterConfig {
    let mut config = with(NIXL, Dialect::Tandem);
    let named = |name: &str| {
        let models = vec![name.to_owned()];
        tandem::config::Service { models, ..service(name, NIXL, Dialect::Tandem) }
    };
    config.services = vec![named("model-a"), named("model-b")];
    config
}

/// The same address, first a prefill of one model, then a decode of another, again and again.
#[tokio::test(start_paused = true)]
async fn b83_an_address_registered_again_as_another_model_and_role_is_that_alone() {
    for same_pod in [true, false] {
        let api = FakeKube::new();
        let of = |name: &str, ip: &str, model: &str, role: &str| {
            pod(name, ip).label("tandem.dev/model", model).label(ROLE, role)
        };
        api.create(of("d-a", "192.0.2.11", "model-a", "decode"));
        api.create(of("p-b", "192.0.2.12", "model-b", "prefill"));
        api.create(of("d-b", "192.0.2.13", "model-b", "decode"));
        let world = World::new(two_models(), api);
        let engines: Vec<_> =
            [A, "192.0.2.11", "192.0.2.12", "192.0.2.13"].map(|ip| world.serve(ip, vllm_either(ip))).into();
        world.ready().await;
        let lists = || {
            let snapshot = world.router.shared.view.load();
            let of = |index: usize, role| {
                snapshot.services[index].of(role).iter().filter(|e| e.host == A && e.is_selectable()).count()
            };
            [of(0, Role::Prefill), of(0, Role::Decode), of(1, Role::Prefill), of(1, Role::Decode)]
        };
        for turn in 0..3 {
            if same_pod && turn > 0 {
                world.api.update("default", "x", |pod| {
                    set_label(pod, "tandem.dev/model", Some("model-a"));
                    set_label(pod, ROLE, Some("prefill"));
                });
            } else {
                world.api.create(of("x", A, "model-a", "prefill"));
            }
            world.within(SOON, "prefill of a", || lists() == [1, 0, 0, 0]).await;
            assert_eq!(world.ask_for("model-a").await.0, 200);
            if same_pod {
                world.api.update("default", "x", |pod| {
                    set_label(pod, "tandem.dev/model", Some("model-b"));
                    set_label(pod, ROLE, Some("decode"));
                });
            } else {
                world.api.force_delete("default", "x");
                world.api.create(of("x", A, "model-b", "decode"));
            }
            let is_b = || lists()[3] == 1 && roles(&world, A) == [Role::Decode];
            world.within(SOON, "decode of b", is_b).await;
            assert_eq!(world.ask_for("model-a").await.0, 503, "turn {turn}: no prefill of a is left");
            // The same said again changes nothing.
            for _ in 0..3 {
                world.api.update("default", "x", |_| {});
            }
            sleep(ms(100)).await;
            let before = chats(&engines[0]);
            for _ in 0..20 {
                assert_eq!(world.ask_for("model-b").await.0, 200);
            }
            let share = chats(&engines[0]) - before;
            assert!((4..=16).contains(&share), "one of two decodes: {share} of 20");
            let pool = world.metric("tandem_endpoints", &[("service", "model-b"), ("reason", "selectable")]);
            assert_eq!(pool, 3.0);
            if !same_pod {
                world.api.force_delete("default", "x");
                world.within(SOON, "gone", || lists() == [0; 4]).await;
            }
        }
        sleep(secs(60)).await;
        let departed = world.router.shared.view.load().departed.len();
        assert_eq!(departed, 0, "nothing is kept of what left");
        let all: Vec<&EngineHandle> = engines.iter().collect();
        world.router.assert_pair_invariants(&all, &[]).await;
    }
}

/// Another port, address, revision or token under one UID is a new incarnation: the old one's guards keep the old facts.
#[tokio::test(start_paused = true)]
async fn b71_a_changed_port_or_address_is_used_by_the_next_request() {
    let api = FakeKube::new();
    api.create(bare("x", A).label(ELIGIBLE, "true").annotation("tandem.dev/ports", "8000"));
    let world = World::new(plain(Dialect::Tandem), api);
    let first = world.serve(&format!("{A}:8000"), slow("first", 40, ms(100)));
    let second = world.engine(&format!("{A}:8001"));
    let third = world.engine(&format!("{B}:8001"));
    world.ready().await;
    let stream = world.stream().await;
    let old = Arc::clone(&world.router.shared.view.load().services[0].endpoints[0]);
    old.put_last(&"a failure of the old port");
    world
        .api
        .update("default", "x", |pod| pod["metadata"]["annotations"]["tandem.dev/ports"] = "8001".into());
    world.within(SOON, "the new port", || world.selectable() == [format!("{A}:8001")]).await;
    assert_eq!(world.ask(5).await, [200; 5]);
    assert_eq!((chats(&first), chats(&second)), (1, 5));
    assert_eq!((old.holds(), old.reason().as_str()), (1, "replaced"));
    let new = world.fleet().endpoints.into_iter().find(|e| e.selectable).unwrap();
    assert!(!new.ejected && new.in_flight == 0, "nothing of the old one's faults or load");
    world.api.update("default", "x", |pod| {
        pod["status"]["podIP"] = B.into();
        pod["status"]["podIPs"] = serde_json::json!([{ "ip": B }]);
    });
    world.within(SOON, "the new address", || world.selectable() == [format!("{B}:8001")]).await;
    assert_eq!(world.ask(5).await, [200; 5]);
    assert_eq!((chats(&first), chats(&second), chats(&third)), (1, 5, 5));
    assert_eq!(stream.await.unwrap(), (200, true));
    assert_eq!(
        (second.log.open_connections(), first.log.open_connections()),
        (0, 0),
        "old connections are closed"
    );
    world.router.assert_invariants(&[&first, &second, &third]).await;
}
