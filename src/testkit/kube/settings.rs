//! What a test chooses about the server as a whole.

use std::collections::BTreeSet;
use std::time::Duration;

/// Whether `sendInitialEvents` works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WatchList {
    #[default]
    Supported,
    /// As in 1.20: the parameter is not known, and `resourceVersionMatch` is refused on a watch.
    Absent,
    /// Storage without progress requests: an in-stream ERROR with code 500.
    NoProgress,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) watch_list: WatchList,
    /// `"continue": ""` on the last page, as some servers write it.
    pub(super) empty_continue: bool,
    /// A LIST without a version is never stale, as long as storage answers.
    pub(super) consistent_reads: bool,
    /// None: anything goes, also no token.
    pub(super) tokens: Option<BTreeSet<String>>,
    pub(super) bookmark_every: Duration,
    /// Of watches that name no `timeoutSeconds`.
    pub(super) watch_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            watch_list: WatchList::default(),
            empty_continue: false,
            consistent_reads: false,
            tokens: None,
            bookmark_every: Duration::from_mins(1),
            watch_timeout: Duration::from_mins(45),
        }
    }
}

impl Settings {
    pub(super) fn accepts(&self, token: Option<&str>) -> bool {
        self.tokens.as_ref().is_none_or(|tokens| token.is_some_and(|token| tokens.contains(token)))
    }
}
