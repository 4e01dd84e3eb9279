//! The whole of loading: layers, collected mistakes, rules between keys, and the way back through `print`.

use std::time::Duration;

use super::*;

mod dialects;
mod pairs;
mod pods;
mod round_trip;
mod table;

const ONE_SERVICE: &str = "services:\n  - name: a\n    discovery: {static: {mixed: [{url: http://h:1}]}}\n";

fn source(yaml: &str) -> Source {
    let file = Some(File { name: "f".to_owned(), text: yaml.to_owned() });
    Source { file, ..Source::default() }
}

fn with_env(yaml: &str, environment: &[(&str, &str)]) -> Source {
    let environment = environment.iter().map(|(k, v)| (k.into(), v.into())).collect();
    Source { environment, ..source(yaml) }
}

fn flag(flag: &'static str, key: &'static str, value: &str) -> FlagValue {
    FlagValue { flag, key, value: value.to_owned() }
}

fn loaded(source: &Source) -> RouterConfig {
    load(source).unwrap_or_else(|problems| panic!("{}", lines(&problems).join("\n")))
}

fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}

/// The mistakes of a file, one line each; none if it loads.
fn mistakes(yaml: &str) -> Vec<String> {
    load(&source(yaml)).map_or_else(|problems| lines(&problems), |_| Vec::new())
}

fn example() -> RouterConfig {
    let endpoint =
        StaticEndpoint { host: "h".to_owned(), port: 1, ..StaticEndpoint::parse("http://x:1").unwrap() };
    RouterConfig { services: vec![Service::plain("a", vec![endpoint])], ..RouterConfig::defaults() }
}

#[test]
fn a_file_with_one_service_gets_every_default() {
    assert_eq!(loaded(&source(ONE_SERVICE)), example());
}

#[test]
fn flags_beat_environment_beats_file_beats_default() {
    let yaml = format!(
        "shutdown: {{delay: 1s, grace: 1s}}\nlog: {{level: warn}}\nlisten: 127.0.0.1:1\n{ONE_SERVICE}"
    );
    let mut source = with_env(&yaml, &[("TANDEM_SHUTDOWN_GRACE", "2s"), ("TANDEM_LISTEN", "127.0.0.1:2")]);
    source.flags.values.push(flag("--listen", "listen", "127.0.0.1:3"));
    let config = loaded(&source);
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.shutdown.grace, Duration::from_secs(2));
    assert_eq!(config.shutdown.delay, Duration::from_secs(1));
    assert_eq!((config.log.level.as_str(), config.admin.listen.port()), ("warn", 9090));
}

#[test]
fn null_unsets_an_optional_key_only() {
    assert_eq!(loaded(&source(&format!("api_keys_file: ~\n{ONE_SERVICE}"))).api_keys_file, None);
    assert_eq!(mistakes(&format!("listen:\n{ONE_SERVICE}")), ["f:1:7: listen: has no value"]);
}

#[test]
fn every_mistake_of_every_source_is_reported_at_once_in_reading_order() {
    let yaml =
        "listen: nine\nlimits:\n  bdoy: 1\n  headers: 5\nservices:\n  - name: A\n    retries: {budget: 20}\n";
    let mut source = with_env(yaml, &[("TANDEM_THREADS", "0"), ("TANDEM_THREDS", "1")]);
    source.flags.values.push(flag("--grace", "shutdown.grace", "10"));
    let found = lines(&load(&source).err().unwrap_or_default());
    let expected = [
        "f:1:9: listen: not an address to listen on (got `nine`); allowed: IP:PORT",
        "f:3:3: limits.bdoy: unknown key; did you mean `body`?",
        "f:4:12: limits.headers: out of range (got `5`); allowed: a whole number, 10 to 1000",
        "f:6:5: services[0].discovery.static.mixed: at least one endpoint is needed",
        "f:6:11: services[0].name: not a service name (got `A`); allowed: ",
        "f:7:23: services[0].retries.budget: more than everything (got `20`); allowed: 0% to 100%",
        "TANDEM_THREADS: threads: out of range (got `0`); allowed: auto, or a whole number, 1 to 256",
        "TANDEM_THREDS: unknown variable; did you mean `TANDEM_THREADS`?",
        "--grace: shutdown.grace: a duration needs a unit (got `10`); allowed: ",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\nis not\n{expected}");
    }
}

#[test]
fn a_bad_value_in_the_file_is_reported_though_a_flag_overrides_it() {
    let mut source = source(&format!("listen: nine\n{ONE_SERVICE}"));
    source.flags.values.push(flag("--listen", "listen", "127.0.0.1:3"));
    assert_eq!(load(&source).err().map(|p| p.len()), Some(1));
}

#[test]
fn broken_yaml_hides_no_mistake_of_the_environment_and_invents_none() {
    let found = lines(&load(&with_env("a: [", &[("TANDEM_THREADS", "0")])).err().unwrap_or_default());
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn workers_become_one_service_named_default() {
    let flags = Flags {
        workers: vec!["http://A:1/".to_owned(), "http://b".to_owned()],
        models: vec!["m".to_owned()],
        policy: Some("round_robin".to_owned()),
        ..Flags::default()
    };
    let config = loaded(&Source { flags, ..Source::default() });
    let service = &config.services[0];
    assert_eq!(
        (service.name.as_str(), &service.models[..], service.policy),
        ("default", &["m".to_owned()][..], Policies::all(Policy::RoundRobin))
    );
    let urls: Vec<_> = service.endpoints.iter().map(ToString::to_string).collect();
    assert_eq!(urls, ["http://a:1", "http://b:80"]);
}

#[test]
fn flags_that_need_or_exclude_each_other_say_so() {
    let mut both = source(ONE_SERVICE);
    both.flags.workers.push("http://x:1".to_owned());
    let expected = "--worker: services: cannot be combined with `services` of the file, at f:2:3";
    assert_eq!(lines(&load(&both).err().unwrap_or_default()), [expected]);
    let mut lonely = source(ONE_SERVICE);
    lonely.flags.models.push("m".to_owned());
    assert!(lines(&load(&lonely).err().unwrap_or_default())[0].starts_with("--model: needs --worker"));
    let mut bad = Source::default();
    bad.flags.workers.push("https://x:1".to_owned());
    assert!(
        lines(&load(&bad).err().unwrap_or_default())[0]
            .starts_with("--worker: services[0].discovery.static.mixed[0].url: https")
    );
}

#[test]
fn nothing_to_serve_is_a_mistake() {
    let found = lines(&load(&Source::default()).err().unwrap_or_default());
    assert!(
        found.len() == 1 && found[0].starts_with("configuration: services: nothing to serve"),
        "{found:?}"
    );
}

/// Two services whose entries get these extra lines.
fn two(first: &str, second: &str) -> String {
    let entry = |name: &str, more: &str| {
        format!(
            "  - name: {name}\n    discovery: {{static: {{mixed: [{{url: http://{name}:1}}]}}}}\n    {more}\n"
        )
    };
    format!("services:\n{}{}", entry("a", first), entry("b", second))
}

#[test]
fn where_a_request_goes_is_never_a_matter_of_order() {
    assert_eq!(mistakes(&two("models: [m]", "models: [n]")), Vec::<String>::new());
    assert_eq!(mistakes(&two("models: [m]", "model_match: any")), Vec::<String>::new());
    let same_model = mistakes(&two("models: [m]", "models: [n, m]"));
    assert_eq!(same_model, ["f:7:17: services[1].models[1]: `m` is also listed at services[0].models[0]"]);
    for second in
        ["models: []", "model_match: any", "{models: [n], model_match: any}".trim_matches(['{', '}'])]
    {
        let second = second.replace(", model_match", "\n    model_match");
        let found = mistakes(&two("models: []", &second));
        assert!(
            found.len() == 1 && found[0].contains("services[1].model_match: takes any model"),
            "{found:?}"
        );
    }
    assert!(
        mistakes(&two("models: [m, m]", "models: [n]"))[0].contains("services[0].models[1]: `m` is also")
    );
    assert!(mistakes(&two("model_match: listed", "models: [n]"))[0].contains("`listed` needs names"));
}

#[test]
fn one_slip_is_one_mistake() {
    let found = mistakes(&two("models: m", "models: n"));
    assert!(found.len() == 2 && found.iter().all(|p| p.ends_with("must be a list")), "{found:?}");
    let found = mistakes(&ONE_SERVICE.replace("{url: http://h:1}", "http://h:1"));
    assert!(found.len() == 1 && found[0].contains("must be a mapping"), "{found:?}");
}

#[test]
fn names_and_endpoints_stand_once() {
    let same_name = two("models: [m]", "models: [n]").replace("name: b", "name: a");
    assert!(mistakes(&same_name)[0].contains("services[1].name: `a` is also the name of services[0]"));
    let same_endpoint =
        ONE_SERVICE.replace("[{url: http://h:1}]", "[{url: http://h:1}, {url: 'http://H:1/'}]");
    assert!(
        mistakes(&same_endpoint)[0]
            .contains("mixed[1].url: the same endpoint as services[0].discovery.static.mixed[0].url")
    );
}

#[test]
fn the_key_of_the_front_door_is_never_passed_on() {
    let pass = format!("api_keys_file: /k\n{ONE_SERVICE}    upstream: {{authorization: pass}}\n");
    assert!(mistakes(&pass)[0].starts_with("f:5:31: services[0].upstream.authorization: `pass` would hand"));
    assert_eq!(mistakes(&pass.replace("pass", "strip")), Vec::<String>::new());
}

#[test]
fn a_secret_for_engines_is_a_path_under_its_own_key() {
    let yaml = |value: &str| format!("{ONE_SERVICE}    upstream: {{authorization: {value}}}\n");
    let config = loaded(&source(&yaml("{from_secret: /s}")));
    assert_eq!(config.services[0].upstream.authorization, Authorization::FromSecret("/s".into()));
    assert!(mistakes(&yaml("{}"))[0].contains("authorization.from_secret: is required"));
    let misspelt = mistakes(&yaml("{from_secrt: /s}"));
    assert!(misspelt.iter().any(|p| p.contains("did you mean `from_secret`?")), "{misspelt:?}");
    assert!(mistakes(&yaml("[pass]"))[0].contains("must be one value, not a list"));
    assert!(mistakes(&yaml("nopass"))[0].ends_with("allowed: auto, pass, strip, {from_secret: PATH}"));
}

#[test]
fn limits_that_contradict_each_other_are_mistakes() {
    for (limits, says) in [
        ("{body: 1MiB, buffered_bytes: 512KiB}", "buffered_bytes: less than"),
        ("{header_bytes: 8KiB, url: 9KiB}", "limits.url: more than"),
        ("{header_bytes: 4KiB}", "header_bytes: too small (got `4KiB`); allowed: at least 8KiB"),
        ("{url: 64KiB}", "url: too large"),
        ("{body: 0}", "body: too small"),
    ] {
        let found = mistakes(&format!("limits: {limits}\n{ONE_SERVICE}"));
        assert!(found.len() == 1 && found[0].contains(says), "{found:?}");
    }
    let ports = mistakes(&format!("listen: 127.0.0.1:80\nadmin: {{listen: '[::]:80'}}\n{ONE_SERVICE}"));
    assert!(ports[0].contains("admin.listen: the same port"), "{ports:?}");
}

#[test]
fn an_alias_serves_two_services_and_its_mistake_has_a_place() {
    let yaml = two("models: [m]\n    retries: &r {max: 99}", "models: [n]\n    retries: *r");
    let found = mistakes(&yaml);
    assert!(found.len() == 2 && found[0].starts_with("f:5:"), "{found:?}");
}
