//! `docs/discovery.md` has the presets of the code.

use std::fmt::Write as _;

use super::super::words;
use super::*;
use crate::types::role::Role;

fn discovery_md() -> String {
    std::fs::read_to_string("docs/discovery.md").unwrap()
}

/// The printed keys of a dialect, those that are off left out.
fn keys_of(dialect: Dialect) -> Vec<(&'static str, String)> {
    let mut service = Service::plain("a", Vec::new());
    service.pods = Some(PodDiscovery::of(dialect, Labels::new()));
    let config = RouterConfig { services: vec![service], ..RouterConfig::defaults() };
    let step = |document: Document, key: &str| match document {
        Document::Map(entries) => {
            entries.into_iter().find(|(other, _)| *other == key).map(|(_, value)| value)
        }
        Document::List(mut entries) => Some(entries.remove(0)),
        _ => None,
    };
    let path = ["services", "0", "discovery", "kubernetes", "keys"];
    let Some(Document::Map(keys)) = path.into_iter().try_fold(document(&config), step) else {
        panic!("no keys")
    };
    let named = keys.into_iter().filter_map(|(key, value)| match value {
        Document::Text(name) if name != "off" => Some((key, name)),
        _ => None,
    });
    named.collect()
}

#[test]
fn the_keys_of_each_dialect_are_documented() {
    let mut rows = String::from("| dialect | of `keys` | label or annotation |\n|---|---|---|\n");
    for (word, dialect) in words::DIALECT {
        for (key, name) in keys_of(*dialect) {
            writeln!(rows, "| `{word}` | `{key}` | `{name}` |").unwrap();
        }
    }
    assert!(discovery_md().contains(&rows), "{rows}");
}

#[test]
fn values_of_roles_that_are_not_their_names_are_documented() {
    let text = discovery_md();
    for (word, dialect) in words::DIALECT.iter().filter(|(_, dialect)| Keys::of(*dialect).role.is_some()) {
        let RoleValues { prefill, decode, mixed } = Keys::of(*dialect).role_values;
        for (role, values) in [("prefill", prefill), ("decode", decode), ("mixed", mixed)] {
            let others = values.iter().filter(|value| *value != role);
            assert!(others.into_iter().all(|value| text.contains(&format!("`{value}`"))), "{word} {role}");
        }
    }
}

#[test]
fn what_auto_is_in_eligibility_is_documented() {
    let mut rows = String::from("| dialect | prefill | decode | mixed |\n|---|---|---|---|\n");
    for (word, dialect) in words::DIALECT {
        let modes = Role::ALL.map(|role| Eligibility::default().mode_of(role, *dialect));
        let [prefill, decode, mixed] = modes.map(|mode| words::word(words::MODE, &mode));
        writeln!(rows, "| `{word}` | {prefill} | {decode} | {mixed} |").unwrap();
    }
    assert!(discovery_md().contains(&rows), "{rows}");
}
