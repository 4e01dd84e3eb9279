use serde_json::json;

use super::*;
use crate::config::Dialect;
use crate::discovery::fixtures::{VLLM, changed, object, read, rules};

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn ports_of(pod: &Pod, rules: &Rules) -> Result<Vec<u16>, String> {
    let found = listeners(pod, rules, Role::Mixed, ADDRESS, None)?;
    Ok(found.iter().map(|listener| listener.port).collect())
}

fn annotated(key: &str, value: &str) -> Pod {
    read(&changed(|pod| pod["metadata"]["annotations"][key] = value.into()))
}

#[test]
fn annotated_ports_need_no_declaration_and_are_each_a_listener() {
    let rules = rules(EngineKind::Plain, Dialect::Tandem);
    let ports = |text: &str| ports_of(&annotated("tandem.dev/ports", text), &rules);
    assert_eq!(ports("9000"), Ok(vec![9000]));
    assert_eq!(ports(" 9001 , 9000,9001"), Ok(vec![9001, 9000]), "in order, each once");
    assert_eq!(ports(""), Ok(vec![8000]), "an empty one is none");
    for (text, part) in
        [("x", "x"), ("0", "0"), ("65536", "65536"), ("9000,", ""), ("9000;9001", "9000;9001"), ("-1", "-1")]
    {
        assert_eq!(ports(text), Err(format!("tandem.dev/ports: {part:?} is no port")));
    }
    let many: Vec<String> = (1..=65).map(|n| n.to_string()).collect();
    assert_eq!(ports(&many.join(",")), Err("tandem.dev/ports: 65 ports; at most 64".to_owned()));
    assert_eq!(ports(&many[..64].join(",")).map(|ports| ports.len()), Ok(64));
}

#[test]
fn configured_ports_have_to_be_declared_where_any_is() {
    let mut rules = rules(EngineKind::Plain, Dialect::Vllm);
    let pod = read(&object());
    let bare = read(&changed(|pod| pod["spec"] = json!({})));
    rules.pods.ports = vec![Port::Number(9000)];
    assert_eq!(
        ports_of(&pod, &rules),
        Err("no container declares port 9000; declared: http (8000)".to_owned())
    );
    assert_eq!(ports_of(&bare, &rules), Ok(vec![9000]));
    rules.pods.ports = vec![Port::Name("http".into()), Port::Number(8000)];
    assert_eq!(ports_of(&pod, &rules), Ok(vec![8000]), "one port by two names is one listener");
    assert_eq!(
        ports_of(&bare, &rules),
        Err("no container declares port named \"http\"; declared: none".to_owned())
    );
}

#[test]
fn only_sglang_prefills_have_a_bootstrap_port() {
    let key = "tandem.dev/bootstrap-port";
    let of = |engine, role, pod: &Pod, configured| {
        let mut rules = rules(engine, Dialect::Tandem);
        rules.pods.bootstrap_port = configured;
        listeners(pod, &rules, role, ADDRESS, None).map(|found| found[0].bootstrap_port)
    };
    let (pod, own) = (read(&object()), annotated(key, " 8998 "));
    let sglang = EngineKind::Sglang;
    assert_eq!(of(sglang, Role::Prefill, &own, Some(1)), Ok(Some(8998)));
    assert_eq!(of(sglang, Role::Prefill, &pod, Some(1)), Ok(Some(1)));
    assert_eq!(of(sglang, Role::Prefill, &pod, None), Ok(None), "asked of the engine");
    for (engine, role) in [(sglang, Role::Decode), (sglang, Role::Mixed), (VLLM, Role::Prefill)] {
        assert_eq!(of(engine, role, &own, Some(1)), Ok(None), "{engine:?} {role:?}");
    }
    assert_eq!(
        of(sglang, Role::Prefill, &annotated(key, "0"), None),
        Err(format!("{key}: \"0\" is no port"))
    );
    assert_eq!(of(sglang, Role::Decode, &annotated(key, "0"), None), Ok(None), "nobody asks a decode");
}

#[test]
fn the_facts_of_a_listener_come_with_it() {
    let pod = read(&changed(|pod| {
        let labels =
            [("tandem.dev/model", "m"), ("tandem.dev/revision", "r"), ("tandem.dev/pairing-token", "t")];
        for (key, value) in labels {
            pod["metadata"]["labels"][key] = value.into();
        }
    }));
    let rules = rules(VLLM, Dialect::Tandem);
    let six = "2001:db8::1".parse().unwrap();
    let found = listeners(&pod, &rules, Role::Decode, six, None).unwrap();
    let [listener] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(listener.authority(), "[2001:db8::1]:8000");
    assert_eq!(
        (listener.model.as_deref(), listener.revision.as_str(), listener.token.as_str()),
        (Some("m"), "r", "t")
    );
    assert_eq!((listener.role, listener.pod.as_ref().unwrap()), (Role::Decode, &pod.id));
    let bare = &listeners(&read(&object()), &rules, Role::Decode, ADDRESS, None).unwrap()[0];
    assert_eq!((&bare.model, bare.revision.as_str(), bare.token.as_str()), (&None, "", ""));
}

#[test]
fn a_worker_says_everything_of_itself() {
    let rules = rules(EngineKind::Sglang, Dialect::Infera);
    let info = |text: &str| worker_info(&annotated("infera.amd.com/worker-info", text), &rules);
    let whole = r#"{"url":"http://192.0.2.7:9000/v1","model_name":"m","disagg_mode":"prefill",
                    "disagg_meta":{"bootstrap_addr":"192.0.2.7:8998"}}"#;
    let worker = Worker {
        mode: "prefill".into(),
        model: Some("m".into()),
        port: Some(9000),
        bootstrap_port: Some(8998),
    };
    assert_eq!(info(whole), Ok(Some(worker.clone())));
    let pod = annotated("infera.amd.com/worker-info", whole);
    let found = listeners(&pod, &rules, Role::Prefill, ADDRESS, Some(&worker)).unwrap();
    let [listener] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (listener.authority(), listener.bootstrap_port),
        ("192.0.2.1:9000".to_owned(), Some(8998)),
        "the Pod's own address"
    );
    let both = r#"{"disagg_meta":{"bootstrap_port":1,"bootstrap_addr":"h:2"}}"#;
    assert_eq!(info(both).unwrap().unwrap().bootstrap_port, Some(1));
    let least = Worker { mode: "mixed".into(), model: None, port: None, bootstrap_port: None };
    assert_eq!(info("{}"), Ok(Some(least)));
    assert_eq!(worker_info(&read(&object()), &rules), Ok(None));
    for (url, port) in [
        ("https://h:1", Some(1)),
        ("h:2/x", Some(2)),
        ("http://[2001:db8::1]:3", Some(3)),
        ("http://h", None),
        ("http://h:x", None),
        ("http://h:0", None),
    ] {
        let said = info(&json!({ "url": url }).to_string());
        assert_eq!(said.ok().flatten().and_then(|worker| worker.port), port, "{url}");
    }
    assert!(info("{\"url\":5}").is_err() && info("5").is_err());
    assert!(info(r#"{"url":"http://h:0"}"#).is_err(), "nobody can dial it");
    let none = "infera.amd.com/worker-info: bootstrap_port 0 is no port".to_owned();
    assert_eq!(info(r#"{"disagg_meta":{"bootstrap_port":0}}"#), Err(none));
    let unread = info(r#"{"disagg_meta":{"bootstrap_addr":"h:0"}}"#).unwrap().unwrap();
    assert_eq!(unread.bootstrap_port, None, "an address without a port says nothing");
}
