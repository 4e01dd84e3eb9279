//! `tandem drain` of a Pod: routers as processes of their own, a fake API server, streams that are open. Listed engines:
//! `cli_drain.rs`.

use std::time::Duration;

use serde_json::{Value, json};
use tandem::testkit::client::RawClient;
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::kube::{Fault, RequestKind};
use tandem::types::clock::{now, wall_ms};
use tandem::types::drain_order::DrainOrder;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::cli_drain::{Running, answer};
use crate::pods::{Cluster, endpoint, pod};
use crate::process::{Process, SOON, poll, run, tandem};

const KEY: &str = "tandem.dev/drain";

/// Two engines, found by each router; `chat-0` is to leave.
struct Fleet {
    leaving: EngineHandle,
    staying: EngineHandle,
    cluster: Cluster,
    uid: String,
    routers: Vec<Process>,
}

impl Fleet {
    async fn start(routers: usize) -> Self {
        let leaving = Engine::start_tcp(Script::new(answer)).await;
        let staying = Engine::start_tcp(Script::new(answer)).await;
        let cluster = Cluster::start().await;
        let uid = cluster.api.create(pod("chat-0", &leaving));
        cluster.api.create(pod("chat-1", &staying));
        let mut fleet = Self { leaving, staying, cluster, uid, routers: Vec::new() };
        for _ in 0..routers {
            let router = fleet.cluster.ready_router("").await;
            fleet.knows(&router).await;
            fleet.routers.push(router);
        }
        fleet
    }

    async fn knows(&self, router: &Process) {
        for engine in [&self.leaving, &self.staying] {
            poll("the engine", async || endpoint(router, engine).await.is_some()).await;
        }
    }

    fn drain(&self, target: &str, more: &[&str]) -> Command {
        let mut command = tandem("drain");
        command
            .env_remove("POD_NAMESPACE")
            .env_remove("POD_UID")
            .env("HOME", "/none")
            .env_remove("KUBECONFIG");
        for router in &self.routers {
            command.args(["--admin", &format!("http://{}", router.admin)]);
        }
        command.arg("--kubeconfig").arg(self.cluster.kubeconfig()).arg(target).args(more);
        command
    }

    /// A stream on each engine through this router.
    async fn streams(&self, router: usize) -> Vec<RawClient<TcpStream>> {
        let before = self.leaving.log.request_count();
        let mut clients = Vec::new();
        while self.leaving.log.requests_to("/v1/chat/completions").is_empty() {
            let mut client = self.routers[router].client().await;
            client.send(&post_chat(chat_body("m", true))).await.unwrap();
            clients.push(client);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(self.leaving.log.request_count() > before);
        clients
    }

    /// How many of six short requests through each router the leaving engine got.
    async fn asked(&self) -> usize {
        let got = || self.leaving.log.requests_to("/v1/chat/completions").len();
        let before = got();
        for router in &self.routers {
            for _ in 0..6 {
                let answer = router.client().await.request(&post_chat(chat_body("m", false))).await.unwrap();
                assert_eq!(answer.status(), 200);
            }
        }
        got() - before
    }

    fn annotation(&self) -> Value {
        self.cluster.api.pod("default", "chat-0").unwrap()["metadata"]["annotations"][KEY].clone()
    }

    /// What a router says of it, as the command shows it.
    async fn shows(&self, running: &Running, router: usize, what: &str) {
        let said = format!("{} {what}", self.routers[router].admin);
        eventually(SOON, &said, || {
            let text = running.out.text();
            let last = text.lines().last().unwrap_or_default().to_owned();
            if last.split(": ").skip(1).any(|_| last.contains(&said)) { Ok(()) } else { Err(text) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_pod_is_drained_when_no_router_has_anything_open_and_taken_back() {
    let fleet = Fleet::start(3).await;
    let streams = fleet.streams(1).await;
    let mut drain = Running::start(fleet.drain("chat-0", &["--wait", "60s", "--reason", "new disk"]));
    for (router, what) in [(0, "nothing open"), (1, "1 decode"), (2, "nothing open")] {
        fleet.shows(&drain, router, what).await;
    }
    let order = DrainOrder::parse(fleet.annotation().as_str().unwrap());
    let left = order.deadline_ms.unwrap() - wall_ms();
    assert!(order.reason == "new disk" && !order.force && (40_000..=60_000).contains(&left), "{order:?}");
    assert_eq!(fleet.asked().await, 0, "a request for an engine that leaves");
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(drain.runs(), "it did not wait for the stream");
    drop(streams);
    assert_eq!(drain.code().await, Some(0));
    drain.says("default/chat-0: drained").await;
    assert_eq!(drain.err.text(), "");

    let (code, out, err) = run(&mut fleet.drain("default/chat-0", &["--abort"])).await;
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.ends_with("default/chat-0: taken back\n"), "{out}");
    assert_eq!(fleet.annotation(), Value::Null);
    assert!(fleet.asked().await > 0);
}

#[tokio::test]
async fn a_drain_is_taken_back_half_way() {
    let fleet = Fleet::start(2).await;
    let _streams = fleet.streams(0).await;
    let mut drain = Running::start(fleet.drain("pod/chat-0", &["--wait", "4s"]));
    fleet.shows(&drain, 0, "1 decode").await;
    assert_eq!(fleet.asked().await, 0);
    assert_eq!(run(&mut fleet.drain("pod/chat-0", &["--abort"])).await.0, Some(0));
    assert!(fleet.asked().await > 0, "no traffic again");
    assert_eq!(drain.code().await, Some(1));
    assert!(drain.err.text().contains("a router may still give it requests"), "{}", drain.err.text());
    // What is open at the end without that: the drain stands.
    let (code, _, err) = run(&mut fleet.drain("chat-0", &["--wait", "2s"])).await;
    assert!(code == Some(1) && err.contains("the drain stands, --abort takes it back"), "{err}");
    assert!(fleet.annotation().is_string());
}

#[tokio::test]
async fn a_router_that_dies_meanwhile_is_not_known_to_be_done() {
    let mut fleet = Fleet::start(3).await;
    let streams = fleet.streams(0).await;
    let mut drain = Running::start(fleet.drain("chat-0", &["--wait", "5s"]));
    fleet.shows(&drain, 0, "1 decode").await;
    let dead = fleet.routers.remove(2);
    let admin = dead.admin;
    drop(dead);
    drop(streams);
    assert_eq!(drain.code().await, Some(3), "{}", drain.out.text());
    let said = drain.err.text();
    assert!(
        said.contains(&format!("not known to be drained: {admin}: ")) && said.contains("refused"),
        "{said}"
    );
}

#[tokio::test]
async fn a_router_that_restarts_meanwhile_is_believed_once_the_set_has_settled() {
    let mut fleet = Fleet::start(2).await;
    let streams = fleet.streams(0).await;
    let mut drain = Running::start(fleet.drain("chat-0", &["--wait", "60s", "--settle", "4s"]));
    let mut never = Running::start(fleet.drain("chat-0", &["--wait", "7s", "--settle", "60s"]));
    fleet.shows(&drain, 0, "1 decode").await;
    fleet.shows(&never, 0, "1 decode").await;
    let admin = fleet.routers[1].admin;
    drop(fleet.routers.remove(1));
    let restarted = now();
    let router = fleet.cluster.router_at(admin).await;
    fleet.routers.push(router);
    drop(streams);
    fleet.shows(&drain, 1, "unknown: restarted").await;
    assert_eq!(drain.code().await, Some(0));
    assert!(restarted.elapsed() > Duration::from_secs(4), "{:?}", restarted.elapsed());
    assert_eq!(never.code().await, Some(3), "{}", never.out.text());
    assert!(never.err.text().contains("restarted"), "{}", never.err.text());
}

/// In an engine's own hook: no rights, the deletion has begun, and the API server forgets the Pod before its stream is over.
#[tokio::test]
async fn without_rights_it_waits_for_what_the_deletion_does() {
    let fleet = Fleet::start(2).await;
    let streams = fleet.streams(1).await;
    fleet.cluster.api.always(RequestKind::Other, Some(Fault::status(403)));
    fleet.cluster.api.delete("default", "chat-0");
    let admins: Vec<String> = fleet.routers.iter().map(|router| format!("http://{}", router.admin)).collect();
    let hook = |kubeconfig: bool| {
        let mut command = tandem("drain");
        command.env("TANDEM_ENGINE", "pod/chat-0").env("POD_NAMESPACE", "default").env("POD_UID", &fleet.uid);
        command.env("TANDEM_ADMIN", admins.join(",")).env("HOME", "/none").env_remove("KUBECONFIG");
        if kubeconfig {
            command.env("TANDEM_KUBERNETES_KUBECONFIG", fleet.cluster.kubeconfig());
        }
        command.args(["--wait", "60s"]);
        command
    };
    let mut drains = [Running::start(hook(true)), Running::start(hook(false))];
    for drain in &drains {
        fleet.shows(drain, 1, "1 decode").await;
    }
    fleet.cluster.api.finish_delete("default", "chat-0");
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(drains.iter_mut().all(Running::runs), "it did not wait for the stream");
    drop(streams);
    for (drain, why) in drains.iter_mut().zip(["pods is forbidden", "no kubeconfig"]) {
        assert_eq!(drain.code().await, Some(0), "{}", drain.out.text());
        let said = drain.err.text();
        assert!(
            said.lines().count() == 1 && said.contains(why) && said.contains("is not annotated"),
            "{said}"
        );
    }
    // It is too late to take that back.
    fleet.cluster.api.clear_faults();
    fleet.cluster.api.delete("default", "chat-1");
    let (code, _, err) = run(&mut fleet.drain("chat-1", &["--abort"])).await;
    assert!(code == Some(1) && err.contains("is being deleted, which cannot be taken back"), "{err}");
}

/// It has no endpoint at any router, and each of them says so.
#[tokio::test]
async fn a_pod_that_never_was_ready_has_nothing_to_wait_for() {
    let fleet = Fleet::start(2).await;
    let uid = fleet.cluster.api.create(pod("chat-2", &fleet.staying).ready("False"));
    fleet.cluster.api.delete("default", "chat-2");
    let (code, out, err) = run(&mut fleet.drain("chat-2", &["--uid", &uid])).await;
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
}

#[tokio::test]
async fn a_deadline_that_cuts_stands_in_the_annotation() {
    let fleet = Fleet::start(1).await;
    let at = ["--force-at", "2099-12-01T10:30:00Z", "--reason", "node repair"];
    assert_eq!(run(&mut fleet.drain("chat-0", &at)).await.0, Some(0));
    assert_eq!(fleet.annotation(), "node repair; deadline=2099-12-01T10:30:00Z; force");
    assert_eq!(run(&mut fleet.drain("chat-0", &["--force-at", "200s"])).await.0, Some(0));
    let order = DrainOrder::parse(fleet.annotation().as_str().unwrap());
    let left = order.deadline_ms.unwrap() - wall_ms();
    assert!(
        order.reason == "tandem drain" && order.force && (150_000..=200_000).contains(&left),
        "{order:?}"
    );
    // Where it cannot be said nothing will be cut.
    fleet.cluster.api.always(RequestKind::Other, Some(Fault::status(403)));
    let (code, _, err) = run(&mut fleet.drain("chat-0", &["--force-at", "200s", "--wait", "2s"])).await;
    assert!(code == Some(0) && err.contains("nothing is cut at the deadline"), "{err}");
}

#[tokio::test]
async fn an_api_server_that_is_away_for_a_while_is_asked_again() {
    let fleet = Fleet::start(1).await;
    for fault in [Fault::status(503), Fault::Refuse, Fault::throttled(1), Fault::Pass, Fault::status(409)] {
        fleet.cluster.api.push(RequestKind::Other, fault);
    }
    let (code, out, err) = run(&mut fleet.drain("chat-0", &["--wait", "30s"])).await;
    assert_eq!((code, err.lines().count()), (Some(0), 1), "{out}{err}");
    assert!(err.contains("is not annotated, tried again: the server is currently unable"), "{err}");
    assert!(out.contains("selectable") && fleet.annotation().is_string(), "{out}");
    assert_eq!(fleet.cluster.api.faults_left(), 0);
    // Meanwhile it stays what it is, and --no-annotate leaves it so.
    assert_eq!(run(&mut fleet.drain("chat-0", &["--abort"])).await.0, Some(0));
    let asked = || fleet.cluster.api.requests().iter().filter(|r| r.kind == RequestKind::Other).count();
    let before = asked();
    let (code, _, err) = run(&mut fleet.drain("chat-0", &["--no-annotate", "--wait", "1s"])).await;
    assert!(code == Some(1) && err.contains("may still give it requests"), "{err}");
    assert_eq!(asked(), before);
}

#[tokio::test]
async fn a_pod_that_is_another_one_or_none_is_said() {
    let fleet = Fleet::start(1).await;
    let (code, _, err) = run(&mut fleet.drain("chat-0", &["--uid", "another"])).await;
    assert!(
        code == Some(1) && err.contains("default/chat-0 is another Pod now") && err.contains(&fleet.uid),
        "{err}"
    );
    assert_eq!(fleet.annotation(), Value::Null);
    for more in [&[][..], &["--abort"]] {
        let (code, _, err) = run(fleet.drain("chat-9", &[]).args(more)).await;
        assert!(code == Some(1) && err.contains("default/chat-9: ") && err.contains("not found"), "{err}");
    }
    // With a UID it may be gone already; that routers do not know it is no proof.
    let (code, out, err) = run(&mut fleet.drain("chat-9", &["--uid", "gone", "--wait", "2s"])).await;
    assert!(code == Some(3) && out.contains("unknown: it does not know it"), "{out}{err}");
    assert!(err.contains("it is not there any more"), "{err}");
    for wrong in [
        &["Chat"][..],
        &["chat-0", "--force-at", "soon"],
        &["chat-0", "--reason", "x; force"],
        &["chat-0", "--abort", "--health", "http://e:1/h"],
        &["chat-0", "--kubeconfig", "/no/file"],
    ] {
        let mut command = tandem("drain");
        let (code, _, err) = run(command.args(wrong)).await;
        assert_eq!(code, Some(2), "{err}");
    }
}

#[tokio::test]
async fn as_json_the_last_line_is_the_whole_evidence() {
    let fleet = Fleet::start(2).await;
    let json = ["--output", "json"];
    let (code, out, err) = run(&mut fleet.drain("chat-0", &json)).await;
    assert_eq!((code, out.lines().count()), (Some(0), 1), "{out}{err}");
    assert!(err.contains("nothing open") && err.contains("drained"), "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&said["verdict"], &said["forced"]), (&json!("drained"), &json!(0)));
    assert_eq!(said["target"], json!({"namespace": "default", "pod": "chat-0", "uid": fleet.uid}));
    let replicas = said["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 2);
    for replica in replicas {
        let router = fleet.routers.iter().find(|r| replica["address"] == r.admin.to_string()).unwrap();
        let report = router.admin_get("/observer/inflight").await.json();
        assert_eq!(replica["instance"], report["router"]["instance"]);
        assert_eq!(replica["boot_generation"], report["router"]["boot_generation"]);
        assert!(replica["seq"].as_u64() < report["router"]["seq"].as_u64());
        assert_eq!((&replica["state"], &replica["why"]), (&json!("quiet"), &Value::Null));
        assert_eq!(replica["entries"][0]["uid"], fleet.uid);
        assert_eq!(replica["entries"][0]["reason"], "drain_annotation");
    }
    let (code, out, _) = run(fleet.drain("chat-0", &json).arg("--abort")).await;
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &said["verdict"]), (Some(0), &json!("aborted")));
    let (code, out, _) =
        run(fleet.drain("chat-0", &json).args(["--admin", "http://127.0.0.1:1", "--wait", "1s"])).await;
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &said["verdict"]), (Some(3), &json!("unknown")));
    assert_eq!(said["replicas"][0]["state"], "unknown");
}
