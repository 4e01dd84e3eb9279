//! What engines are asked before their first request: beside the watch, one URL not waiting for another (B70, GPU-24, GPU-25).

use tandem::config::{Dialect, EngineKind, Probe, RouterConfig};
use tandem::testkit::engine::openai::{chat_json, models};
use tandem::testkit::engine::{EngineHandle, Response, Script, Step};
use tandem::testkit::kube::{FakeKube, PodSpec};
use tandem::types::clock::now;
use tokio::time::sleep;

use super::rig::*;

const SGLANG: EngineKind = EngineKind::Sglang;

fn asking() -> RouterConfig {
    let mut config = plain(Dialect::Tandem);
    config.services[0].models = vec!["m".to_owned()];
    if let Some(pods) = &mut config.services[0].pods {
        pods.probe = Probe::Models;
    }
    config
}

fn models_engine(world: &World, ip: &str) -> EngineHandle {
    world.serve(ip, Script::always(chat_json(ip)).on("/v1/models", models(&["m", "n"])))
}

/// An engine whose models cannot be read, or never come, holds up neither a deletion nor other engines.
#[tokio::test(start_paused = true)]
async fn b70_a_probe_that_fails_or_hangs_holds_up_nothing() {
    let api = FakeKube::new();
    api.create(pod("p1", A));
    api.create(pod("p2", B));
    let world = World::new(asking(), api);
    let (a, b) = (models_engine(&world, A), models_engine(&world, B));
    world.ready().await;
    assert_eq!(world.selectable(), [A, B]);
    let bad = [
        Script::always(Response::text(500, "no")),
        Script::always(Response::text(200, "<html>hello</html>")),
        Script::always(Step::Stall),
        Script::always(models(&["another"])),
    ];
    for (n, script) in bad.into_iter().enumerate() {
        let c = world.serve(C, script);
        let (name, next) = (format!("bad{n}"), format!("next{n}"));
        world.api.create(pod(&name, C));
        sleep(secs(1)).await;
        assert_eq!(world.reason(C).as_deref(), Some("probing"), "case {n}");
        // Others come and go meanwhile.
        world.api.force_delete("default", "p1");
        world.within(SOON, "gone", || world.selectable() == [B]).await;
        world.api.create(pod("p1", A));
        world.within(SOON, "back", || world.selectable() == [A, B]).await;
        let ip = format!("192.0.2.{}", 10 + n);
        let d = models_engine(&world, &ip);
        world.api.create(pod(&next, &ip));
        world.within(SOON, "another one", || world.selectable().contains(&ip)).await;
        assert_eq!(world.ask(20).await, [200; 20]);
        assert_eq!(chats(&c), 0);
        sleep(secs(5)).await;
        assert!(world.detail(C).starts_with("GET /v1/models: "), "case {n}: {}", world.detail(C));
        // It was asked again all the time, and is in as soon as it answers as it should.
        assert!(c.log.requests_to("/v1/models").len() >= 2, "case {n}");
        c.set_script(Script::always(chat_json(C)).on("/v1/models", models(&["m"])));
        world.within(secs(8), "in", || world.selectable().contains(&C.to_owned())).await;
        world.api.force_delete("default", &name);
        world.api.force_delete("default", &next);
        world.within(SOON, "left", || world.selectable() == [A, B]).await;
        world.end(&[&a, &b, &c, &d]).await;
    }
    assert!(world.metric("tandem_probes_total", &[("result", "error")]) >= 8.0);
    assert_eq!(world.metric("tandem_probe_lanes", &[]), 0.0);
}

/// Objects that cannot be read, or say nothing, are one warning each.
#[tokio::test(start_paused = true)]
async fn b70_a_poisoned_object_stops_neither_the_watch_nor_the_list() {
    let api = FakeKube::new();
    let mut no_status = bare("no-status", "").build();
    no_status["status"] = serde_json::Value::Null;
    let mut null_containers = pod("null-containers", A).build();
    null_containers["spec"]["containers"] = serde_json::Value::Null;
    let mut wrong_types = bare("wrong-types", C).build();
    wrong_types["spec"]["containers"][0]["ports"] = "http".into();
    for pod in [no_status.clone(), null_containers, wrong_types.clone()] {
        api.create(pod);
    }
    let world = World::new(plain(Dialect::Tandem), api);
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    assert_eq!(world.selectable(), [A], "no containers: no declared ports, the configured one counts");
    // The same on the watch.
    no_status["metadata"]["name"] = "no-status-2".into();
    wrong_types["metadata"]["name"] = "wrong-types-2".into();
    world.api.create(no_status);
    world.api.create(wrong_types);
    world.api.inject_bytes("{\"type\":\"BOOKMARK\",\"object\":null}\n");
    world.api.create(pod("good", B));
    world.within(SOON, "the good one", || world.selectable() == [A, B]).await;
    sleep(secs(60)).await;
    assert_eq!(world.selectable(), [A, B]);
    let skipped = |reason| world.metric("tandem_discovery_skipped_objects_total", &[("reason", reason)]);
    assert_eq!(skipped("bad_object"), 2.0, "once each, however often they are listed");
    assert_eq!(world.ask(4).await, [200; 4]);
    world.end(&[&a, &b]).await;
}

/// A known Pod whose object becomes unreadable is what it was, and can still be deleted.
#[tokio::test(start_paused = true)]
async fn b70_a_known_pod_that_becomes_unreadable_stays_as_it_was_until_it_is_deleted() {
    let api = FakeKube::new();
    api.create(pod("p1", A));
    let world = World::new(plain(Dialect::Tandem), api);
    let a = world.engine(A);
    world.ready().await;
    world.api.update("default", "p1", |pod| pod["spec"]["containers"][0]["ports"] = "http".into());
    sleep(secs(40)).await;
    assert_eq!((world.selectable(), world.ask(1).await), (vec![A.to_owned()], vec![200]));
    world.api.force_delete("default", "p1");
    world.within(SOON, "gone", || world.selectable().is_empty()).await;
    world.end(&[&a]).await;
}

fn prefill(name: &str, ip: &str) -> PodSpec {
    pod(name, ip).label(ROLE, "prefill")
}

fn pair() -> World {
    let api = FakeKube::new();
    api.create(pod("d", B).label(ROLE, "decode"));
    World::new(with(SGLANG, Dialect::Tandem), api)
}

/// A bootstrap server at this port of the address.
fn bootstrap(world: &World, ip: &str, port: u16, script: Script) -> EngineHandle {
    world.serve(&format!("{ip}:{port}"), script)
}

fn all_ranks() -> Script {
    Script::always(Response::json(200, "{}"))
}

fn missing_ranks() -> Script {
    Script::always(Response::text(503, "not yet"))
}

/// It counts only once every rank has registered; its port comes from the annotation.
#[tokio::test(start_paused = true)]
async fn sglang_prefills_count_once_their_bootstrap_server_lists_every_rank() {
    let world = pair();
    let (p, d) = (world.engine(A), world.engine(B));
    let boot = bootstrap(&world, A, 9000, missing_ranks());
    world.ready().await;
    world.api.create(prefill("p", A).annotation("tandem.dev/bootstrap-port", "9000"));
    sleep(secs(10)).await;
    assert_eq!((world.selectable(), world.ask(1).await), (vec![B.to_owned()], vec![503]));
    assert_eq!(world.reason(A).as_deref(), Some("probing"));
    assert_eq!(world.detail(A), "bootstrap server, port 9000: not every rank has registered");
    boot.set_script(all_ranks());
    world.within(ms(2050), "listed", || world.selectable() == [A, B]).await;
    assert_eq!(world.ask(3).await, [200; 3]);
    assert_eq!(chats(&p), 3);
    let asked = &boot.log.requests()[0];
    assert!(
        asked.target.starts_with("/route?") && asked.target.contains("engine_rank=-1"),
        "{}",
        asked.target
    );
    assert_eq!(d.log.requests_to(CHAT)[0].json()["bootstrap_port"], 9000);
    world.end_of_pairs(&[&p, &boot], &[&d]).await;
}

#[tokio::test(start_paused = true)]
async fn the_bootstrap_port_comes_from_the_annotation_or_the_configuration_or_the_engine() {
    let info = |port: u16| {
        let info = format!(r#"{{"version": "0.5.23", "disaggregation_bootstrap_port": {port}}}"#);
        Script::always(chat_json("p")).on("/server_info", Response::json(200, info))
    };
    for (annotation, configured, wanted) in
        [(Some("9001"), Some(9002), 9001), (None, Some(9002), 9002), (None, None, 9003)]
    {
        let mut config = with(SGLANG, Dialect::Tandem);
        // Else it is asked for other things too.
        config.services[0].cohorts_guard = false;
        config.services[0].pods.as_mut().unwrap().bootstrap_port = configured;
        let api = FakeKube::new();
        api.create(pod("d", B).label(ROLE, "decode"));
        let mut p = prefill("p", A);
        if let Some(port) = annotation {
            p = p.annotation("tandem.dev/bootstrap-port", port);
        }
        api.create(p);
        let world = World::new(config, api);
        let (p, d) = (world.serve(A, info(9003)), world.engine(B));
        let boot = bootstrap(&world, A, wanted, all_ranks());
        world.until("both", || world.selectable() == [A, B]).await;
        assert_eq!(world.ask(2).await, [200; 2]);
        for request in p.log.requests_to(CHAT).iter().chain(&d.log.requests_to(CHAT)) {
            assert_eq!(request.json()["bootstrap_port"], wanted);
            assert_eq!(request.json()["bootstrap_host"], A);
        }
        let asked_engine = !p.log.requests_to("/server_info").is_empty();
        assert_eq!(asked_engine, annotation.is_none() && configured.is_none());
        world.end_of_pairs(&[&p, &boot], &[&d]).await;
    }
}

/// One that hangs holds up neither others nor its own withdrawal, and is asked no more once it is gone.
#[tokio::test(start_paused = true)]
async fn gpu24_one_hanging_bootstrap_server_holds_up_no_other() {
    let world = pair();
    let (p, d, q) = (world.engine(A), world.engine(B), world.engine(C));
    let hangs = bootstrap(&world, A, 9000, Script::always(Step::Stall));
    let good = bootstrap(&world, C, 9000, all_ranks());
    world.ready().await;
    let port = "tandem.dev/bootstrap-port";
    world.api.create(prefill("p", A).annotation(port, "9000"));
    world.api.create(prefill("q", C).annotation(port, "9000"));
    world.within(SOON, "the other", || world.selectable() == [B, C]).await;
    assert_eq!(world.ask(5).await, [200; 5]);
    let lane = world.endpoint(A).unwrap().lane;
    assert!(lane.busy, "{lane:?}");
    assert_eq!(world.metric("tandem_probe_lanes", &[]), 1.0);
    world.api.force_delete("default", "p");
    world.within(SOON, "withdrawn", || world.reason(A).as_deref() == Some("deleted")).await;
    world.within(ms(100), "the lane is closed", || world.metric("tandem_probe_lanes", &[]) == 0.0).await;
    let asked = hangs.log.request_count();
    sleep(secs(30)).await;
    assert_eq!(hangs.log.request_count(), asked);
    world.end_of_pairs(&[&p, &q, &hangs, &good], &[&d]).await;
}

/// GPU-24: jobs of one URL in order. GPU-25: a failed one is tried again under the same UID, with no event in between.
#[tokio::test(start_paused = true)]
async fn gpu25_a_failed_probe_is_tried_again_under_the_same_uid_in_the_order_of_its_url() {
    let world = pair();
    let (p, d) = (world.engine(A), world.engine(B));
    let answers = (0..6).map(|_| vec![Step::Respond(Response::text(503, "no"))]).collect();
    let boot = bootstrap(&world, A, 9000, Script::queue(answers).or_else(all_ranks()));
    world.ready().await;
    world.api.create(prefill("p", A).annotation("tandem.dev/bootstrap-port", "9000"));
    let began = now();
    world.within(secs(12), "in", || world.selectable() == [A, B]).await;
    let asked = boot.log.requests();
    assert_eq!(asked.len(), 7, "once more than it failed");
    for (pair, least) in asked.windows(2).zip([250, 500, 1000, 2000, 2000, 2000]) {
        let gap = pair[1].head_at - pair[0].head_at;
        assert!(gap >= ms(least) && gap < ms(least + 100), "{gap:?} after {:?}", pair[0].head_at - began);
    }
    // One question at a time, each answered before the next.
    for pair in asked.windows(2) {
        assert!(pair[0].response.done_at.unwrap() <= pair[1].head_at);
    }
    assert_eq!(world.ask(1).await, [200]);
    world.end_of_pairs(&[&p, &boot], &[&d]).await;
}

/// What was learnt belongs to one process: a restart asks again, a lost label does not.
#[tokio::test(start_paused = true)]
async fn what_an_engine_answered_counts_until_its_container_restarts_or_is_not_ready() {
    let world = pair();
    let (p, d) = (world.engine(A), world.engine(B));
    let boot = bootstrap(&world, A, 9000, all_ranks());
    world.ready().await;
    world.api.create(prefill("p", A).annotation("tandem.dev/bootstrap-port", "9000"));
    world.within(SOON, "in", || world.selectable() == [A, B]).await;
    assert_eq!(boot.log.request_count(), 1);
    world.api.update("default", "p", |pod| set_label(pod, ELIGIBLE, None));
    world.within(SOON, "out", || world.selectable() == [B]).await;
    world.api.update("default", "p", |pod| set_label(pod, ELIGIBLE, Some("true")));
    world.within(SOON, "in", || world.selectable() == [A, B]).await;
    assert_eq!(boot.log.request_count(), 1, "not asked again for a label");
    boot.set_script(missing_ranks());
    world.api.update("default", "p", |pod| {
        pod["status"]["containerStatuses"] = serde_json::json!([{ "name": "engine", "restartCount": 1 }]);
    });
    world.within(SOON, "out", || world.reason(A).as_deref() == Some("probing")).await;
    boot.set_script(all_ranks());
    world.within(ms(400), "in", || world.selectable() == [A, B]).await;
    world.end_of_pairs(&[&p, &boot], &[&d]).await;
}

/// Two services of one Pod: two jobs of one URL, one after the other.
#[tokio::test(start_paused = true)]
async fn gpu24_jobs_of_one_url_run_in_order_one_at_a_time() {
    let mut config = with(SGLANG, Dialect::Tandem);
    let named = |name: &str| {
        let models = vec![name.to_owned()];
        tandem::config::Service { models, ..service(name, SGLANG, Dialect::Tandem) }
    };
    config.services = vec![named("one"), named("two")];
    let world = World::new(config, FakeKube::new());
    let slowly = [vec![Step::Sleep(secs(1))], vec![Step::Respond(Response::json(200, "{}"))]].concat();
    let boot = bootstrap(&world, A, 9000, Script::always(slowly));
    world.ready().await;
    world.api.create(prefill("p", A).annotation("tandem.dev/bootstrap-port", "9000"));
    world.within(ms(1050), "the first", || world.selectable().len() == 1).await;
    assert!(world.fleet().endpoints.iter().any(|e| e.selectable && e.service == "one"), "in order");
    world.within(ms(1050), "the second", || world.selectable().len() == 2).await;
    let asked = boot.log.requests();
    assert_eq!(asked.len(), 2);
    assert!(asked[0].response.done_at.unwrap() <= asked[1].head_at, "one at a time");
    world.router.assert_invariants(&[&boot]).await;
}
