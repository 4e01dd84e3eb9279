//! Properties of the whole: print and load are inverse, and no text makes loading panic.

use std::time::Duration;

use proptest::prelude::*;

use super::super::*;
use super::{loaded, source};

fn any_limit() -> impl Strategy<Value = Option<Duration>> {
    proptest::option::of((1u64..=31_536_000_000).prop_map(Duration::from_millis))
}

fn any_path() -> impl Strategy<Value = std::path::PathBuf> {
    "/[ -~é]{0,20}".prop_map(Into::into)
}

fn any_policy() -> impl Strategy<Value = Policy> {
    proptest::sample::select(vec![Policy::RoundRobin, Policy::LeastInFlight, Policy::PowerOfTwo])
}

fn any_kind() -> impl Strategy<Value = EngineKind> {
    let vllm = [VllmConnector::Nixl, VllmConnector::Store].map(EngineKind::Vllm);
    proptest::sample::select(vec![EngineKind::Plain, EngineKind::Sglang, vllm[0], vllm[1]])
}

prop_compose! {
    fn any_service(i: usize)(
        (engine, split) in (any_kind(), 1usize..3),
        models in proptest::collection::hash_set("[!-~é][ -~é]{0,12}", 1..4),
        mixed in any_policy(),
        (prefill_by, decode_by) in (any_policy(), any_policy()),
        ports in proptest::collection::hash_set(1u16.., 3..6),
        max in 0u32..=10, budget in 0.0..=1.0f64, idle in 0u64..100_000, cookies: bool, secret in any_path(),
    ) -> Service {
        let at = |port| StaticEndpoint {
            revision: if cookies { format!("r{port}") } else { String::new() },
            token: if cookies { String::new() } else { "kv: 1".to_owned() },
            ..StaticEndpoint::parse(&format!("http://[fd00::7]:{port}")).unwrap()
        };
        let mut endpoints: Vec<_> = ports.into_iter().map(at).collect();
        let mut service = if engine == EngineKind::Plain {
            Service::plain(&format!("s{i}"), endpoints)
        } else {
            let mut prefill = endpoints.split_off(split);
            if engine == EngineKind::Sglang {
                for at in &mut prefill {
                    at.bootstrap_port = Some(at.port);
                }
            }
            let decode = endpoints.split_off(endpoints.len() - 1);
            let mut pairs = Service::pairs(&format!("s{i}"), engine, prefill, decode);
            pairs.endpoints = endpoints;
            pairs
        };
        service.models = models.into_iter().map(|model| format!("{model}#{i}")).collect();
        service.policy = Policies { mixed, prefill: prefill_by, decode: decode_by };
        service.retries = Retries { max, budget, floor: max };
        service.upstream = Upstream {
            authorization: if cookies { Authorization::FromSecret(secret) } else { Authorization::Strip },
            idle: Duration::from_millis(idle),
            cookies,
            handoff_max_age: Duration::from_millis(idle + 1),
            kv_lease: Duration::from_millis(idle + 2),
            cancel_decode_grace: cookies.then(|| Duration::from_millis(idle)),
        };
        service
    }
}

fn any_labels(least: usize) -> impl Strategy<Value = Labels> {
    // Words of YAML among them: what is printed has to be quoted where it needs to be.
    let word =
        prop_oneof!["[a-z0-9]([a-z0-9._-]{0,6}[a-z0-9])?", "null|true|off|no|1|1\\.0|0x1|1e3|2024-01-01"];
    let key = (proptest::option::of("[a-z0-9]([a-z0-9-]{0,4}[a-z0-9])?(\\.io)?/"), word.clone())
        .prop_map(|(prefix, name)| prefix.unwrap_or_default() + &name);
    proptest::collection::btree_map(key, prop_oneof![word, Just(String::new())], least..4)
}

fn any_key() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("k[a-z0-9]{0,4}(\\.io/[A-Z]{1,3})?")
}

fn any_mode() -> impl Strategy<Value = Option<Mode>> {
    proptest::option::of(proptest::sample::select(vec![Mode::Required, Mode::Off, Mode::Observed]))
}

prop_compose! {
    fn any_keys()(
        (eligible, value) in ("e[a-z]{0,3}\\.io/[a-z]", proptest::option::of("[a-z0-9]{1,4}")),
        (role, model, revision, token) in ("r[a-z]{0,3}", any_key(), any_key(), any_key()),
        (ports, bootstrap_port, drain, worker_info) in (any_key(), any_key(), any_key(), any_key()),
        (prefill, decode) in ("[p0-4]{1,3}", "[d5-9]{1,3}"),
        mixed in proptest::collection::vec("[mt]", 0..=1),
    ) -> Keys {
        Keys {
            eligible: Some(EligibleKey { key: eligible, value }),
            role: Some(role),
            role_values: RoleValues { prefill: vec![prefill], decode: vec![decode], mixed },
            model, revision, token, ports, bootstrap_port, drain, worker_info,
        }
    }
}

prop_compose! {
    fn any_pods()(
        (selector, keys) in (any_labels(1), any_keys()),
        namespace in proptest::option::of("[b-z0-9]([a-z0-9-]{0,6}[a-z0-9])?"),
        role_selectors in proptest::option::of((any_labels(0), any_labels(0), any_labels(0))),
        dialect in proptest::sample::select(vec![Dialect::Tandem, Dialect::Gpustack, Dialect::Ome, Dialect::LlmD]),
        relist in 1_000u64..=600_000,
        (cached, probe) in (any::<bool>(), any::<bool>()),
        ip_family in proptest::sample::select(vec![IpFamily::Primary, IpFamily::V4, IpFamily::V6]),
        numbers in proptest::collection::hash_set(1u16.., 1..4),
        bootstrap_port in proptest::option::of(1u16..),
    ) -> PodDiscovery {
        let role = |labels: Labels, role: &str| {
            let mut labels: Labels = labels.into_iter().filter(|(label, _)| !selector.contains_key(label)).collect();
            labels.insert("tandem.dev/x".to_owned(), role.to_owned());
            labels
        };
        let ports = numbers.into_iter().map(Port::Number).chain([Port::Name("http-1".to_owned())]).collect();
        PodDiscovery {
            namespace,
            role_selectors: role_selectors.map_or_else(RoleSelectors::default, |(p, d, m)| RoleSelectors {
                prefill: role(p, "p"),
                decode: role(d, "d"),
                mixed: role(m, "m"),
            }),
            selector, dialect, ports, ip_family, bootstrap_port, keys,
            relist: Duration::from_millis(relist),
            relist_read: if cached { RelistRead::Cached } else { RelistRead::Consistent },
            probe: if probe { Probe::Models } else { Probe::Off },
        }
    }
}

prop_compose! {
    fn any_pod_service()(
        (pods, models) in (any_pods(), proptest::collection::hash_set("[!-~é][ -~é]{0,12}", 1..4)),
        (mode, prefill, decode, mixed) in (any_mode(), any_mode(), any_mode(), any_mode()), fail_static: bool,
    ) -> Service {
        let mut service = Service::pairs("pods", EngineKind::Sglang, vec![], vec![]);
        service.models = models.into_iter().map(|model| format!("{model}#p")).collect();
        service.eligibility = Eligibility { mode, prefill, decode, mixed, fail_static };
        service.pods = Some(pods);
        service
    }
}

prop_compose! {
    fn any_kubernetes()(
        kubeconfig in proptest::option::of(any_path()), context in proptest::option::of("[ -~é]{1,12}"),
    ) -> Kubernetes {
        Kubernetes { kubeconfig, context }
    }
}

prop_compose! {
    fn any_config()(
        services in (any_service(0), any_service(1), any_pod_service()).prop_map(|(a, b, c)| vec![a, b, c]),
        (state_file, on_front_door, kubernetes) in
            (proptest::option::of(any_path()), proptest::option::of(any::<bool>()), any_kubernetes()),
        port in 1u16..9000, v6: bool, threads in proptest::option::of(1usize..=256),
        token_file in proptest::option::of(any_path()), sink in any_path(), sample in 0.0..=1.0f64,
        body in 1024u64..1 << 40, in_flight in 0usize..10_000_000,
        (idle, total) in (any_limit(), any_limit()), grace in 0u64..10_000_000,
    ) -> RouterConfig {
        let observer = Observer { on_front_door };
        let mut c =
            RouterConfig { threads, state_file, observer, kubernetes, services, ..RouterConfig::defaults() };
        c.listen.set_port(port);
        if v6 { c.listen.set_ip(std::net::Ipv6Addr::LOCALHOST.into()); }
        c.admin.token_file = token_file;
        c.access_log = AccessLog { sink: LogSink::File(sink), format: LogFormat::Text, sample };
        c.limits = Limits { body, buffered_bytes: v6.then_some(body), in_flight, ..Limits::default() };
        c.timeouts = Timeouts { idle, total, ..c.timeouts };
        c.shutdown.grace = Duration::from_millis(grace);
        c
    }
}

proptest! {
    #[test]
    fn what_is_printed_loads_back_to_the_same_value(config in any_config()) {
        prop_assert_eq!(loaded(&source(&print(&config))), config);
    }

    #[test]
    fn no_file_panics(yaml in "([a-z_]{1,12}|services|limits|\\[|\\]|\\{|\\}|: |- |\n|  |&a|\\*a|<<|'|\"|#|~|[ -~é]){0,30}") {
        let _ = load(&source(&yaml));
    }
}
