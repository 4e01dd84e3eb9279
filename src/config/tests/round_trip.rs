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

prop_compose! {
    fn any_service(i: usize)(
        models in proptest::collection::hash_set("[!-~é][ -~é]{0,12}", 1..4),
        policy in proptest::sample::select(vec![Policy::RoundRobin, Policy::LeastInFlight, Policy::PowerOfTwo]),
        ports in proptest::collection::hash_set(1u16.., 1..4),
        max in 0u32..=10, budget in 0.0..=1.0f64, idle in 0u64..100_000, cookies: bool, secret in any_path(),
    ) -> Service {
        let endpoints = ports.into_iter().map(|port| StaticEndpoint { host: "[fd00::7]".to_owned(), port }).collect();
        let mut service = Service::plain(&format!("s{i}"), endpoints);
        service.models = models.into_iter().map(|model| format!("{model}#{i}")).collect();
        service.policy = policy;
        service.retries = Retries { max, budget, floor: max };
        service.upstream = Upstream {
            authorization: if cookies { Authorization::FromSecret(secret) } else { Authorization::Strip },
            idle: Duration::from_millis(idle),
            cookies,
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
