//! Prefill and decode endpoints: kinds of engine, roles, bootstrap ports, flags, notes.

use super::*;

/// A file with one service of this kind, its static endpoints, and more lines.
fn service(kind: &str, endpoints: &str, more: &str) -> String {
    format!(
        "services:\n  - name: a\n    engine: {{kind: {kind}}}\n    discovery: {{static: {{{endpoints}}}}}\n{more}"
    )
}

const PAIR: &str = "prefill: [{url: http://p:1}], decode: [{url: http://d:1}]";

fn at(url: &str, bootstrap_port: Option<u16>) -> StaticEndpoint {
    StaticEndpoint { bootstrap_port, ..StaticEndpoint::parse(url).unwrap() }
}

#[track_caller]
pub(super) fn one_mistake(yaml: &str, key_and_text: &str) {
    let found = mistakes(yaml);
    assert!(found.len() == 1 && found[0].contains(key_and_text), "{found:#?}");
}

#[test]
fn a_pair_gets_every_default_of_its_kind() {
    let bootstrap = |port| (vec![at("http://p:1", port)], vec![at("http://d:1", None)]);
    let nixl = EngineKind::Vllm(VllmConnector::Nixl);
    for (kind, engine, port) in [("sglang", EngineKind::Sglang, Some(8998)), ("vllm", nixl, None)] {
        let (prefill, decode) = bootstrap(port);
        let service_of = Service::pairs("a", engine, prefill, decode);
        let wanted = RouterConfig { services: vec![service_of], ..RouterConfig::defaults() };
        assert_eq!(loaded(&source(&service(kind, PAIR, ""))), wanted);
    }
}

#[test]
fn a_kind_with_pairs_needs_both_sides_or_mixed_endpoints_only() {
    for kind in ["sglang", "vllm"] {
        for complete in [PAIR, "mixed: [{url: http://m:1}]", &format!("{PAIR}, mixed: [{{url: http://m:1}}]")]
        {
            assert_eq!(mistakes(&service(kind, complete, "")), Vec::<String>::new(), "{complete}");
        }
        one_mistake(
            &service(kind, "", ""),
            "discovery.static: at least one prefill and one decode are needed",
        );
        let mixed = "mixed: [{url: http://m:1}]";
        for more in [String::new(), format!(", {mixed}")] {
            let prefill = format!("prefill: [{{url: http://p:1}}]{more}");
            one_mistake(&service(kind, &prefill, ""), "static.decode: at least one");
            let decode = format!("decode: [{{url: http://p:1}}]{more}");
            one_mistake(&service(kind, &decode, ""), "static.prefill: at least one");
        }
    }
}

#[test]
fn a_plain_engine_has_no_pairs() {
    let found = mistakes(&service("plain", PAIR, ""));
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("f:4:35: services[0].discovery.static.prefill: `engine.kind` is plain"));
    assert!(found[1].contains("discovery.static.decode: `engine.kind` is plain"));
    let mixed = "decode: [{url: http://d:1}], mixed: [{url: http://m:1}]";
    one_mistake(&service("plain", mixed, ""), "discovery.static.decode: `engine.kind` is plain");
}

#[test]
fn a_misspelt_kind_is_the_only_mistake() {
    let with_port = "prefill: [{url: http://p:1, bootstrap_port: 1}], decode: [{url: http://d:1}]";
    one_mistake(&service("sglng", with_port, ""), "engine.kind: not one of the choices");
    one_mistake(&service("vlm, connector: nixl", PAIR, ""), "allowed: plain, sglang, vllm");
    one_mistake(&service("", PAIR, ""), "engine.kind: has no value");
}

#[test]
fn an_engine_has_one_role_and_stands_once() {
    let twice = |a: &str, b: &str| format!("prefill: [{a}], decode: [{b}, {{url: http://d:1}}]");
    let same = twice("{url: http://h:1}", "{url: 'http://H:1/'}");
    one_mistake(
        &service("vllm", &same, ""),
        "static.decode[0].url: the same endpoint as services[0].discovery.static.prefill[0].url: http://h:1",
    );
    let mixed = format!("{PAIR}, mixed: [{{url: http://d:1}}]");
    one_mistake(&service("vllm", &mixed, ""), "static.mixed[0].url: the same endpoint as");
    let prefills = "prefill: [{url: http://h:1}, {url: http://h:1}], decode: [{url: http://d:1}]";
    one_mistake(&service("vllm", prefills, ""), "static.prefill[1].url: the same endpoint as");
}

#[test]
fn a_bootstrap_port_belongs_to_an_sglang_prefill_and_to_one_only() {
    let with = |ports: [&str; 2]| {
        let [a, b] = ports;
        format!("prefill: [{{url: http://h:1{a}}}, {{url: http://h:2{b}}}], decode: [{{url: http://d:1}}]")
    };
    let config = loaded(&source(&service("sglang", &with(["", ", bootstrap_port: 9001"]), "")));
    let ports: Vec<_> = config.services[0].prefill.iter().map(|p| p.bootstrap_port).collect();
    assert_eq!(ports, [Some(8998), Some(9001)]);
    let same = "static.prefill[1].bootstrap_port: h:8998 is also the bootstrap address of prefill[0]";
    one_mistake(&service("sglang", &with(["", ""]), ""), same);
    one_mistake(&service("sglang", &with(["", ", bootstrap_port: 0"]), ""), "bootstrap_port: out of range");
    let vllm = service("vllm", &with([", bootstrap_port: 8998", ""]), "");
    one_mistake(&vllm, "prefill[0].bootstrap_port: only prefills of `engine.kind` sglang");
    let decode = "prefill: [{url: http://p:1}], decode: [{url: http://d:1, bootstrap_port: 1}]";
    one_mistake(&service("sglang", decode, ""), "decode[0].bootstrap_port: unknown key here");
}

#[test]
fn only_vllm_has_connectors() {
    let config = loaded(&source(&service("vllm, connector: store", PAIR, "")));
    assert_eq!(config.services[0].engine, EngineKind::Vllm(VllmConnector::Store));
    one_mistake(&service("sglang, connector: nixl", PAIR, ""), "engine.connector: `engine.kind` is sglang");
    one_mistake(&service("vllm, connector: lmcache", PAIR, ""), "not one of the choices (got `lmcache`)");
}

#[test]
fn no_hand_off_outlives_the_lease() {
    let with = |upstream: &str| service("vllm", PAIR, &format!("    upstream: {{{upstream}}}\n"));
    assert_eq!(mistakes(&with("handoff_max_age: 29s")), Vec::<String>::new());
    one_mistake(&with("handoff_max_age: 30s"), "upstream.handoff_max_age: not less than `kv_lease`");
    one_mistake(&with("kv_lease: 15s"), "upstream.handoff_max_age: not less than `kv_lease`");
    one_mistake(&with("handoff_max_age: 0"), "upstream.handoff_max_age: must be more than 0");
    let grace = |value: &str| loaded(&source(&with(value))).services[0].upstream.cancel_decode_grace;
    assert_eq!(grace("cancel_decode_grace: auto"), None);
    assert_eq!(grace("cancel_decode_grace: 0"), Some(Duration::ZERO));
    assert_eq!(grace("cancel_decode_grace: 5s"), Some(Duration::from_secs(5)));
}

fn flags(prefills: &[&str], decodes: &[&str]) -> Source {
    let owned = |list: &[&str]| list.iter().map(|url| (*url).to_owned()).collect();
    let flags = Flags { prefills: owned(prefills), decodes: owned(decodes), ..Flags::default() };
    Source { flags, ..Source::default() }
}

fn with(mut source: Source, name: &'static str, key: &'static str, value: &str) -> Source {
    source.flags.values.push(flag(name, key, value));
    source
}

fn engine(source: Source, kind: &str) -> Source {
    with(source, "--engine", "services[].engine.kind", kind)
}

fn refused(source: &Source) -> Vec<String> {
    lines(&load(source).err().unwrap_or_default())
}

#[test]
fn flags_describe_pairs_as_a_file_does() {
    let mut source = engine(flags(&["http://p:1", "http://q:1,bootstrap=9001"], &["http://d:1"]), "sglang");
    source.flags.workers = vec!["http://m:1".to_owned()];
    source.flags.policy = Some("power_of_two".to_owned());
    let source = with(source, "--cancel-decode-grace", "services[].upstream.cancel_decode_grace", "1s");
    let prefill = vec![at("http://p:1", Some(8998)), at("http://q:1", Some(9001))];
    let mut wanted = Service::pairs("default", EngineKind::Sglang, prefill, vec![at("http://d:1", None)]);
    wanted.endpoints = vec![at("http://m:1", None)];
    wanted.policy = Policies::all(Policy::PowerOfTwo);
    wanted.upstream.cancel_decode_grace = Some(Duration::from_secs(1));
    assert_eq!(loaded(&source).services, [wanted]);
}

#[test]
fn a_mistake_in_a_flag_names_the_flag() {
    let pair = || flags(&["http://p:1"], &["http://d:1"]);
    let found = refused(&pair());
    assert!(found.len() == 2 && found[1].starts_with("--prefill: "), "{found:#?}");
    assert!(found[0].starts_with("--decode: services[0].discovery.static.decode: `engine.kind` is plain"));
    for (source, says) in [
        (engine(pair(), "sglan"), "--engine: services[0].engine.kind: not one of the choices (got `sglan`)"),
        (
            engine(flags(&["http://p:1"], &[]), "vllm"),
            "--prefill: services[0].discovery.static.decode: at least",
        ),
        (
            engine(flags(&["http://p:1,boot=2"], &["http://d:1"]), "sglang"),
            "--prefill: unknown option after the URL (got `boot=2`); allowed: URL, or URL,bootstrap=PORT",
        ),
        (
            engine(flags(&["http://p:1,bootstrap=x"], &["http://d:1"]), "sglang"),
            "--prefill: services[0].discovery.static.prefill[0].bootstrap_port: not a whole number (got `x`)",
        ),
        (
            engine(flags(&["http://p:1,bootstrap=2"], &["http://d:1"]), "vllm"),
            "--prefill: services[0].discovery.static.prefill[0].bootstrap_port: only prefills of",
        ),
    ] {
        let found = refused(&source);
        assert!(found.len() == 1 && found[0].starts_with(says), "{found:#?} is not {says}");
    }
    let found = refused(&engine(flags(&["http://p:1"], &["http://d:1,bootstrap=2"]), "sglang"));
    assert!(found.len() == 1 && found[0].starts_with("--decode: "), "{found:#?}");
}

#[test]
fn a_flag_that_sets_several_keys_is_one_mistake() {
    let mut source = engine(flags(&["http://p:1"], &["http://d:1"]), "vllm");
    source.flags.policy = Some("fastest".to_owned());
    let found = refused(&source);
    assert!(found.len() == 1 && found[0].starts_with("--policy: services[0].policy."), "{found:#?}");
}

#[test]
fn flags_of_a_service_need_its_endpoints() {
    let lonely = refused(&engine(source(ONE_SERVICE), "vllm"));
    assert!(
        lonely.len() == 1 && lonely[0].starts_with("--engine: needs --worker, or --prefill"),
        "{lonely:?}"
    );
    let mut both = engine(source(ONE_SERVICE), "vllm");
    both.flags.decodes.push("http://d:1".to_owned());
    assert!(refused(&both)[0].starts_with("--decode: services: cannot be combined"));
}

#[test]
fn a_kind_with_pairs_but_only_mixed_endpoints_is_noted() {
    let noted = |yaml: &str| notes(&loaded(&source(yaml)));
    let found = noted(&service("sglang", "mixed: [{url: http://m:1}]", ""));
    assert!(found.len() == 1 && found[0].starts_with("services[0] (a): engine.kind is sglang"), "{found:?}");
    assert_eq!(noted(&service("sglang", PAIR, "")), Vec::<String>::new());
    assert_eq!(noted(ONE_SERVICE), Vec::<String>::new());
}
