//! Each rule has been seen red, and stays so: one change that it has to find.

use serde_json::{Value, json};

use super::files::{CONTAINER, Deploy, INIT, PODS, SCRIPT};
use super::rules::problems;

const ROUTER: &str = "Deployment/tandem";
const ENGINE: &str = "StatefulSet/engine";
const POD: &str = "/spec/template/spec";

fn found(deploy: &Deploy, begins: &str) {
    let problems = problems(deploy);
    let hit = problems.iter().any(|problem| problem.starts_with(begins));
    assert!(hit, "`{begins}` is not among {problems:?}");
}

fn with(id: &str, path: &str, value: Value) -> Deploy {
    put(Deploy::read(), id, path, value)
}

fn put(mut deploy: Deploy, id: &str, path: &str, value: Value) -> Deploy {
    let (parent, key) = path.rsplit_once('/').unwrap();
    let parent = deploy.documents.get_mut(id).and_then(|document| document.pointer_mut(parent));
    match parent.unwrap_or_else(|| panic!("{id} has no {path}")) {
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = value,
        parent => parent[key] = value,
    }
    deploy
}

fn changed(id: &str, path: &str, value: Value, begins: &str) {
    found(&with(id, path, value), begins);
}

fn in_pod(id: &str, path: &str, value: Value, begins: &str) {
    changed(id, &format!("{POD}{path}"), value, begins);
}

fn in_container(id: &str, path: &str, value: Value, begins: &str) {
    changed(id, &format!("{CONTAINER}{path}"), value, begins);
}

/// In the form with the script.
fn in_script(path: &str, value: Value, begins: &str) {
    found(&put(Deploy::with(SCRIPT), ENGINE, &format!("{CONTAINER}{path}"), value), begins);
}

/// In the container that brings the program.
fn in_install(path: &str, value: Value, begins: &str) {
    changed(ENGINE, &format!("{INIT}{path}"), value, begins);
}

fn in_config(good: &str, bad: &str, begins: &str) {
    let yaml = Deploy::read().router_yaml().to_owned();
    assert!(yaml.contains(good), "{good}");
    changed("ConfigMap/tandem", "/data/router.yaml", json!(yaml.replace(good, bad)), begins);
}

fn in_image(good: &str, bad: &str, begins: &str) {
    let mut deploy = Deploy::read();
    assert!(deploy.dockerfile.contains(good), "{good}");
    deploy.dockerfile = deploy.dockerfile.replace(good, bad);
    found(&deploy, begins);
}

#[test]
fn times_that_do_not_fit() {
    in_pod(ROUTER, "/terminationGracePeriodSeconds", json!(614), "grace: 614 s for 605 s");
    in_pod(ROUTER, "/terminationGracePeriodSeconds", Value::Null, "grace: 30 s");
    in_config("grace: 600s", "grace: 900s", "grace: 630 s for 905 s");
    in_config("delay: 5s", "delay: 30s", "grace: 630 s for 630 s");
    in_container(ROUTER, "/lifecycle", json!({"preStop": {"sleep": {"seconds": 5}}}), "grace: a router");
    in_container(ENGINE, "/lifecycle/preStop/exec/command/3", json!("650s"), "grace: engine 660 s for 650 s");
    in_container(ENGINE, "/lifecycle/preStop/exec/command/3", json!("300s"), "grace: engines are given less");
    in_container(ENGINE, "/lifecycle/preStop/exec/command/3", json!("10m"), "grace: engine 660 s for");
    in_script("/lifecycle/preStop/exec/command/3", json!("650"), "grace: engine 660 s for 650 s");
    in_script("/lifecycle/preStop/exec/command/3", json!("300"), "grace: engines are given less");
    in_pod(ENGINE, "/terminationGracePeriodSeconds", json!(600), "grace: engine 600 s");
}

#[test]
fn ports_and_probes_that_lead_nowhere() {
    in_container(ROUTER, "/ports/0/containerPort", json!(8000), "ports: http");
    in_container(ROUTER, "/ports/1/name", json!("metrics"), "ports: admin");
    in_config("threads: 2", "threads: 2\nlisten: 0.0.0.0:80", "ports: http");
    in_config("threads: 2", "threads: 2\nlisten: 127.0.0.1:8080", "ports: http listens on");
    in_image("EXPOSE 8080 9090", "EXPOSE 8080", "ports: the image does not expose 9090");
    in_container(
        ROUTER,
        "/readinessProbe/httpGet/port",
        json!("metrics"),
        "probes: Deployment/tandem has no",
    );
    in_container(ROUTER, "/readinessProbe/httpGet/path", json!("/livez"), "probes: readinessProbe");
    in_container(ROUTER, "/livenessProbe/httpGet/path", json!("/readyz"), "probes: livenessProbe");
    in_container(ROUTER, "/readinessProbe", Value::Null, "probes: Deployment/tandem is ready unasked");
    in_container(ENGINE, "/readinessProbe/httpGet/port", json!("admin"), "probes: StatefulSet/engine has no");
}

#[test]
fn resources_that_do_not_suffice() {
    in_container(ROUTER, "/resources/requests/cpu", json!("500m"), "resources: 0.5 cores");
    in_config("threads: 2", "threads: auto", "resources: 2 cores for NaN threads");
    in_container(ROUTER, "/resources/limits/cpu", json!("2"), "resources: throttled");
    in_container(ROUTER, "/resources/requests/memory", json!("512Mi"), "resources: memory that");
    in_container(ROUTER, "/resources/limits/memory", json!("256Mi"), "resources: no two bodies");
    in_container(ROUTER, "/resources/limits", json!({}), "resources: ");
    in_config("connections: 16384", "connections: 65536", "resources: bodies and connections");
    in_config("connections: 16384", "connections: auto", "resources: bodies and connections");
}

#[test]
fn files_that_are_not_there() {
    in_container(ROUTER, "/args/2", json!("/etc/tandem/tandem.yaml"), "files: `/etc/tandem/tandem.yaml`");
    in_container(ROUTER, "/volumeMounts/0/mountPath", json!("/config"), "files: `/etc/tandem/router.yaml`");
    in_container(ROUTER, "/volumeMounts/1/subPath", json!("api-keys"), "files: `/etc/tandem-secrets/");
    in_pod(ROUTER, "/volumes/1/secret/items/1/path", json!("keys"), "files: `/etc/tandem-secrets/api-keys`");
    in_pod(ROUTER, "/volumes/1/secret/secretName", json!("other"), "files: `/etc/tandem-secrets/api-keys`");
    in_pod(ROUTER, "/volumes/0/configMap/name", json!("other"), "files: `/etc/tandem/router.yaml`");
    in_config("/admin-token", "/token", "files: `/etc/tandem-secrets/token`");
    in_container(ENGINE, "/startupProbe/exec/command/0", json!("/tandem"), "files: `/tandem`");
    in_container(ENGINE, "/lifecycle/preStop/exec/command/0", json!("tandem"), "files: `tandem`");
    in_container(ENGINE, "/volumeMounts/0/mountPath", json!("/opt"), "files: `/opt/tandem/tandem`");
    in_install("/args/1", json!("/opt"), "files: `/opt/tandem/tandem`");
    in_install("/args/0", json!("check"), "files: `/opt/tandem/tandem`");
    in_install("/volumeMounts/0/name", json!("other"), "files: `/opt/tandem/tandem`");
    in_install("/volumeMounts/0/readOnly", json!(true), "files: `/opt/tandem/tandem`");
    in_pod(ENGINE, "/initContainers", json!([]), "files: `/opt/tandem/tandem`");
    in_pod(ENGINE, "/volumes/0/emptyDir", Value::Null, "files: `/opt/tandem/tandem`");
    in_container(ENGINE, "/env/3/value", json!("/etc/token"), "files: `/etc/token`");
    in_script("/startupProbe/exec/command/1", json!("/drain.py"), "files: `/drain.py`");
    in_script("/volumeMounts/0/mountPath", json!("/drain"), "files: `/etc/tandem-drain/drain.py`");
    in_pod(
        ENGINE,
        "/volumes/1/secret/items/0/key",
        json!("api-keys"),
        "files: `/etc/tandem-secrets/admin-token`",
    );
}

#[test]
fn engines_and_routers_that_do_not_know_each_other() {
    changed(ENGINE, "/spec/replicas", json!(3), "engines: listed");
    changed(ENGINE, "/spec/serviceName", json!("engines"), "engines: listed");
    in_config("engine-1.engine:8000", "engine-1.engine:8001", "engines: listed");
    changed("Service/engine", "/spec/clusterIP", Value::Null, "engines: no headless");
    in_container(ENGINE, "/env/1/value", json!("http://$(POD_NAME):8000"), "engines: call themselves");
    in_script("/env/1/value", json!("http://$(POD_NAME):8000"), "engines: call themselves");
    in_container(ENGINE, "/env/0/name", json!("NAME"), "engines: POD_NAME");
    in_container(ENGINE, "/env/2/value", json!("http://tandem:9090"), "engines: http://tandem:9090 is not");
    in_container(ENGINE, "/env/2/value", json!("tandem-admin:9090"), "engines: tandem-admin:9090 is not");
    let admin = "engines: http://tandem-admin:9090 is not";
    changed("Service/tandem-admin", "/spec/clusterIP", Value::Null, admin);
    changed("Service/tandem-admin", "/spec/publishNotReadyAddresses", json!(false), admin);
    changed("Service/tandem-admin", "/spec/ports/0/port", json!(90), admin);
}

#[test]
fn engines_that_are_not_found() {
    let in_found = |path: &str, value: Value, begins: &str| {
        found(&put(Deploy::with(PODS), "Deployment/engine", path, value), begins);
    };
    let in_found_config = |good: &str, bad: &str, begins: &str| {
        let deploy = Deploy::with(PODS);
        let yaml = deploy.router_yaml().to_owned();
        assert!(yaml.contains(good), "{good}");
        found(&put(deploy, "ConfigMap/tandem", "/data/router.yaml", json!(yaml.replace(good, bad))), begins);
    };
    let labels = "/spec/template/metadata/labels";
    in_found(labels, json!({"app.kubernetes.io/name": "engine"}), "engines: no mark among");
    in_found(labels, json!({"tandem.dev/endpoint-eligible": "true"}), "engines: {\"app.kubernetes.io/name\"");
    in_found(&format!("{CONTAINER}/ports/0/name"), json!("web"), "engines: [Name(\"http\")] is not");
    in_found(
        &format!("{CONTAINER}/env/0/valueFrom/fieldRef/fieldPath"),
        json!("metadata.uid"),
        "engines: POD_NAME",
    );
    in_found(&format!("{CONTAINER}/env/1/value"), json!("$(POD_NAME)"), "engines: call themselves");
    in_found(&format!("{CONTAINER}/env/2/name"), json!("NAMESPACE"), "engines: POD_NAMESPACE is None");
    in_found(
        &format!("{CONTAINER}/env/3/valueFrom/fieldRef/fieldPath"),
        json!("metadata.name"),
        "engines: POD_UID is Some(\"metadata.name\")",
    );
    in_found(&format!("{CONTAINER}/env/3/name"), json!("TANDEM_TOKEN_FILE"), "engines: POD_UID is None");
    in_found(
        &format!("{CONTAINER}/env/3"),
        json!({"name": "TANDEM_TOKEN_FILE", "value": "/etc/token"}),
        "files: engines with Some",
    );
    in_found(
        &format!("{CONTAINER}/env/4/value"),
        json!("http://tandem:9090"),
        "engines: http://tandem:9090 is not",
    );
    in_found(&format!("{CONTAINER}/lifecycle/preStop/exec/command/0"), json!("tandem"), "files: `tandem`");
    in_found_config("dialect: tandem", "dialect: gpustack", "engines: no mark among");
    in_found_config("kubernetes.io/name: engine", "kubernetes.io/name: llm", "engines: {");
    in_found_config("ports: [http]", "ports: [8001]", "engines: [Number(8001)] is not");
    in_found_config("dialect: tandem", "namespace: elsewhere", "engines: of a namespace");
}

#[test]
fn labels_that_select_nothing() {
    let other = || json!({"app.kubernetes.io/name": "other"});
    changed(ROUTER, "/spec/selector/matchLabels", other(), "selectors: Deployment/tandem does not");
    changed(ENGINE, "/spec/selector/matchLabels", json!({}), "selectors: StatefulSet/engine does not");
    changed("Service/tandem", "/spec/selector", other(), "selectors: Service/tandem is empty");
    changed("Service/tandem-admin", "/spec/selector", json!({}), "selectors: Service/tandem-admin is empty");
    changed("Service/engine", "/spec/selector", other(), "selectors: Service/engine is empty");
    changed("Service/tandem", "/spec/ports/0/targetPort", json!("web"), "selectors: Service/tandem leads");
    changed("PodDisruptionBudget/tandem", "/spec/selector/matchLabels", other(), "selectors: PodDisruption");
    in_pod(
        ROUTER,
        "/topologySpreadConstraints/0/labelSelector/matchLabels",
        other(),
        "selectors: Deployment/",
    );
}

#[test]
fn rollouts_that_take_too_much() {
    in_container(ROUTER, "/env/0/name", json!("UID"), "rollout: a router's POD_UID is None");
    changed(ROUTER, "/spec/strategy/rollingUpdate/maxUnavailable", json!(1), "rollout: takes");
    changed(ROUTER, "/spec/strategy", json!({"type": "Recreate"}), "rollout: takes");
    changed(ROUTER, "/spec/strategy/rollingUpdate/maxSurge", json!(0), "rollout: cannot begin");
    changed(ROUTER, "/spec/replicas", json!(1), "rollout: a single");
    changed("PodDisruptionBudget/tandem", "/spec/maxUnavailable", json!("50%"), "rollout: node drains");
    in_pod(
        ROUTER,
        "/topologySpreadConstraints/1/topologyKey",
        json!("rack"),
        "rollout: not spread over topology",
    );
}

#[test]
fn more_rights_than_needed() {
    in_image("USER 65532:65532", "USER 1000:1000", "security: user");
    in_image("USER 65532:65532", "", "security: user");
    in_pod(ROUTER, "/securityContext/runAsUser", json!(1000), "security: user");
    in_pod(ROUTER, "/securityContext/runAsNonRoot", json!(false), "security: root");
    in_pod(ROUTER, "/securityContext/fsGroup", json!(1), "security: secrets");
    in_pod(ROUTER, "/securityContext/seccompProfile/type", json!("Unconfined"), "security: any system call");
    in_container(ROUTER, "/securityContext/readOnlyRootFilesystem", json!(false), "security: {");
    in_container(ROUTER, "/securityContext/capabilities/drop", json!([]), "security: {");
    in_container(ROUTER, "/securityContext/allowPrivilegeEscalation", json!(true), "security: {");
    in_install("/securityContext/runAsNonRoot", json!(false), "security: install");
    in_install("/securityContext", Value::Null, "security: install");
    in_container(ENGINE, "/volumeMounts/0/readOnly", json!(false), "security: an engine may write");
    in_script("/volumeMounts/1/readOnly", json!(false), "security: an engine may write");
}

#[test]
fn images_that_move() {
    in_container(
        ROUTER,
        "/image",
        json!("ghcr.io/OWNER/tandem:latest"),
        "images: ghcr.io/OWNER/tandem:latest moves",
    );
    in_container(ROUTER, "/image", json!("ghcr.io/OWNER/tandem:0.0.1"), "images: not ");
    in_container(ENGINE, "/image", json!("vllm/vllm-openai"), "images: vllm/vllm-openai moves");
    in_install(
        "/image",
        json!("ghcr.io/OWNER/tandem:0.0.1"),
        "images: \"ghcr.io/OWNER/tandem:0.0.1\" is copied",
    );
    in_image("-t ghcr.io/OWNER/tandem:", "-t ghcr.io/me/tandem:", "images: ghcr.io/OWNER");
    in_image("rust:1.95.0-slim-bookworm", "rust:latest", "images: rust:latest moves");
    in_image("rust:1.95.0-slim-bookworm", "rust:1.90.0-slim-bookworm", "images: not built with");
}
