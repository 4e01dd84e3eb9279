//! Every key there is, once: what the reader accepts, what the documentation must list, how variables are named.
//!
//! A key's path uses dots for sections and `[]` for "each entry of this list". The reader refuses what is not here;
//! tests hold `docs/configuration.md`, `config/router.yaml` and the typed defaults to this table.

mod pods;
mod process;
mod services;

/// When a change of the key's value is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// At the next start of the process.
    Start,
    /// By a reload of the file: when it changes, and at SIGHUP.
    Live,
    /// The path is fixed at start; the content of the file it names is read again when it changes.
    Content,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub path: &'static str,
    /// What may be written, in the words of the documentation.
    pub kind: &'static str,
    /// As it would be written in the file; `null` is "not set", `required` has none.
    pub default: &'static str,
    pub reload: Reload,
    /// What it is for, as the documentation says it.
    pub meaning: &'static str,
}

impl Reload {
    /// The word of the documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Live => "live",
            Self::Content => "content",
        }
    }
}

impl Key {
    /// The environment variable of this key: `TANDEM_` and the path in capitals. Keys inside lists have none.
    pub fn variable(&self) -> Option<String> {
        let named = !self.path.contains("[]");
        named.then(|| format!("{PREFIX}{}", self.path.replace('.', "_").to_ascii_uppercase()))
    }
}

/// The kind of a mapping of labels.
pub(super) const LABELS: &str = "labels";

/// What all our environment variables start with.
pub(super) const PREFIX: &str = "TANDEM_";

/// Variables with the prefix that are no keys: read by the command line itself.
pub const OTHER_VARIABLES: &[&str] = &["TANDEM_CONFIG", "TANDEM_ADMIN", "TANDEM_ENGINE", "TANDEM_TOKEN_FILE"];

const fn key(path: &'static str, kind: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind, default, reload: Reload::Start, meaning }
}

const fn live(path: &'static str, kind: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind, default, reload: Reload::Live, meaning }
}

const fn content(path: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { path, kind: "path", default, reload: Reload::Content, meaning }
}

/// The keys, in the order of the documentation.
pub const KEYS: &[Key] = &joined();

const PARTS: [&[Key]; 3] = [process::KEYS, services::KEYS, pods::KEYS];

const fn joined() -> [Key; PARTS[0].len() + PARTS[1].len() + PARTS[2].len()] {
    let mut all = [PARTS[0][0]; _];
    let (mut part, mut n) = (0, 0);
    while part < PARTS.len() {
        let mut i = 0;
        while i < PARTS[part].len() {
            all[n] = PARTS[part][i];
            (i, n) = (i + 1, n + 1);
        }
        part += 1;
    }
    all
}

/// Keys of the design that this version does not have. Refused with those words: nothing is wrong with the spelling,
/// and a key that were ignored would be worse than one that is refused.
pub(super) const UNSUPPORTED: &[&str] = &["tls"];

/// The key at exactly this path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The key of an environment variable.
pub(super) fn find_variable(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.variable().is_some_and(|variable| variable == name))
}

/// Names allowed directly below a section, each once. The root is the empty path.
pub(super) fn children(section: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for key in KEYS {
        let below = if section.is_empty() {
            Some(key.path)
        } else {
            key.path.strip_prefix(section).and_then(|rest| rest.strip_prefix('.'))
        };
        let name = below.and_then(|below| below.split(['.', '[']).next());
        if let Some(name) = name.filter(|name| !names.contains(name)) {
            names.push(name);
        }
    }
    names
}

/// Whether the path is a mapping whose keys are labels, not keys of ours.
pub(super) fn is_labels(path: &str) -> bool {
    find(path).is_some_and(|key| key.kind == LABELS)
}

/// Whether the path is a list whose entries have keys of their own.
pub(super) fn is_list(path: &str) -> bool {
    KEYS.iter().any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with("[]")))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_path_and_no_variable_stands_twice() {
        let paths: HashSet<_> = KEYS.iter().map(|k| k.path).chain(UNSUPPORTED.iter().copied()).collect();
        assert_eq!(paths.len(), KEYS.len() + UNSUPPORTED.len());
        let variables: Vec<_> = KEYS.iter().filter_map(Key::variable).collect();
        assert_eq!(variables.iter().collect::<HashSet<_>>().len(), variables.len());
        assert!(OTHER_VARIABLES.iter().all(|other| find_variable(other).is_none()));
    }

    #[test]
    fn variables_are_named_mechanically() {
        assert!(find_variable("TANDEM_LISTEN").is_some_and(|k| k.path == "listen"));
        assert!(find_variable("TANDEM_TIMEOUTS_FIRST_BYTE").is_some_and(|k| k.path == "timeouts.first_byte"));
        assert_eq!(find("services[].name").and_then(Key::variable), None);
    }

    #[test]
    fn children_are_the_names_below_a_section() {
        assert_eq!(children("shutdown"), ["delay", "grace"]);
        assert_eq!(children("services[].discovery.static"), ["prefill", "decode", "mixed"]);
        assert!(children("").contains(&"services") && is_list("services"));
        assert!(children("log").len() == 2 && !is_list("log"));
        assert_eq!(children("services[].discovery"), ["static", "kubernetes"]);
        let selector = "services[].discovery.kubernetes.selector";
        assert!(is_labels(selector) && !is_labels("services[].name") && children(selector).is_empty());
    }
}
