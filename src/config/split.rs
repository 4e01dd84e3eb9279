//! Keys of a service's cohorts and their weights. `docs/canary.md` says what they do.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// Most entries of a split.
const MOST_SHARES: usize = 64;
/// The largest weight.
pub(super) const HEAVIEST: u64 = 1_000_000;
/// Longest name, revision or token.
const LONGEST: usize = 253;

/// What a name, revision or token may be.
pub(super) const LABEL: &str = "1 to 253 characters, none of them a control character";

pub(super) fn is_label(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST && !text.chars().any(char::is_control)
}

/// Key `cohorts.by`: what makes a cohort where no split does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CohortsBy {
    /// Endpoints of one pairing token; those without one belong to each.
    Token,
    /// Endpoints of one revision.
    Revision,
}

/// Key `sticky`: what makes requests stay with one cohort.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sticky {
    /// The first of these headers that a request has, in lower case.
    pub headers: Vec<String>,
    /// Without one: this top-level member of the body, a string or a number.
    pub body_field: Option<String>,
}

/// Key `split.inferenceservice`: the OME object whose status has the weights.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InferenceService {
    /// `None` (`auto`): as of Pods.
    pub namespace: Option<String>,
    pub name: String,
}

/// One entry of `split.weights`, and of `PUT /split`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitEntry {
    /// Of the cohort; else its revision or token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of both sides: one label for a release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Revisions of its prefills; none listed: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefill: Vec<String>,
    /// Revisions of its decodes; none listed: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decode: Vec<String>,
    /// Pairing token of its endpoints; those without one belong to it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Relative to the other entries'.
    pub weight: u64,
}

impl SplitEntry {
    /// What the cohort is called.
    pub fn name(&self) -> String {
        let given = self.name.as_ref().or(self.revision.as_ref());
        given.cloned().unwrap_or_else(|| {
            let mut name = [self.prefill.join("+"), self.decode.join("+")].join("/");
            if name == "/" {
                name.clear();
            }
            if let Some(token) = &self.token {
                let gap = if name.is_empty() { "" } else { "@" };
                let _ = write!(name, "{gap}{token}");
            }
            name
        })
    }
}

/// Every mistake of a list of entries: its position and key, and what is wrong.
pub fn mistakes(entries: &[SplitEntry]) -> Vec<(usize, &'static str, String)> {
    let mut wrong = Vec::new();
    if entries.len() > MOST_SHARES {
        wrong.push((MOST_SHARES, "", format!("more than {MOST_SHARES} entries")));
    }
    for (n, entry) in entries.iter().enumerate() {
        let mut say = |key, what: String| wrong.push((n, key, what));
        if entry.weight > HEAVIEST {
            say("weight", format!("{} is more than {HEAVIEST}", entry.weight));
        }
        let sides = !entry.prefill.is_empty() || !entry.decode.is_empty();
        match (&entry.revision, sides, &entry.token) {
            (Some(_), true, _) => say("revision", "either this, or prefill and decode".to_owned()),
            (None, false, None) => say("", "needs revision, prefill, decode or token".to_owned()),
            _ => {}
        }
        let words = [("name", &entry.name), ("revision", &entry.revision), ("token", &entry.token)];
        let words = words.into_iter().filter_map(|(key, word)| Some((key, word.as_ref()?)));
        let lists = [("prefill", &entry.prefill), ("decode", &entry.decode)];
        let lists = lists.into_iter().flat_map(|(key, list)| list.iter().map(move |word| (key, word)));
        for (key, word) in words.chain(lists) {
            if !is_label(word) {
                say(key, format!("must be {LABEL}"));
            }
        }
        if entries[..n].iter().any(|before| before.name() == entry.name()) {
            say("", format!("another entry is named {:?}", entry.name()));
        }
    }
    wrong
}
