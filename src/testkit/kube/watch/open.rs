//! How a watch begins.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::watch as bell;

use super::super::event;
use super::super::list::fresh;
use super::super::options::{Start, WatchOptions};
use super::super::settings::WatchList;
use super::super::state::{Open, Shared, State};
use super::super::status::Status;
use super::{Watcher, next_bookmark};
use crate::types::clock::now;

/// Counts as open until it is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u64,
}

impl Registration {
    fn new(shared: &Arc<Shared>, replica: usize) -> Self {
        let id = shared.write(|state| {
            state.opened += 1;
            state.open.insert(state.opened, Open { replica, commands: VecDeque::new() });
            state.opened
        });
        Self { shared: Arc::clone(shared), id }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.write(|state| state.open.remove(&self.id));
    }
}

impl Watcher {
    /// Accepts a watch, or refuses it before the head of the answer.
    pub(in super::super) async fn open(
        shared: &Arc<Shared>,
        replica: usize,
        options: WatchOptions,
    ) -> Result<Self, Status> {
        if let Start::Initial { not_older, .. } = options.start {
            fresh(shared, replica, not_older).await?;
        }
        let bell = shared.bell();
        let open = Registration::new(shared, replica);
        Ok(shared.read(|state| Self::start(state, open, bell, replica, options)))
    }

    fn start(
        state: &State,
        open: Registration,
        bell: bell::Receiver<()>,
        replica: usize,
        options: WatchOptions,
    ) -> Self {
        let (settings, visible) = (&state.settings, state.visible(replica));
        let (every, starts) = (settings.bookmark_every, now());
        let ends = starts + options.timeout.unwrap_or(settings.watch_timeout);
        let mut watcher = Self {
            open,
            bell,
            replica,
            filter: options.filter,
            cursor: visible,
            ready: VecDeque::new(),
            late: Vec::new(),
            bookmark: options.bookmarks.then(|| next_bookmark(starts, every, ends)).flatten(),
            bookmark_every: every,
            ends,
            end: None,
            mute: false,
        };
        match options.start {
            Start::Now => {}
            Start::Initial { asked: true, .. } if settings.watch_list == WatchList::NoProgress => {
                watcher.fail(&Status::no_watch_progress());
            }
            Start::Initial { .. } => {
                let end = options.bookmarks && settings.watch_list != WatchList::Absent;
                watcher.initial(state, end);
            }
            Start::After(version) => watcher.resume(version, state.oldest_watch(replica)),
        }
        watcher
    }

    fn initial(&mut self, state: &State, end: bool) {
        let objects = state.store.at(self.cursor);
        let selected = objects.iter().filter(|(key, object)| self.filter.matches(key, object));
        self.ready.extend(selected.map(|(_, object)| event::line("ADDED", object)));
        if end {
            let annotations = json!({ "k8s.io/initial-events-end": "true" });
            self.ready.push_back(event::bookmark(self.cursor, Some(annotations)));
        }
    }

    fn resume(&mut self, version: u64, oldest: u64) {
        self.cursor = version;
        if version < oldest {
            let message = format!("too old resource version: {version} ({oldest})");
            self.fail(&Status::expired(message));
        }
    }
}
