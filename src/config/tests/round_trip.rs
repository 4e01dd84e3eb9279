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
        let at = |port| StaticEndpoint { host: "[fd00::7]".to_owned(), port, bootstrap_port: None };
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

prop_compose! {
    fn any_config()(
        services in (any_service(0), any_service(1)).prop_map(|(a, b)| vec![a, b]),
        port in 1u16..9000, v6: bool, threads in proptest::option::of(1usize..=256),
        token_file in proptest::option::of(any_path()), sink in any_path(), sample in 0.0..=1.0f64,
        body in 1024u64..1 << 40, in_flight in 0usize..10_000_000,
        (idle, total) in (any_limit(), any_limit()), grace in 0u64..10_000_000,
    ) -> RouterConfig {
        let mut c = RouterConfig { threads, services, ..RouterConfig::defaults() };
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
