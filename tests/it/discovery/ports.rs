//! Which ports a Pod gives, and what is said of one that gives none (B73).

use tandem::config::{Dialect, Port, RouterConfig};
use tandem::testkit::kube::{FakeKube, PodSpec};
use tokio::time::sleep;

use super::rig::*;

fn with_ports(ports: Vec<Port>) -> RouterConfig {
    let mut config = plain(Dialect::Tandem);
    config.services[0].pods.as_mut().unwrap().ports = ports;
    config
}

fn name(name: &str) -> Port {
    Port::Name(name.to_owned())
}

fn marked(pod: &str, ip: &str) -> PodSpec {
    bare(pod, ip).label(ELIGIBLE, "true")
}

/// Said in words, counted once, and nobody else is affected.
#[tokio::test(start_paused = true)]
async fn b73_a_pod_without_the_port_is_named_counted_and_left_alone() {
    let api = FakeKube::new();
    api.create(pod("good", A));
    api.create(marked("other-port", B).port("api", 8300));
    api.create(marked("bad-annotation", C).annotation("tandem.dev/ports", "8000,http"));
    let world = World::new(plain(Dialect::Tandem), api);
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    assert_eq!(world.selectable(), [A]);
    assert_eq!(world.ask(5).await, [200; 5]);
    assert_eq!(world.reason("other-port").as_deref(), Some("no_port"));
    assert_eq!(world.detail("other-port"), "no container declares port 8000; declared: api (8300)");
    assert_eq!(world.detail("bad-annotation"), "tandem.dev/ports: \"http\" is no port");
    let skipped = || world.metric("tandem_discovery_skipped_objects_total", &[("reason", "no_port")]);
    assert_eq!(skipped(), 2.0);
    assert_eq!(world.metric("tandem_pods_without_endpoint", &[("reason", "no_port")]), 2.0);
    for _ in 0..20 {
        world.api.update("default", "other-port", |_| {});
        sleep(secs(3)).await;
    }
    assert_eq!((skipped(), b.log.conns().len()), (2.0, 0), "once for each Pod");
    world.api.update("default", "other-port", |pod| {
        pod["metadata"]["annotations"] = serde_json::json!({ "tandem.dev/ports": "8300" });
    });
    world.within(SOON, "by its annotation", || world.selectable().contains(&format!("{B}:8300"))).await;
    world.router.assert_invariants(&[&a, &b]).await;
}

/// Number, name, annotation; several; sidecars first; none declared.
#[tokio::test(start_paused = true)]
async fn b73_the_rules_of_ports() {
    let sidecar_first = || PodSpec::new("x").label("app", "llm").label(ELIGIBLE, "true").ip(A);
    let cases: Vec<(Vec<Port>, PodSpec, &[u16])> = vec![
        (vec![Port::Number(8000)], marked("x", A), &[8000]),
        (
            vec![Port::Number(8000)],
            sidecar_first().port("proxy", 15001).container("engine").port("http", 8000),
            &[8000],
        ),
        (
            vec![name("http")],
            sidecar_first().port("proxy", 15001).container("engine").port("http", 8300),
            &[8300],
        ),
        (vec![name("http")], marked("x", A).port("api", 8300), &[]),
        (vec![name("http")], marked("x", A), &[]),
        (vec![name("a"), name("b")], marked("x", A).port("a", 1).port("b", 2), &[1, 2]),
        (vec![name("a"), name("b")], marked("x", A).port("a", 7).port("b", 7), &[7]),
        (
            vec![Port::Number(8000)],
            marked("x", A).port("http", 8000).annotation("tandem.dev/ports", "9000, 9001,9000"),
            &[9000, 9001],
        ),
        (
            vec![Port::Number(8000)],
            marked("x", A).port("http", 8000).annotation("tandem.dev/ports", ""),
            &[8000],
        ),
        (vec![Port::Number(8000)], marked("x", A).annotation("tandem.dev/ports", "0"), &[]),
        (vec![Port::Number(8000)], marked("x", A).annotation("tandem.dev/ports", "8000,"), &[]),
    ];
    for (n, (ports, pod, wanted)) in cases.into_iter().enumerate() {
        let api = FakeKube::new();
        api.create(pod);
        let world = World::new(with_ports(ports), api);
        let engines: Vec<_> = wanted.iter().map(|port| world.engine(&format!("{A}:{port}"))).collect();
        world.ready().await;
        let mut found: Vec<_> =
            world.fleet().endpoints.into_iter().filter(|e| e.selectable).map(|e| e.url).collect();
        let mut urls: Vec<_> = wanted.iter().map(|port| format!("http://{A}:{port}")).collect();
        found.sort();
        urls.sort();
        assert_eq!(found, urls, "case {n}");
        if wanted.is_empty() {
            assert_eq!(
                (world.reason("x").as_deref(), world.ask(1).await),
                (Some("no_port"), vec![503]),
                "case {n}"
            );
        } else {
            assert_eq!(world.ask(20).await, [200; 20], "case {n}");
            assert!(engines.iter().all(|engine| chats(engine) > 0), "case {n}: every port serves");
        }
        world.router.assert_invariants(&engines.iter().collect::<Vec<_>>()).await;
    }
}

/// Data-parallel ranks: one more or less under the same Pod touches only that one.
#[tokio::test(start_paused = true)]
async fn ports_that_come_and_go_under_one_pod_leave_the_others() {
    let api = FakeKube::new();
    api.create(marked("x", A).annotation("tandem.dev/ports", "8000,8001"));
    let world = World::new(plain(Dialect::Tandem), api);
    let engines = [8000, 8001, 8002].map(|port| world.engine(&format!("{A}:{port}")));
    world.ready().await;
    let ids = || {
        world
            .fleet()
            .endpoints
            .into_iter()
            .filter(|e| e.selectable)
            .map(|e| (e.url, e.id))
            .collect::<Vec<_>>()
    };
    let before = ids();
    let load = world.load(2, ms(10));
    world.api.update("default", "x", |pod| {
        pod["metadata"]["annotations"]["tandem.dev/ports"] = "8001,8002".into();
    });
    let now_is = [format!("{A}:8001"), format!("{A}:8002")];
    world.within(SOON, "another rank", || world.selectable() == now_is).await;
    sleep(secs(1)).await;
    load.end_well().await;
    assert_eq!(ids()[0], before[1], "the one that stayed is the same");
    assert!(chats(&engines[2]) > 0);
    world.router.assert_invariants(&engines.iter().collect::<Vec<_>>()).await;
}
