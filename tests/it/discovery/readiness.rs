//! Ready when the endpoints are known, and from then on (B89, I9).

use tandem::config::{Dialect, EngineKind, LogSink, RouterConfig, StaticEndpoint};
use tandem::testkit::client::{RawClient, RawResponse};
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, Response, Script, Step};
use tandem::testkit::fixtures::{chat_body, post_chat, request_head};
use tandem::testkit::kube::{Credentials, FakeKube, Fault, RequestKind};
use tandem::types::clock::now;
use tokio::time::sleep;

use super::rig::*;
use super::silence::{at, wait};

async fn answer(world: &World, model: &str) -> RawResponse {
    world.client().await.request(&post_chat(chat_body(model, false))).await.unwrap()
}

fn awaited(world: &World) -> Vec<String> {
    (world.router.admin.readiness)().awaiting.into_iter().map(Into::into).collect()
}

/// Nothing is served before the first complete list, and everything right after it.
#[tokio::test(start_paused = true)]
async fn b89_unready_until_the_first_list_is_applied() {
    let api = FakeKube::new();
    api.create(pod("p1", A));
    api.push(RequestKind::List, Fault::Late(secs(10)));
    let world = World::new(plain(Dialect::Tandem), api);
    let a = world.engine(A);
    let began = now();
    while now() - began < ms(9_900) {
        assert!(!world.is_ready());
        assert_eq!(awaited(&world), ["endpoints of default (first list)"]);
        let seen = answer(&world, "m").await;
        assert_eq!(seen.status(), 503);
        assert!(seen.header("retry-after").is_some_and(|after| after.parse::<u64>().is_ok()), "{seen:?}");
        assert!((world.router.admin.observe)().is_err(), "nothing truthful can be said yet");
        sleep(ms(700)).await;
    }
    world.within(ms(200), "ready", || world.is_ready()).await;
    assert_eq!(now().duration_since(began).as_secs(), 10);
    assert_eq!(world.ask(3).await, [200; 3]);
    assert_eq!(world.api.lists(), 1, "no second one was sent after it");
    world.end(&[&a]).await;
}

/// The same of a whole process over HTTP: `/livez`, `/readyz` and the front door.
#[tokio::test]
async fn b89_live_and_unready_on_the_wire_until_the_first_list() {
    let api = FakeKube::new();
    let engine = Engine::start_tcp(Script::always(chat_json("hello"))).await;
    api.create(at("p1", engine.addr()));
    api.push(RequestKind::List, Fault::Late(secs(2)));
    let server = api.serve().await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = plain(Dialect::Tandem);
    config.kubernetes.kubeconfig = Some(server.kubeconfig(dir.path(), Credentials::Nobody));
    config.admin.listen = "127.0.0.1:0".parse().unwrap();
    config.shutdown.delay = ms(0);
    config.access_log.sink = LogSink::Off;
    let started = tandem::app::start(config, None, None).unwrap();
    let admin = async |path: &str| {
        let get = request_head("GET", path, &["Connection: close"]);
        let answer = RawClient::connect(started.admin_at).await.request(&get).await.unwrap();
        (answer.status(), answer.text())
    };
    let chat = async || {
        RawClient::connect(started.front).await.request(&post_chat(chat_body("m", false))).await.unwrap()
    };
    wait("a list under way", || api.lists() == 1).await;
    assert_eq!(admin("/livez").await, (200, "ok\n".to_owned()));
    let (status, text) = admin("/readyz").await;
    assert_eq!((status, text.contains("endpoints of default (first list)")), (503, true), "{text}");
    assert_eq!(admin("/observer/endpoints").await.0, 503);
    let early = chat().await;
    assert_eq!((early.status(), early.header("retry-after").is_some()), (503, true));
    wait("ready", || (started.admin.readiness)().ready).await;
    assert_eq!((admin("/readyz").await.0, chat().await.status()), (200, 200));
    assert_eq!(admin("/observer/endpoints").await.0, 200);
    // Lost later.
    drop(server);
    sleep(secs(1)).await;
    assert_eq!((admin("/readyz").await.0, admin("/livez").await.0, chat().await.status()), (200, 200, 200));
    started.leave(std::future::ready(())).await;
}

/// Unreachable at the start: not ready, and the process lives; lost later: ready.
#[tokio::test(start_paused = true)]
async fn b89_unreachable_at_the_start_is_not_ready_and_lost_later_stays_ready() {
    for fault in [Fault::Refuse, Fault::BlackHole] {
        let api = FakeKube::new();
        api.create(pod("p1", A));
        api.always(RequestKind::List, Some(fault.clone()));
        let world = World::new(plain(Dialect::Tandem), api);
        let a = world.engine(A);
        for _ in 0..20 {
            sleep(secs(10)).await;
            assert!(!world.is_ready());
            assert_eq!(world.ask(1).await, [503]);
        }
        world.api.clear_faults();
        // A list under way has half a minute.
        world.within(secs(46), "ready", || world.is_ready()).await;
        world.api.always(RequestKind::List, Some(fault));
        world.api.always(RequestKind::Watch, Some(Fault::Refuse));
        world.api.cut_watches();
        for _ in 0..20 {
            sleep(secs(10)).await;
            assert!(world.is_ready());
            assert_eq!(world.ask(1).await, [200]);
        }
        world.end(&[&a]).await;
    }
}

/// An empty fleet is known to be empty: ready, and it answers 503.
#[tokio::test(start_paused = true)]
async fn b89_no_selectable_endpoint_is_still_ready() {
    let world = World::new(plain(Dialect::Tandem), FakeKube::new());
    world.ready().await;
    assert_eq!(world.ask(1).await, [503]);
    world.api.create(pod("p1", A));
    let a = world.engine(A);
    world.within(SOON, "in", || world.selectable() == [A]).await;
    assert_eq!(world.ask(1).await, [200]);
    world.end(&[&a]).await;
}

/// Several services with namespaces of their own: `one` and `two` have Pods, `listed` has not.
fn several(with_listed: bool) -> RouterConfig {
    let mut config = plain(Dialect::Tandem);
    let named = |name: &str| {
        let mut service = service(name, EngineKind::Plain, Dialect::Tandem);
        service.models = vec![name.to_owned()];
        service.pods.as_mut().unwrap().namespace = Some(name.to_owned());
        service
    };
    config.services = vec![named("one"), named("two")];
    if with_listed {
        let at = vec![StaticEndpoint::parse("http://192.0.2.9:8000").unwrap()];
        let listed = tandem::config::Service::plain("listed", at);
        config.services.push(tandem::config::Service { models: vec!["listed".to_owned()], ..listed });
    }
    config
}

/// One service is refused by 403: the others decide. Without another one it is not ready.
#[tokio::test(start_paused = true)]
async fn i9_a_service_that_is_refused_does_not_hold_up_the_others() {
    let api = FakeKube::new();
    api.create(pod("p1", A).namespace("one"));
    api.create(pod("p2", B).namespace("two"));
    // The streams list in the order of their namespaces: `one` first.
    api.push_n(RequestKind::List, &Fault::status(403), 1);
    api.push(RequestKind::List, Fault::Pass);
    api.push_n(RequestKind::List, &Fault::status(403), 2);
    let world = World::new(several(false), api);
    let (a, b) = (world.engine(A), world.engine(B));
    sleep(ms(500)).await;
    assert!(!world.is_ready(), "an API server that starts refuses everybody for a moment");
    world.within(secs(2), "ready without it", || world.is_ready()).await;
    assert_eq!(world.selectable(), [B]);
    let first = world.api.requests()[0].path.clone();
    assert!(first.contains("/namespaces/one/"), "{first}");
    assert_eq!((answer(&world, "one").await.status(), answer(&world, "two").await.status()), (503, 200));
    assert!((world.router.admin.observe)().is_err(), "a service is not known");
    // Someone grants the rights.
    world.within(secs(10), "known", || world.selectable() == [A, B]).await;
    assert_eq!((answer(&world, "one").await.status(), answer(&world, "two").await.status()), (200, 200));
    assert!(world.is_ready() && (world.router.admin.observe)().is_ok());
    world.router.assert_invariants(&[&a, &b]).await;
}

#[tokio::test(start_paused = true)]
async fn i9_all_refused_is_not_ready_and_a_slow_one_is_waited_for() {
    let api = FakeKube::new();
    api.create(pod("p1", A).namespace("one"));
    api.always(RequestKind::List, Some(Fault::status(403)));
    let world = World::new(several(false), api);
    sleep(secs(30)).await;
    assert!(!world.is_ready());
    let wanted = ["one", "two"].map(|name| format!("endpoints of {name} (refused with 403)"));
    assert_eq!(awaited(&world), wanted);
    world.api.clear_faults();
    world.within(secs(16), "ready", || world.is_ready()).await;
    world.router.assert_invariants(&[]).await;

    let api = FakeKube::new();
    api.push(RequestKind::List, Fault::Pass);
    api.push(RequestKind::List, Fault::Late(secs(7)));
    let world = World::new(several(true), api);
    sleep(secs(6)).await;
    assert_eq!(awaited(&world), ["endpoints of two (first list)"]);
    let ready = (world.router.admin.readiness)();
    let passed: Vec<String> = ready.passed.into_iter().map(Into::into).collect();
    assert_eq!(passed, ["listening", "endpoints of one", "endpoints of listed"]);
    world.within(ms(1100), "ready", || world.is_ready()).await;
    world.router.assert_invariants(&[]).await;
}

/// A configured service and a refused one: the configured one serves.
#[tokio::test(start_paused = true)]
async fn i9_listed_endpoints_are_known_from_the_start() {
    let api = FakeKube::new();
    api.always(RequestKind::List, Some(Fault::status(401)));
    let world = World::new(several(true), api);
    let listed = world.engine("192.0.2.9");
    world.within(secs(2), "ready", || world.is_ready()).await;
    assert_eq!(answer(&world, "listed").await.status(), 200);
    world.router.assert_invariants(&[&listed]).await;
}

/// Every listed endpoint's first verdict is waited for, but at most 5 s.
#[tokio::test(start_paused = true)]
async fn i9_first_verdicts_are_waited_for_and_not_for_long() {
    for (script, waits) in [
        (Script::always(Response::json(200, "{}")), ms(20)),
        (
            Script::always(
                [vec![Step::Sleep(secs(2))], vec![Step::Respond(Response::json(200, "{}"))]].concat(),
            ),
            secs(2),
        ),
        // A verdict all the same.
        (Script::always(Response::text(503, "no")), ms(20)),
        (Script::always(Step::Stall), secs(5)),
    ] {
        let api = FakeKube::new();
        api.create(pod("p", A).label(ROLE, "prefill").annotation("tandem.dev/bootstrap-port", "8998"));
        api.create(pod("d", B).label(ROLE, "decode"));
        let world = World::new(with(EngineKind::Sglang, Dialect::Tandem), api);
        let boot = world.serve(&format!("{A}:8998"), script);
        let began = now();
        world.within(secs(6), "ready", || world.is_ready()).await;
        let took = now() - began;
        assert!(took >= waits.saturating_sub(ms(20)) && took <= waits + ms(50), "{took:?} for {waits:?}");
        drop(boot);
        sleep(secs(6)).await;
        world.router.assert_invariants(&[]).await;
    }
}
