use serde_json::{Value, json};

use super::*;
use crate::discovery::fixtures::{changed, object, read};

fn refused(object: &Value) -> (Identity, String) {
    decode(&object.to_string(), &[]).unwrap_err()
}

fn set(path: &str, value: Value) -> Value {
    changed(|pod| *pod.pointer_mut(path).unwrap() = value)
}

#[test]
fn a_pod_is_what_its_object_says() {
    let mut object = object();
    object["metadata"]["annotations"] = json!({ "wanted": "w", "noise": "n" });
    let pod = decode(&object.to_string(), &["wanted".to_owned()]).unwrap();
    let id = PodId { namespace: "ns".into(), name: "p".into(), uid: "u".into() };
    assert_eq!(*pod.id, id);
    assert_eq!((pod.version, pod.created, pod.deleting), (5, 1_767_225_610, false));
    assert_eq!((pod.phase, pod.ready, pod.restarts), (Phase::Running, Ready::True, 0));
    assert_eq!(pod.addresses, ["192.0.2.1".parse::<IpAddr>().unwrap()], "podIP is one of podIPs");
    assert_eq!(pod.ports, [(Some("http".to_owned()), 8000)]);
    assert_eq!((pod.get("app"), pod.get("wanted"), pod.get("noise")), (Some("llm"), Some("w"), None));
    assert_eq!(Identity::of(&pod), identity(&object.to_string()));
}

#[test]
fn nulls_and_what_is_missing_are_nothing() {
    for path in [
        "/metadata/labels",
        "/metadata/annotations",
        "/metadata/namespace",
        "/metadata/name",
        "/metadata/creationTimestamp",
        "/spec",
        "/spec/containers",
        "/spec/containers/0/ports",
        "/spec/containers/0/ports/0/name",
        "/spec/containers/0/ports/0/containerPort",
        "/status",
        "/status/phase",
        "/status/podIP",
        "/status/podIPs",
        "/status/podIPs/0/ip",
        "/status/conditions",
        "/status/conditions/0/type",
        "/status/conditions/0/status",
        "/status/containerStatuses",
        "/status/containerStatuses/0/restartCount",
    ] {
        let null = set(path, Value::Null);
        decode(&null.to_string(), &[]).unwrap_or_else(|why| panic!("null at {path}: {why:?}"));
        let missing = changed(|pod| {
            let (parent, key) = path.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
        });
        let same = (decode(&missing.to_string(), &[]), decode(&null.to_string(), &[]));
        assert_eq!(same.0, same.1, "null and missing mean the same at {path}");
    }
    let bare = decode(r#"{"metadata":{"uid":"u","resourceVersion":"1"}}"#, &[]).unwrap();
    assert_eq!((bare.phase, bare.ready, bare.created), (Phase::Waiting, Ready::False, 0));
    assert!(bare.addresses.is_empty() && bare.ports.is_empty() && bare.labels.is_empty());
    let deleted = set("/metadata", json!({ "uid": "u", "resourceVersion": "1", "deletionTimestamp": null }));
    assert!(!read(&deleted).deleting);
}

#[test]
fn what_cannot_be_read_says_who_it_is_as_far_as_that_goes() {
    let (who, why) = refused(&set("/metadata/uid", "".into()));
    assert_eq!((who.uid, who.version, who.name.as_str()), (None, Some(5), "p"));
    assert_eq!(why, "it has no UID");
    for version in [json!(null), json!(""), json!("abc"), json!("-1"), json!("5.0")] {
        let (who, why) = refused(&set("/metadata/resourceVersion", version));
        assert_eq!((who.uid.as_deref(), who.version), (Some("u"), None));
        assert!(why.contains("resourceVersion") && why.contains("no number"), "{why}");
    }
    for (path, wrong) in [
        ("/metadata/labels", json!(5)),
        ("/metadata/labels/app", json!(["llm"])),
        ("/status/podIPs", json!("192.0.2.1")),
        ("/spec/containers/0/ports/0/containerPort", json!(70_000)),
        ("/status/containerStatuses/0/restartCount", json!(-1)),
        ("/metadata/creationTimestamp", json!("yesterday")),
    ] {
        let (who, _) = refused(&set(path, wrong));
        assert_eq!((who.uid.as_deref(), who.version, who.namespace.as_str()), (Some("u"), Some(5), "ns"));
    }
    let nobody = Identity { uid: None, namespace: String::new(), name: String::new(), version: None };
    for text in ["", "null", "5", "[]", "{}", r#"{"metadata":null}"#, "{\"metadata\":{\"uid\":"] {
        assert_eq!(decode(text, &[]).unwrap_err().0, nobody, "{text}");
    }
}

#[test]
fn addresses_are_those_that_can_be_dialled_in_the_order_of_the_list() {
    for (first, all, usable, unusable) in [
        ("192.0.2.1", vec!["2001:db8::1", "192.0.2.1"], vec!["2001:db8::1", "192.0.2.1"], vec![]),
        ("192.0.2.1", vec![], vec!["192.0.2.1"], vec![]),
        ("192.0.2.9", vec!["192.0.2.1"], vec!["192.0.2.1", "192.0.2.9"], vec![]),
        // An IPv4 address in IPv6 form is that IPv4 address, once.
        ("::ffff:192.0.2.1", vec!["192.0.2.1"], vec!["192.0.2.1"], vec![]),
        ("127.0.0.1", vec!["::1"], vec!["::1", "127.0.0.1"], vec![]),
        ("169.254.1.1", vec!["fe80::1"], vec![], vec!["fe80::1", "169.254.1.1"]),
        // With a zone, and link-local in either form.
        ("fe80::1%eth0", vec!["::ffff:169.254.0.1"], vec![], vec!["::ffff:169.254.0.1", "fe80::1%eth0"]),
        ("0.0.0.0", vec!["::"], vec![], vec!["::", "0.0.0.0"]),
        (
            "224.0.0.1",
            vec!["ff02::1", "255.255.255.255"],
            vec![],
            vec!["ff02::1", "255.255.255.255", "224.0.0.1"],
        ),
        (
            "nonsense",
            vec!["", "192.0.2.1:80", "[2001:db8::1]"],
            vec![],
            vec!["192.0.2.1:80", "[2001:db8::1]", "nonsense"],
        ),
    ] {
        let pod = read(&changed(|pod| {
            pod["status"]["podIP"] = first.into();
            pod["status"]["podIPs"] = all.iter().map(|ip| json!({ "ip": ip })).collect();
        }));
        let shown: Vec<String> = pod.addresses.iter().map(IpAddr::to_string).collect();
        assert_eq!(
            (shown, pod.unusable),
            (
                usable.iter().map(ToString::to_string).collect(),
                unusable.iter().map(ToString::to_string).collect()
            ),
            "{first} {all:?}"
        );
    }
}

#[test]
fn phases_and_readiness_have_few_meanings() {
    for (phase, meaning) in [
        ("Running", Phase::Running),
        ("Pending", Phase::Waiting),
        ("Unknown", Phase::Waiting),
        ("running", Phase::Waiting),
        ("Succeeded", Phase::Ended),
        ("Failed", Phase::Ended),
    ] {
        assert_eq!(read(&set("/status/phase", phase.into())).phase, meaning, "{phase}");
    }
    for (status, meaning) in
        [("True", Ready::True), ("False", Ready::False), ("Unknown", Ready::Unknown), ("true", Ready::False)]
    {
        let others =
            json!([{ "type": "ContainersReady", "status": "True" }, { "type": "Ready", "status": status }]);
        assert_eq!(read(&set("/status/conditions", others)).ready, meaning, "{status}");
    }
    assert_eq!(read(&set("/status/conditions", json!([]))).ready, Ready::False);
    assert!(
        read(&changed(|pod| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into())).deleting
    );
}

#[test]
fn ports_of_sidecars_count_and_only_tcp_ones() {
    let pod = read(&changed(|pod| {
        pod["spec"]["containers"] = json!([
            { "ports": [{ "containerPort": 8000 }, { "containerPort": 8001, "protocol": "UDP" }, { "containerPort": 0 }] },
            { "ports": [{ "name": "m", "containerPort": 9000, "protocol": "TCP" }] },
            {},
        ]);
        pod["spec"]["initContainers"] = json!([{ "ports": [{ "containerPort": 15_000 }] }]);
        pod["status"]["containerStatuses"] = json!([{ "restartCount": 2 }, { "restartCount": 3 }, {}]);
    }));
    assert_eq!(pod.ports, [(None, 8000), (Some("m".to_owned()), 9000), (None, 15_000)]);
    assert_eq!(pod.restarts, 5);
}

#[test]
fn a_label_wins_over_an_annotation_and_an_empty_value_is_none() {
    let pod = read(&changed(|pod| {
        pod["metadata"]["labels"] = json!({ "a": "label", "b": "" });
        pod["metadata"]["annotations"] = json!({ "a": "annotation", "b": "annotation", "c": "annotation" });
    }));
    assert_eq!((pod.get("a"), pod.get("b"), pod.get("c")), (Some("label"), None, Some("annotation")));
}
