//! `traffic: 10` end to end with an unmodified OME controller's status: one object for each phase, through the watch.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tandem::config::{EngineKind, InferenceService};
use tandem::testkit::kube::{FakeKube, Fault, RequestKind};
use tokio::time::sleep;

use super::rig::*;

/// Two of each component at each revision.
const ALL: [Is; 8] = [
    Is("prefill", "e1", ""),
    Is("prefill", "e1", ""),
    Is("decode", "d1", ""),
    Is("decode", "d1", ""),
    Is("prefill", "e2", ""),
    Is("prefill", "e2", ""),
    Is("decode", "d2", ""),
    Is("decode", "d2", ""),
];

fn target(hash: &str, percent: impl Into<Value>, tag: &str) -> Value {
    json!({"revisionName": format!("chat-engine-rev-{hash}"), "percent": percent.into(), "tag": tag})
}

/// An object whose canary group rolls engine and decoder from e1/d1 to e2/d2.
fn object(traffic: &Value) -> Value {
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"rollout": {"groups": [{"components": ["engine", "decoder"], "canary": {"steps": [
            {"capacity": "50%", "traffic": 10, "pause": {}}, {"capacity": "100%", "traffic": 100},
        ]}}]}},
        "status": {
            "components": {"engine": {"rolloutPhase": "Paused", "traffic": traffic}},
            "rollout": {"activeRun": {"runID": "r", "targetRevisions": [
                {"component": "engine", "revision": "e2", "stableRevision": "e1"},
                {"component": "decoder", "revision": "d2", "stableRevision": "d1"},
            ]}},
        },
    })
}

fn refused(code: u16) -> Fault {
    Fault::Status { code, retry_after: None }
}

fn step(canary: u64) -> Value {
    json!([target("e2", canary, "canary"), target("e1", 100 - canary, "stable")])
}

fn stable() -> Value {
    json!([target("e1", 100, "stable")])
}

async fn rig(object: Option<Value>) -> Rig {
    let api = FakeKube::new();
    let objects = api.inference_services();
    if let Some(object) = object {
        objects.create(object);
    }
    start(api).await
}

async fn start(api: FakeKube) -> Rig {
    Rig::start_on(api, NIXL, &ALL, None, |service| {
        service.rollout = Some(InferenceService { namespace: None, name: "chat".to_owned() });
    })
    .await
}

impl Rig {
    fn version(&self) -> u64 {
        self.router.admin.splits.split().services[0].version
    }

    /// Writes the object, and waits until the router has read that state of it.
    async fn write(&self, change: impl FnOnce(&mut Value)) {
        let before = self.read();
        self.api.inference_services().update("default", "chat", change);
        self.until("the object was read", || self.read() > before).await;
        sleep(Duration::from_millis(1)).await;
    }

    fn read(&self) -> f64 {
        let scrape = self.router.scrape();
        ["weights", "stable", "nothing", "missing", "unusable"]
            .map(|state| scrape.sum("tandem_split_source_states_total", &[("state", state)]))
            .iter()
            .sum()
    }

    fn ready(&self) -> bool {
        (self.router.admin.readiness)().ready
    }

    fn problem(&self) -> Option<String> {
        self.router.admin.splits.split().services[0].rollout.as_ref().unwrap().problem.clone()
    }

    /// Requests that went to the canary's engines and to the stable ones, of so many more: judged by the engines, which also
    /// saw that no leg met one of the other revision.
    async fn shares(&self, n: usize) -> [usize; 2] {
        let before = [self.seen("prefill"), self.seen("decode")];
        self.ask_well(n).await;
        let after = [self.seen("prefill"), self.seen("decode")];
        let of = |role: usize, revision: &str| {
            after[role].get(revision).unwrap_or(&0) - before[role].get(revision).unwrap_or(&0)
        };
        let shares = [of(0, "e2"), of(0, "e1")];
        assert_eq!(shares, [of(1, "d2"), of(1, "d1")], "pairs are of one cohort");
        assert_eq!(shares[0] + shares[1], n);
        let side = |is: &Is| if matches!(is.1, "e1" | "d1") { "stable" } else { "canary" };
        let pairs: [BTreeMap<String, &str>; 2] = ["prefill", "decode"].map(|role| self.ids(role, side));
        assert!(!pairs[0].is_empty() && pairs[0] == pairs[1], "each request met one side");
        shares
    }
}

/// Before, step 1 paused, promoting, promoted, at rest.
#[tokio::test(start_paused = true)]
async fn a_canary_from_before_it_to_its_end() {
    // The run is open, the step's capacity is not ready: nothing is written yet.
    let rig = rig(Some(object(&Value::Null))).await;
    assert!(rig.ready());
    assert_eq!(rig.shares(200).await, [0, 200]);
    // A pure warm-up step leaves the canary out.
    rig.write(|object| object["status"]["components"]["engine"]["traffic"] = stable()).await;
    assert_eq!(rig.shares(100).await, [0, 100]);
    rig.write(|object| object["status"]["components"]["engine"]["traffic"] = step(10)).await;
    let [canary, _] = rig.shares(1000).await;
    assert!((50..=150).contains(&canary), "{canary} of 1000 at 10 %");
    let split = rig.router.admin.splits.split().services[0].clone();
    assert_eq!((split.source.as_str(), split.volatile), ("ome", false));
    assert_eq!(split.rollout.as_ref().unwrap().object, "chat");
    // Promoting: the last step's weight, while the run is still open.
    let promoted = json!([target("e2", 100, "canary")]);
    rig.write(|object| object["status"]["components"]["engine"]["traffic"] = promoted).await;
    assert_eq!(rig.shares(200).await, [200, 0]);
    let version = rig.version();
    // The run is closed; weights are the same, whatever else is written into the object.
    rig.write(|object| {
        object["status"]["rollout"] = json!({"lastRun": {"outcome": "Completed"}});
        let settled = json!({"currentRevision": "chat-decoder-d2", "updateRevision": "chat-decoder-d2"});
        object["status"]["components"]["decoder"] = json!({"lifecycle": settled});
        object["metadata"]["labels"] = json!({"a": "b"});
    })
    .await;
    assert_eq!(rig.shares(100).await, [100, 0]);
    assert!(rig.version() <= version + 1);
    rig.end().await;
}

/// A rollback counts at once, while the canary's Pods are still ready.
#[tokio::test(start_paused = true)]
async fn a_canary_that_is_rolled_back_gets_nothing_from_then_on() {
    let rig = rig(Some(object(&step(50)))).await;
    let [canary, _] = rig.shares(400).await;
    assert!((140..=260).contains(&canary), "{canary} of 400 at 50 %");
    rig.write(|object| {
        object["status"]["components"]["engine"]["rolloutPhase"] = "RollingBack".into();
        object["status"]["components"]["engine"]["traffic"] = stable();
    })
    .await;
    assert_eq!(rig.shares(200).await, [0, 200]);
    // And after the run, before the controller has written anything more.
    rig.write(|object| {
        object["status"]["components"]["engine"]["rolloutPhase"] = "RolledBack".into();
        object["status"]["rollout"] = json!({"lastRun": {"outcome": "RolledBack"}});
    })
    .await;
    assert_eq!(rig.seen("decode")["d2"], canary, "only the stable one serves");
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_blue_green_group_half_way_is_shared_by_its_pods() {
    let mut half = object(&json!([target("e2", 40, "latest"), target("e1", 60, "prev")]));
    half["spec"]["rollout"]["groups"] = json!([{"components": ["engine", "decoder"], "blueGreen": {}}]);
    let rig = rig(Some(half)).await;
    let [canary, _] = rig.shares(1000).await;
    assert!((320..=480).contains(&canary), "{canary} of 1000 at 40 %");
    rig.end().await;
}

/// What cannot be followed changes nothing, and is told; what is older than what was read neither.
#[tokio::test(start_paused = true)]
async fn the_last_good_split_stays() {
    let rig = rig(Some(object(&step(0)))).await;
    let version = rig.version();
    for bad in [
        json!([target("e2", 20, "canary"), target("e1", 90, "stable")]),
        json!([target("e2", json!(-10), "canary"), target("e1", json!(110), "stable")]),
        json!([target("e2", json!(50.5), "canary"), target("e1", json!(49.5), "stable")]),
        json!([target("e9", 50, "canary"), target("e1", 50, "stable")]),
        json!([target("e2", 50, "canary"), target("e2", 50, "canary")]),
        json!("what"),
    ] {
        rig.write(|object| object["status"]["components"]["engine"]["traffic"] = bad.clone()).await;
        assert!(rig.problem().is_some(), "{bad}");
        assert_eq!((rig.version(), rig.shares(20).await), (version, [0, 20]), "{bad}");
    }
    // Nothing written, also while a run is not yet named: the last weights.
    for status in [Value::Null, json!({})] {
        rig.write(|object| {
            object["status"]["components"]["engine"] = json!({});
            object["status"]["rollout"] = status;
        })
        .await;
        assert_eq!((rig.version(), rig.shares(20).await), (version, [0, 20]));
    }
    // Nothing written while a run names a stable revision: also the last weights, not that one.
    rig.write(|all| all["status"] = object(&step(100))["status"].clone()).await;
    assert_eq!(rig.shares(20).await, [20, 0]);
    rig.write(|all| all["status"]["components"]["engine"] = json!({})).await;
    assert_eq!(rig.shares(20).await, [20, 0]);
    rig.write(|all| all["status"] = object(&step(0))["status"].clone()).await;
    let version = rig.version();
    // Gone: the same, and told.
    rig.api.inference_services().force_delete("default", "chat");
    rig.until("it is told", || rig.problem().is_some_and(|why| why.contains("no such"))).await;
    assert_eq!((rig.version(), rig.shares(20).await, rig.ready()), (version, [0, 20], true));
    // Another of its name.
    rig.api.inference_services().create(object(&json!([target("e2", 100, "canary")])));
    rig.until("it is followed", || rig.problem().is_none()).await;
    assert_eq!(rig.shares(20).await, [20, 0]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_canary_and_weights_it_is_no_source() {
    let mut none = object(&Value::Null);
    none["spec"] = json!({});
    let first = rig(Some(none)).await;
    assert!(first.ready());
    assert_eq!(first.router.admin.splits.split().services[0].source, "none");
    first.ask_well(20).await;
    first.end().await;
    // No object, and no such resource, the same; but told.
    for with_resource in [true, false] {
        let api = FakeKube::new();
        if with_resource {
            let _ = api.inference_services();
        }
        let rig = start(api).await;
        rig.until("it is ready", || rig.ready()).await;
        assert!(rig.problem().unwrap().contains("there is no such InferenceService"));
        rig.ask_well(20).await;
        rig.end().await;
    }
}

/// Nobody is served before the weights are known (I2): a restarted router must not send to a canary at 0.
#[tokio::test(start_paused = true)]
async fn nobody_is_served_before_the_weights_are_known() {
    let api = FakeKube::new();
    let objects = api.inference_services();
    let mut unreadable = object(&Value::Null);
    unreadable["status"] = json!({});
    objects.create(unreadable);
    let rig = start(api).await;
    for _ in 0..3 {
        sleep(Duration::from_secs(20)).await;
        assert!(!rig.ready());
        let state = (rig.router.admin.readiness)();
        assert!(state.awaiting.iter().any(|what| what == "split of chat (first list)"), "{state:?}");
        let reply = &rig.ask(1, &[]).await[0];
        assert_eq!((reply.status, reply.code.as_str()), (503, "no_cohort_available"));
    }
    rig.write(|all| all["status"] = object(&stable())["status"].clone()).await;
    assert!(rig.ready());
    assert_eq!(rig.shares(50).await, [0, 50]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_changes_nothing() {
    let api = FakeKube::new();
    let objects = api.inference_services();
    objects.create(object(&step(0)));
    objects.always(RequestKind::List, Some(refused(403)));
    let rig = start(api).await;
    rig.until("it is refused", || {
        let awaiting = (rig.router.admin.readiness)().awaiting;
        awaiting.iter().any(|what| what == "split of chat (refused with 403)")
    })
    .await;
    assert_eq!(rig.ask(1, &[]).await[0].status, 503);
    let objects = rig.api.inference_services();
    objects.always(RequestKind::List, None);
    rig.until("it is read", || rig.ready()).await;
    assert_eq!(rig.shares(20).await, [0, 20]);
    // Lists fail, the watch goes on; then the watch is lost too.
    objects.always(RequestKind::List, Some(refused(500)));
    rig.write(|object| object["status"]["components"]["engine"]["traffic"] = step(100)).await;
    assert_eq!(rig.shares(20).await, [20, 0]);
    objects.always(RequestKind::Watch, Some(refused(500)));
    objects.cut_watches();
    sleep(Duration::from_mins(2)).await;
    assert_eq!((rig.shares(20).await, rig.ready()), ([20, 0], true));
    objects.update("default", "chat", |object| {
        object["status"]["components"]["engine"]["traffic"] = stable();
    });
    objects.always(RequestKind::List, None);
    rig.until("a list tells", || rig.share("e1").weight == 100).await;
    assert_eq!(rig.shares(20).await, [0, 20]);
    rig.end().await;
}

/// A replica of the API server that is behind tells what was; that is over.
#[tokio::test(start_paused = true)]
async fn an_older_state_is_not_followed() {
    let api = FakeKube::new();
    let objects = api.inference_services();
    objects.create(object(&step(100)));
    let old = objects.version();
    let rig = start(api).await;
    rig.until("it is read", || rig.ready()).await;
    rig.write(|object| object["status"]["components"]["engine"]["traffic"] = stable()).await;
    let objects = rig.api.inference_services();
    objects.consistent_reads(false);
    objects.replica(0).lag_to(old);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(rig.shares(50).await, [0, 50]);
    rig.end().await;
}

/// An operator's split stands until the object has another one.
#[tokio::test(start_paused = true)]
async fn an_operators_split_stands_until_the_object_has_another() {
    let rig = rig(Some(object(&step(0)))).await;
    let by_hand = vec![tandem::config::SplitEntry {
        prefill: vec!["e2".into()],
        decode: vec!["d2".into()],
        weight: 1,
        ..Default::default()
    }];
    rig.put(by_hand, None).await;
    assert_eq!(rig.shares(20).await, [20, 0]);
    rig.write(|object| object["metadata"]["labels"] = json!({"a": "b"})).await;
    assert_eq!(rig.shares(20).await, [20, 0]);
    rig.router.admin.splits.set_split("chat", None, None).await;
    assert_eq!(rig.shares(20).await, [0, 20], "the object's again");
    rig.write(|object| object["status"]["components"]["engine"]["traffic"] = step(100)).await;
    assert_eq!(rig.shares(20).await, [20, 0]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn mixed_endpoints_of_an_engine_alone_are_shared_too() {
    let mut alone = object(&step(100));
    alone["spec"]["rollout"]["groups"][0]["components"] = json!(["engine"]);
    let api = FakeKube::new();
    api.inference_services().create(alone);
    let all = [Is("mixed", "e1", ""), Is("mixed", "e2", "")];
    let rig = Rig::start_on(api, EngineKind::Plain, &all, None, |service| {
        service.rollout = Some(InferenceService { namespace: None, name: "chat".to_owned() });
    })
    .await;
    rig.until("it is read", || rig.ready()).await;
    rig.ask_well(50).await;
    assert_eq!(rig.seen("mixed")["e2"], 50);
    rig.end().await;
}
