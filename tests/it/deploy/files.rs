//! What `deploy/` says, as values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tandem::config::{self, File, RouterConfig, Source};

/// Where a workload has its (only) container.
pub(super) const CONTAINER: &str = "/spec/template/spec/containers/0";

/// Where it has the container that runs before, if there is one.
pub(super) const INIT: &str = "/spec/template/spec/initContainers/0";

pub(super) fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(super) fn text(path: &str) -> String {
    std::fs::read_to_string(root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every YAML file below `deploy/`.
pub(super) fn manifests() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root("deploy")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "yaml") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() >= 10, "{found:?}");
    found
}

/// What is applied beside the routers: engines that are listed by name, in one of two forms, or engines found as Pods.
pub(super) const PROGRAM: &str = "deploy/engine";
pub(super) const SCRIPT: &str = "deploy/engine-script";
pub(super) const PODS: &str = "deploy/pods";
/// The routers' configuration for the first two.
const LISTED: &str = "deploy/listed";

pub(super) struct Deploy {
    /// By `Kind/name`.
    pub(super) documents: BTreeMap<String, Value>,
    pub(super) dockerfile: String,
}

impl Deploy {
    pub(super) fn read() -> Self {
        Self::with(PROGRAM)
    }

    /// The routers, and the engines of this folder with the configuration that goes with them.
    pub(super) fn with(engines: &str) -> Self {
        let mut documents = BTreeMap::new();
        let others: &[&str] = match engines {
            PROGRAM => &[SCRIPT, PODS],
            SCRIPT => &[PROGRAM, PODS],
            _ => &[PROGRAM, SCRIPT, LISTED],
        };
        let other = |file: &PathBuf| others.iter().any(|folder| file.starts_with(root(folder)));
        for file in manifests().into_iter().filter(|file| !other(file)) {
            for document in std::fs::read_to_string(&file).unwrap().split("\n---\n") {
                let value: Value = serde_saphyr::from_str(document).unwrap();
                let id = format!("{}/{}", value["kind"].as_str().unwrap(), name(&value));
                assert!(documents.insert(id.clone(), value).is_none(), "{id} twice");
            }
        }
        Self { documents, dockerfile: text("deploy/image/Dockerfile") }
    }

    /// `null` where there is nothing.
    pub(super) fn at(&self, id: &str, pointer: &str) -> &Value {
        self.documents.get(id).and_then(|document| document.pointer(pointer)).unwrap_or(&Value::Null)
    }

    /// Documents of a kind.
    pub(super) fn of(&self, kind: &str) -> impl Iterator<Item = (&str, &Value)> {
        let of_kind = move |id: &str| id.split('/').next() == Some(kind);
        self.documents.iter().map(|(id, value)| (id.as_str(), value)).filter(move |(id, _)| of_kind(id))
    }

    pub(super) fn workloads(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.of("Deployment").chain(self.of("StatefulSet"))
    }

    /// The engines, whatever kind of workload they are.
    pub(super) fn engines(&self) -> &str {
        let id = ["StatefulSet/engine", "Deployment/engine"]
            .into_iter()
            .find(|id| self.documents.contains_key(*id));
        id.unwrap_or_else(|| panic!("no engines among {:?}", self.documents.keys()))
    }

    pub(super) fn router_yaml(&self) -> &str {
        self.at("ConfigMap/tandem", "/data/router.yaml").as_str().unwrap_or_default()
    }

    pub(super) fn config(&self) -> Result<RouterConfig, String> {
        let file = File { name: "router.yaml".to_owned(), text: self.router_yaml().to_owned() };
        config::load(&Source { file: Some(file), ..Source::default() }).map_err(|e| format!("{e:?}"))
    }

    /// What a path in the container shows: the document or Secret and its key, or the installed program, through the mounts of
    /// the workload.
    pub(super) fn mounted(&self, workload: &Value, path: &str) -> Option<String> {
        let (folder, file) = path.rsplit_once('/')?;
        let container = workload.pointer(CONTAINER)?;
        let mount = container["volumeMounts"].as_array()?.iter().find(|m| m["mountPath"] == folder)?;
        if !mount["subPath"].is_null() {
            return None;
        }
        let volumes = workload.pointer("/spec/template/spec/volumes")?.as_array()?;
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"])?;
        if let Some(map) = volume["configMap"]["name"].as_str() {
            let data = self.documents.get(&format!("ConfigMap/{map}"))?.get("data")?;
            return data.get(file).map(|_| format!("ConfigMap/{map}:{file}"));
        }
        if volume["emptyDir"].is_object() {
            return (file == "tandem" && installs(workload.pointer(INIT)?, &volume["name"]))
                .then(|| "installed".to_owned());
        }
        let secret = volume["secret"]["secretName"].as_str()?;
        let item = volume["secret"]["items"].as_array()?.iter().find(|item| item["path"] == file)?;
        Some(format!("Secret/{secret}:{}", item["key"].as_str()?))
    }
}

/// Whether `tandem install` writes into this volume.
fn installs(container: &Value, volume: &Value) -> bool {
    let args = &container["args"];
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let there = mounts.filter(|m| m["mountPath"] == args[1] && m["readOnly"] != true);
    args[0] == "install" && there.map(|m| &m["name"]).any(|name| name == volume)
}

pub(super) fn name(document: &Value) -> &str {
    document["metadata"]["name"].as_str().unwrap_or_default()
}

/// Bytes, cores: what a Kubernetes quantity means.
pub(super) fn quantity(value: &Value) -> f64 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1.0,
        "m" => 1e-3,
        "Mi" => f64::from(1 << 20),
        "Gi" => f64::from(1 << 30),
        _ => f64::NAN,
    };
    digits.parse::<f64>().unwrap_or(f64::NAN) * unit
}

/// The environment: names and plain values.
pub(super) fn variables(workload: &Value) -> BTreeMap<&str, &str> {
    let list = workload.pointer(CONTAINER).and_then(|container| container["env"].as_array());
    list.into_iter().flatten().filter_map(|v| Some((v["name"].as_str()?, v["value"].as_str()?))).collect()
}
