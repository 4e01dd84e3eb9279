//! The test's side of the server: the truth, what is lost of it, faults, and what was asked.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::event;
use super::fault::Fault;
use super::front::{Entry, Target};
use super::log::{Recorded, RequestKind};
use super::replica::ReplicaHandle;
use super::server::FakeServer;
use super::settings::WatchList;
use super::state::{Command, Shared, State};
use super::status::Status;
use super::store::{Change, Key, Object, text};
use super::writes::{admit, terminate};

/// A Pod's identity.
pub type Uid = String;

/// The whole control plane. Clones share it.
#[derive(Debug, Clone)]
pub struct FakeKube {
    pub(super) shared: Arc<Shared>,
}

impl Default for FakeKube {
    fn default() -> Self {
        Self::new()
    }
}

/// The truth.
impl FakeKube {
    /// One replica, no Pods, version 100.
    pub fn new() -> Self {
        Self::with_replicas(1)
    }

    /// So many replicas over one truth, none of them behind.
    pub fn with_replicas(replicas: usize) -> Self {
        Self { shared: Shared::new(replicas) }
    }

    /// Creates a Pod; the server's fields are filled in and the namespace is made when it is missing. Whatever else is
    /// wrong with the object stays wrong.
    pub fn create(&self, pod: impl Into<Value>) -> Uid {
        let mut pod = pod.into();
        let ns = Some(text(&pod, "/metadata/namespace")).filter(|ns| !ns.is_empty()).unwrap_or("default");
        let key = Key::new(ns, text(&pod, "/metadata/name"));
        assert!(!key.name.is_empty(), "a Pod without a name: {pod}");
        self.shared.write(|state| {
            assert!(state.store.get(&key).is_none(), "{key:?} is there already");
            state.store.namespace(&key.ns);
            let uid = admit(state, &key.ns, &mut pod);
            commit(state, &key, Some(pod));
            uid
        })
    }

    /// Changes a Pod at a new version, also when the closure changes nothing. Gives the version.
    pub fn update(&self, ns: &str, name: &str, change: impl FnOnce(&mut Value)) -> u64 {
        self.replace(ns, name, |pod| {
            change(pod);
            true
        })
    }

    /// A graceful delete: the Pod is terminating, with 30 seconds to go, until [`Self::finish_delete`].
    pub fn delete(&self, ns: &str, name: &str) -> u64 {
        self.update(ns, name, |pod| terminate(pod, 30))
    }

    /// The Pod is gone, at a version of its own.
    pub fn finish_delete(&self, ns: &str, name: &str) -> u64 {
        self.replace(ns, name, |_| false)
    }

    /// The Pod is gone without having been terminating.
    pub fn force_delete(&self, ns: &str, name: &str) -> u64 {
        self.finish_delete(ns, name)
    }

    fn replace(&self, ns: &str, name: &str, change: impl FnOnce(&mut Value) -> bool) -> u64 {
        let key = Key::new(ns, name);
        self.shared.write(|state| {
            let pod = state.store.get(&key).unwrap_or_else(|| panic!("no Pod {key:?}"));
            let mut pod = Value::clone(pod);
            let stays = change(&mut pod);
            commit(state, &key, stays.then_some(pod));
            state.store.version()
        })
    }

    /// Something other than Pods was written: the version grows by so much.
    pub fn advance(&self, by: u64) -> u64 {
        self.shared.write(|state| state.store.advance(by))
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.shared.read(|state| state.store.version())
    }

    /// The Pods of a namespace, by name.
    pub fn pods(&self, ns: &str) -> Vec<Value> {
        let all = self.shared.read(|state| state.store.at(u64::MAX));
        all.iter().filter(|(key, _)| key.ns == ns).map(|(_, pod)| Value::clone(pod)).collect()
    }

    /// One Pod as it is now.
    pub fn pod(&self, ns: &str, name: &str) -> Option<Value> {
        self.shared.read(|state| state.store.get(&Key::new(ns, name)).map(|pod| Value::clone(pod)))
    }

    /// Nothing older than this version is known any more: watches and continue tokens from before it get 410.
    pub fn compact(&self, version: u64) {
        self.shared.write(|state| {
            state.store.compacted = state.store.compacted.max(version);
            for replica in &mut state.replicas {
                replica.cache_from = replica.cache_from.max(version);
            }
        });
    }

    /// Storage forgets what is older than this version, but the replicas' watch caches still serve it, each until
    /// [`ReplicaHandle::lose_cache`].
    pub fn compact_storage(&self, version: u64) {
        self.shared.write(|state| state.store.compacted = state.store.compacted.max(version));
    }
}

fn commit(state: &mut State, key: &Key, pod: Option<Value>) -> Object {
    let State { store, mischief, .. } = state;
    store.commit(key.clone(), pod, mischief)
}

/// What goes wrong with the next changes on their way to the watches. A LIST shows them all the same.
impl FakeKube {
    /// The next changes reach no watch, ever.
    pub fn lose_next(&self, changes: usize) {
        self.shared.write(|state| state.mischief.lose = changes);
    }

    /// Changes like these reach no watch, until [`Self::lose_nothing`].
    pub fn lose_where(&self, loses: impl Fn(&Change) -> bool + Send + Sync + 'static) {
        self.shared.write(|state| state.mischief.lose_where = Some(Arc::new(loses)));
    }

    /// Ends [`Self::lose_next`] and [`Self::lose_where`]; what is lost stays lost.
    pub fn lose_nothing(&self) {
        self.shared.write(|state| (state.mischief.lose, state.mischief.lose_where) = (0, None));
    }

    /// The next changes reach every watch twice.
    pub fn duplicate_next(&self, changes: usize) {
        self.shared.write(|state| state.mischief.duplicate = changes);
    }

    /// The next changes reach the watches so much later, and whatever follows them waits.
    pub fn delay_next(&self, changes: usize, by: Duration) {
        self.shared.write(|state| state.mischief.delay = Some((changes, by, false)));
    }

    /// The next changes reach the watches so much later, and whatever follows passes them.
    pub fn overtake_next(&self, changes: usize, by: Duration) {
        self.shared.write(|state| state.mischief.delay = Some((changes, by, true)));
    }

    /// The next changes reach the watches in reverse order, once all of them were made.
    pub fn reverse_next(&self, changes: usize) {
        self.shared.write(|state| state.mischief.reverse = changes);
    }

    /// An event that nothing stands behind, on every open watch, whatever its selector.
    pub fn inject(&self, kind: &str, object: &Value) {
        self.inject_bytes(event::line(kind, object));
    }

    /// Bytes on every open watch: garbage, half a line, a line without an end.
    pub fn inject_bytes(&self, bytes: impl Into<Bytes>) {
        self.command(&Command::Say(bytes.into()));
    }
}

/// Faults, on any replica; [`ReplicaHandle`] has the same for one.
impl FakeKube {
    /// The next request of this kind meets this; further calls queue.
    pub fn push(&self, kind: RequestKind, fault: Fault) {
        self.shared.write(|state| state.faults.push((kind, None), fault));
    }

    /// The next requests of this kind meet this.
    pub fn push_n(&self, kind: RequestKind, fault: &Fault, times: usize) {
        (0..times).for_each(|_| self.push(kind, fault.clone()));
    }

    /// Every request of this kind meets this while nothing is queued; none ends it.
    pub fn always(&self, kind: RequestKind, fault: Option<Fault>) {
        self.shared.write(|state| state.faults.set((kind, None), fault));
    }

    /// Forgets every fault that is queued or set, on all replicas.
    pub fn clear_faults(&self) {
        self.shared.write(|state| state.faults.clear(None));
    }

    /// Queued faults that no request has met yet.
    pub fn faults_left(&self) -> usize {
        self.shared.read(|state| state.faults.left())
    }

    /// Every open watch breaks in the middle.
    pub fn cut_watches(&self) {
        self.command(&Command::Cut);
    }

    /// Every open watch breaks in the middle of a line.
    pub fn tear_watches(&self) {
        self.inject_bytes(r#"{"type":"MODIFIED","object":{"kind":"Pod","apiVer"#);
        self.cut_watches();
    }

    /// Every open watch ends as if its time were up.
    pub fn end_watches(&self) {
        self.command(&Command::End);
    }

    /// Every open watch gets an ERROR event with this code, and ends.
    pub fn fail_watches(&self, code: u16) {
        self.inject("ERROR", &Status::of_code(code).body());
        self.end_watches();
    }

    /// Every open watch falls silent for ever.
    pub fn silence_watches(&self) {
        self.command(&Command::Mute);
    }

    fn command(&self, command: &Command) {
        self.shared.write(|state| state.command(None, command));
    }
}

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

/// Ways in.
impl FakeKube {
    /// One of the replicas, from 0.
    pub fn replica(&self, index: usize) -> ReplicaHandle {
        ReplicaHandle::new(self, index)
    }

    /// The way in through replica 0.
    pub fn entry(&self) -> Entry {
        Entry::new(self, Target::Replica(0))
    }

    /// The way in through a load balancer that takes the replicas in turn, request by request.
    pub fn balanced(&self) -> Entry {
        Entry::new(self, Target::InTurn)
    }

    /// Replica 0 over HTTP, on a free port of 127.0.0.1.
    pub async fn serve(&self) -> FakeServer {
        self.entry().serve().await
    }

    /// A client of replica 0, in memory. Needs a runtime.
    pub fn client(&self) -> kube::Client {
        self.entry().client()
    }
}
