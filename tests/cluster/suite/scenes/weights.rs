//! `traffic: 10` end to end: weights that a controller writes into an InferenceService, an object for each phase.

use std::sync::Arc;

use serde_json::{Value, json};
use tandem::engine::{Role, Running};

use super::super::{Cluster, Router, SOON, until};
use super::SELDOM;
use super::pairs::{CHAT, sglang, sglang_pod, sglang_service};

const REVISION: &str = "tandem.dev/revision";

fn target(hash: &str, percent: u64, tag: &str) -> Value {
    json!({ "revisionName": format!("chat-engine-rev-{hash}"), "percent": percent, "tag": tag, "latestRevision": tag == "canary" })
}

/// A status as OME v1.3 writes it while engine and decoder go from e1 and d1 to e2 and d2.
fn status(phase: &str, traffic: &[Value], run: bool) -> Value {
    let targets = json!([
        { "component": "engine", "revision": "e2", "stableRevision": "e1" },
        { "component": "decoder", "revision": "d2", "stableRevision": "d1" },
    ]);
    let active = if run { json!({ "runID": "r1", "targetRevisions": targets }) } else { Value::Null };
    let settled = |component: &str, hash: &str| format!("chat-{component}-{hash}");
    let lifecycle = |component: &str, hash: &str| json!({ "currentRevision": settled(component, hash), "updateRevision": settled(component, hash) });
    let decoder = if run { Value::Null } else { lifecycle("decoder", "d1") };
    json!({
        "components": {
            "engine": { "rolloutPhase": phase, "traffic": traffic },
            "decoder": { "lifecycle": decoder },
        },
        "rollout": { "activeRun": active },
    })
}

struct Fleet {
    prefills: [Running; 2],
    decodes: [Running; 2],
}

impl Fleet {
    fn seen(&self) -> [[usize; 2]; 2] {
        let chats = |engine: &Running| engine.log.read(|records| records.to(CHAT).count());
        [self.prefills.each_ref().map(chats), self.decodes.each_ref().map(chats)]
    }

    /// Requests of so many more that met the canary, as its engines saw them; the others met the stable ones.
    async fn canary(&self, router: &Router, n: usize) -> usize {
        let before = self.seen();
        assert_eq!(router.ask(n).await, vec![200; n]);
        let after = self.seen();
        let more = |side: usize, revision: usize| after[side][revision] - before[side][revision];
        assert_eq!([more(0, 0), more(0, 1)], [more(1, 0), more(1, 1)], "both legs are of one cohort");
        assert_eq!(more(0, 0) + more(0, 1), n);
        for decode in &self.decodes {
            assert_eq!(decode.state().count("corrupted"), 0);
        }
        more(0, 1)
    }
}

/// The weights are those of the object's version.
async fn followed(router: &Router, version: u64) {
    until("the weights", SOON, || async {
        let seen = router.process.admin_get("/observer/split").await.json()["services"][0]["rollout"].clone();
        if seen["version"].as_u64() >= Some(version) && seen["problem"].is_null() {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
}

pub async fn weights_follow_an_inference_service(cluster: Arc<Cluster>) {
    let fleet = Fleet {
        prefills: [sglang(Role::Prefill).await, sglang(Role::Prefill).await],
        decodes: [sglang(Role::Decode).await, sglang(Role::Decode).await],
    };
    for (role, engines) in [("prefill", &fleet.prefills), ("decode", &fleet.decodes)] {
        for (engine, n) in engines.iter().zip(1..) {
            let revision = format!("{}{n}", if role == "prefill" { "e" } else { "d" });
            let pod = sglang_pod(&format!("{role}-{n}"), engine, role).label(REVISION, &revision);
            cluster.create(&pod).await;
        }
    }
    let (stable, canary) = (target("e1", 100, "stable"), target("e2", 100, "canary"));
    let spec = json!({ "rollout": { "groups": [{ "components": ["engine", "decoder"], "canary": { "steps": [
        { "capacity": "50%", "traffic": 10, "pause": {} }, { "capacity": "100%", "traffic": 100 },
    ] } }] } });
    cluster.create_inference_service("chat", &spec).await;
    // Nothing names the stable revision yet: nobody is served, and the router says what it waits for.
    let lines = format!("{}\nsplit: {{ inferenceservice: {{ name: chat }} }}", sglang_service());
    let router = Router::of_kind(&cluster, SELDOM, &lines).await;
    let ports = fleet.prefills.iter().chain(&fleet.decodes).map(|engine| engine.addr.port());
    router.until_selectable(&ports.collect::<Vec<_>>(), SOON).await;
    assert!(!router.is_ready().await);
    assert_eq!(router.ask(1).await, [503]);

    // Before: the run is open, nothing is written.
    cluster.write_inference_service("chat", &status("Pending", &[], true)).await;
    router.until_ready(SOON).await;
    assert_eq!(fleet.canary(&router, 50).await, 0, "before its weight is written");
    // Step 1, paused.
    let step = [target("e2", 10, "canary"), target("e1", 90, "stable")];
    followed(&router, cluster.write_inference_service("chat", &status("Paused", &step, true)).await).await;
    let got = fleet.canary(&router, 400).await;
    assert!((15..=70).contains(&got), "{got} of 400 at 10 %");
    // What cannot be followed changes nothing.
    let bad = [target("e2", 50, "canary"), target("e1", 90, "stable")];
    cluster.write_inference_service("chat", &status("Paused", &bad, true)).await;
    until("the mistake is told", SOON, || async {
        let seen = router.process.admin_get("/observer/split").await.json()["services"][0]["rollout"].clone();
        if seen["problem"].is_string() { Ok(()) } else { Err(seen) }
    })
    .await;
    let got = fleet.canary(&router, 200).await;
    assert!((5..=45).contains(&got), "{got} of 200 at 10 %");
    // Promoting.
    let promoting = status("Promoting", std::slice::from_ref(&canary), true);
    followed(&router, cluster.write_inference_service("chat", &promoting).await).await;
    assert_eq!(fleet.canary(&router, 50).await, 50);
    // Rolled back, while the canary's Pods stay as they are; then the run is closed.
    let back = status("RollingBack", std::slice::from_ref(&stable), true);
    followed(&router, cluster.write_inference_service("chat", &back).await).await;
    assert_eq!(fleet.canary(&router, 50).await, 0);
    let closed = status("RolledBack", std::slice::from_ref(&stable), false);
    followed(&router, cluster.write_inference_service("chat", &closed).await).await;
    assert_eq!(fleet.canary(&router, 50).await, 0);
    // A blue-green group half-way: shares of its Pods.
    let half = [target("e2", 50, "latest"), target("e1", 50, "prev")];
    followed(&router, cluster.write_inference_service("chat", &status("", &half, true)).await).await;
    let got = fleet.canary(&router, 200).await;
    assert!((60..=140).contains(&got), "{got} of 200 at 50 %");

    // A router that starts now knows no other weights than these.
    followed(&router, cluster.write_inference_service("chat", &status("Paused", &[stable], true)).await)
        .await;
    drop(router);
    let router = Router::of_kind(&cluster, SELDOM, &lines).await;
    router.until_ready(SOON).await;
    assert_eq!(fleet.canary(&router, 50).await, 0);
    router.observers_agree().await;
}
