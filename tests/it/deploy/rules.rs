//! What no schema says: numbers that follow each other, names that have to meet. `mutations.rs` has an example against each.

use serde_json::{Value, json};
use tandem::config::{Mode, Port, RouterConfig};
use tandem::types::role::Role;

use super::files::{CONTAINER, Deploy, INIT, name, quantity, variables};

const ROUTER: &str = "Deployment/tandem";
const POD: &str = "/spec/template/spec";
/// Memory of a connection with a stream on each, docs/benchmarks.md.
const PER_CONNECTION: f64 = 20.0 * 1024.0;

/// Collects what is wrong.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn unless(&mut self, good: bool, what: impl Into<String>) {
        if !good {
            self.0.push(what.into());
        }
    }
}

pub(super) fn problems(deploy: &Deploy) -> Vec<String> {
    let mut wrong = Wrong::default();
    match deploy.config() {
        Ok(config) => {
            grace(deploy, &config, &mut wrong);
            ports(deploy, &config, &mut wrong);
            resources(deploy, &config, &mut wrong);
            mounted_files(deploy, &config, &mut wrong);
            engines(deploy, &config, &mut wrong);
        }
        Err(problem) => wrong.unless(false, format!("configuration: {problem}")),
    }
    probes(deploy, &mut wrong);
    selectors(deploy, &mut wrong);
    rollout(deploy, &mut wrong);
    security(deploy, &mut wrong);
    wrong.0.extend(super::rights::problems(deploy));
    images(deploy, &mut wrong);
    wrong.0
}

fn grace(deploy: &Deploy, config: &RouterConfig, wrong: &mut Wrong) {
    let granted = |id| deploy.at(id, &format!("{POD}/terminationGracePeriodSeconds")).as_u64().unwrap_or(30);
    let own = (config.shutdown.delay + config.shutdown.grace).as_secs();
    wrong.unless(granted(ROUTER) >= own + 10, format!("grace: {} s for {own} s", granted(ROUTER)));
    // It would come on top, and shutdown.delay is there for the same.
    wrong.unless(
        deploy.at(ROUTER, &format!("{CONTAINER}/lifecycle")).is_null(),
        "grace: a router with a hook",
    );
    let hook = deploy.at(deploy.engines(), &format!("{CONTAINER}/lifecycle/preStop/exec/command"));
    let last = hook.as_array().and_then(|words| words.last()?.as_str()).unwrap_or_default();
    let drain = last.trim_end_matches('s').parse().unwrap_or(u64::MAX / 2);
    let engine = granted(deploy.engines());
    wrong.unless(engine >= drain + 30, format!("grace: engine {engine} s for {drain} s"));
    wrong.unless(drain >= config.shutdown.grace.as_secs(), "grace: engines are given less than routers");
}

fn ports(deploy: &Deploy, config: &RouterConfig, wrong: &mut Wrong) {
    let declared = deploy.at(ROUTER, &format!("{CONTAINER}/ports")).as_array().cloned().unwrap_or_default();
    let exposed = deploy.dockerfile.lines().find_map(|line| line.strip_prefix("EXPOSE ")).unwrap_or_default();
    for (name, listen) in [("http", config.listen), ("admin", config.admin.listen)] {
        let port = declared.iter().find(|port| port["name"] == name).map(|port| &port["containerPort"]);
        wrong.unless(port == Some(&json!(listen.port())), format!("ports: {name} is not {listen}"));
        wrong.unless(listen.ip().is_unspecified(), format!("ports: {name} listens on {listen}"));
        let port = listen.port().to_string();
        wrong.unless(
            exposed.split(' ').any(|p| p == port),
            format!("ports: the image does not expose {port}"),
        );
    }
}

fn resources(deploy: &Deploy, config: &RouterConfig, wrong: &mut Wrong) {
    let of = |path: &str| quantity(deploy.at(ROUTER, &format!("{CONTAINER}/resources/{path}")));
    let (cores, memory) = (of("requests/cpu"), of("limits/memory"));
    let threads = config.threads.map_or(f64::NAN, |threads| threads as f64);
    wrong.unless(cores >= threads, format!("resources: {cores} cores for {threads} threads"));
    wrong.unless(of("limits/cpu").is_nan(), "resources: throttled");
    wrong.unless(of("requests/memory") >= memory, "resources: memory that is not requested");
    let buffered = config.limits.buffered_bytes.map_or(memory / 4.0, |bytes| bytes as f64);
    wrong.unless(buffered >= 2.0 * config.limits.body as f64, "resources: no two bodies fit");
    let connections = config.limits.connections.map_or(f64::NAN, |n| n as f64 * PER_CONNECTION);
    let most = buffered + connections;
    wrong.unless(most <= memory * 0.75, format!("resources: bodies and connections take {most} of {memory}"));
}

fn mounted_files(deploy: &Deploy, config: &RouterConfig, wrong: &mut Wrong) {
    let router = &deploy.documents[ROUTER];
    let args = deploy.at(ROUTER, &format!("{CONTAINER}/args"));
    wrong.unless(args[0] == "router" && args[1] == "--config", format!("files: {args}"));
    let path = |path: Option<&std::path::PathBuf>| path.map(|p| p.display().to_string()).unwrap_or_default();
    let (token, keys) = (path(config.admin.token_file.as_ref()), path(config.api_keys_file.as_ref()));
    let engine = &deploy.documents[deploy.engines()];
    let run = |of: &str| runs(deploy.at(deploy.engines(), &format!("{CONTAINER}/{of}")));
    let (hook, shown) = run("lifecycle/preStop");
    // Engines that are found have nothing to take back.
    let startup = if is_listed(config) { run("startupProbe").0 } else { hook };
    // A Pod is only read about.
    let engine_token = variables(engine).get("TANDEM_TOKEN_FILE").copied();
    wrong
        .unless(engine_token.is_some() == is_listed(config), format!("files: engines with {engine_token:?}"));
    let engine_token = engine_token.map(|path| (engine, path, "Secret/tandem:admin-token"));
    for (workload, path, shows) in [
        (router, args[2].as_str().unwrap_or_default(), "ConfigMap/tandem:router.yaml"),
        (router, &token, "Secret/tandem:admin-token"),
        (router, &keys, "Secret/tandem:api-keys"),
        (engine, hook, shown),
        (engine, startup, shown),
    ]
    .into_iter()
    .chain(engine_token)
    {
        let shown = deploy.mounted(workload, path);
        wrong.unless(shown.as_deref() == Some(shows), format!("files: `{path}` is {shown:?}, not {shows}"));
    }
}

/// The file that an exec runs, and what has to be there.
fn runs(handler: &Value) -> (&str, &'static str) {
    let word = |i: usize| handler["exec"]["command"][i].as_str().unwrap_or_default();
    if word(0) == "python3" { (word(1), "ConfigMap/tandem-drain:drain.py") } else { (word(0), "installed") }
}

fn is_listed(config: &RouterConfig) -> bool {
    config.services.iter().all(|service| service.pods.is_none())
}

/// The engines are those that the routers have, and both know each other's names.
fn engines(deploy: &Deploy, config: &RouterConfig, wrong: &mut Wrong) {
    let engine = &deploy.documents[deploy.engines()];
    let port =
        deploy.at(deploy.engines(), &format!("{CONTAINER}/ports/0/containerPort")).as_u64().unwrap_or(0);
    if is_listed(config) {
        listed(deploy, config, engine, port, wrong);
    } else {
        found(deploy, config, engine, port, wrong);
    }
    let first = ("POD_NAME", "metadata.name");
    // Kubernetes expands only what is defined further up.
    let env = deploy.at(deploy.engines(), &format!("{CONTAINER}/env/0"));
    let comes_first = env["name"] == first.0 && env["valueFrom"]["fieldRef"]["fieldPath"] == first.1;
    wrong.unless(comes_first, format!("engines: {} does not come first", first.0));
    let env = variables(engine);
    let routers = env.get("TANDEM_ADMIN").copied().unwrap_or_default();
    let bare = routers.strip_prefix("http://").unwrap_or_default();
    let (host, port) = bare.rsplit_once(':').unwrap_or_default();
    let admin = format!("Service/{host}");
    let headless = deploy.at(&admin, "/spec/clusterIP") == "None"
        && deploy.at(&admin, "/spec/publishNotReadyAddresses") == true
        && deploy.at(&admin, "/spec/ports/0/targetPort") == "admin"
        && deploy.at(&admin, "/spec/ports/0/port").as_u64() == port.parse().ok()
        && port == config.admin.listen.port().to_string();
    wrong.unless(headless, format!("engines: {routers} is not every router's admin port"));
}

/// The routers list exactly the Pods of the StatefulSet, and these call themselves so.
fn listed(deploy: &Deploy, config: &RouterConfig, engine: &Value, port: u64, wrong: &mut Wrong) {
    let service = engine["spec"]["serviceName"].as_str().unwrap_or_default();
    let pods = 0..engine["spec"]["replicas"].as_u64().unwrap_or(1);
    let pods: Vec<_> = pods.map(|i| format!("http://{}-{i}.{service}:{port}", name(engine))).collect();
    let endpoints = config.services.iter().flat_map(|service| &service.endpoints);
    let listed: Vec<_> = endpoints.map(|e| format!("http://{}:{}", e.host, e.port)).collect();
    wrong.unless(listed == pods, format!("engines: listed {listed:?}, made {pods:?}"));
    let governing = deploy.at(&format!("Service/{service}"), "/spec/clusterIP");
    wrong.unless(governing == "None", "engines: no headless Service gives them names");
    let url = variables(engine).get("TANDEM_ENGINE").copied().unwrap_or_default();
    let pod = format!("{}-0", name(engine));
    wrong.unless(pods.contains(&url.replace("$(POD_NAME)", &pod)), format!("engines: call themselves {url}"));
}

/// The routers find the Pods of the Deployment at their port, with the mark that is asked for, and these call themselves so.
fn found(deploy: &Deploy, config: &RouterConfig, engine: &Value, port: u64, wrong: &mut Wrong) {
    let labels = &engine["spec"]["template"]["metadata"]["labels"];
    for service in &config.services {
        let Some(pods) = &service.pods else { continue };
        let selected = pods.selector.iter().all(|(key, value)| labels[key] == **value);
        wrong.unless(selected, format!("engines: {:?} does not select {labels}", pods.selector));
        let mark = pods.keys.eligible.as_ref();
        let marked = mark.is_some_and(|mark| labels[&mark.key].as_str() == mark.value.as_deref());
        let required = service.eligibility.mode_of(Role::Mixed, pods.dialect) == Mode::Required;
        wrong.unless(!required || marked, format!("engines: no mark among {labels}"));
        let declared = &engine.pointer(&format!("{CONTAINER}/ports/0")).cloned().unwrap_or_default();
        let serves = pods.ports.iter().all(|wanted| match wanted {
            Port::Name(name) => declared["name"] == **name,
            Port::Number(number) => u64::from(*number) == port,
        });
        wrong.unless(serves, format!("engines: {:?} is not {declared}", pods.ports));
        wrong.unless(pods.namespace.is_none(), "engines: of a namespace in which the Role says nothing");
    }
    let own = variables(engine).get("TANDEM_ENGINE").copied().unwrap_or_default();
    wrong.unless(own == "pod/$(POD_NAME)", format!("engines: call themselves {own}"));
    for (name, field) in [("POD_NAMESPACE", "metadata.namespace"), ("POD_UID", "metadata.uid")] {
        let shown = told(deploy, deploy.engines(), name);
        wrong.unless(shown == Some(field), format!("engines: {name} is {shown:?}"));
    }
}

/// The field of its own Pod that a container's variable holds.
fn told<'a>(deploy: &'a Deploy, workload: &str, name: &str) -> Option<&'a str> {
    let env = deploy.at(workload, &format!("{CONTAINER}/env")).as_array()?;
    env.iter().find(|v| v["name"] == name)?["valueFrom"]["fieldRef"]["fieldPath"].as_str()
}

fn probes(deploy: &Deploy, wrong: &mut Wrong) {
    for (id, workload) in deploy.workloads() {
        let container = workload.pointer(CONTAINER).unwrap_or(&Value::Null);
        let ports = container["ports"].as_array().into_iter().flatten();
        let names: Vec<_> = ports.map(|port| &port["name"]).collect();
        let kinds = ["startupProbe", "readinessProbe", "livenessProbe"];
        for probe in kinds.map(|kind| &container[kind]["httpGet"]).into_iter().filter(|p| !p.is_null()) {
            wrong.unless(
                names.contains(&&probe["port"]),
                format!("probes: {id} has no port {}", probe["port"]),
            );
        }
        wrong.unless(!container["readinessProbe"].is_null(), format!("probes: {id} is ready unasked"));
    }
    for (kind, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/livez")] {
        let probe = deploy.at(ROUTER, &format!("{CONTAINER}/{kind}/httpGet"));
        wrong
            .unless(*probe == json!({"path": path, "port": "admin"}), format!("probes: {kind} asks {probe}"));
    }
}

fn selectors(deploy: &Deploy, wrong: &mut Wrong) {
    let selects = |selector: &Value, workload: &Value| {
        let labels = &workload["spec"]["template"]["metadata"]["labels"];
        selector.as_object().is_some_and(|s| !s.is_empty() && s.iter().all(|(k, v)| labels.get(k) == Some(v)))
    };
    let wanted = |id: &str| if name(&deploy.documents[id]) == "engine" { deploy.engines() } else { ROUTER };
    for (id, workload) in deploy.workloads() {
        let own = &workload["spec"]["selector"]["matchLabels"];
        wrong.unless(selects(own, workload), format!("selectors: {id} does not match its own Pods"));
        let spread = workload.pointer(&format!("{POD}/topologySpreadConstraints"));
        for constraint in spread.and_then(Value::as_array).into_iter().flatten() {
            let labels = &constraint["labelSelector"]["matchLabels"];
            wrong.unless(selects(labels, workload), format!("selectors: {id} spreads other Pods"));
        }
    }
    for (id, budget) in deploy.of("PodDisruptionBudget") {
        let labels = &budget["spec"]["selector"]["matchLabels"];
        wrong.unless(
            selects(labels, &deploy.documents[wanted(id)]),
            format!("selectors: {id} guards nothing"),
        );
    }
    for (id, service) in deploy.of("Service") {
        let workload = &deploy.documents[wanted(id)];
        wrong.unless(selects(&service["spec"]["selector"], workload), format!("selectors: {id} is empty"));
        let ports = workload.pointer(&format!("{CONTAINER}/ports")).and_then(Value::as_array);
        for port in service["spec"]["ports"].as_array().into_iter().flatten() {
            let there = ports.into_iter().flatten().any(|p| p["name"] == port["targetPort"]);
            wrong.unless(there, format!("selectors: {id} leads to port {}", port["targetPort"]));
        }
    }
}

fn rollout(deploy: &Deploy, wrong: &mut Wrong) {
    let rolling = deploy.at(ROUTER, "/spec/strategy/rollingUpdate");
    wrong.unless(rolling["maxUnavailable"] == 0, "rollout: takes routers away first");
    wrong.unless(rolling["maxSurge"].as_u64() >= Some(1), "rollout: cannot begin");
    wrong.unless(deploy.at(ROUTER, "/spec/replicas").as_u64() >= Some(2), "rollout: a single router");
    // By this a reader of reports tells replicas from each other.
    let instance = told(deploy, ROUTER, "POD_UID");
    wrong.unless(instance == Some("metadata.uid"), format!("rollout: a router's POD_UID is {instance:?}"));
    let budget = deploy.at("PodDisruptionBudget/tandem", "/spec/maxUnavailable");
    wrong.unless(*budget == 1, format!("rollout: node drains take {budget}"));
    let spread = deploy.at(ROUTER, &format!("{POD}/topologySpreadConstraints")).as_array();
    for key in ["kubernetes.io/hostname", "topology.kubernetes.io/zone"] {
        let there = spread.into_iter().flatten().any(|constraint| constraint["topologyKey"] == key);
        wrong.unless(there, format!("rollout: not spread over {key}"));
    }
}

fn security(deploy: &Deploy, wrong: &mut Wrong) {
    let pod = deploy.at(ROUTER, &format!("{POD}/securityContext"));
    let user = format!("{}:{}", pod["runAsUser"], pod["runAsGroup"]);
    let last = deploy.dockerfile.rsplit("\nFROM ").next().unwrap_or_default();
    let of_image = last.lines().find_map(|line| line.strip_prefix("USER "));
    wrong.unless(of_image == Some(&*user), format!("security: user {user}, of the image {of_image:?}"));
    wrong.unless(pod["runAsUser"].as_u64() > Some(0) && pod["runAsNonRoot"] == true, "security: root");
    wrong.unless(pod["fsGroup"] == pod["runAsGroup"], "security: secrets of another group");
    wrong.unless(pod["seccompProfile"]["type"] == "RuntimeDefault", "security: any system call");
    let container = deploy.at(ROUTER, &format!("{CONTAINER}/securityContext"));
    let strict = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    wrong.unless(*container == strict, format!("security: {container}"));
    let install = deploy.at(deploy.engines(), INIT);
    let context = &install["securityContext"];
    let mut strictest = strict;
    strictest["runAsNonRoot"] = json!(true);
    wrong.unless(install.is_null() || *context == strictest, format!("security: install with {context}"));
    let mounts = deploy.at(deploy.engines(), &format!("{CONTAINER}/volumeMounts")).as_array();
    let written = mounts.into_iter().flatten().find(|mount| mount["readOnly"] != true);
    wrong.unless(written.is_none(), format!("security: an engine may write to {written:?}"));
}

fn images(deploy: &Deploy, wrong: &mut Wrong) {
    let own = format!("ghcr.io/OWNER/tandem:{}", env!("CARGO_PKG_VERSION"));
    wrong.unless(*deploy.at(ROUTER, &format!("{CONTAINER}/image")) == own, format!("images: not {own}"));
    let copied = deploy.at(deploy.engines(), &format!("{INIT}/image"));
    wrong.unless(copied.is_null() || *copied == own, format!("images: {copied} is copied, not {own}"));
    wrong.unless(
        deploy.dockerfile.contains(&format!("-t {own} ")),
        format!("images: {own} is not what is built"),
    );
    let used = deploy.workloads().filter_map(|(_, w)| w.pointer(&format!("{CONTAINER}/image"))?.as_str());
    let bases = deploy.dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")?.split(' ').next());
    for image in used.chain(bases).filter(|image| *image != "scratch") {
        let tag =
            image.rsplit('/').next().and_then(|last| last.split_once(':')).map_or("latest", |(_, tag)| tag);
        wrong.unless(tag != "latest", format!("images: {image} moves"));
    }
    let rust = format!("FROM rust:{}.", env!("CARGO_PKG_RUST_VERSION"));
    wrong.unless(deploy.dockerfile.contains(&rust), format!("images: not built with {rust}"));
}
