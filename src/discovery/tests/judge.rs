use serde_json::{Value, json};

use super::*;
use crate::config::{Dialect, EngineKind, Labels, Service};
use crate::discovery::fixtures::{VLLM, changed, labelled, object, read, rules, service};

const MARK: &str = "tandem.dev/endpoint-eligible";

type Change = fn(&mut Value);

fn reason(pod: &Pod, rules: &Rules) -> Option<Reason> {
    match judge(pod, rules, Context::default()).1 {
        Verdict::Register(_) => None,
        Verdict::Withdraw(reason, _) => Some(reason),
    }
}

fn detail(pod: &Pod, rules: &Rules) -> String {
    match judge(pod, rules, Context::default()).1 {
        Verdict::Withdraw(_, detail) => detail.unwrap_or_default(),
        Verdict::Register(listeners) => panic!("registered: {listeners:?}"),
    }
}

#[test]
fn the_first_thing_that_is_wrong_is_the_reason() {
    let mut rules =
        Rules::of(0, &Service { models: vec!["m".into()], ..service(VLLM, Dialect::Tandem) }).unwrap();
    rules.fail_static = true;
    // Everything is wrong at once; then one thing after the other is put right.
    let mut pod = changed(|pod| {
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        pod["metadata"]["labels"] =
            json!({ "app": "other", "tandem.dev/model": "other", "tandem.dev/role": "cook" });
        pod["metadata"]["annotations"] = json!({ "tandem.dev/drain": "", "tandem.dev/ports": "x" });
        pod["status"] = json!({ "phase": "Failed" });
    });
    let steps: [(Reason, Change); 10] = [
        (Reason::Terminating, |pod| _ = pod["metadata"].as_object_mut().unwrap().remove("deletionTimestamp")),
        (Reason::NotSelected, |pod| pod["metadata"]["labels"]["app"] = "llm".into()),
        (Reason::WrongRole, |pod| pod["metadata"]["labels"]["tandem.dev/role"] = "decode".into()),
        (Reason::WrongModel, |pod| pod["metadata"]["labels"]["tandem.dev/model"] = "m".into()),
        (Reason::NotRunning, |pod| pod["status"]["phase"] = "Running".into()),
        (Reason::NoAddress, |pod| pod["status"]["podIP"] = "192.0.2.1".into()),
        (Reason::NotReady, |pod| {
            pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        }),
        (Reason::NotEligible, |pod| pod["metadata"]["labels"][MARK] = "true".into()),
        (Reason::DrainAnnotation, |pod| {
            _ = pod["metadata"]["annotations"].as_object_mut().unwrap().remove("tandem.dev/drain");
        }),
        (Reason::NoPort, |pod| pod["metadata"]["annotations"] = json!({})),
    ];
    for (wrong, put_right) in steps {
        assert_eq!(reason(&read(&pod), &rules), Some(wrong));
        put_right(&mut pod);
    }
    let (role, verdict) = judge(&read(&pod), &rules, Context::default());
    assert_eq!(role, Some(Role::Decode));
    let Verdict::Register(listeners) = verdict else { panic!("{verdict:?}") };
    assert_eq!(listeners.iter().map(Listener::authority).collect::<Vec<_>>(), ["192.0.2.1:8000"]);
}

#[test]
fn a_node_out_of_reach_withdraws_unless_told_otherwise_and_then_only_adds_nothing() {
    let unknown = read(&changed(|pod| {
        pod["metadata"]["labels"][MARK] = "true".into();
        pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "Unknown" }]);
    }));
    for (fail_static, registered, expected) in [
        (false, false, Some(Reason::ReadyUnknown)),
        (false, true, Some(Reason::ReadyUnknown)),
        (true, false, Some(Reason::ReadyUnknown)),
        (true, true, None),
    ] {
        let mut rules = rules(EngineKind::Plain, Dialect::Tandem);
        rules.fail_static = fail_static;
        let context = Context { registered, ..Context::default() };
        let reason = match judge(&unknown, &rules, context).1 {
            Verdict::Register(_) => None,
            Verdict::Withdraw(reason, _) => Some(reason),
        };
        assert_eq!(reason, expected, "{fail_static} {registered}");
    }
}

#[test]
fn the_mark_is_needed_by_mode_dialect_and_role() {
    let gpustack = "modeldeployment.gpustack.ai/endpoint-eligible";
    let role = "modeldeployment.gpustack.ai/role-kind";
    let rules = rules(VLLM, Dialect::Gpustack);
    for (kind, latched, mark, expected) in [
        ("prefill", false, None, None),
        ("prefill", true, None, Some(Reason::NotEligible)),
        ("prefill", true, Some("true"), None),
        ("prefill", true, Some("false"), Some(Reason::NotEligible)),
        ("server", false, None, Some(Reason::NotEligible)),
        ("server", false, Some("true"), None),
    ] {
        let mut labels = vec![(role, kind)];
        labels.extend(mark.map(|value| (gpustack, value)));
        let context = Context { latched: [latched; 3], ..Context::default() };
        let registered = matches!(judge(&labelled(&labels), &rules, context).1, Verdict::Register(_));
        assert_eq!(registered, expected.is_none(), "{kind} {latched} {mark:?}");
    }
    let off = self::rules(EngineKind::Plain, Dialect::Vllm);
    assert_eq!(reason(&read(&object()), &off), None, "no mark in this dialect");
}

#[test]
fn a_mark_may_be_an_annotation_and_any_value_where_none_is_named() {
    let rules = rules(EngineKind::Plain, Dialect::Tandem);
    let annotated = read(&changed(|pod| pod["metadata"]["annotations"][MARK] = "true".into()));
    assert!(is_marked(&annotated, &rules) && !is_marked(&labelled(&[(MARK, "True")]), &rules));
    let infera = self::rules(EngineKind::Plain, Dialect::Infera);
    let info = |text: &str| {
        read(&changed(|pod| pod["metadata"]["annotations"]["infera.amd.com/worker-info"] = text.into()))
    };
    assert!(is_marked(&info("{}"), &infera) && !is_marked(&info(""), &infera));
}

#[test]
fn roles_come_from_where_the_dialect_has_them() {
    let tandem = "tandem.dev/role";
    for (engine, dialect, labels, expected) in [
        (EngineKind::Plain, Dialect::Tandem, vec![], Some(Role::Mixed)),
        (EngineKind::Plain, Dialect::Tandem, vec![(tandem, "mixed")], Some(Role::Mixed)),
        (EngineKind::Plain, Dialect::Tandem, vec![(tandem, "prefill")], None),
        (EngineKind::Plain, Dialect::Ome, vec![("component", "engine")], Some(Role::Mixed)),
        (EngineKind::Plain, Dialect::Ome, vec![("component", "router")], None),
        (VLLM, Dialect::Tandem, vec![], None),
        (VLLM, Dialect::Tandem, vec![(tandem, "prefill")], Some(Role::Prefill)),
        (VLLM, Dialect::Tandem, vec![(tandem, "decode")], Some(Role::Decode)),
        (VLLM, Dialect::Tandem, vec![(tandem, "mixed")], Some(Role::Mixed)),
        (VLLM, Dialect::Tandem, vec![(tandem, "Decode")], None),
        (VLLM, Dialect::Ome, vec![("component", "engine")], Some(Role::Prefill)),
        (VLLM, Dialect::Ome, vec![("component", "decoder")], Some(Role::Decode)),
        (VLLM, Dialect::LlmD, vec![("llm-d.ai/role", "both")], Some(Role::Mixed)),
    ] {
        let role = judge(&labelled(&labels), &rules(engine, dialect), Context::default()).0;
        assert_eq!(role, expected, "{engine:?} {dialect:?} {labels:?}");
    }
    assert_eq!(
        detail(&labelled(&[(tandem, "cook")]), &rules(VLLM, Dialect::Tandem)),
        "tandem.dev/role is \"cook\""
    );
    assert_eq!(detail(&labelled(&[]), &rules(VLLM, Dialect::Tandem)), "it has no tandem.dev/role");
}

#[test]
fn role_selectors_are_asked_instead_of_the_label() {
    let mut rules = rules(VLLM, Dialect::Tandem);
    rules.pods.role_selectors.prefill = Labels::from([("part".into(), "p".into())]);
    rules.pods.role_selectors.decode =
        Labels::from([("part".into(), "d".into()), ("gpu".into(), "big".into())]);
    let role = |labels: &[(&str, &str)]| judge(&labelled(labels), &rules, Context::default()).0;
    assert_eq!(role(&[("part", "p"), ("tandem.dev/role", "decode")]), Some(Role::Prefill));
    assert_eq!(role(&[("part", "d"), ("gpu", "big")]), Some(Role::Decode));
    assert_eq!(role(&[("part", "d"), ("tandem.dev/role", "decode")]), None, "half of its terms");
}

#[test]
fn the_family_says_which_address_is_dialled() {
    let dual = |ips: &[&str]| {
        read(&changed(|pod| {
            pod["status"]["podIP"] = Value::Null;
            pod["status"]["podIPs"] = ips.iter().map(|ip| json!({ "ip": ip })).collect();
        }))
    };
    for (family, expected) in
        [(IpFamily::Primary, "2001:db8::1"), (IpFamily::V4, "192.0.2.1"), (IpFamily::V6, "2001:db8::1")]
    {
        let found = address(&dual(&["fe80::1", "2001:db8::1", "192.0.2.1", "192.0.2.2"]), family);
        assert_eq!(found, Some(expected.parse().unwrap()), "{family:?}");
    }
    let mut rules = rules(EngineKind::Plain, Dialect::Vllm);
    rules.pods.ip_family = IpFamily::V6;
    assert_eq!(detail(&dual(&["192.0.2.1", "fe80::1"]), &rules), "no IPv6 address among 192.0.2.1, fe80::1");
    assert_eq!(detail(&dual(&[]), &rules), "");
}

#[test]
fn a_pod_without_a_model_is_of_any_and_a_service_without_models_takes_any() {
    let listed = Rules::of(
        0,
        &Service { models: vec!["a".into(), "b".into()], ..service(EngineKind::Plain, Dialect::LlmD) },
    );
    let (listed, any) = (listed.unwrap(), rules(EngineKind::Plain, Dialect::LlmD));
    let of = |model| labelled(&[("llm-d.ai/model", model)]);
    assert_eq!(reason(&of("b"), &listed), None);
    assert_eq!(reason(&of("c"), &listed), Some(Reason::WrongModel));
    assert_eq!(detail(&of("c"), &listed), "it serves \"c\"");
    assert_eq!((reason(&labelled(&[]), &listed), reason(&of("c"), &any)), (None, None));
}

#[test]
fn a_drain_mark_counts_with_any_value_and_its_value_is_told() {
    let rules = rules(EngineKind::Plain, Dialect::Vllm);
    let drained =
        |value: &str| read(&changed(|pod| pod["metadata"]["annotations"]["tandem.dev/drain"] = value.into()));
    assert_eq!(
        (reason(&drained(""), &rules), detail(&drained(""), &rules)),
        (Some(Reason::DrainAnnotation), String::new())
    );
    assert_eq!(detail(&drained("new kernel"), &rules), "new kernel");
    assert_eq!(detail(&drained(&"é".repeat(500)), &rules), "é".repeat(200), "a log line is bounded");
    assert_eq!(reason(&labelled(&[("tandem.dev/drain", "false")]), &rules), Some(Reason::DrainAnnotation));
}

/// Whatever it is that withdraws the Pod.
#[test]
fn a_drains_order_is_read_and_told_whatever_else_counts() {
    let rules = rules(EngineKind::Plain, Dialect::Vllm);
    let drained = |also: &str| {
        read(&changed(|pod| {
            let value = "new disk; deadline=2026-12-01T11:30:00+01:00; force";
            pod["metadata"]["annotations"]["tandem.dev/drain"] = value.into();
            match also {
                "deleting" => pod["metadata"]["deletionTimestamp"] = "2026-12-01T10:00:00Z".into(),
                "not ready" => pod["status"]["conditions"] = serde_json::json!([]),
                _ => {}
            }
        }))
    };
    let text = "new disk; deadline=2026-12-01T10:30:00Z; force";
    for (also, why) in
        [("", Reason::DrainAnnotation), ("deleting", Reason::Terminating), ("not ready", Reason::NotReady)]
    {
        let pod = drained(also);
        assert_eq!(reason(&pod, &rules), Some(why), "{also}");
        assert_eq!(order(&pod, &rules).unwrap().to_string(), text);
    }
    assert_eq!(detail(&drained(""), &rules), text);
    assert_eq!(order(&labelled(&[("tandem.dev/drain", "")]), &rules), Some(DrainOrder::default()));
    assert_eq!(order(&labelled(&[]), &rules), None);
}

#[test]
fn a_worker_document_that_cannot_be_read_is_a_reason() {
    let rules = rules(VLLM, Dialect::Infera);
    let with = |text: &str| {
        read(&changed(|pod| pod["metadata"]["annotations"]["infera.amd.com/worker-info"] = text.into()))
    };
    assert_eq!(reason(&with("{"), &rules), Some(Reason::NoPort));
    assert!(detail(&with("{"), &rules).starts_with("infera.amd.com/worker-info: "));
    assert_eq!(reason(&read(&object()), &rules), Some(Reason::WrongRole), "a worker that did not register");
    let good = with(r#"{"url":"http://192.0.2.1:9000","disagg_mode":"decode"}"#);
    let (role, verdict) = judge(&good, &rules, Context::default());
    assert!(matches!(verdict, Verdict::Register(l) if l[0].port == 9000) && role == Some(Role::Decode));
}
