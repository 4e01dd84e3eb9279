//! What kind of server it is, and what was asked of it.

use std::time::Duration;

use super::handle::FakeKube;
use super::log::{Recorded, RequestKind};
use super::settings::WatchList;

/// What kind of server it is.
impl FakeKube {
    /// Only these bearer tokens are accepted from now on; open watches go on until they are cut.
    pub fn accept_tokens(&self, tokens: &[&str]) {
        let tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
        self.shared.write(|state| state.settings.tokens = Some(tokens));
    }

    /// Whether and how `sendInitialEvents` works.
    pub fn watch_list(&self, mode: WatchList) {
        self.shared.write(|state| state.settings.watch_list = mode);
    }

    /// Whether the last page of a LIST says `"continue": ""` instead of nothing.
    pub fn empty_continue(&self, on: bool) {
        self.shared.write(|state| state.settings.empty_continue = on);
    }

    /// Whether a LIST without a version is answered from the truth, also by a replica that is behind. Off: it shows
    /// what the replica knows.
    pub fn consistent_reads(&self, on: bool) {
        self.shared.write(|state| state.settings.consistent_reads = on);
    }

    /// How often a watch opened from now on says a bookmark; a minute unless set.
    pub fn bookmark_every(&self, every: Duration) {
        self.shared.write(|state| state.settings.bookmark_every = every);
    }

    /// How long a watch opened from now on without `timeoutSeconds` lasts; 45 minutes unless set.
    pub fn watch_timeout(&self, timeout: Duration) {
        self.shared.write(|state| state.settings.watch_timeout = timeout);
    }
}

/// What was asked.
impl FakeKube {
    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.read(|state| state.log.clone())
    }

    /// LISTs received, refused and unanswered ones included.
    pub fn lists(&self) -> usize {
        self.count(RequestKind::List)
    }

    /// WATCHes received, refused and unanswered ones included.
    pub fn watches(&self) -> usize {
        self.count(RequestKind::Watch)
    }

    fn count(&self, kind: RequestKind) -> usize {
        self.shared.read(|state| state.log.iter().filter(|request| request.kind == kind).count())
    }

    /// Watches that were accepted and whose reader is still there, silent ones included.
    pub fn open_watches(&self) -> usize {
        self.shared.read(|state| state.open.len())
    }

    /// Waits until this holds; panics after a minute of tokio's clock.
    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut bell = self.shared.bell();
        let limit = Duration::from_mins(1);
        let waited = tokio::time::timeout(limit, async {
            while !holds(self) {
                // The server outlives this call, so the bell does.
                bell.changed().await.unwrap();
            }
        });
        assert!(waited.await.is_ok(), "waited {limit:?} for {what}; requests: {:#?}", self.requests());
    }
}
