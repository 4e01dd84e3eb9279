//! What all clones, replicas and open watches share, behind one lock, and the bell that rings on every change of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout_at};

use super::fault::Faults;
use super::handle::FakeKube;
use super::log::Recorded;
use super::mischief::Mischief;
use super::settings::Settings;
use super::store::Store;
use super::told::Told;
use crate::types::clock::now;

/// What one replica knows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Replica {
    /// It has seen nothing newer; none: it follows the truth.
    pub(super) lag: Option<u64>,
    /// Its watch cache knows no change up to this version.
    pub(super) cache_from: u64,
}

/// What a test tells an open watch to do, in order with the events.
#[derive(Debug, Clone)]
pub(super) enum Command {
    /// The chunked body ends as it should.
    End,
    /// The connection breaks.
    Cut,
    /// These bytes, whatever they are.
    Say(Bytes),
    /// Never another byte.
    Mute,
}

/// An open watch.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) replica: usize,
    /// Each after everything up to a version was said.
    pub(super) commands: VecDeque<(u64, Command)>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) replicas: Vec<Replica>,
    pub(super) settings: Settings,
    pub(super) faults: Faults,
    pub(super) mischief: Mischief,
    pub(super) log: Vec<Recorded>,
    pub(super) told: Vec<Told>,
    pub(super) open: BTreeMap<u64, Open>,
    pub(super) opened: u64,
    /// Requests taken by the balanced entry.
    pub(super) balanced: usize,
}

impl State {
    /// The newest version this replica knows.
    pub(super) fn visible(&self, replica: usize) -> u64 {
        let newest = self.store.version();
        self.replicas[replica].lag.map_or(newest, |lag| lag.min(newest))
    }

    /// Below this an exact LIST is refused: neither storage nor the replica's cache has it.
    pub(super) fn oldest_list(&self, replica: usize) -> u64 {
        self.store.compacted.min(self.replicas[replica].cache_from)
    }

    /// Below this a watch is refused.
    pub(super) fn oldest_watch(&self, replica: usize) -> u64 {
        self.replicas[replica].cache_from
    }

    /// Tells every open watch, or those of one replica.
    pub(super) fn command(&mut self, replica: Option<usize>, command: &Command) {
        let version = self.store.version();
        for open in self.open.values_mut().filter(|open| replica.is_none_or(|r| r == open.replica)) {
            open.commands.push_back((version, command.clone()));
        }
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    bell: watch::Sender<()>,
    /// Custom resources of the same cluster.
    pub(super) objects: OnceLock<FakeKube>,
}

impl Shared {
    pub(super) fn new(replicas: usize) -> Arc<Self> {
        let state = State {
            store: Store::new(),
            replicas: vec![Replica::default(); replicas],
            settings: Settings::default(),
            faults: Faults::default(),
            mischief: Mischief::default(),
            log: Vec::new(),
            told: Vec::new(),
            open: BTreeMap::new(),
            opened: 0,
            balanced: 0,
        };
        Arc::new(Self { state: Mutex::new(state), bell: watch::Sender::new(()), objects: OnceLock::new() })
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock())
    }

    /// Changes the state, then wakes whoever waits for a change.
    pub(super) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.bell.send_replace(());
        result
    }

    /// Changes what nobody waits for.
    pub(super) fn write_quietly(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
    }

    /// What a test told this watch since it last asked.
    pub(super) fn take_commands(&self, id: u64) -> VecDeque<(u64, Command)> {
        let mut state = self.state.lock();
        state.open.get_mut(&id).map(|open| std::mem::take(&mut open.commands)).unwrap_or_default()
    }

    pub(super) fn bell(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }

    /// Waits until the state satisfies `ready`; false when the time is up.
    pub(super) async fn until(&self, limit: Duration, ready: impl Fn(&State) -> bool) -> bool {
        let mut bell = self.bell();
        let deadline = now() + limit;
        while !self.read(&ready) {
            if timeout_at(deadline, bell.changed()).await.is_err() {
                // Whoever is called late by a busy machine looks once more.
                return self.read(&ready);
            }
        }
        true
    }

    /// Waits for a change of the state or for the time.
    pub(super) async fn changed_or(bell: &mut watch::Receiver<()>, at: crate::types::clock::Instant) {
        tokio::select! {
            _ = bell.changed() => {}
            () = sleep_until(at) => {}
        }
    }
}
