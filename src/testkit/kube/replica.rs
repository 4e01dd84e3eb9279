//! One API server of several, each with its own view of the truth.

use std::sync::Arc;

use super::fault::Fault;
use super::front::{Entry, Target};
use super::handle::FakeKube;
use super::log::RequestKind;
use super::server::FakeServer;
use super::state::{Command, Shared};

/// One replica: how far behind it is, and its own faults.
#[derive(Debug, Clone)]
pub struct ReplicaHandle {
    fake: FakeKube,
    shared: Arc<Shared>,
    index: usize,
}

impl ReplicaHandle {
    pub(super) fn new(fake: &FakeKube, index: usize) -> Self {
        let shared = Arc::clone(&fake.shared);
        assert!(shared.read(|state| index < state.replicas.len()), "there is no replica {index}");
        Self { fake: fake.clone(), shared, index }
    }

    /// It shows the truth as of this version, also an older one than it showed before.
    pub fn lag_to(&self, version: u64) {
        self.shared.write(|state| state.replicas[self.index].lag = Some(version));
    }

    /// It learns nothing more.
    pub fn freeze(&self) {
        let version = self.version();
        self.lag_to(version);
    }

    /// It knows everything, and goes on learning.
    pub fn catch_up(&self) {
        self.shared.write(|state| state.replicas[self.index].lag = None);
    }

    /// The newest version it knows.
    pub fn version(&self) -> u64 {
        self.shared.read(|state| state.visible(self.index))
    }

    /// It was restarted, or its cache overflowed: no watch from before its version, no list that storage has not.
    pub fn lose_cache(&self) {
        self.shared.write(|state| state.replicas[self.index].cache_from = state.visible(self.index));
    }

    /// The next request of this kind here meets this; further calls queue.
    pub fn push(&self, kind: RequestKind, fault: Fault) {
        self.shared.write(|state| state.faults.push((kind, Some(self.index)), fault));
    }

    /// Every request of this kind here meets this while nothing is queued; none ends it.
    pub fn always(&self, kind: RequestKind, fault: Option<Fault>) {
        self.shared.write(|state| state.faults.set((kind, Some(self.index)), fault));
    }

    /// Forgets the faults of this replica.
    pub fn clear_faults(&self) {
        self.shared.write(|state| state.faults.clear(Some(self.index)));
    }

    /// It falls off the network: its open watches fall silent, and requests get no answer until
    /// [`Self::clear_faults`].
    pub fn black_hole(&self) {
        for kind in [RequestKind::List, RequestKind::Watch, RequestKind::Other] {
            self.always(kind, Some(Fault::BlackHole));
        }
        self.command(&Command::Mute);
    }

    /// Its open watches break in the middle.
    pub fn cut_watches(&self) {
        self.command(&Command::Cut);
    }

    /// Its open watches end as if their time were up.
    pub fn end_watches(&self) {
        self.command(&Command::End);
    }

    /// Watches open here.
    pub fn open_watches(&self) -> usize {
        self.shared.read(|state| state.open.values().filter(|open| open.replica == self.index).count())
    }

    fn command(&self, command: &Command) {
        self.shared.write(|state| state.command(Some(self.index), command));
    }

    /// The way in through this replica.
    pub fn entry(&self) -> Entry {
        Entry::new(&self.fake, Target::Replica(self.index))
    }

    /// This replica over HTTP, on a free port of 127.0.0.1.
    pub async fn serve(&self) -> FakeServer {
        self.entry().serve().await
    }

    /// A client of this replica, in memory. Needs a runtime.
    pub fn client(&self) -> kube::Client {
        self.entry().client()
    }
}
