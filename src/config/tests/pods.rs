//! Services whose endpoints are Pods: labels, dialects, roles, marks, notes.

use super::pairs::one_mistake;
use super::*;

/// A file with one service: its kind, its keys below `kubernetes`, and more lines.
fn service(kind: &str, pods: &str, more: &str) -> String {
    format!(
        "services:\n  - name: a\n    engine: {{kind: {kind}}}\n    discovery:\n      kubernetes: {{{pods}}}\n{more}"
    )
}

/// With a selector.
fn plain(pods: &str, more: &str) -> String {
    service("plain", &format!("selector: {{app: a}}{}{pods}", if pods.is_empty() { "" } else { ", " }), more)
}

fn pair(pods: &str, more: &str) -> String {
    plain(pods, more).replace("kind: plain", "kind: sglang")
}

fn eligibility(keys: &str) -> String {
    format!("    eligibility: {{{keys}}}\n")
}

fn labels(list: &[(&str, &str)]) -> Labels {
    list.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
}

fn pods(yaml: &str) -> PodDiscovery {
    loaded(&source(yaml)).services.remove(0).pods.expect("Pods")
}

const DIALECTS: [(&str, Dialect); 7] = [
    ("tandem", Dialect::Tandem),
    ("gpustack", Dialect::Gpustack),
    ("ome", Dialect::Ome),
    ("infera", Dialect::Infera),
    ("llm-d", Dialect::LlmD),
    ("sglang", Dialect::Sglang),
    ("vllm", Dialect::Vllm),
];

#[test]
fn a_selector_alone_gets_every_default_of_its_dialect() {
    let app = labels(&[("app", "a")]);
    assert_eq!(pods(&plain("", "")), PodDiscovery::of(Dialect::Tandem, app.clone()));
    for (word, dialect) in DIALECTS {
        let yaml = plain(&format!("dialect: {word}"), "");
        assert_eq!(pods(&yaml), PodDiscovery::of(dialect, app.clone()), "{word}");
        let config = loaded(&source(&yaml));
        assert_eq!(loaded(&source(&print(&config))), config, "{word}");
    }
    let of = |kind: &str| mistakes(&pair("", "").replace("sglang", kind));
    assert_eq!((of("sglang"), of("vllm")), (vec![], vec![]));
}

#[test]
fn labels_are_written_as_they_are() {
    let selector = "ome.io/inferenceservice: b, a.b/c: 1.0, d: true, e: ''";
    let found = pods(&service("plain", &format!("selector: {{{selector}}}"), ""));
    let wanted = [("ome.io/inferenceservice", "b"), ("a.b/c", "1.0"), ("d", "true"), ("e", "")];
    assert_eq!(found.selector, labels(&wanted));
}

#[test]
fn keys_are_of_the_dialect_or_off_or_named() {
    let with = |keys: &str| pods(&plain(&format!("dialect: ome, keys: {{{keys}}}"), "")).keys;
    let preset = Keys::of(Dialect::Ome);
    assert_eq!(with("role: auto, prefill_values: auto, drain: auto, eligible: auto"), preset);
    let named = with("role: a/b, prefill_values: [p, 1], mixed_values: [], drain: off, eligible: m=y");
    assert_eq!(named.role.as_deref(), Some("a/b"));
    let RoleValues { prefill, decode, mixed } = named.role_values;
    assert_eq!(
        (prefill, decode, mixed),
        (vec!["p".to_owned(), "1".to_owned()], preset.role_values.decode, vec![])
    );
    assert_eq!(named.drain, None);
    assert_eq!(named.eligible, Some(EligibleKey { key: "m".to_owned(), value: Some("y".to_owned()) }));
    assert_eq!((named.revision, named.token), (preset.revision, preset.token));
}

#[test]
fn every_mistake_in_labels_and_keys_has_its_place() {
    let yaml = "services:
  - name: a
    discovery:
      kubernetes:
        namespace: Team
        selector:
          -x: a
          ok: b c
          none:
          list: [a]
        relist: 11m
        ports: [0, http, https-and-more-x, http]
        keys:
          eligible: a=
          role: r/
          decode_values: [d, '']
";
    let expected = [
        "f:5:20: services[0].discovery.kubernetes.namespace: not a namespace (got `Team`); allowed: auto, or 1 to 63",
        "f:7:11: services[0].discovery.kubernetes.selector[-x]: not a label key (got `-x`); allowed: NAME or PREFIX/NAME",
        "f:8:15: services[0].discovery.kubernetes.selector[ok]: not a label value (got `b c`); allowed: at most 63",
        "f:9:15: services[0].discovery.kubernetes.selector[none]: has no value; an empty one is written ''",
        "f:10:17: services[0].discovery.kubernetes.selector[list]: must be one value",
        "f:11:17: services[0].discovery.kubernetes.relist: out of range (got `11m`); allowed: 1s to 10m",
        "f:12:17: services[0].discovery.kubernetes.ports[0]: out of range (got `0`); allowed: 1 to 65535, or the name",
        "f:12:26: services[0].discovery.kubernetes.ports[2]: not a port (got `https-and-more-x`); allowed: 1 to",
        "f:12:44: services[0].discovery.kubernetes.ports[3]: the same port as ports[1]",
        "f:14:21: services[0].discovery.kubernetes.keys.eligible: not a value of a label (got `a=`); allowed: auto, off",
        "f:15:17: services[0].discovery.kubernetes.keys.role: not a label key (got `r/`); allowed: auto, off, NAME",
        "f:16:30: services[0].discovery.kubernetes.keys.decode_values[1]: not a value of a label (got an empty value)",
    ];
    let found = mistakes(yaml);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\nis not\n{expected}");
    }
}

#[test]
fn one_slip_in_a_shape_is_one_mistake() {
    for (yaml, says) in [
        (service("sglang", "dialect: tandem", ""), "kubernetes.selector: is required"),
        (
            service("sglang", "selector: {}", ""),
            "f:5:30: services[0].discovery.kubernetes.selector: at least one label",
        ),
        (service("sglang", "selector: app", ""), "selector: must be a mapping of labels"),
        (service("sglang", "selector: [app]", ""), "selector: must be a mapping of labels"),
        (service("sglang", "selector:", ""), "selector: at least one label"),
        (plain("", "").replace("{selector: {app: a}}", "pods"), "kubernetes: must be a mapping"),
        (
            plain("dialect: gpustak, keys: {eligible: off}", ""),
            "dialect: not one of the choices (got `gpustak`); allowed: tandem",
        ),
        (pair("dialect: vlm, keys: {role: off}", ""), "dialect: not one of the choices"),
        (pair("dialect: vllm, keys: {role: a b}", ""), "keys.role: not a label key"),
        (
            plain("dialect: vllm, keys: {eligible: a b}", &eligibility("mode: required")),
            "keys.eligible: not a label key",
        ),
        (pair("prefill: {a b: c}, decode: {d: e}", ""), "prefill[a b]: not a label key"),
        (plain("bootstrap_port: 1", "").replace("plain", "sgl"), "engine.kind: not one of the choices"),
        (plain("keys: {role: [a]}", ""), "keys.role: must be one value, not a list"),
        (plain("keys: {mixed_values: a}", ""), "keys.mixed_values: must be a list"),
        (plain("keys: {mixed_values: }", ""), "keys.mixed_values: has no value"),
        (plain("ports: 8000", ""), "ports: must be a list"),
        (plain("keys: {rolle: a}", ""), "keys.rolle: unknown key; did you mean `role`?"),
        (
            plain("", &eligibility("mode: on")),
            "eligibility.mode: not one of the choices (got `on`); allowed: auto, or required",
        ),
        (plain("prefill: {b: c}", "").replace("prefill", "prefil"), "did you mean `prefill`?"),
    ] {
        one_mistake(&yaml, says);
    }
}

#[test]
fn a_service_has_listed_endpoints_or_pods() {
    let fixed = |endpoints: &str| plain("", &format!("      static: {{{endpoints}}}\n"));
    one_mistake(
        &fixed("mixed: [{url: http://h:1}]"),
        "f:5:19: services[0].discovery.kubernetes: a service has listed",
    );
    assert_eq!(mistakes(&fixed("")), Vec::<String>::new());
    assert_eq!(mistakes(&fixed("mixed: []")), Vec::<String>::new());
    let neither = |kind: &str| service(kind, "", "").replace("{}", "");
    one_mistake(
        &neither("plain"),
        "static.mixed: at least one endpoint is needed, written `- url: http://HOST:PORT`, or",
    );
    for kind in ["plain", "sglang"] {
        one_mistake(&neither(kind), "the Pods of `discovery.kubernetes`");
    }
}

#[test]
fn a_lost_mark_has_to_be_seen_on_a_pod_that_is_known() {
    let with = |more: &str| {
        service("plain", &format!("selector: {{app: a, tandem.dev/endpoint-eligible: true}}{more}"), "")
    };
    one_mistake(
        &with(""),
        "f:5:39: services[0].discovery.kubernetes.selector[tandem.dev/endpoint-eligible]: is the eligibility mark",
    );
    assert_eq!(mistakes(&with(", dialect: ome")), Vec::<String>::new());
    one_mistake(&with(", dialect: ome, keys: {eligible: app}"), "selector[app]: is the eligibility mark");
}

#[test]
fn a_mode_that_asks_for_a_mark_needs_one() {
    for (pods, modes, says) in [
        ("dialect: ome", "mode: required", "f:6:25: services[0].eligibility.mode: `required` needs a mark"),
        ("dialect: ome", "mode: observed", "eligibility.mode: `observed` needs a mark"),
        ("dialect: ome", "mixed: observed", "eligibility.mixed: `observed` needs a mark"),
        (
            "keys: {eligible: off}",
            "",
            "keys.eligible: is off, and so has to be `eligibility.mode`, which is required for mixed",
        ),
        ("keys: {eligible: off}", "mode: required", "eligibility.mode: `required` needs a mark"),
    ] {
        one_mistake(&plain(pods, &eligibility(modes)), says);
    }
    for (pods, modes) in [
        ("dialect: ome, keys: {eligible: ok}", "mode: required"),
        ("keys: {eligible: off}", "mode: off"),
        ("keys: {eligible: off}", "mixed: off"),
        ("dialect: ome", "mixed: off, mode: off"),
    ] {
        assert_eq!(mistakes(&plain(pods, &eligibility(modes))), Vec::<String>::new(), "{pods} {modes}");
    }
    one_mistake(&pair("dialect: ome", &eligibility("mode: required")), "eligibility.mode: `required` needs");
    let both = mistakes(&pair("dialect: ome", &eligibility("prefill: required, decode: observed")));
    assert!(both.len() == 2 && both[1].contains("eligibility.decode: `observed`"), "{both:#?}");
}

#[test]
fn listed_endpoints_have_no_marks() {
    let with = |keys: &str| format!("{ONE_SERVICE}{}", eligibility(keys));
    one_mistake(&with("fail_static: true"), "f:4:18: services[0].eligibility: only Pods");
    one_mistake(&with("mixed: off"), "services[0].eligibility: only Pods");
    assert_eq!(mistakes(&with("mode: auto, fail_static: false")), Vec::<String>::new());
}

#[test]
fn roles_are_told_by_one_label_or_by_labels_of_their_own() {
    let sides = "prefill: {r: p}, decode: {r: d}";
    for (pods, says) in [
        (
            "dialect: sglang",
            "f:5:19: services[0].discovery.kubernetes.keys.role: is off (of the dialect sglang), so that",
        ),
        ("dialect: vllm", "or give `services[0].discovery.kubernetes.prefill` and"),
        ("keys: {role: off}", "f:5:53: services[0].discovery.kubernetes.keys.role: is off, so that nothing"),
        ("dialect: sglang, keys: {worker_info: off}", "name the label with the role here"),
        ("prefill: {r: p}", "kubernetes.decode: is empty and `prefill` is not"),
        ("decode: {r: d}, mixed: {r: m}", "kubernetes.prefill: is empty and `decode` is not"),
        ("keys: {decode_values: []}", "keys.decode_values: is empty and `keys.prefill_values` is not"),
        (
            "keys: {decode_values: [decode, prefill]}",
            "keys.decode_values[1]: `prefill` is also keys.prefill_values[0]",
        ),
        (
            "prefill: {r: p}, decode: {r: p}",
            "kubernetes.decode: a Pod with these labels and those of `prefill`",
        ),
        (
            "prefill: {r: p, x: y}, decode: {r: p}",
            "kubernetes.decode: a Pod with these labels and those of `prefill`",
        ),
        (
            &format!("{sides}, mixed: {{r: d, x: y}}"),
            "kubernetes.mixed: a Pod with these labels and those of `decode`",
        ),
        (
            "prefill: {app: b}, decode: {r: d}",
            "kubernetes.prefill[app]: `b` is `a` in `selector`: no Pod has both",
        ),
    ] {
        one_mistake(&pair(pods, ""), says);
    }
    for pods in [
        "dialect: sglang, keys: {role: r}",
        "dialect: infera",
        "dialect: sglang, mixed: {r: m}",
        "keys: {prefill_values: [], decode_values: []}",
        &format!("dialect: sglang, {sides}"),
        &format!("dialect: vllm, {sides}, mixed: {{r: m, app: a}}"),
    ] {
        assert_eq!(mistakes(&pair(pods, "")), Vec::<String>::new(), "{pods}");
    }
}

#[test]
fn a_plain_engine_has_no_prefills_among_its_pods() {
    let found = mistakes(&plain("prefill: {r: p}, decode: {r: d}, mixed: {r: m}", ""));
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].contains("kubernetes.prefill: `engine.kind` is plain"), "{found:#?}");
    for pods in ["dialect: vllm", "mixed: {r: m}"] {
        assert_eq!(mistakes(&plain(pods, "")), Vec::<String>::new(), "{pods}");
    }
}

#[test]
fn ports_are_1_to_64_and_a_bootstrap_port_is_sglangs() {
    let found = pods(&pair("ports: [8000, http, '9000'], bootstrap_port: 8998", ""));
    assert_eq!(found.ports, [Port::Number(8000), Port::Name("http".to_owned()), Port::Number(9000)]);
    assert_eq!(found.bootstrap_port, Some(8998));
    let many = |n: u16| plain(&format!("ports: {:?}", (1..=n).collect::<Vec<_>>()), "");
    assert_eq!((mistakes(&many(1)), mistakes(&many(64))), (vec![], vec![]));
    one_mistake(&many(0), "kubernetes.ports: 0 ports; a Pod has 1 to 64");
    one_mistake(&many(65), "kubernetes.ports: 65 ports");
    one_mistake(&plain("ports: [80, '080']", ""), "ports[1]: the same port as ports[0]");
    for kind in ["plain", "vllm"] {
        let yaml = pair("bootstrap_port: 8998", "").replace("sglang", kind);
        one_mistake(&yaml, "kubernetes.bootstrap_port: only prefills of `engine.kind` sglang");
    }
}

#[test]
fn services_may_share_their_pods() {
    let second = plain("", "    models: [m]\n").replace("services:\n", "").replace("name: a", "name: b");
    assert_eq!(mistakes(&format!("{}{second}", plain("", ""))), Vec::<String>::new());
}

#[test]
fn pods_are_noted_for_what_a_restart_forgets_and_not_for_being_mixed() {
    let noted = |yaml: &str| notes(&loaded(&source(yaml)));
    assert_eq!(noted(&pair("", "")), Vec::<String>::new());
    let found = noted(&pair("dialect: gpustack", ""));
    let says = "services[0] (a): eligibility of prefill and decode is observed and there is no state_file";
    assert!(found.len() == 1 && found[0].starts_with(says), "{found:?}");
    assert_eq!(noted(&format!("state_file: /s\n{}", pair("dialect: gpustack", ""))), Vec::<String>::new());
    assert_eq!(noted(&plain("dialect: gpustack", "")), Vec::<String>::new());
    assert!(
        noted(&plain("", &eligibility("mode: observed")))[0].contains("eligibility of mixed is observed")
    );
    assert_eq!(noted(&plain("", &eligibility("mode: observed, mixed: off"))), Vec::<String>::new());
}

#[test]
fn the_process_knows_its_api_server() {
    let with = |keys: &str| loaded(&source(&format!("{keys}\n{ONE_SERVICE}")));
    let config =
        with("kubernetes: {kubeconfig: /k, context: a@b}\nobserver: {on_front_door: false}\nstate_file: /s");
    let kubernetes = Kubernetes { kubeconfig: Some("/k".into()), context: Some("a@b".to_owned()) };
    assert_eq!((config.kubernetes, config.observer), (kubernetes, Observer { on_front_door: Some(false) }));
    assert_eq!(config.state_file, Some("/s".into()));
    let unset =
        with("kubernetes: {kubeconfig: auto, context: ~}\nobserver: {on_front_door: auto}\nstate_file: ~");
    assert_eq!(unset, example());
}
