//! Pods, and what their kubelet would say of them.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};

use super::cluster::Cluster;
use super::rights::ACCOUNT;

/// The label of every Pod of the service.
pub const APP: (&str, &str) = ("app", "llm");
pub const ELIGIBLE: &str = "tandem.dev/endpoint-eligible";
pub const PORTS: &str = "tandem.dev/ports";
pub const DRAIN: &str = "tandem.dev/drain";
pub const ROLE: &str = "tandem.dev/role";
pub const BOOTSTRAP: &str = "tandem.dev/bootstrap-port";

/// A Pod to be: of the service, endpoint-eligible, running and ready at a port of 127.0.0.1.
#[derive(Debug, Clone)]
pub struct Blueprint {
    name: String,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    /// Bound to a node that does not exist: a graceful delete waits for its kubelet.
    bound: bool,
    ready: bool,
}

impl Blueprint {
    pub fn new(name: &str, port: u16) -> Self {
        let (labels, annotations) = (Map::new(), Map::new());
        let pod = Self { name: name.to_owned(), labels, annotations, bound: false, ready: true };
        pod.label(APP.0, APP.1).label(ELIGIBLE, "true").annotation(PORTS, &port.to_string())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn port(&self) -> u16 {
        self.annotations[PORTS].as_str().unwrap().parse().unwrap()
    }

    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn bound(mut self) -> Self {
        self.bound = true;
        self
    }

    #[must_use]
    pub fn not_ready(mut self) -> Self {
        self.ready = false;
        self
    }

    fn object(&self) -> Pod {
        let mut pod = json!({
            "metadata": { "name": self.name, "labels": self.labels, "annotations": self.annotations },
            "spec": {
                // No scheduler has this name, so no kubelet and no eviction interferes.
                "schedulerName": "tandem-test-none",
                "serviceAccountName": ACCOUNT,
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 30,
                "containers": [{ "name": "engine", "image": "engine.invalid/none" }],
            },
        });
        if self.bound {
            pod["spec"]["nodeName"] = "tandem-test-no-such-node".into();
        }
        serde_json::from_value(pod).unwrap()
    }
}

/// A status as a kubelet writes it.
fn status(ready: &str) -> Value {
    json!({ "status": {
        "phase": "Running",
        "podIP": "127.0.0.1",
        "podIPs": [{ "ip": "127.0.0.1" }],
        "conditions": [{ "type": "Ready", "status": ready }],
    } })
}

/// Writes.
impl Cluster {
    /// Creates it and starts it. Gives its UID.
    pub async fn create(&self, pod: &Blueprint) -> String {
        let created = self.pods().create(&PostParams::default(), &pod.object()).await.expect("a Pod");
        self.say_ready(&pod.name, if pod.ready { "True" } else { "False" }).await;
        created.uid().unwrap()
    }

    /// Many, some at a time.
    pub async fn create_all(&self, pods: &[Blueprint]) {
        for some in pods.chunks(25) {
            futures_util::future::join_all(some.iter().map(|pod| self.create(pod))).await;
        }
    }

    /// Its Ready condition is this. The version of the change.
    pub async fn say_ready(&self, name: &str, ready: &str) -> u64 {
        self.patch_status(name, status(ready)).await
    }

    pub async fn say_phase(&self, name: &str, phase: &str) -> u64 {
        self.patch_status(name, json!({ "status": { "phase": phase } })).await
    }

    async fn patch_status(&self, name: &str, patch: Value) -> u64 {
        let patched = self.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        version(&patched.unwrap())
    }

    /// Sets a label, or takes it away.
    pub async fn set_label(&self, name: &str, key: &str, value: Option<&str>) -> u64 {
        self.patch(name, "labels", key, value).await
    }

    pub async fn set_annotation(&self, name: &str, key: &str, value: Option<&str>) -> u64 {
        self.patch(name, "annotations", key, value).await
    }

    async fn patch(&self, name: &str, field: &str, key: &str, value: Option<&str>) -> u64 {
        let patch = Patch::Merge(json!({ "metadata": { field: { key: value } } }));
        version(&self.pods().patch(name, &PatchParams::default(), &patch).await.unwrap())
    }

    /// Asks for a graceful end.
    pub async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// It is gone when this returns.
    pub async fn force_delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
}

/// Its resourceVersion.
pub fn version(pod: &Pod) -> u64 {
    pod.resource_version().unwrap().parse().unwrap()
}

/// Whether the router may give it a new request, by the documented rules.
pub fn may_serve(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
    let is = |key, value: &str| pod.labels().get(key).is_some_and(|have| have == value);
    let staying = pod.metadata.deletion_timestamp.is_none() && !pod.annotations().contains_key(DRAIN);
    staying && ready && running && is(APP.0, APP.1) && is(ELIGIBLE, "true")
}

/// Its ports.
pub fn ports(pod: &Pod) -> Vec<u16> {
    let text = pod.annotations().get(PORTS).map(String::as_str).unwrap_or_default();
    text.split(',').filter_map(|port| port.parse().ok()).collect()
}
