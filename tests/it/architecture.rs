//! The boundaries of the planes, read from the source. What is allowed is the list below; a new
//! import across planes is a decision, made here first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Which planes a plane may name. `testkit` is test code and may name all.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("config", &["types"]),
    ("telemetry", &["types", "config", "metrics"]),
    ("metrics", &["types", "config"]),
    ("drain", &["types", "config", "metrics", "telemetry"]),
    ("ledger", &["types"]),
    ("upstream", &["types"]),
    // The endpoint owns its gate, its pool and its metric handles.
    ("registry", &["types", "config", "metrics", "telemetry", "drain", "ledger", "upstream"]),
    ("discovery", &["types", "config", "metrics", "telemetry", "drain", "registry", "upstream"]),
    ("proxy", &["types", "config", "metrics", "telemetry", "drain", "ledger", "upstream", "registry"]),
    ("admin", &["types", "config", "metrics", "telemetry", "drain", "registry", "ledger"]),
    (
        "app",
        &[
            "types",
            "config",
            "metrics",
            "telemetry",
            "drain",
            "ledger",
            "upstream",
            "registry",
            "discovery",
            "proxy",
            "admin",
        ],
    ),
    ("engine", &["types", "drain"]),
    ("demo", &["types", "config", "telemetry", "drain", "admin", "engine", "app"]),
    ("cli", &["types", "config", "drain", "registry", "discovery", "engine", "admin", "app", "demo"]),
];

/// Longest file, lines.
const MAX_LINES: usize = 400;

struct Source {
    /// Below `src/`, with `/`.
    path: String,
    text: String,
}

impl Source {
    fn plane(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    /// Tests may do what the product may not: files of tests, and the kit.
    fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.plane() == "testkit"
            || self.path.contains("/tests/")
            || name == "tests.rs"
            || name == "oracle.rs"
    }

    /// Lines of product code, numbered from 1: no comments, nothing from the inline test module on.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(i, line)| (i + 1, line))
            .take_while(|(_, line)| !line.starts_with("mod tests {"))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn find<'a>(&'a self, word: &'a str) -> impl Iterator<Item = String> + 'a {
        self.code()
            .filter(move |(_, line)| line.contains(word))
            .map(move |(n, _)| format!("{}:{n}: {word}", self.path))
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
                found.push(Source { path, text });
            }
        }
    }
    assert!(found.len() > 50, "the source was found");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Planes named by `crate::plane` or, from inside a `use crate::{…}`, by the names in the braces.
fn planes_named(line: &str) -> Vec<&str> {
    let ident =
        |text: &'_ str| text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let mut named = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let members = group.split(['{', '}', ',']).map(str::trim);
            named.extend(members.map(|m| &m[..ident(m)]).filter(|m| !m.is_empty()));
        } else {
            named.push(&rest[..ident(rest)]);
        }
    }
    named
}

#[test]
fn planes_import_only_what_they_may() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        MAY_IMPORT.iter().map(|(plane, may)| (*plane, may.iter().copied().collect())).collect();
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|s| s.path.contains('/') && !s.is_test()) {
        let plane = source.plane();
        let Some(may) = allowed.get(plane) else {
            wrong.push(format!("{}: the plane `{plane}` has no line in MAY_IMPORT", source.path));
            continue;
        };
        for (n, line) in source.code() {
            for named in planes_named(line) {
                if named != plane && allowed.contains_key(named) && !may.contains(named) {
                    wrong.push(format!("{}:{n}: `{plane}` may not import `{named}`", source.path));
                }
                if named == "testkit" {
                    wrong.push(format!("{}:{n}: product code names the test kit", source.path));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_allowed_imports_have_no_cycle_and_no_unknown_plane() {
    let order: Vec<&str> = MAY_IMPORT.iter().map(|(plane, _)| *plane).collect();
    let known: BTreeSet<&str> = order.iter().copied().collect();
    let planes: BTreeSet<String> = sources()
        .iter()
        .filter(|s| s.path.contains('/') && s.plane() != "testkit")
        .map(|s| s.plane().to_owned())
        .collect();
    assert_eq!(planes, known.iter().map(|p| (*p).to_owned()).collect::<BTreeSet<_>>());
    let mut settled = BTreeSet::new();
    while settled.len() < order.len() {
        let next = MAY_IMPORT
            .iter()
            .find(|(p, may)| !settled.contains(p) && may.iter().all(|m| settled.contains(m)));
        let (plane, _) = next.unwrap_or_else(|| panic!("a cycle outside of {settled:?}"));
        settled.insert(plane);
    }
}

#[test]
fn time_is_read_and_tasks_are_spawned_in_one_place_each() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|s| !s.is_test()) {
        let mut only = |place: &str, words: &[&str]| {
            if source.path != place {
                wrong.extend(words.iter().flat_map(|word| source.find(word)));
            }
        };
        only("types/clock.rs", &["Instant::now", "SystemTime::now", "Utc::now"]);
        only("drain/tracker.rs", &["tokio::spawn", "task::spawn(", "spawn_local", "JoinSet"]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_in_the_product_panics_on_a_surprise() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|s| !s.is_test()) {
        for word in [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!(", "process::exit"] {
            wrong.extend(source.find(word));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_are_short_and_modules_say_what_they_are() {
    let mut wrong = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > MAX_LINES {
            wrong.push(format!("{}: {lines} lines", source.path));
        }
        if !source.is_test() && !source.text.starts_with("//!") {
            wrong.push(format!("{}: no `//!` header", source.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_import_is_seen_however_it_is_written() {
    assert_eq!(planes_named("use crate::proxy::error::Failure;"), ["proxy"]);
    assert_eq!(
        planes_named("use crate::{config, upstream::Conn, metrics as m};"),
        ["config", "upstream", "metrics"]
    );
    assert_eq!(planes_named("    let x = crate::types::clock::now();"), ["types"]);
    assert!(planes_named("use super::proxy;").is_empty());
}
