//! Cost of Pod discovery at 5,000 Pods: decoding a list, applying it, and from an event to the snapshot that has it.
//!
//! `cargo bench --profile quick --bench discovery`. Paths covered: `discovery::kube::decode_list`, `discovery::source`, the
//! registry's writer. No I/O. Times are medians of 21 runs.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "a bench reads the time")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tandem::config::{Dialect, PodDiscovery, Service};
use tandem::discovery::Rules;
use tandem::discovery::kube::decode_list;
use tandem::discovery::pod::Pod;
use tandem::discovery::source::{Reconciled, Source};
use tandem::metrics::{Metrics, Vocabulary};
use tandem::registry::{Change, Handle, View, Writer};
use tokio::sync::watch;

const PODS: usize = 5_000;

/// A Pod as an API server shows it: most of it is of no use here.
fn pod(n: usize, version: usize, eligible: bool) -> Value {
    let env: Vec<Value> =
        (0..24).map(|i| json!({"name": format!("VARIABLE_{i}"), "value": "x".repeat(48)})).collect();
    let fields: Value =
        (0..60).map(|i| (format!("f:field-{i}"), json!({}))).collect::<serde_json::Map<_, _>>().into();
    json!({
        "metadata": {
            "name": format!("decode-{n}"), "namespace": "llm", "uid": format!("uid-{n}"),
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-11-30T10:00:00Z",
            "labels": {
                "app": "llm", "tandem.dev/endpoint-eligible": eligible.to_string(), "tandem.dev/role": "mixed",
                "tandem.dev/revision": format!("r{}", n % 3), "pod-template-hash": "abcdef1234"
            },
            "annotations": {"tandem.dev/ports": "8000", "note": "n".repeat(300)},
            "managedFields": [{"manager": "kubelet", "fieldsV1": fields}]
        },
        "spec": {"containers": [{
            "name": "engine", "image": "registry.example/engine:1", "env": env,
            "ports": [{"name": "http", "containerPort": 8000}]
        }]},
        "status": {
            "phase": "Running", "podIP": format!("10.{}.{}.1", n / 250, n % 250),
            "podIPs": [{"ip": format!("10.{}.{}.1", n / 250, n % 250)}],
            "conditions": [
                {"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"},
                {"type": "ContainersReady", "status": "True"}
            ],
            "containerStatuses": [{"name": "engine", "restartCount": 0, "ready": true}]
        }
    })
}

/// A list in which one in a hundred Pods changed since `version` 1.
fn list(version: usize, changed: bool) -> Vec<u8> {
    let one = |n: usize| {
        let other = changed && n.is_multiple_of(100);
        pod(n, if other { version } else { 1 }, !other)
    };
    let items: Vec<Value> = (0..PODS).map(one).collect();
    serde_json::to_vec(&json!({
        "kind": "PodList", "metadata": {"resourceVersion": version.to_string()}, "items": items
    }))
    .unwrap()
}

struct Bed {
    source: Source,
    changes: Handle,
    versions: watch::Receiver<u64>,
    view: View,
}

impl Bed {
    fn new() -> Self {
        let words =
            Vocabulary { routes: &["chat"], error_codes: &[], retry_reasons: &[], phases: &["running"] };
        let metrics = Metrics::new(&words).unwrap();
        let selector = BTreeMap::from([("app".to_owned(), "llm".to_owned())]);
        let pods = Some(PodDiscovery::of(Dialect::Tandem, selector));
        let service = Service { pods, ..Service::plain("llm", Vec::new()) };
        let rules = Rules::of(0, &service).unwrap();
        let source = Source::new(vec![(rules, metrics.discovery.service("llm").unwrap())]);
        let (writer, view, changes) = Writer::new(&[service], 2, &metrics.endpoints);
        let versions = writer.versions();
        tokio::spawn(writer.run());
        Self { source, changes, versions, view }
    }

    /// Applies a decoded list, to the snapshot that has it.
    async fn apply(&mut self, version: u64, pods: Vec<Arc<Pod>>) {
        if let Reconciled::Applied(batch, _) = self.source.list(version, pods, &[], Instant::now().into()) {
            let updates = batch.updates.len();
            self.versions.borrow_and_update();
            self.changes.send(Change::Pods(batch)).await.unwrap();
            if updates > 0 {
                self.versions.changed().await.unwrap();
            }
        }
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let wanted = vec!["tandem.dev/ports".to_owned()];
    let (same, other) = (list(10, false), list(20, true));
    println!("{PODS} Pods, {} bytes each as JSON", same.len() / PODS);
    let mut decode = Vec::new();
    let (mut first, mut nothing, mut few, mut event) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..21 {
        let start = Instant::now();
        let (version, pods, _) = decode_list(&same, &wanted).unwrap();
        decode.push(start.elapsed());
        let again = pods.clone();
        let changed = decode_list(&other, &wanted).unwrap();
        let mut bed = Bed::new();
        let start = Instant::now();
        bed.apply(version, pods).await;
        first.push(start.elapsed());
        assert_eq!(bed.view.load().services[0].endpoints.len(), PODS);
        let start = Instant::now();
        bed.apply(version, again).await;
        nothing.push(start.elapsed());
        let start = Instant::now();
        bed.apply(changed.0, changed.1).await;
        few.push(start.elapsed());
        let selectable = bed.view.load().services[0].endpoints.iter().filter(|e| e.is_selectable()).count();
        assert_eq!(selectable, PODS - PODS / 100);
        for n in 0..10 {
            let json = pod(n * 7 + 1, 100 + n, false).to_string();
            let start = Instant::now();
            let (batch, _) = bed.source.changed(&json, start.into());
            bed.versions.borrow_and_update();
            bed.changes.send(Change::Pods(batch)).await.unwrap();
            bed.versions.changed().await.unwrap();
            event.push(start.elapsed());
        }
    }
    println!("decode a list               {:8.2} ms", median(decode));
    println!("apply the first list        {:8.2} ms", median(first));
    println!("apply one without a change  {:8.2} ms", median(nothing));
    println!("apply one with 1 % changed  {:8.2} ms", median(few));
    println!("event to snapshot           {:8.2} ms", median(event));
}
