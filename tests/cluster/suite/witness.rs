//! A watch of the test's own: which events there were, and when they came.

use std::sync::Arc;

use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use parking_lot::Mutex;
use tandem::testkit::task::spawn;
use tandem::types::clock::{Instant, now};
use tokio::task::JoinHandle;

use super::cluster::Cluster;
use super::pods::{may_serve, ports, version};
use super::{SOON, until};

/// One event, or one line of the first list.
#[derive(Debug, Clone)]
pub struct Sight {
    pub at: Instant,
    pub uid: String,
    pub version: u64,
    pub ports: Vec<u16>,
    /// It may be given new requests.
    pub serves: bool,
}

/// Watches the namespace until dropped, not by way of a proxy.
pub struct Witness {
    seen: Arc<Mutex<Vec<Sight>>>,
    task: JoinHandle<()>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Witness {
    /// It has seen what there is when this returns.
    pub async fn of(cluster: &Cluster) -> Self {
        let pods = cluster.pods();
        let list = pods.list(&ListParams::default()).await.unwrap();
        let seen: Arc<Mutex<Vec<Sight>>> = Arc::default();
        seen.lock().extend(list.items.iter().map(|pod| Sight::of(pod, false)));
        let from = list.metadata.resource_version.unwrap().parse().unwrap();
        let task = spawn(watch(pods, from, Arc::clone(&seen)));
        Self { seen, task }
    }

    pub fn seen(&self) -> Vec<Sight> {
        self.seen.lock().clone()
    }

    /// When the event of this version came.
    pub async fn saw(&self, version: u64) -> Instant {
        until("an event", SOON, || async {
            let seen = self.seen.lock();
            let sight = seen.iter().find(|sight| sight.version == version);
            sight.map(|sight| sight.at).ok_or_else(|| seen.last().cloned())
        })
        .await
    }
}

impl Sight {
    fn of(pod: &Pod, deleted: bool) -> Self {
        let (uid, version, ports) = (pod.uid().unwrap(), version(pod), ports(pod));
        Self { at: now(), uid, version, ports, serves: !deleted && may_serve(pod) }
    }
}

/// Follows; opened again where it ends.
async fn watch(pods: Api<Pod>, mut from: u64, seen: Arc<Mutex<Vec<Sight>>>) {
    let params = WatchParams::default().timeout(280);
    loop {
        if let Ok(stream) = pods.watch(&params, &from.to_string()).await {
            pin_mut!(stream);
            while let Some(Ok(event)) = stream.next().await {
                let sight = match &event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => Sight::of(pod, false),
                    WatchEvent::Deleted(pod) => Sight::of(pod, true),
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(error) => panic!("the test's own watch: {error:?}"),
                };
                from = from.max(sight.version);
                seen.lock().push(sight);
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}
