//! R3 over four routers: what a session leads to is the same at each of them, however each came to what it knows.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::{Value, json};
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::fixtures::{chat_body, post};

use super::fleet::observed;
use super::rig::CHAT;
use crate::pods::{Cluster, pod};
use crate::process::{Process, poll};

const SESSIONS: usize = 2500;
/// A revision, its weight, and how many engines it has.
const RELEASES: [(&str, u64, usize); 3] = [("r1", 60, 2), ("r2", 30, 1), ("r3", 10, 2)];

/// A router with an API server of its own, so that it has a history of its own.
struct Replica {
    cluster: Cluster,
    process: Process,
}

/// Pods of these engines, in an order that differs from replica to replica; so do their names, and what is in the file.
async fn replica(n: usize, engines: &[(&'static str, EngineHandle)]) -> Replica {
    let cluster = Cluster::start().await;
    let mut order: Vec<usize> = (0..engines.len()).collect();
    order.rotate_left(n);
    if n % 2 == 1 {
        order.reverse();
    }
    for (k, at) in order.iter().enumerate() {
        let (revision, engine) = &engines[*at];
        cluster.api.create(pod(&format!("e{k}"), engine).label("tandem.dev/revision", revision));
    }
    let file = cluster.kubeconfig().with_file_name("router.yaml");
    std::fs::write(&file, yaml(&cluster, n)).unwrap();
    let process = Process::launch(&["--config", file.to_str().unwrap()], true).await;
    let replica = Replica { cluster, process };
    replica.until_selectable(engines.len()).await;
    replica
}

fn yaml(cluster: &Cluster, n: usize) -> String {
    let mut weights: Vec<Value> =
        RELEASES.iter().map(|(name, weight, _)| json!({"revision": name, "weight": weight})).collect();
    weights.rotate_left(n % 3);
    if n % 2 == 1 {
        weights.reverse();
    }
    let config = json!({
        "kubernetes": {"kubeconfig": cluster.kubeconfig()},
        "services": [{
            "name": "chat",
            "discovery": {"kubernetes": {"selector": {"app": "llm"}}},
            "split": {"weights": weights},
            "sticky": {"headers": ["x-session-id"]},
        }],
    });
    config.to_string()
}

impl Replica {
    async fn until_selectable(&self, n: usize) {
        poll("the engines", async || {
            let all = self.process.admin_get("/endpoints").await.json();
            all["endpoints"].as_array().unwrap().iter().filter(|e| e["selectable"] == true).count() == n
        })
        .await;
    }

    /// Pods go and come back, another Pod joins and leaves: so many times.
    async fn lives(&self, times: usize, engines: usize, spare: &EngineHandle) {
        for turn in 0..times {
            let name = format!("e{}", turn % engines);
            for marked in [false, true] {
                self.cluster.api.update("default", &name, |pod| {
                    pod["metadata"]["labels"]["tandem.dev/endpoint-eligible"] =
                        if marked { "true" } else { "false" }.into();
                });
                self.until_selectable(if marked { engines } else { engines - 1 }).await;
            }
            self.cluster.api.create(pod("spare", spare).label("tandem.dev/revision", "r2"));
            self.until_selectable(engines + 1).await;
            self.cluster.api.force_delete("default", "spare");
            self.until_selectable(engines).await;
        }
    }

    /// The file has another split, and then this one again.
    async fn reloads(&self, n: usize) {
        let file = self.cluster.kubeconfig().with_file_name("router.yaml");
        let own = yaml(&self.cluster, n);
        for (text, version) in [(own.replace("60", "1"), 2), (own, 3)] {
            std::fs::write(&file, text).unwrap();
            self.process.signal(Signal::HUP);
            poll("the reload", async || observed(&self.process).await["version"] == version).await;
        }
    }

    /// Which release answers each session.
    async fn homes(&self) -> Vec<String> {
        let mut client = self.process.client().await;
        let mut homes = Vec::new();
        for session in 0..SESSIONS {
            let line = format!("x-session-id: s{session}");
            let answer = client.request(post(CHAT, &[&line], chat_body("m", false))).await.unwrap();
            assert_eq!(answer.status(), 200);
            homes.push(answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned());
        }
        homes
    }
}

#[tokio::test]
async fn four_routers_send_a_session_to_the_same_cohort() {
    let mut engines = Vec::new();
    for (name, _, count) in RELEASES {
        for _ in 0..count {
            engines.push((name, Engine::start_tcp(Script::always(chat_json(name))).await));
        }
    }
    let spare = Engine::start_tcp(Script::always(chat_json("r2"))).await;
    let mut replicas = Vec::new();
    for n in 0..4 {
        replicas.push(replica(n, &engines).await);
    }
    for (n, replica) in replicas.iter().enumerate() {
        replica.lives(n, engines.len(), &spare).await;
        if n > 1 {
            replica.reloads(n).await;
        }
    }
    let mut versions = Vec::new();
    for replica in &replicas {
        let split = observed(&replica.process).await;
        let registry =
            replica.process.admin_get("/observer/cohorts").await.json()["registry_version"].as_u64();
        versions.push((registry.unwrap(), split["version"].as_u64().unwrap()));
    }
    assert!(
        versions.iter().all(|one| versions.iter().filter(|other| *other == one).count() == 1),
        "{versions:?}"
    );
    let homes =
        tokio::join!(replicas[0].homes(), replicas[1].homes(), replicas[2].homes(), replicas[3].homes());
    for other in [&homes.1, &homes.2, &homes.3] {
        let apart = homes.0.iter().zip(other).filter(|(a, b)| a != b).count();
        assert_eq!(apart, 0, "sessions at two cohorts");
    }
    let mut shares = BTreeMap::<&str, usize>::new();
    homes.0.iter().for_each(|home| *shares.entry(home).or_default() += 1);
    for (name, weight, _) in RELEASES {
        let (found, wanted) = (shares[name] as f64 / SESSIONS as f64, weight as f64 / 100.0);
        assert!((found - wanted).abs() < 0.03, "{shares:?}");
    }
}
