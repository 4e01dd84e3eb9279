use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A canary of engine and decoder, `old` to `new` of each; what else it has is put in by the tests.
fn object(traffic: &Value) -> Value {
    json!({
        "metadata": {"name": "chat", "namespace": "prod", "resourceVersion": "7"},
        "spec": {"rollout": {"groups": [{"components": ["engine", "decoder"], "canary": {"steps": []}}]}},
        "status": {
            "components": {"engine": {"traffic": traffic}, "decoder": {}},
            "rollout": {"activeRun": {"runID": "x", "targetRevisions": [
                {"component": "engine", "revision": "e2", "stableRevision": "e1"},
                {"component": "decoder", "revision": "d2", "stableRevision": "d1"},
            ]}},
        },
    })
}

fn target(hash: &str, percent: u64, tag: &str) -> Value {
    json!({"revisionName": format!("chat-engine-rev-{hash}"), "percent": percent, "tag": tag, "latestRevision": tag == "canary"})
}

fn cohort(name: &str, prefill: &[&str], decode: &[&str], weight: u64) -> SplitEntry {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    let (prefill, decode) = (words(prefill), words(decode));
    SplitEntry { name: Some(name.to_owned()), prefill, decode, weight, ..SplitEntry::default() }
}

fn of_json(object: &Value) -> Said {
    said(&object.to_string())
}

fn why(object: &Value) -> String {
    match of_json(object) {
        Said::Unusable(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_step_is_two_cohorts_joined_through_the_open_run() {
    let step = of_json(&object(&json!([target("e2", 10, "canary"), target("e1", 90, "stable")])));
    let wanted = vec![cohort("e2", &["e2"], &["d2"], 10), cohort("e1", &["e1"], &["d1"], 90)];
    assert_eq!(step, Said::Weights(wanted));
    // A warm-up step, and a rollback: the canary's entry is left out.
    let all = of_json(&object(&json!([target("e1", 100, "stable")])));
    assert_eq!(all, Said::Weights(vec![cohort("e1", &["e1"], &["d1"], 100)]));
}

/// The cases of components that change, or not, by what a run says of them.
#[test]
fn what_does_not_change_belongs_to_each_cohort() {
    let traffic = json!([target("e2", 25, "canary"), target("e1", 75, "stable")]);
    let mut only_engine = object(&traffic);
    let run = "/status/rollout/activeRun/targetRevisions";
    only_engine.pointer_mut(run).unwrap()[1]["revision"] = "d1".into();
    let wanted = vec![cohort("e2", &["e2"], &["d1"], 25), cohort("e1", &["e1"], &["d1"], 75)];
    assert_eq!(of_json(&only_engine), Said::Weights(wanted));
    // It is in no group.
    only_engine.pointer_mut(run).unwrap().as_array_mut().unwrap().pop();
    let wanted = vec![cohort("e2", &["e2"], &[], 25), cohort("e1", &["e1"], &[], 75)];
    assert_eq!(of_json(&only_engine), Said::Weights(wanted));

    let mut only_decoder = object(&json!([target("e1", 25, "canary"), target("e1", 75, "stable")]));
    only_decoder.pointer_mut(run).unwrap()[0]["revision"] = "e1".into();
    let wanted = vec![cohort("e1/d2", &["e1"], &["d2"], 25), cohort("e1/d1", &["e1"], &["d1"], 75)];
    assert_eq!(of_json(&only_decoder), Said::Weights(wanted));
    for (tag, decode) in [("stable", &["d1"][..]), ("canary", &["d2"]), ("other", &[])] {
        only_decoder["status"]["components"]["engine"]["traffic"] = json!([target("e1", 100, tag)]);
        assert_eq!(of_json(&only_decoder), Said::Weights(vec![cohort("e1", &["e1"], decode, 100)]), "{tag}");
    }
}

#[test]
fn the_router_is_primary_where_it_is_in_the_group() {
    let named = |hash: &str, percent: u64| json!({"revisionName": format!("chat-router-rev-{hash}"), "percent": percent});
    let mut routed = object(&json!([]));
    routed["spec"]["rollout"]["groups"][0]["components"] = json!(["router", "engine", "decoder"]);
    routed["status"]["components"]["router"] = json!({"traffic": [named("r2", 10), named("r1", 90)]});
    let runs =
        routed.pointer_mut("/status/rollout/activeRun/targetRevisions").unwrap().as_array_mut().unwrap();
    runs.push(json!({"component": "router", "revision": "r2", "stableRevision": "r1"}));
    let wanted = vec![cohort("r2", &["e2"], &["d2"], 10), cohort("r1", &["e1"], &["d1"], 90)];
    assert_eq!(of_json(&routed), Said::Weights(wanted.clone()));
    // An edit of the spec counts for the next run only.
    let plan = json!({"groups": [{"group": {"components": ["engine", "router"], "canary": {}}}]});
    routed["status"]["rollout"]["activeRun"]["plan"] = plan;
    routed["spec"]["rollout"]["groups"] = json!([]);
    assert_eq!(of_json(&routed), Said::Weights(wanted));
    // No run is open: one revision has everything, whatever the engines are called; two cannot be told apart.
    routed["status"]["rollout"] = json!({});
    routed["spec"]["rollout"]["groups"] = json!([{"components": ["engine", "router"], "canary": {}}]);
    assert!(why(&routed).contains("no open run says which engines go with revision r2 of the router"));
    routed["status"]["components"]["router"] = json!({"traffic": [named("r1", 100)]});
    assert_eq!(of_json(&routed), Said::Weights(vec![cohort("r1", &[], &[], 100)]));
    // A canary of the router alone is not about engines.
    routed["spec"]["rollout"]["groups"] = json!([{"components": ["router"], "canary": {}}]);
    assert_eq!(of_json(&routed), Said::Nothing);
}

#[test]
fn a_blue_green_group_half_way_has_the_shares_of_its_pods_and_a_token_for_each() {
    let with_token = |hash, percent, tag, token: &str| {
        let mut target = target(hash, percent, tag);
        target["pairingProtocol"] = token.into();
        target
    };
    let mut half =
        object(&json!([with_token("e2", 40, "latest", "kv-v2"), with_token("e1", 60, "prev", "kv-v1")]));
    half["spec"]["rollout"]["groups"] = json!([{"components": ["engine", "decoder"], "blueGreen": {}}]);
    let token = |entry: SplitEntry, token: &str| SplitEntry { token: Some(token.to_owned()), ..entry };
    let wanted = vec![
        token(cohort("e2", &["e2"], &["d2"], 40), "kv-v2"),
        token(cohort("e1", &["e1"], &["d1"], 60), "kv-v1"),
    ];
    assert_eq!(of_json(&half), Said::Weights(wanted));
    half["status"]["components"]["engine"]["traffic"] = json!([]);
    assert_eq!(of_json(&half), Said::Nothing, "only a canary's weights are waited for");
}

#[test]
fn before_the_first_write_all_of_it_goes_to_the_stable_revision() {
    let mut before = object(&Value::Null);
    assert_eq!(of_json(&before), Said::Stable(vec![cohort("e1", &["e1"], &["d1"], 1)]));
    // No run yet: what the components run.
    before["status"]["rollout"] = Value::Null;
    assert!(why(&before).contains("nothing names the stable revision"));
    before["status"]["components"]["engine"]["lifecycle"] = json!({"currentRevision": "chat-engine-e0"});
    assert_eq!(of_json(&before), Said::Stable(vec![cohort("e0", &["e0"], &[], 1)]));
    before["status"]["components"]["decoder"] = json!({"lifecycle": {"currentRevision": "chat-decoder-d0"}});
    assert_eq!(of_json(&before), Said::Stable(vec![cohort("e0", &["e0"], &["d0"], 1)]));
    // A canary by a policy is one too.
    before["spec"]["rollout"]["groups"][0] =
        json!({"components": ["engine"], "policyRef": {"name": "p", "progression": "canary"}});
    assert!(matches!(of_json(&before), Said::Stable(_)));
    before["spec"] = json!({});
    assert_eq!(of_json(&before), Said::Nothing);
    // At rest status has weights also without a group.
    before["status"]["components"]["engine"]["traffic"] = json!([target("e0", 100, "latest")]);
    assert_eq!(of_json(&before), Said::Weights(vec![cohort("e0", &["e0"], &[], 100)]));
    let lifecycle = &mut before["status"]["components"]["decoder"]["lifecycle"];
    lifecycle["updateRevision"] = "chat-decoder-d0".into();
    assert_eq!(of_json(&before), Said::Weights(vec![cohort("e0", &["e0"], &["d0"], 100)]));
}

#[test]
fn what_cannot_be_followed_says_why() {
    let percent = |percent: Value| {
        let mut target = target("e2", 0, "canary");
        target["percent"] = percent;
        why(&object(&json!([target, self::target("e1", 90, "stable")])))
    };
    for (bad, shown) in [
        (json!(-10), "-10"),
        (json!(10.5), "10.5"),
        (json!("10"), "\"10\""),
        (json!(1_000_000_000_u64), "1000000000"),
        (Value::Null, "missing"),
        (json!([10]), "[10]"),
    ] {
        let wanted = format!("percent of \"chat-engine-rev-e2\" is {shown}, no whole number from 0 to 100");
        assert_eq!(percent(bad), wanted);
    }
    assert_eq!(percent(json!(20)), "the percents of traffic sum to 110, not to 100");
    let twice = object(&json!([target("e1", 50, ""), target("e1", 50, "")]));
    assert_eq!(why(&twice), "traffic has two entries for revision e1/d1");
    let unknown = why(&object(&json!([target("e3", 10, "canary"), target("e1", 90, "stable")])));
    assert!(unknown.starts_with("revision e3 of \"chat-engine-rev-e3\" is neither target nor stable"));
    for name in ["chat-engine", "chat-engine-rev-", "chat-engine-rev-a b", ""] {
        let mut target = target("e2", 100, "");
        target["revisionName"] = name.into();
        assert!(why(&object(&json!([target]))).contains("is no NAME-COMPONENT-rev-HASH"), "{name}");
    }
    let many: Vec<Value> = (0..65).map(|n| target(&format!("e{n}"), 1, "")).collect();
    assert_eq!(why(&object(&many.into())), "65 entries in traffic; at most 64 are followed");
    let nan = object(&json!([target("e2", 100, "")])).to_string().replace(":100", ":NaN");
    for json in [nan.as_str(), "", "[]", "{\"status\":3}", "{\"status\":{\"components\":[]}}"] {
        assert!(matches!(said(json), Said::Unusable(why) if why.starts_with("it cannot be read")), "{json}");
    }
}

proptest! {
    /// Whatever two percents there are: followed whole with exactly these, or not at all.
    #[test]
    fn percents_are_followed_whole_or_not_at_all(a in -5i64..110, b in -5i64..110) {
        let mut object = object(&json!([target("e2", 0, "canary"), target("e1", 0, "stable")]));
        let traffic = &mut object["status"]["components"]["engine"]["traffic"];
        (traffic[0]["percent"], traffic[1]["percent"]) = (a.into(), b.into());
        match of_json(&object) {
            Said::Weights(entries) => {
                let weights: Vec<i64> = entries.iter().map(|e| i64::try_from(e.weight).unwrap()).collect();
                prop_assert_eq!((weights, a + b), (vec![a, b], 100));
            }
            Said::Unusable(_) => prop_assert!(a < 0 || b < 0 || a > 100 || b > 100 || a + b != 100),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
