//! A router process whose engines are Pods of a fake API server, all on loopback: for what commands and consumers see.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::Value;
use tandem::testkit::engine::EngineHandle;
use tandem::testkit::kube::{Credentials, FakeKube, FakeServer, PodSpec};
use tempfile::TempDir;

use crate::process::{Process, poll};

/// The API server, and where configuration files stand.
pub(crate) struct Cluster {
    pub(crate) api: FakeKube,
    server: FakeServer,
    dir: TempDir,
}

/// A Pod `NAME` of the service: ready, endpoint-eligible, serving at this engine's port of 127.0.0.1.
pub(crate) fn pod(name: &str, engine: &EngineHandle) -> PodSpec {
    PodSpec::new(name)
        .label("app", "llm")
        .label("tandem.dev/endpoint-eligible", "true")
        .annotation("tandem.dev/ports", &engine.addr().port().to_string())
        .ip("127.0.0.1")
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let api = FakeKube::new();
        let server = api.serve().await;
        Self { api, server, dir: tempfile::tempdir().unwrap() }
    }

    /// Where its API server is.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// The way to the API server.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.server.kubeconfig(self.dir.path(), Credentials::Nobody)
    }

    /// A router with the service `chat`, whether it is ready or not. `more`: further lines of its configuration.
    pub(crate) async fn router(&self, more: &str) -> Process {
        Process::launch(&["--config", self.config(more).to_str().unwrap()], true).await
    }

    /// In place of one that has ended, at its admin address.
    pub(crate) async fn router_at(&self, admin: SocketAddr) -> Process {
        Process::launch_at(admin, &["--config", self.config("").to_str().unwrap()]).await
    }

    fn config(&self, more: &str) -> PathBuf {
        let kubeconfig = self.kubeconfig();
        let yaml = format!(
            "{more}\nkubernetes: {{ kubeconfig: {:?} }}\n\
             services: [{{ name: chat, discovery: {{ kubernetes: {{ selector: {{ app: llm }} }} }} }}]\n",
            kubeconfig.display().to_string()
        );
        let file = self.dir.path().join("router.yaml");
        std::fs::write(&file, yaml).unwrap();
        file
    }

    /// The same, once it is ready.
    pub(crate) async fn ready_router(&self, more: &str) -> Process {
        let process = self.router(more).await;
        poll("the router to be ready", async || process.admin_get("/readyz").await.status() == 200).await;
        process
    }
}

/// An endpoint as a router lists it.
pub(crate) async fn endpoint(process: &Process, engine: &EngineHandle) -> Option<Value> {
    let listed = process.admin_get("/endpoints").await.json();
    listed["endpoints"].as_array().unwrap().iter().find(|e| e["url"] == engine.url()).cloned()
}
