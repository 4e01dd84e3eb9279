//! The router under test: the built binary, with Pods of the namespace, by way of a proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tandem::admin::{EndpointStatus, Fleet};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::types::clock::{Instant, now, wall_ms};

use super::cluster::Cluster;
use super::pods::APP;
use super::proxy::Proxy;
use super::{SOON, until};
use crate::process::Process;

/// A running router. Its last words are shown when a test fails.
pub struct Router {
    pub process: Process,
    pub proxy: Proxy,
}

impl Drop for Router {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.process.stderr();
            let lines: Vec<&str> = said.lines().collect();
            let last = lines.len().saturating_sub(60);
            eprintln!("the router said:\n{}", lines[last..].join("\n"));
        }
    }
}

impl Router {
    /// One plain service; a list every `relist`. It serves when this returns, and may wait for its endpoints still.
    pub async fn start(cluster: &Cluster, relist: Duration) -> Self {
        Self::of_kind(cluster, relist, "").await
    }

    /// [`Self::start`], and ready.
    pub async fn ready(cluster: &Cluster, relist: Duration) -> Self {
        let router = Self::start(cluster, relist).await;
        router.until_ready(SOON).await;
        router
    }

    /// With these lines about the service.
    pub async fn of_kind(cluster: &Cluster, relist: Duration, lines: &str) -> Self {
        Self::behind(Proxy::to(&cluster.server), cluster, relist, lines).await
    }

    /// The same with a network of its own.
    pub async fn behind(proxy: Proxy, cluster: &Cluster, relist: Duration, lines: &str) -> Self {
        let kubeconfig = cluster.kubeconfig(proxy.addr).await;
        let mut config = format!(
            "kubernetes: {{ kubeconfig: {} }}\nservices:\n  - name: chat\n    discovery:\n      kubernetes:\n        \
             namespace: {}\n        selector: {{ {}: {} }}\n        dialect: tandem\n        relist: {}ms\n",
            kubeconfig.display(),
            cluster.ns,
            APP.0,
            APP.1,
            relist.as_millis()
        );
        for line in lines.lines() {
            writeln!(config, "    {line}").unwrap();
        }
        let path = cluster.dir.path().join(format!("router-{}.yaml", proxy.addr.port()));
        std::fs::write(&path, config).unwrap();
        Self { process: Process::launch(&["--config", path.to_str().unwrap()], true).await, proxy }
    }

    pub async fn is_ready(&self) -> bool {
        self.process.admin_get("/readyz").await.status() == 200
    }

    /// When it was.
    pub async fn until_ready(&self, limit: Duration) -> Instant {
        until("the router is ready", limit, || async {
            let answer = self.process.admin_get("/readyz").await;
            if answer.status() == 200 { Ok(now()) } else { Err(answer.text()) }
        })
        .await
    }

    pub async fn fleet(&self) -> Fleet {
        serde_json::from_value(self.process.admin_get("/endpoints").await.json()).unwrap()
    }

    /// Ports that may be given a new request.
    pub async fn selectable(&self) -> BTreeSet<u16> {
        let fleet = self.fleet().await;
        fleet.endpoints.iter().filter(|e| e.selectable).map(port).collect()
    }

    /// Waits until exactly these are selectable; when it was seen.
    pub async fn until_selectable(&self, ports: &[u16], limit: Duration) -> Instant {
        let wanted: BTreeSet<u16> = ports.iter().copied().collect();
        until("the selectable endpoints", limit, || async {
            let have = self.selectable().await;
            if have == wanted { Ok(now()) } else { Err(format!("{have:?}, not {wanted:?}")) }
        })
        .await
    }

    /// Waits until this endpoint, or else the Pod of this name, is left alone for that reason.
    pub async fn until_reason(&self, port_or_name: &str, reason: &str) -> Instant {
        until("the reason", SOON, || async {
            let have = self.reason(port_or_name).await;
            if have.as_deref() == Some(reason) { Ok(now()) } else { Err(have) }
        })
        .await
    }

    pub async fn reason(&self, port_or_name: &str) -> Option<String> {
        let fleet = self.fleet().await;
        let ends = format!(":{port_or_name}");
        let endpoint = newest(&fleet, &ends);
        let pod = fleet.pods.iter().find(|pod| pod.name == port_or_name);
        let of_pod = pod.map(|pod| pod.reason.clone().into_owned());
        endpoint.and_then(|e| e.reason.clone()).map(Into::into).or(of_pod)
    }

    /// The endpoint at this port; of several the one that is not gone.
    pub async fn endpoint(&self, port: u16) -> Option<EndpointStatus> {
        newest(&self.fleet().await, &format!(":{port}")).cloned()
    }

    /// Statuses of so many requests, one after the other.
    pub async fn ask(&self, n: usize) -> Vec<u16> {
        let mut client = self.process.client().await;
        let mut statuses = Vec::new();
        for _ in 0..n {
            statuses.push(client.request(&post_chat(chat_body("m", false))).await.unwrap().status());
        }
        statuses
    }

    /// The observer's strict document says the same as `/endpoints`.
    pub async fn observers_agree(&self) {
        until("the observer to agree", SOON, || async {
            let answer = self.process.admin_get("/observer/endpoints").await;
            let mine = self.selectable().await;
            if answer.status() != 200 {
                return Err(answer.text());
            }
            let document = answer.json();
            let workers = document["workers"].as_array().unwrap();
            let chosen = workers.iter().filter(|w| w["selection"]["in_selection"] == true);
            let theirs: BTreeSet<u16> = chosen.map(|w| number(&w["port"])).collect();
            if theirs == mine { Ok(()) } else { Err(format!("{theirs:?}, not {mine:?}")) }
        })
        .await;
    }

    /// By port: when the router took it from the requests, by its own log.
    pub fn withdrawals(&self) -> BTreeMap<u16, Vec<Instant>> {
        let (wall, at) = (wall_ms(), now());
        let mut found: BTreeMap<u16, Vec<Instant>> = BTreeMap::new();
        for line in self.process.log_lines() {
            if !["endpoint withdrawn", "endpoint left"]
                .contains(&line["message"].as_str().unwrap_or_default())
            {
                continue;
            }
            let text = line["timestamp"].as_str().unwrap();
            let when: Timestamp = text.parse().unwrap();
            let age = Duration::from_millis(wall.saturating_sub(when.as_millisecond().cast_unsigned()));
            let port = line["endpoint"].as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
            found.entry(port).or_default().push(at - age);
        }
        found
    }

    /// Everything that a counter of discovery has counted, by kind.
    pub async fn kinds(&self, name: &str) -> String {
        let scrape = self.process.scrape().await;
        let series = scrape.series(name).iter().map(|(labels, n)| format!("{} {n}", labels["kind"]));
        series.collect::<Vec<_>>().join(", ")
    }

    /// A counter of discovery, all kinds or one.
    pub async fn counted(&self, name: &str, kind: Option<&str>) -> u64 {
        let labels: Vec<(&str, &str)> = kind.map(|kind| ("kind", kind)).into_iter().collect();
        let sum = self.process.scrape().await.sum(name, &labels);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
        let sum = sum as u64;
        sum
    }
}

fn newest<'a>(fleet: &'a Fleet, ends: &str) -> Option<&'a EndpointStatus> {
    let gone = |e: &EndpointStatus| {
        matches!(e.reason.as_deref(), Some("deleted" | "not_listed" | "replaced" | "removed"))
    };
    let here = fleet.endpoints.iter().filter(|e| e.url.ends_with(ends));
    here.max_by_key(|e| (e.selectable, !gone(e), e.id.parse::<u64>().unwrap_or(0)))
}

fn port(endpoint: &EndpointStatus) -> u16 {
    endpoint.url.rsplit_once(':').unwrap().1.parse().unwrap()
}

fn number(value: &Value) -> u16 {
    value.as_u64().unwrap().try_into().unwrap()
}
