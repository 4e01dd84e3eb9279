//! Which keys a file may have: a walk over the tree with the table of keys at hand.
//!
//! Separate from reading values on purpose. This pass knows names and shapes only, so no section can forget to look
//! for unknown keys; `reader` then takes what it needs and never sees a misplaced mapping.

use super::keys;
use super::node::{Entry, Node, Value};
use super::problem::{Place, Problem};
use super::suggest::nearest;

/// Reports unknown, unsupported and repeated keys, and mappings or lists where the other belongs.
pub(super) fn check(root: &Node, problems: &mut Vec<Problem>) {
    Walk { problems }.node(root, "", "");
}

struct Walk<'a> {
    problems: &'a mut Vec<Problem>,
}

impl Walk<'_> {
    /// `pattern` is the path in the table (`services[].name`), `shown` the one for people (`services[2].name`).
    fn node(&mut self, node: &Node, pattern: &str, shown: &str) {
        let names = keys::children(pattern);
        match &node.value {
            Value::Map(entries) if !names.is_empty() => self.map(entries, pattern, shown, &names),
            Value::Map(entries) if keys::is_labels(pattern) => self.labels(entries, shown),
            Value::List(items) if keys::is_list(pattern) => {
                for (i, item) in items.iter().enumerate() {
                    self.node(item, &format!("{pattern}[]"), &format!("{shown}[{i}]"));
                }
            }
            // A section with nothing in it, as when all its keys are commented out.
            Value::Null if !shown.ends_with(']') => {}
            _ if keys::find(pattern).is_some() => {} // a value: the reader's business
            other => self.wrong_shape(node, other, pattern, shown, &names),
        }
    }

    fn map(&mut self, entries: &[Entry], pattern: &str, shown: &str, names: &[&'static str]) {
        for (i, entry) in entries.iter().enumerate() {
            let (pattern, shown) = (join(pattern, &entry.key), join(shown, &entry.key));
            if let Some(earlier) = earlier(entries, i) {
                self.twice(&entry.place, &shown, earlier);
            } else if keys::UNSUPPORTED.contains(&pattern.as_str()) {
                self.push(&entry.place, &shown, "not supported by this version".to_owned());
            } else if names.contains(&entry.key.as_str()) {
                self.node(&entry.node, &pattern, &shown);
            } else {
                let allowed = names.join(", ");
                let problem = Problem::new(entry.place.clone(), shown, unknown(&entry.key, names));
                self.problems.push(problem.allowed(allowed));
            }
        }
    }

    /// Keys are whatever labels there are, dots and slashes in them; what may be one is the reader's business.
    fn labels(&mut self, entries: &[Entry], shown: &str) {
        for (i, entry) in entries.iter().enumerate() {
            if let Some(earlier) = earlier(entries, i) {
                self.twice(&entry.place, &format!("{shown}[{}]", entry.key), earlier);
            }
        }
    }

    fn twice(&mut self, place: &Place, key: &str, earlier: &Entry) {
        self.push(place, key, format!("given twice; first at {}", earlier.place));
    }

    fn wrong_shape(&mut self, node: &Node, found: &Value, pattern: &str, shown: &str, names: &[&str]) {
        let expected = if keys::is_list(pattern) { "a list" } else { "a mapping" };
        let got = match found {
            Value::Null => "nothing",
            Value::Scalar(text) => text,
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        };
        let mut problem = Problem::new(node.place.clone(), shown, format!("must be {expected}")).got(got);
        if !names.is_empty() {
            problem = problem.allowed(format!("the keys {}", names.join(", ")));
        }
        self.problems.push(problem);
    }

    fn push(&mut self, place: &Place, key: &str, message: String) {
        self.problems.push(Problem::new(place.clone(), key, message));
    }
}

/// The first entry with the key of entry `i`, if that is another one.
fn earlier(entries: &[Entry], i: usize) -> Option<&Entry> {
    entries[..i].iter().find(|other| other.key == entries[i].key)
}

fn join(section: &str, name: &str) -> String {
    if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") }
}

/// The nearest sibling, else a key of that very name in another section.
fn unknown(key: &str, siblings: &[&str]) -> String {
    if let Some(near) = nearest(key, siblings.iter().copied()) {
        return format!("unknown key; did you mean `{near}`?");
    }
    let elsewhere = keys::KEYS.iter().map(|k| k.path).find(|path| path.rsplit('.').next() == Some(key));
    match elsewhere {
        Some(path) => format!("unknown key here; did you mean `{path}`?"),
        None => "unknown key".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::node::parse;

    fn problems(yaml: &str) -> Vec<String> {
        let mut problems = Vec::new();
        if let Ok(root) = parse("f", yaml) {
            check(&root, &mut problems);
        }
        problems.iter().map(Problem::to_string).collect()
    }

    #[test]
    fn an_unknown_key_is_reported_with_its_place_and_the_likely_word() {
        let found = problems("timeouts:\n  first_bite: 1s\nbody: 1MiB\nkafka: 1\n");
        assert!(found[0].starts_with("f:2:3: timeouts.first_bite: unknown key; did you mean `first_byte`?"));
        assert!(found[1].starts_with("f:3:1: body: unknown key here; did you mean `limits.body`?"));
        assert!(found[2].starts_with("f:4:1: kafka: unknown key; allowed: listen, "));
    }

    #[test]
    fn a_key_given_twice_names_both_places() {
        assert_eq!(
            problems("log:\n  level: info\n  level: warn\n"),
            ["f:3:3: log.level: given twice; first at f:2:3"]
        );
    }

    #[test]
    fn labels_are_no_keys_but_stand_once() {
        let with =
            |labels: &str| format!("services:\n- discovery: {{kubernetes: {{selector: {{{labels}}}}}}}\n");
        assert_eq!(problems(&with("name: a, ome.io/x.y: b")), Vec::<String>::new());
        assert_eq!(
            problems(&with("ome.io/x: a, b: c, ome.io/x: a")),
            ["f:2:58: services[0].discovery.kubernetes.selector[ome.io/x]: given twice; first at f:2:39"]
        );
    }

    #[test]
    fn keys_of_later_versions_are_not_called_unknown() {
        let found = problems("tls: {cert: a}\nservices:\n  - name: a\n");
        assert_eq!(found.len(), 1);
        assert!(found.iter().all(|p| p.ends_with("not supported by this version")), "{found:?}");
    }

    #[test]
    fn a_wrong_shape_is_one_problem_and_an_empty_section_is_none() {
        assert_eq!(problems("limits: 5\n").len(), 1);
        assert_eq!(problems("services: {name: x}\n"), ["f:1:11: services: must be a list (got `a mapping`)"]);
        assert!(problems("services:\n  - http://h:1\n")[0].contains("services[0]: must be a mapping"));
        assert!(problems("services:\n  -\n")[0].contains("services[0]: must be a mapping"));
        assert!(problems("[]\n")[0].contains("must be a mapping"));
        assert_eq!(problems("limits:\n"), Vec::<String>::new());
    }
}
