//! Addresses: taken over by another Pod, shared by the Pods of a node, of both families.

use tandem::config::{Dialect, EngineKind, IpFamily, RouterConfig};
use tandem::testkit::engine::{Response, Script};
use tandem::testkit::kube::{FakeKube, set_ready};
use tandem::types::clock::now;
use tokio::time::sleep;

use super::rig::*;

const V6: &str = "2001:db8::5";

/// Two Pods at one address, the older one's end not told yet: the later one has it, the older one gets nothing.
#[tokio::test(start_paused = true)]
async fn an_address_belongs_to_the_later_of_two_pods_in_either_order_of_news() {
    for late in [false, true] {
        let api = FakeKube::new();
        api.create(pod("old", A));
        let world = World::new(plain(Dialect::Tandem), api);
        let a = world.engine(A);
        world.ready().await;
        let old = world.endpoint(A).unwrap().pod_uid;
        // News of the new one come first, or those of the old one once more after them.
        if late {
            world.api.overtake_next(1, secs(2));
            world.api.update("default", "old", |_| {});
        }
        let new = world.api.create(pod("new", A));
        let owner = || {
            let fleet = world.fleet().endpoints;
            let mut selectable = fleet.into_iter().filter(|e| e.selectable);
            (selectable.next().and_then(|e| e.pod_uid), selectable.next().is_some())
        };
        world.within(SOON, "taken over", || owner() == (Some(new.clone()), false)).await;
        let of_old = || world.fleet().endpoints.into_iter().find(|e| e.pod_uid == old).unwrap();
        assert_eq!(of_old().reason.as_deref(), Some("address_taken"));
        // Lists and events repeat both; the later one keeps it.
        for _ in 0..40 {
            world.api.update("default", "old", |_| {});
            sleep(secs(1)).await;
            assert_eq!(owner(), (Some(new.clone()), false), "late: {late}");
        }
        let before = chats(&a);
        assert_eq!(world.ask(3).await, [200; 3]);
        assert_eq!((chats(&a) - before, of_old().in_flight), (3, 0));
        // The later one gives it up while the older one still qualifies: the next list finds that.
        world.api.force_delete("default", "new");
        world.within(RELIST, "given back", || owner() == (old.clone(), false)).await;
        world.end(&[&a]).await;
    }
}

/// The old Pod's last news are older than the takeover, and it is deleted after it: the new one is not touched.
#[tokio::test(start_paused = true)]
async fn the_end_of_an_address_s_former_owner_leaves_the_new_one() {
    let api = FakeKube::new();
    api.create(pod("old", A));
    let world = World::new(plain(Dialect::Tandem), api);
    let a = world.engine(A);
    world.ready().await;
    let new = world.api.create(pod("new", A));
    world.within(SOON, "taken", || world.endpoint(A).unwrap().pod_uid.as_ref() == Some(&new)).await;
    let load = world.load(1, ms(20));
    world.api.update("default", "old", |pod| set_ready(pod, "False", None));
    sleep(secs(1)).await;
    world.api.delete("default", "old");
    sleep(secs(1)).await;
    world.api.finish_delete("default", "old");
    sleep(secs(20)).await;
    load.end_well().await;
    assert_eq!(world.selectable(), [A]);
    world.end(&[&a]).await;
}

/// `hostNetwork`: the node's address for each, told apart by port; identity is UID and port.
#[tokio::test(start_paused = true)]
async fn pods_of_one_host_network_are_told_apart_by_port() {
    let of = |name: &str, port: &str| {
        bare(name, A).host_network().label(ELIGIBLE, "true").annotation("tandem.dev/ports", port)
    };
    let api = FakeKube::new();
    let first = api.create(of("x", "8001"));
    api.create(of("y", "8002,8003"));
    let world = World::new(plain(Dialect::Tandem), api);
    let at = |port: u16| format!("{A}:{port}");
    let engines = [8001, 8002, 8003].map(|port| world.engine(&at(port)));
    world.ready().await;
    assert_eq!(world.selectable(), [at(8001), at(8002), at(8003)]);
    assert_eq!(world.ask(30).await, [200; 30]);
    assert!(engines.iter().all(|engine| chats(engine) > 0));
    assert_eq!(world.endpoint(&at(8001)).unwrap().pod_uid, Some(first));
    // One leaves: the others are not touched.
    world.api.force_delete("default", "y");
    world.within(SOON, "y left", || world.selectable() == [at(8001)]).await;
    let left = now();
    assert_eq!(world.ask(10).await, [200; 10]);
    // A third one takes the port of the second.
    world.api.create(of("z", "8002"));
    world.within(SOON, "z", || world.selectable() == [at(8001), at(8002)]).await;
    assert_eq!(world.ask(10).await, [200; 10]);
    none_after(&engines[2], left);
    world.router.assert_invariants(&engines.iter().collect::<Vec<_>>()).await;
}

fn family(family: IpFamily) -> RouterConfig {
    let mut config = plain(Dialect::Tandem);
    config.services[0].pods.as_mut().unwrap().ip_family = family;
    config
}

/// Bracketed in URL, `Host` and metrics; a Pod with link-local addresses only has none; an IPv4 address in IPv6 form is that.
#[tokio::test(start_paused = true)]
async fn b154_ipv6_addresses_are_bracketed_wherever_they_are_written() {
    let api = FakeKube::new();
    api.create(pod("six", V6));
    api.create(pod("zone", "fe80::1%eth0"));
    api.create(pod("local", "fe80::2"));
    api.create(pod("mapped", "::ffff:192.0.2.1"));
    let world = World::new(plain(Dialect::Tandem), api);
    let (six, four) = (world.engine(V6), world.engine(A));
    world.ready().await;
    assert_eq!(world.selectable(), [A, "[2001:db8::5]"]);
    for (name, address) in [("zone", "fe80::1%eth0"), ("local", "fe80::2")] {
        assert_eq!(world.reason(name).as_deref(), Some("no_address"));
        assert_eq!(world.detail(name), format!("no usable address among {address}"));
    }
    assert_eq!(world.ask(10).await, [200; 10]);
    let request = &six.log.requests_to(CHAT)[0];
    assert_eq!(request.headers.get("host"), Some("[2001:db8::5]:8000"));
    assert_eq!(four.log.requests_to(CHAT)[0].headers.get("host"), Some("192.0.2.1:8000"));
    let labels = [("url", "http://[2001:db8::5]:8000"), ("role", "mixed")];
    assert!(world.metric("tandem_endpoint_requests_total", &labels) > 0.0);
    let observed = (world.router.admin.observe)().unwrap();
    let observed: serde_json::Value = serde_json::from_slice(&observed).unwrap();
    assert_eq!(observed["workers"][1]["url"], "http://[2001:db8::5]:8000");
    world.router.assert_invariants(&[&six, &four]).await;
}

/// The first address unless a family is asked for; a Pod without one of that family says so.
#[tokio::test(start_paused = true)]
async fn b154_of_a_dual_stack_pod_the_configured_family_is_used() {
    let orders = [[A, V6], [V6, A]];
    for (config, wanted) in [
        (IpFamily::Primary, [A, "[2001:db8::5]"]),
        (IpFamily::V4, [A, A]),
        (IpFamily::V6, ["[2001:db8::5]", "[2001:db8::5]"]),
    ] {
        for (order, wanted) in orders.iter().zip(wanted) {
            let api = FakeKube::new();
            api.create(
                order
                    .iter()
                    .fold(bare("x", order[0]).label(ELIGIBLE, "true"), |pod, ip| pod.ip(ip))
                    .port("http", 8000),
            );
            let only = if config == IpFamily::V4 { "2001:db8::6" } else { B };
            api.create(pod("one", only));
            let world = World::new(family(config), api);
            let engines = [world.engine(A), world.engine(V6), world.engine(only)];
            world.ready().await;
            assert!(
                world.selectable().contains(&wanted.to_owned()),
                "{config:?} {order:?}: {:?}",
                world.selectable()
            );
            let usable = config == IpFamily::Primary;
            assert_eq!(world.reason("one").is_none() && world.selectable().len() == 2, usable, "{config:?}");
            if !usable {
                assert!(world.detail("one").contains("address among"), "{}", world.detail("one"));
            }
            assert_eq!(world.ask(4).await, [200; 4]);
            world.router.assert_invariants(&engines.iter().collect::<Vec<_>>()).await;
        }
    }
}

/// What an SGLang decode is told to connect to: the engine takes an IPv6 address in brackets.
#[tokio::test(start_paused = true)]
async fn b154_the_bootstrap_host_of_an_ipv6_prefill_is_bracketed() {
    let api = FakeKube::new();
    api.create(pod("p", V6).label(ROLE, "prefill").annotation("tandem.dev/bootstrap-port", "8998"));
    api.create(pod("d", "2001:db8::6").label(ROLE, "decode"));
    let world = World::new(with(EngineKind::Sglang, Dialect::Tandem), api);
    let (p, d) = (world.engine(V6), world.engine("2001:db8::6"));
    let boot = world.serve(&format!("{V6}:8998"), Script::always(Response::json(200, "{}")));
    world.ready().await;
    world.until("both", || world.selectable().len() == 2).await;
    assert_eq!(world.ask(2).await, [200; 2]);
    for engine in [&p, &d] {
        let body = engine.log.requests_to(CHAT)[0].json();
        assert_eq!(
            (body["bootstrap_host"].as_str(), body["bootstrap_port"].as_u64()),
            (Some("[2001:db8::5]"), Some(8998))
        );
    }
    assert_eq!(boot.log.requests()[0].headers.get("host"), Some("[2001:db8::5]:8998"));
    world.router.assert_pair_invariants(&[&p, &boot], &[&d]).await;
}
