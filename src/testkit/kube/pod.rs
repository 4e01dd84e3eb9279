//! Typical Pods.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

/// Builds a Pod: running and ready unless told otherwise.
#[derive(Debug, Clone)]
pub struct PodSpec {
    name: String,
    ns: String,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    ips: Vec<String>,
    phase: String,
    ready: Option<(&'static str, Option<String>)>,
    host_network: bool,
    node: Option<String>,
    created: Option<String>,
    containers: Vec<Value>,
}

impl PodSpec {
    /// In the namespace `default`, with one container `engine`, without an address.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ns: "default".to_owned(),
            labels: Map::new(),
            annotations: Map::new(),
            ips: Vec::new(),
            phase: "Running".to_owned(),
            ready: Some(("True", None)),
            host_network: false,
            node: Some("node-1".to_owned()),
            created: None,
            containers: vec![container("engine")],
        }
    }

    /// Another namespace than `default`.
    #[must_use]
    pub fn namespace(mut self, ns: &str) -> Self {
        ns.clone_into(&mut self.ns);
        self
    }

    /// One more label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.into());
        self
    }

    /// More labels.
    #[must_use]
    pub fn labels(self, labels: &[(&str, &str)]) -> Self {
        labels.iter().fold(self, |pod, (key, value)| pod.label(key, value))
    }

    /// One more annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.into());
        self
    }

    /// One more address, as text: also one that is none. The first is `podIP`.
    #[must_use]
    pub fn ip(mut self, ip: &str) -> Self {
        self.ips.push(ip.to_owned());
        self
    }

    /// The address of something that listens in the test.
    #[must_use]
    pub fn at(self, ip: IpAddr) -> Self {
        self.ip(&ip.to_string())
    }

    /// `status.phase`; the Ready condition stays what it is.
    #[must_use]
    pub fn phase(mut self, phase: &str) -> Self {
        phase.clone_into(&mut self.phase);
        self
    }

    /// The Ready condition: `True`, `False` or `Unknown`.
    #[must_use]
    pub fn ready(mut self, status: &'static str) -> Self {
        self.ready = Some((status, None));
        self
    }

    /// The Ready condition with a reason, such as `ContainersNotReady`.
    #[must_use]
    pub fn ready_because(mut self, status: &'static str, reason: &str) -> Self {
        self.ready = Some((status, Some(reason.to_owned())));
        self
    }

    /// No Ready condition at all.
    #[must_use]
    pub fn no_condition(mut self) -> Self {
        self.ready = None;
        self
    }

    /// `spec.hostNetwork`.
    #[must_use]
    pub fn host_network(mut self) -> Self {
        self.host_network = true;
        self
    }

    /// Not bound to a node: a DELETE over HTTP removes it at once.
    #[must_use]
    pub fn unbound(mut self) -> Self {
        self.node = None;
        self
    }

    /// `metadata.creationTimestamp`, RFC 3339; without it every Pod is as old as the others.
    #[must_use]
    pub fn created(mut self, at: &str) -> Self {
        self.created = Some(at.to_owned());
        self
    }

    /// A TCP port of the container named last (or `engine`).
    #[must_use]
    pub fn port(mut self, name: &str, port: u16) -> Self {
        let port = json!({ "name": name, "containerPort": port, "protocol": "TCP" });
        if let Some(ports) = self.containers.last_mut().and_then(|c| c["ports"].as_array_mut()) {
            ports.push(port);
        }
        self
    }

    /// One more container.
    #[must_use]
    pub fn container(mut self, name: &str) -> Self {
        self.containers.push(container(name));
        self
    }

    /// The object, without what the server fills in.
    pub fn build(self) -> Value {
        let mut status = json!({ "phase": self.phase, "qosClass": "BestEffort" });
        if let Some(first) = self.ips.first() {
            status["podIP"] = first.clone().into();
            status["podIPs"] = self.ips.iter().map(|ip| json!({ "ip": ip })).collect();
        }
        if let Some((ready, reason)) = &self.ready {
            set_condition(&mut status, ready, reason.as_deref());
        }
        let mut pod = json!({
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": { "name": self.name, "namespace": self.ns },
            "spec": { "containers": self.containers, "restartPolicy": "Always", "terminationGracePeriodSeconds": 30 },
            "status": status,
        });
        for (field, map) in [("labels", self.labels), ("annotations", self.annotations)] {
            if !map.is_empty() {
                pod["metadata"][field] = map.into();
            }
        }
        if self.host_network {
            pod["spec"]["hostNetwork"] = true.into();
        }
        if let Some(node) = self.node {
            pod["spec"]["nodeName"] = node.into();
        }
        if let Some(created) = self.created {
            pod["metadata"]["creationTimestamp"] = created.into();
        }
        pod
    }
}

impl From<PodSpec> for Value {
    fn from(pod: PodSpec) -> Self {
        pod.build()
    }
}

/// Changes a Pod's Ready condition; for [`super::FakeKube::update`].
pub fn set_ready(pod: &mut Value, status: &str, reason: Option<&str>) {
    set_condition(&mut pod["status"], status, reason);
}

fn set_condition(status: &mut Value, ready: &str, reason: Option<&str>) {
    let mut condition =
        json!({ "type": "Ready", "status": ready, "lastTransitionTime": super::store::CREATED });
    if let Some(reason) = reason {
        condition["reason"] = reason.into();
    }
    status["conditions"] = json!([condition]);
}

fn container(name: &str) -> Value {
    json!({ "name": name, "image": "engine:latest", "ports": [] })
}
