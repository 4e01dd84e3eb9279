//! WATCH: one open stream.
//!
//! A [`Watcher`] is stepped by whoever reads the body: nothing runs for a client that left. It reads the one history
//! behind all replicas from its own cursor, so what happened before it was opened is not lost.

mod open;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch as bell;

use super::event::{self, Line};
use super::selector::Filter;
use super::state::{Command, Shared, State};
use super::status::Status;
use super::store::Change;
use crate::types::clock::{Instant, now};
use open::Registration;

/// How long before the end the last bookmark comes.
const LAST_BOOKMARK: Duration = Duration::from_secs(1);
/// Far enough for "never" in one sleep.
const FAR: Duration = Duration::from_hours(24 * 365);

#[derive(Debug)]
enum End {
    Clean,
    Cut,
}

#[derive(Debug)]
pub(super) struct Watcher {
    open: Registration,
    bell: bell::Receiver<()>,
    replica: usize,
    filter: Filter,
    /// Everything up to here was said.
    cursor: u64,
    ready: VecDeque<Bytes>,
    /// Overtaken changes, and when they are due.
    late: Vec<(Instant, u64)>,
    /// When the next one is due; none: never.
    bookmark: Option<Instant>,
    bookmark_every: Duration,
    ends: Instant,
    end: Option<End>,
    mute: bool,
}

impl Watcher {
    /// Says this in the stream, and ends it.
    pub(super) fn fail(&mut self, status: &Status) {
        self.ready.clear();
        self.ready.push_back(event::line("ERROR", &status.body()));
        self.end = Some(End::Clean);
    }

    /// Says these bytes before anything else.
    pub(super) fn say_first(&mut self, bytes: Bytes) {
        self.ready.push_front(bytes);
    }

    /// Never says anything again.
    pub(super) fn mute(&mut self) {
        self.mute = true;
    }

    /// The next bytes; none at the clean end.
    pub(super) async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if !self.mute
                && let Some(line) = self.ready.pop_front()
            {
                return Some(Ok(line));
            }
            match self.end {
                Some(End::Clean) => return None,
                Some(End::Cut) => {
                    self.end = Some(End::Clean);
                    return Some(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                None => self.wait().await,
            }
        }
    }

    /// Takes what is there, or waits for the next thing to happen.
    async fn wait(&mut self) {
        self.bell.borrow_and_update();
        self.collect();
        if self.end.is_some() || (!self.ready.is_empty() && !self.mute) {
            return;
        }
        let wake = self.wake();
        Shared::changed_or(&mut self.bell, wake).await;
    }

    fn wake(&self) -> Instant {
        if self.mute {
            return now() + FAR;
        }
        let due = self.open.shared.read(|state| self.next_change(state)?.delivery.due);
        let due = due.filter(|due| *due > now());
        let times = self.late.iter().map(|(at, _)| *at).chain(self.bookmark).chain(due);
        times.chain([self.ends]).min().unwrap_or(self.ends)
    }

    fn next_change<'a>(&self, state: &'a State) -> Option<&'a Change> {
        state.store.between(self.cursor, state.visible(self.replica)).first()
    }

    fn collect(&mut self) {
        let shared = Arc::clone(&self.open.shared);
        let commands = shared.take_commands(self.open.id);
        shared.read(|state| {
            let visible = state.visible(self.replica);
            for (version, command) in commands {
                self.say_up_to(state, version.min(visible));
                self.obey(command);
            }
            self.say_up_to(state, visible);
            self.tick();
        });
    }

    /// Everything that was made by then and may be said by now; nothing once the end is decided.
    fn say_up_to(&mut self, state: &State, version: u64) {
        if self.end.is_some() {
            return;
        }
        while self.advance(state, version) {}
        if state.store.between(self.cursor, version).is_empty() {
            self.cursor = self.cursor.max(version);
        }
        self.take_late(state);
    }

    fn obey(&mut self, command: Command) {
        if self.end.is_some() {
            return;
        }
        match command {
            Command::End => self.end = Some(End::Clean),
            Command::Cut => self.end = Some(End::Cut),
            Command::Say(bytes) => self.ready.push_back(bytes),
            Command::Mute => self.mute(),
        }
    }

    /// Says the next change, or the next group of reversed ones; false when there is none to say yet.
    fn advance(&mut self, state: &State, up_to: u64) -> bool {
        let changes = state.store.between(self.cursor, up_to);
        let Some(first) = changes.first() else { return false };
        let group = 1 + first.delivery.reversed_with.unwrap_or(0);
        let due = first.delivery.due.filter(|due| *due > now());
        let done = match due {
            // Without what it was to be reversed with.
            Some(due) if first.delivery.overtaken => {
                self.late.push((due, first.version));
                1
            }
            Some(_) => return false,
            None if changes.len() < group => return false,
            None => {
                changes[..group].iter().rev().for_each(|change| self.say(change));
                group
            }
        };
        self.cursor = changes[done - 1].version;
        true
    }

    fn say(&mut self, change: &Change) {
        if let Some(line) = Line::of(change, &self.filter).filter(|_| !change.delivery.lost) {
            let copies = if change.delivery.twice { 2 } else { 1 };
            self.ready.extend(std::iter::repeat_n(line.0, copies));
        }
    }

    fn take_late(&mut self, state: &State) {
        let (due, late) = self.late.drain(..).partition(|(at, _)| *at <= now());
        self.late = late;
        let due: Vec<(Instant, u64)> = due;
        due.iter()
            .filter_map(|(_, version)| state.store.change(*version))
            .for_each(|change| self.say(change));
    }

    /// Bookmarks, and the end when it is time.
    fn tick(&mut self) {
        let at = now();
        if self.mute || self.end.is_some() {
            return;
        }
        if self.bookmark.is_some_and(|due| due <= at) {
            // Whoever resumes from it would miss a change that is overtaken.
            if self.late.is_empty() {
                self.ready.push_back(event::bookmark(self.cursor, None));
            }
            self.bookmark = next_bookmark(at, self.bookmark_every, self.ends);
        }
        if self.ends <= at {
            self.end = Some(End::Clean);
        }
    }
}

/// In a minute, or a second before the end if that is sooner.
fn next_bookmark(at: Instant, every: Duration, ends: Instant) -> Option<Instant> {
    let last = ends - LAST_BOOKMARK;
    (at < last).then(|| (at + every).min(last))
}
