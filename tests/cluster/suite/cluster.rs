//! The API server that the scenarios run before, and a namespace there.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tandem::testkit::kube::{FakeKube, FakeServer, Fault, RequestKind};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::rights;

/// A command that restarts the API server, for `sh -c`; it is over when the server answers again.
const RESTART: &str = "TANDEM_CLUSTER_RESTART";

/// An API server and a namespace of ours.
pub struct Cluster {
    pub client: Client,
    pub ns: String,
    pub dir: TempDir,
    /// `host:port` of the server.
    pub(super) server: String,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Real {
        /// The kubeconfig's word on the server: certificates and names.
        cluster: Value,
    },
    Fake(FakeKube, Mutex<FakeServer>),
}

impl Cluster {
    /// Whatever `KUBECONFIG` points at. Its user may do everything in namespaces that it makes.
    pub async fn real() -> Self {
        let file = Kubeconfig::from_env().expect("KUBECONFIG can be read");
        let file = file.expect("KUBECONFIG names a kubeconfig of a cluster for tests");
        let config =
            Config::from_custom_kubeconfig(file.clone(), &KubeConfigOptions::default()).await.unwrap();
        let context = file.current_context.clone().expect("a current context");
        let context = file.contexts.iter().find(|known| known.name == context).unwrap();
        let name = &context.context.as_ref().unwrap().cluster;
        let cluster = file.clusters.iter().find(|known| known.name == *name).unwrap();
        let cluster = serde_json::to_value(cluster.cluster.as_ref().unwrap()).unwrap();
        let client = Client::try_from(config).unwrap();
        let version = client.apiserver_version().await.expect("the API server answers");
        println!("API server {}", version.git_version);
        let server = authority(cluster["server"].as_str().unwrap());
        let cluster = Self::with(client, server, Kind::Real { cluster });
        cluster.make_namespace().await;
        cluster
    }

    /// The fake one, over HTTP.
    pub async fn fake() -> Self {
        let fake = FakeKube::new();
        let server = fake.serve().await;
        let url: http::Uri = server.url().parse().unwrap();
        let client = Client::try_from(Config::new(url)).unwrap();
        let at = server.addr().to_string();
        let cluster = Self::with(client, at, Kind::Fake(fake, Mutex::new(server)));
        cluster.make_namespace().await;
        cluster
    }

    fn with(client: Client, server: String, kind: Kind) -> Self {
        let ns = format!("tandem-test-{:08x}", fastrand::u32(..));
        Self { client, ns, dir: tempfile::tempdir().unwrap(), server, kind }
    }

    pub fn is_real(&self) -> bool {
        matches!(self.kind, Kind::Real { .. })
    }

    /// One for a real server, another for CI.
    pub fn pick<T>(&self, real: T, fake: T) -> T {
        if self.is_real() { real } else { fake }
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.ns)
    }

    /// The namespace; on a real server the router's account with its rights too.
    async fn make_namespace(&self) {
        // Whatever the cluster enforces elsewhere: these Pods are never run.
        let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
        let namespace = json!({ "metadata": { "name": self.ns, "labels": labels } });
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace can be made");
        if self.is_real() {
            rights::make_account(self).await;
        }
        self.grant(&["list", "watch"]).await;
    }

    /// Removes everything. Without a namespace controller the empty namespace stays, terminating.
    pub async fn clear(&self) {
        let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
        if let Err(error) = self.pods().delete_collection(&now, &all).await {
            println!("Pods of {} are left: {error}", self.ns);
        }
        if self.is_real() {
            let _ = self.of::<RoleBinding>().delete_collection(&now, &all).await;
            let _ = self.of::<Role>().delete_collection(&now, &all).await;
            let _ = self.of::<ServiceAccount>().delete_collection(&now, &all).await;
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        if let Err(error) = namespaces.delete(&self.ns, &DeleteParams::default()).await {
            println!("namespace {} is left: {error}", self.ns);
        }
    }

    pub(super) fn of<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.ns)
    }

    /// A kubeconfig of the router's account, to the server by way of `via`.
    pub async fn kubeconfig(&self, via: SocketAddr) -> PathBuf {
        let (cluster, user) = match &self.kind {
            Kind::Fake(..) => (json!({ "server": format!("http://{via}") }), json!({})),
            Kind::Real { cluster } => {
                let mut through = cluster.clone();
                let server = cluster["server"].as_str().unwrap();
                let scheme = server.split_once("://").map_or("https", |(scheme, _)| scheme);
                through["server"] = format!("{scheme}://{via}").into();
                if scheme == "https" && through["tls-server-name"].is_null() {
                    through["tls-server-name"] = host(&self.server).into();
                }
                (through, json!({ "token": rights::token(self).await }))
            }
        };
        let context = json!({ "cluster": "c", "user": "router", "namespace": self.ns });
        let file = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": cluster }],
            "users": [{ "name": "router", "user": user }],
            "contexts": [{ "name": "c", "context": context }],
        });
        // JSON is YAML.
        let path = self.dir.path().join(format!("kubeconfig-{}", via.port()));
        std::fs::write(&path, file.to_string()).unwrap();
        path
    }

    /// The router may do this with Pods, and nothing else.
    pub async fn grant(&self, verbs: &[&str]) {
        match &self.kind {
            Kind::Real { .. } => rights::grant(self, verbs).await,
            Kind::Fake(fake, _) => {
                for (verb, kind) in [("list", RequestKind::List), ("watch", RequestKind::Watch)] {
                    fake.always(kind, (!verbs.contains(&verb)).then(|| Fault::status(403)));
                }
            }
        }
    }

    /// Restarts the server itself, and waits until it answers. `false`: nobody said how.
    pub async fn restart(&self) -> bool {
        match &self.kind {
            Kind::Fake(_, server) => {
                let mut server = server.lock().await;
                server.shut_down(Duration::from_millis(300)).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
                server.restart().await;
                true
            }
            Kind::Real { .. } => {
                let Ok(command) = std::env::var(RESTART) else { return false };
                let mut shell = Command::new("sh");
                shell.args(["-c", &command]).stdin(Stdio::null()).stdout(Stdio::null());
                let status = shell.status().await.unwrap();
                assert!(status.success(), "{RESTART}: {status}");
                true
            }
        }
    }

    /// What only the fake server does on demand.
    pub fn the_fake(&self) -> &FakeKube {
        match &self.kind {
            Kind::Fake(fake, _) => fake,
            Kind::Real { .. } => panic!("a real server"),
        }
    }
}

/// `host:port` of a URL.
fn authority(url: &str) -> String {
    let url: http::Uri = url.parse().unwrap();
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    format!("{}:{port}", url.host().unwrap())
}

/// As certificates name it: without brackets.
fn host(authority: &str) -> &str {
    authority.rsplit_once(':').map_or(authority, |(host, _)| host).trim_matches(['[', ']'])
}
