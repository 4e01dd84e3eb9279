//! The part of a Pod that discovery reads. A full Pod is 5 to 20 KB of JSON; of thousands in a list only this is kept.
//!
//! Decoding is lenient where Kubernetes is: null and absent lists, no status. What cannot be read at all is one bad object.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};

use crate::registry::{Born, PodId};

/// A Pod as of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub id: Arc<PodId>,
    /// `metadata.resourceVersion`; comparable as a number on conformant servers.
    pub version: u64,
    /// `metadata.creationTimestamp`, seconds since the Unix epoch.
    pub created: i64,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    pub labels: BTreeMap<String, String>,
    /// Only those asked for.
    pub annotations: BTreeMap<String, String>,
    pub phase: Phase,
    pub ready: Ready,
    /// Usable addresses in the order of `status.podIPs`.
    pub addresses: Vec<IpAddr>,
    /// Addresses that are none for us (link-local, with a zone), as written.
    pub unusable: Vec<String>,
    /// Declared container ports, sidecars included.
    pub ports: Vec<(Option<String>, u16)>,
    /// Restarts of its containers: another number is another process.
    pub restarts: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Running,
    /// Pending, Unknown or none.
    Waiting,
    /// Succeeded or Failed. Its address may belong to another Pod by now (kubernetes#109414).
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    True,
    /// Or no such condition.
    False,
    /// The node is out of reach.
    Unknown,
}

impl Pod {
    /// A label, else an annotation, that is not empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        let value = self.labels.get(key).or_else(|| self.annotations.get(key));
        value.map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether it carries all of these labels.
    pub fn carries(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.iter().all(|(key, value)| self.labels.get(key) == Some(value))
    }

    pub fn born(&self, first: u64) -> Born {
        Born { created: self.created, version: first }
    }
}

/// What identifies an object, whatever else is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub uid: Option<String>,
    pub namespace: String,
    pub name: String,
    pub version: Option<u64>,
}

impl Identity {
    pub fn of(pod: &Pod) -> Self {
        let PodId { namespace, name, uid } = &*pod.id;
        Self {
            uid: Some(uid.clone()),
            namespace: namespace.clone(),
            name: name.clone(),
            version: Some(pod.version),
        }
    }
}

/// Reads a Pod; of its annotations only `wanted`.
///
/// # Errors
/// Why not, in words for an operator, and as much of its identity as can be read.
pub fn decode(json: &str, wanted: &[String]) -> Result<Pod, (Identity, String)> {
    match serde_json::from_str::<RawPod>(json) {
        Ok(raw) => raw.into_pod(wanted),
        Err(error) => Err((identity(json), error.to_string())),
    }
}

/// As much of an object's identity as can be read.
pub fn identity(json: &str) -> Identity {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Only {
        #[serde(deserialize_with = "lenient")]
        metadata: serde_json::Value,
    }
    let metadata = serde_json::from_str::<Only>(json).unwrap_or_default().metadata;
    let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
    Identity {
        uid: Some(text("uid")).filter(|uid| !uid.is_empty()),
        namespace: text("namespace"),
        name: text("name"),
        version: text("resourceVersion").parse().ok(),
    }
}

/// `null` is the default, as Kubernetes has it.
pub(super) fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(d: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPod {
    #[serde(default, deserialize_with = "lenient")]
    metadata: Metadata,
    #[serde(default, deserialize_with = "lenient")]
    spec: Spec,
    #[serde(default, deserialize_with = "lenient")]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    #[serde(deserialize_with = "lenient")]
    namespace: String,
    #[serde(deserialize_with = "lenient")]
    name: String,
    #[serde(deserialize_with = "lenient")]
    uid: String,
    #[serde(deserialize_with = "lenient")]
    resource_version: String,
    creation_timestamp: Option<Time>,
    #[serde(deserialize_with = "lenient")]
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "lenient")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "lenient")]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "lenient")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "lenient")]
    init_containers: Vec<Container>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    #[serde(deserialize_with = "lenient")]
    ports: Vec<ContainerPort>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerPort {
    name: Option<String>,
    #[serde(rename = "containerPort")]
    number: Option<u16>,
    protocol: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "lenient")]
    phase: String,
    #[serde(rename = "podIP", deserialize_with = "lenient")]
    pod_ip: String,
    #[serde(rename = "podIPs", deserialize_with = "lenient")]
    pod_ips: Vec<PodIp>,
    #[serde(deserialize_with = "lenient")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "lenient")]
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodIp {
    #[serde(deserialize_with = "lenient")]
    ip: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type", deserialize_with = "lenient")]
    kind: String,
    #[serde(deserialize_with = "lenient")]
    status: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    #[serde(deserialize_with = "lenient")]
    restart_count: u64,
}

impl RawPod {
    fn into_pod(self, wanted: &[String]) -> Result<Pod, (Identity, String)> {
        let Self { metadata: m, spec, status } = self;
        let version = m.resource_version.parse().ok();
        let identity = |uid: &str| Identity {
            uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()),
            namespace: m.namespace.clone(),
            name: m.name.clone(),
            version,
        };
        if m.uid.is_empty() {
            return Err((identity(""), "it has no UID".to_owned()));
        }
        let Some(version) = version else {
            return Err((
                identity(&m.uid),
                format!("its resourceVersion {:?} is no number", m.resource_version),
            ));
        };
        let (addresses, unusable) = status.addresses();
        let containers = spec.containers.into_iter().chain(spec.init_containers);
        Ok(Pod {
            version,
            created: m.creation_timestamp.map_or(0, |time| time.0.as_second()),
            deleting: m.deletion_timestamp.is_some(),
            labels: m.labels,
            annotations: m.annotations.into_iter().filter(|(key, _)| wanted.contains(key)).collect(),
            phase: match status.phase.as_str() {
                "Running" => Phase::Running,
                "Succeeded" | "Failed" => Phase::Ended,
                _ => Phase::Waiting,
            },
            ready: status.ready(),
            addresses,
            unusable,
            ports: containers.flat_map(|c| c.ports).filter_map(ContainerPort::tcp).collect(),
            restarts: status.container_statuses.iter().map(|c| c.restart_count).sum(),
            id: Arc::new(PodId { namespace: m.namespace, name: m.name, uid: m.uid }),
        })
    }
}

impl ContainerPort {
    fn tcp(self) -> Option<(Option<String>, u16)> {
        let tcp = self.protocol.is_none_or(|protocol| protocol == "TCP");
        self.number.filter(|port| tcp && *port != 0).map(|port| (self.name, port))
    }
}

impl Status {
    fn ready(&self) -> Ready {
        let condition = self.conditions.iter().find(|c| c.kind == "Ready");
        match condition.map(|c| c.status.as_str()) {
            Some("True") => Ready::True,
            Some("Unknown") => Ready::Unknown,
            _ => Ready::False,
        }
    }

    /// Usable ones, and others as written. An IPv4 address in IPv6 form is that IPv4 address.
    fn addresses(&self) -> (Vec<IpAddr>, Vec<String>) {
        let written = self.pod_ips.iter().map(|at| at.ip.as_str()).chain([self.pod_ip.as_str()]);
        let (mut usable, mut unusable) = (Vec::new(), Vec::new());
        for text in written.filter(|text| !text.is_empty()) {
            match text.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
                Ok(ip) if !is_local(ip) => {
                    if !usable.contains(&ip) {
                        usable.push(ip);
                    }
                }
                _ if unusable.iter().any(|known| known == text) => {}
                _ => unusable.push(text.to_owned()),
            }
        }
        (usable, unusable)
    }
}

/// Good on one link only, or for nothing.
fn is_local(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    link_local || ip.is_unspecified() || ip.is_multicast()
}

#[cfg(test)]
#[path = "tests/pod.rs"]
mod tests;
