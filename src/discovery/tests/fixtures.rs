//! Pods and rules for the tests of this plane.

use serde_json::{Value, json};

use super::Rules;
use super::pod::{Pod, decode};
use crate::config::{Dialect, EngineKind, PodDiscovery, Service, VllmConnector};
use crate::metrics::{Metrics, Vocabulary};

pub(super) const VLLM: EngineKind = EngineKind::Vllm(VllmConnector::Nixl);

/// A Pod as the API shows it: of the service `app: llm`, running and ready, `192.0.2.1`, port 8000 named `http`.
pub(super) fn object() -> Value {
    json!({
        "metadata": {
            "namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "5",
            "creationTimestamp": "2026-01-01T00:00:10Z",
            "labels": { "app": "llm" }, "annotations": {},
        },
        "spec": { "containers": [{ "name": "engine", "ports": [{ "name": "http", "containerPort": 8000 }] }] },
        "status": {
            "phase": "Running", "podIP": "192.0.2.1", "podIPs": [{ "ip": "192.0.2.1" }],
            "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{ "restartCount": 0 }],
        },
    })
}

/// That Pod, changed.
pub(super) fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut object = object();
    change(&mut object);
    object
}

/// As it is read, with every annotation.
pub(super) fn read(object: &Value) -> Pod {
    let wanted = object["metadata"]["annotations"].as_object().map(|map| map.keys().cloned().collect());
    decode(&object.to_string(), &wanted.unwrap_or_else(Vec::new)).unwrap()
}

/// That Pod with these labels too.
pub(super) fn labelled(labels: &[(&str, &str)]) -> Pod {
    read(&changed(|pod| {
        for (key, value) in labels {
            pod["metadata"]["labels"][*key] = (*value).into();
        }
    }))
}

/// A service named `chat` whose Pods carry `app: llm`.
pub(super) fn service(engine: EngineKind, dialect: Dialect) -> Service {
    let selector = [("app".to_owned(), "llm".to_owned())].into();
    let pods = Some(PodDiscovery::of(dialect, selector));
    Service { engine, pods, ..Service::plain("chat", Vec::new()) }
}

pub(super) fn rules(engine: EngineKind, dialect: Dialect) -> Rules {
    Rules::of(0, &service(engine, dialect)).unwrap()
}

pub(super) fn metrics() -> std::sync::Arc<Metrics> {
    let words = Vocabulary { routes: &[], error_codes: &[], retry_reasons: &[], phases: &[] };
    Metrics::new(&words).unwrap()
}
