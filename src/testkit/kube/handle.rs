//! The test's side of the server: the truth, and the ways in.

use std::sync::Arc;

use serde_json::Value;

use super::front::{Entry, Target};
use super::replica::ReplicaHandle;
use super::server::FakeServer;
use super::state::{Shared, State};
use super::store::{Key, Object, text};
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

    /// Creates a Pod; the server's fields are filled in and the namespace is made when it is missing. A
    /// `creationTimestamp` stays what it is; so does whatever else is wrong with the object.
    pub fn create(&self, pod: impl Into<Value>) -> Uid {
        let mut pod = pod.into();
        let ns = Some(text(&pod, "/metadata/namespace")).filter(|ns| !ns.is_empty()).unwrap_or("default");
        let key = Key::new(ns, text(&pod, "/metadata/name"));
        assert!(!key.name.is_empty(), "a Pod without a name: {pod}");
        self.shared.write(|state| {
            assert!(state.store.get(&key).is_none(), "{key:?} is there already");
            state.store.namespace(&key.ns);
            let created = pod["metadata"]["creationTimestamp"].take();
            let uid = admit(state, &key.ns, &mut pod);
            if !created.is_null() {
                pod["metadata"]["creationTimestamp"] = created;
            }
            commit(state, &key, Some(pod));
            uid
        })
    }

    /// The InferenceServices (`ome.io/v1beta1`) of the same cluster, as objects of a server of their own: `create`, `update`
    /// and the faults of it are theirs alone. Until this is called there is no such resource: 404.
    #[must_use]
    pub fn inference_services(&self) -> Self {
        let replicas = self.shared.read(|state| state.replicas.len());
        self.shared.objects.get_or_init(|| Self::with_replicas(replicas)).clone()
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
