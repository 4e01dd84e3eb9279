//! What changed between two configurations, by key, and whether a running router can take it over.

use std::collections::BTreeMap;

use super::keys::{self, Reload};
use super::print::{Document, document};
use super::router::RouterConfig;

/// Keys whose values differ, in the words of the file; a service is named, not numbered: `services[chat].retries.max`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Taken over by a reload.
    pub live: Vec<String>,
    /// In force from the next start.
    pub restart: Vec<String>,
    /// Part of a service as a whole: none of the new configuration can be taken over without a restart.
    pub fixed: Vec<String>,
}

/// Compares the values in force with new ones.
pub fn changes(old: &RouterConfig, new: &RouterConfig) -> Changes {
    let names = |config: &RouterConfig| config.services.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    let mut changes = Changes::default();
    if names(old) != names(new) {
        changes.fixed.push("services[].name".to_owned());
    }
    let (old, new) = (flat(old), flat(new));
    let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
    for key in keys.filter(|key| old.get(*key) != new.get(*key)) {
        let list = match reload(key) {
            Reload::Live => &mut changes.live,
            Reload::Start | Reload::Content if key.starts_with("services[") => &mut changes.fixed,
            Reload::Start | Reload::Content => &mut changes.restart,
        };
        list.push(key.clone());
    }
    changes
}

/// By the key itself, or where it is a list of entries by theirs.
fn reload(path: &str) -> Reload {
    let general = match (path.find('['), path.find(']')) {
        (Some(open), Some(close)) => format!("{}[]{}", &path[..open], &path[close + 1..]),
        _ => path.to_owned(),
    };
    let entry = format!("{general}[]");
    let of = |key: &&keys::Key| key.path == general || key.path.starts_with(&entry);
    keys::KEYS.iter().find(of).map_or(Reload::Start, |key| key.reload)
}

/// Scalars and lists by path.
fn flat(config: &RouterConfig) -> BTreeMap<String, Document> {
    let mut all = BTreeMap::new();
    collect(document(config), String::new(), &mut all);
    all
}

fn collect(document: Document, path: String, all: &mut BTreeMap<String, Document>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match document {
        Document::Map(entries) => {
            for (key, value) in entries {
                collect(value, below(key), all);
            }
        }
        Document::List(services) if path == "services" => {
            for service in services {
                let name = name_of(&service).unwrap_or_default();
                collect(service, format!("services[{name}]"), all);
            }
        }
        other => _ = all.insert(path, other),
    }
}

fn name_of(service: &Document) -> Option<String> {
    let Document::Map(entries) = service else { return None };
    entries.iter().find_map(|(key, value)| match value {
        Document::Text(name) if *key == "name" => Some(name.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{File, Source, load};

    fn parse(text: &str) -> RouterConfig {
        let file = File { name: "router.yaml".to_owned(), text: text.to_owned() };
        load(&Source { file: Some(file), ..Source::default() }).unwrap()
    }

    const BASE: &str = "
limits: { in_flight: 5 }
services:
  - name: chat
    discovery: { static: { mixed: [{ url: http://a:1 }] } }
  - name: other
    models: [o]
    discovery: { static: { mixed: [{ url: http://b:1 }] } }
";

    #[test]
    fn each_key_is_sorted_by_what_a_reload_can_do() {
        for (from, to, live, restart, fixed) in [
            ("in_flight: 5", "in_flight: 6", "limits.in_flight", "", ""),
            ("in_flight: 5", "in_flight: 5, connections: 20", "", "limits.connections", ""),
            (
                "http://a:1 }",
                "http://a:1 }, { url: http://c:1 }",
                "services[chat].discovery.static.mixed",
                "",
                "",
            ),
            ("models: [o]", "models: [o, p]", "services[other].models", "", ""),
            ("models: [o]", "models: [o]\n    retries: { max: 7 }", "services[other].retries.max", "", ""),
            (
                "models: [o]",
                "models: [o]\n    upstream: { idle: 9s }",
                "",
                "",
                "services[other].upstream.idle",
            ),
            ("services:", "api_keys_file: k\nservices:", "", "api_keys_file", ""),
            ("in_flight: 5", "in_flight: 5", "", "", ""),
        ] {
            assert!(BASE.contains(from));
            let found = changes(&parse(BASE), &parse(&BASE.replace(from, to)));
            let list = |key: &str| if key.is_empty() { vec![] } else { vec![key.to_owned()] };
            let wanted = Changes { live: list(live), restart: list(restart), fixed: list(fixed) };
            assert_eq!(found, wanted, "{to}");
        }
    }

    /// Which Pods there are is settled at the start; labels differ as a whole, whatever is in their names.
    #[test]
    fn pods_are_fixed() {
        let base = "services:\n- {name: chat, discovery: {kubernetes: {selector: {ome.io/a: x, b: y}}}}";
        let pods = "services[chat].discovery.kubernetes.";
        for (from, to, keys) in [
            ("ome.io/a: x", "ome.io/a: z", &["selector"][..]),
            ("ome.io/a: x", "ome.io/b: x", &["selector"]),
            ("ome.io/a: x, b: y", "b: y, ome.io/a: x", &[]),
            ("b: y}", "b: y}, mixed: {c.d/e: f}, relist: 1m", &["mixed", "relist"]),
            ("b: y}", "b: y}, keys: {drain: off}", &["keys.drain"]),
        ] {
            assert!(base.contains(from));
            let found = changes(&parse(base), &parse(&base.replace(from, to)));
            let fixed = keys.iter().map(|key| format!("{pods}{key}")).collect();
            assert_eq!(found, Changes { fixed, ..Changes::default() }, "{to}");
        }
        let listed = parse("services:\n- {name: chat, discovery: {static: {mixed: [{url: http://a:1}]}}}");
        assert!(changes(&listed, &parse(base)).fixed.contains(&format!("{pods}selector")));
        let state = changes(&parse(base), &parse(&format!("state_file: /s\n{base}")));
        assert_eq!((state.restart, state.fixed), (vec!["state_file".to_owned()], vec![]));
        let lax = base.replace("discovery", "eligibility: {mode: off}, discovery");
        assert_eq!(changes(&parse(base), &parse(&lax)).fixed, ["services[chat].eligibility.mode"]);
    }

    #[test]
    fn another_set_of_services_is_fixed() {
        let renamed = changes(&parse(BASE), &parse(&BASE.replace("name: other", "name: third")));
        assert_eq!(renamed.fixed[0], "services[].name");
        let engine = BASE.replace("models: [o]", "models: [o]\n    engine: { kind: sglang }");
        assert!(
            changes(&parse(BASE), &parse(&engine)).fixed.contains(&"services[other].engine.kind".to_owned())
        );
    }

    /// A key that is missing from the printed document would change unnoticed.
    #[test]
    fn every_key_is_compared() {
        let text = std::fs::read_to_string("config/router.yaml").unwrap();
        let paths: Vec<String> = flat(&parse(&text)).into_keys().collect();
        for key in keys::KEYS.iter().filter(|key| !key.path.starts_with("services[]")) {
            assert!(paths.iter().any(|path| path == key.path), "{}", key.path);
        }
    }
}
