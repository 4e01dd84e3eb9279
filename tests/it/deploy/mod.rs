//! `deploy/`: Kubernetes takes it, its parts fit each other, its scripts work.

mod drain;
mod files;
mod mutations;
mod rights;
mod rules;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tandem::config;
use tandem::testkit::openai::python;

use crate::process::{Process, run, tandem};
use files::{Deploy, PODS, PROGRAM, SCRIPT, root};

/// The first version in which every field that is used is on by default.
const OLDEST_KUBERNETES: &str = "1.27";

fn schemas(files: &[PathBuf]) -> (bool, Value) {
    let mut command = Command::new(python());
    let Output { status, stdout, stderr } =
        command.arg(root("tests/manifests.py")).arg(OLDEST_KUBERNETES).args(files).output().unwrap();
    let said = serde_json::from_slice(&stdout);
    (status.success(), said.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&stderr))))
}

#[test]
fn every_manifest_fits_the_published_schemas() {
    let files = files::manifests();
    let (good, said) = schemas(&files);
    assert!(good, "{said:#}");
    let versions = said["versions"].as_array().unwrap();
    assert!(
        versions.len() > 5 && versions[0].as_str().unwrap().starts_with(OLDEST_KUBERNETES),
        "{versions:?}"
    );
}

#[test]
fn the_schemas_refuse_what_kubernetes_would() {
    let text = files::text("deploy/router/deployment.yaml");
    let directory = tempfile::tempdir().unwrap();
    let mistakes = [
        ("drop: [ALL]", "dorp: [ALL]"),
        ("replicas: 3", "replicas: three"),
        ("periodSeconds: 2\n", "periodSeconds: 2s\n"),
        ("apps/v1", "apps/v9"),
        ("            failureThreshold: 3\n", "            failureThreshold: 3\n            retries: 3\n"),
    ];
    let files = mistakes.map(|(good, bad)| {
        assert!(text.contains(good), "{good}");
        let name = format!("{}.yaml", bad.chars().filter(|c| c.is_alphanumeric()).collect::<String>());
        let path = directory.path().join(name);
        std::fs::write(&path, text.replacen(good, bad, 1)).unwrap();
        path
    });
    let (good, said) = schemas(&files);
    assert!(!good);
    assert_eq!(said["mistakes"].as_object().unwrap().len(), mistakes.len(), "{said:#}");
}

#[test]
fn its_parts_fit_each_other() {
    for engines in [PROGRAM, SCRIPT, PODS] {
        assert_eq!(rules::problems(&Deploy::with(engines)), Vec::<String>::new(), "{engines}");
    }
}

/// The script's form is the other one but for what runs, and where it comes from.
#[test]
fn the_two_forms_of_the_engines_differ_in_nothing_else() {
    let alike = |engines: &str| {
        let mut documents = Deploy::with(engines).documents;
        documents.remove("ConfigMap/tandem-drain");
        let pod =
            documents.get_mut("StatefulSet/engine").unwrap().pointer_mut("/spec/template/spec").unwrap();
        pod["initContainers"] = Value::Null;
        pod["volumes"][0] = Value::Null;
        let container = &mut pod["containers"][0];
        container["volumeMounts"][0] = Value::Null;
        for handler in ["/lifecycle/preStop/exec", "/startupProbe/exec"] {
            assert!(container.pointer_mut(handler).unwrap()["command"].take().is_array());
        }
        documents
    };
    assert_eq!(alike(PROGRAM), alike(SCRIPT));
}

#[tokio::test]
async fn the_configuration_passes_tandem_check_without_a_note() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("router.yaml");
    for (engines, has) in [(PROGRAM, "2 endpoints"), (PODS, "0 endpoints and the Pods of 1")] {
        let deploy = Deploy::with(engines);
        std::fs::write(&file, deploy.router_yaml()).unwrap();
        let (code, out, err) = run(tandem("check").arg(&file)).await;
        assert_eq!((code, err), (Some(0), String::new()));
        assert_eq!(out, format!("{}: ok (1 service, {has})\n", file.display()));
        assert_eq!(config::notes(&deploy.config().unwrap()), Vec::<String>::new());
    }
}

/// Both configurations of the routers differ in where engines come from and in nothing else.
#[test]
fn the_two_ways_to_engines_are_one_configuration_otherwise() {
    let [mut listed, mut found] = [PROGRAM, PODS].map(|engines| Deploy::with(engines).config().unwrap());
    listed.services.clear();
    found.services.clear();
    assert_eq!(listed, found);
}

/// The secrets are elsewhere here and the ports are free ones; the rest is what the Pod runs.
#[tokio::test]
async fn a_router_starts_with_the_configuration_and_answers_the_probes() {
    let deploy = Deploy::read();
    let directory = tempfile::tempdir().unwrap();
    for secret in ["admin-token", "api-keys"] {
        std::fs::write(directory.path().join(secret), "secret-1\n").unwrap();
    }
    let here = directory.path().to_str().unwrap();
    let yaml = deploy.router_yaml().replace("/etc/tandem-secrets", here);
    let process = Process::from_yaml(&yaml, directory.path(), &[]).await;
    for probe in ["readinessProbe", "livenessProbe"] {
        let path = deploy.at("Deployment/tandem", &format!("{}/{probe}/httpGet/path", files::CONTAINER));
        assert_eq!(process.admin_get(path.as_str().unwrap()).await.status(), 200, "{probe}");
    }
    let shown = process.admin_get("/config").await.text();
    for line in ["threads: 2", "connections: 16384", "delay: 5s"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}
