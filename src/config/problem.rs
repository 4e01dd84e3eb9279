//! One mistake in a configuration, in words an operator can act on without opening the source.
//!
//! Every mistake says where it stands, which key it concerns, what is wrong with the value that was found, and what
//! would have been allowed. They are collected, never thrown: `load` returns all of them at once, in reading order.

use std::fmt;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// Where a value was written. Ordered as the layers are read: file positions first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The configuration file as a whole.
    Document(Arc<str>),
    /// In the configuration file; line and column count from 1.
    File { path: Arc<str>, line: u64, column: u64 },
    /// In an environment variable of this name.
    Variable(String),
    /// In a command-line flag of this name.
    Flag(String),
    /// Nowhere: something that is needed is absent from every source.
    Nowhere,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{path}:{line}:{column}"),
            Self::Document(path) => f.write_str(path),
            Self::Variable(name) | Self::Flag(name) => f.write_str(name),
            Self::Nowhere => f.write_str("configuration"),
        }
    }
}

/// One mistake. `Display` is the one-line form: `file:line:col: key.path: what is wrong (got VALUE); allowed: …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub at: Place,
    /// Dotted path, list positions in brackets: `services[0].policy.mixed`. Empty for the file as a whole.
    pub key: String,
    pub message: String,
    /// The offending value as written, shortened, user information of URLs blanked.
    pub got: Option<Box<str>>,
    pub allowed: Option<Box<str>>,
}

impl Problem {
    pub fn new(at: Place, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { at, key: key.into(), message: message.into(), got: None, allowed: None }
    }

    #[must_use]
    pub fn got(mut self, value: &str) -> Self {
        self.got = Some(presentable(value).into());
        self
    }

    #[must_use]
    pub fn allowed(mut self, allowed: impl Into<Box<str>>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.at)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if let Some(got) = &self.got {
            write!(f, " (got {got})")?;
        }
        match &self.allowed {
            Some(allowed) => write!(f, "; allowed: {allowed}"),
            None => Ok(()),
        }
    }
}

/// Flat, for programs: `file`, `line` and `column` where there are any, `source` for variables and flags, then the rest.
impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.at {
            Place::Document(path) => map.serialize_entry("file", &**path)?,
            Place::File { path, line, column } => {
                map.serialize_entry("file", &**path)?;
                map.serialize_entry("line", line)?;
                map.serialize_entry("column", column)?;
            }
            Place::Variable(name) | Place::Flag(name) => map.serialize_entry("source", name)?,
            Place::Nowhere => {}
        }
        map.serialize_entry("key", &self.key)?;
        map.serialize_entry("message", &self.message)?;
        map.serialize_entry("got", &self.got)?;
        map.serialize_entry("allowed", &self.allowed)?;
        map.end()
    }
}

/// A value fit for a log: one line, at most 80 characters, and no password that someone wrote into a URL.
fn presentable(value: &str) -> String {
    const LONGEST: usize = 80;
    let hidden = hide_user_information(value);
    let mut text: String = hidden.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().count() > LONGEST {
        text = text.chars().take(LONGEST).collect::<String>() + "…";
    }
    if text.is_empty() { "an empty value".to_owned() } else { format!("`{text}`") }
}

/// `http://user:password@host` becomes `http://***@host`, also where no scheme was written.
fn hide_user_information(value: &str) -> String {
    let Some(at) = value.rfind('@') else { return value.to_owned() };
    let from = value[..at].find("://").map_or(0, |i| i + 3);
    format!("{}***{}", &value[..from], &value[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_one_line_with_place_key_value_and_choices() {
        let at = Place::File { path: "r.yaml".into(), line: 3, column: 9 };
        let problem = Problem::new(at, "listen", "not an address").got("x\ny").allowed("IP:PORT");
        assert_eq!(
            problem.to_string(),
            "r.yaml:3:9: listen: not an address (got `x\u{fffd}y`); allowed: IP:PORT"
        );
    }

    #[test]
    fn a_password_inside_a_url_is_never_shown() {
        for url in ["http://u:s3cret@h:1", "u:s3cret@h:1", "http://u:s3@cret@h", "http://a@b://s3cret@h"] {
            let shown = Problem::new(Place::Nowhere, "", "no").got(url).to_string();
            assert!(!shown.contains("s3"), "{shown}");
        }
    }

    #[test]
    fn long_values_are_shortened() {
        let shown = Problem::new(Place::Nowhere, "", "no").got(&"é".repeat(1000)).got.unwrap_or_default();
        assert_eq!(shown.chars().count(), 83);
    }
}
