//! What the routers may ask of the Kubernetes API: what their code asks, and nothing else.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tandem::discovery::kube::{DRAIN_VERBS, VERBS};
use tandem::testkit::engine::{Engine, Script};
use tandem::testkit::kube::{Recorded, RequestKind};

use super::files::{Deploy, PODS, name};
use crate::pods::{Cluster, endpoint, pod};
use crate::process::{poll, run, tandem};

const ROUTER: &str = "Deployment/tandem";
/// For whoever annotates Pods; bound by who installs.
const DRAIN: &str = "Role/tandem-drain";

/// For routers whose weights come from an InferenceService.
const OME: &str = "Role/tandem-ome";

/// What is wrong with the rights.
pub(super) fn problems(deploy: &Deploy) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut unless = |good: bool, what: String| {
        if !good {
            wrong.push(format!("rights: {what}"));
        }
    };
    let account = deploy.at(ROUTER, "/spec/template/spec/serviceAccountName").as_str().unwrap_or("default");
    let there = deploy.documents.get(&format!("ServiceAccount/{account}"));
    unless(there.is_some(), format!("there is no account {account}"));
    let automount = there.map(|account| &account["automountServiceAccountToken"]);
    unless(automount == Some(&json!(false)), format!("any Pod gets a token of {account}"));
    for (id, workload) in deploy.workloads() {
        let token = &workload["spec"]["template"]["spec"]["automountServiceAccountToken"];
        unless(*token == json!(id == ROUTER), format!("{id} and a token of the API: {token}"));
    }
    let kinds = |kinds: &[&str]| kinds.iter().flat_map(|kind| deploy.of(kind)).collect::<Vec<_>>();
    unless(kinds(&["ClusterRole", "ClusterRoleBinding"]).is_empty(), "for the whole cluster".to_owned());
    let (roles, bindings) = (kinds(&["Role"]), kinds(&["RoleBinding"]));
    let drain = roles.iter().any(|(id, _)| *id == DRAIN);
    let ome = roles.iter().any(|(id, _)| *id == OME);
    let complete = drain && ome && roles.len() == 3 && bindings.len() == 2;
    unless(complete, "not three Roles and two bindings".to_owned());
    let mut bound = Vec::new();
    for (id, binding) in &bindings {
        let to = &binding["roleRef"];
        unless(
            to["apiGroup"] == "rbac.authorization.k8s.io" && to["kind"] == "Role",
            format!("{id} binds {to}"),
        );
        let subjects = json!([{"kind": "ServiceAccount", "name": account}]);
        unless(binding["subjects"] == subjects, format!("{id} binds it to {}", binding["subjects"]));
        bound.push(to["name"].as_str().unwrap_or_default());
    }
    for (id, role) in roles {
        let verbs = if id == DRAIN { DRAIN_VERBS } else { VERBS };
        let (group, resource) = if id == OME { ("ome.io", "inferenceservices") } else { ("", "pods") };
        unless(bound.contains(&name(role)) == (id != DRAIN), format!("{id} is bound to the wrong one"));
        let granted = role["rules"].as_array().map_or(&[][..], Vec::as_slice);
        unless(granted.len() == 1, format!("{id} has {} rules", granted.len()));
        for rule in granted {
            let words = |key: &str| {
                rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<BTreeSet<_>>()
            };
            unless(
                words("verbs") == verbs.iter().copied().collect(),
                format!("{id} grants {}", rule["verbs"]),
            );
            unless(
                words("resources") == BTreeSet::from([resource]),
                format!("{id} is for {}", rule["resources"]),
            );
            unless(
                words("apiGroups") == BTreeSet::from([group]),
                format!("{id} is for groups {}", rule["apiGroups"]),
            );
            let keys: BTreeSet<&str> =
                rule.as_object().into_iter().flat_map(|r| r.keys()).map(String::as_str).collect();
            unless(keys == BTreeSet::from(["apiGroups", "resources", "verbs"]), format!("{id} has {keys:?}"));
        }
    }
    wrong
}

fn found(change: impl Fn(&mut Deploy), begins: &str) {
    let mut deploy = Deploy::with(PODS);
    change(&mut deploy);
    let problems = super::rules::problems(&deploy);
    assert!(
        problems.iter().any(|problem| problem.starts_with(begins)),
        "`{begins}` is not among {problems:?}"
    );
}

fn changed(id: &str, path: &str, value: &Value, begins: &str) {
    let change = |deploy: &mut Deploy| {
        let at = deploy.documents.get_mut(id).and_then(|document| document.pointer_mut(path));
        value.clone_into(at.unwrap_or_else(|| panic!("{id} has no {path}")));
    };
    found(change, begins);
}

#[test]
fn a_role_with_more_or_less_than_the_code_asks_is_found() {
    let role = "Role/tandem";
    changed(DRAIN, "/rules/0/verbs", &json!(["get", "patch", "delete"]), "rights: Role/tandem-drain grants");
    changed(DRAIN, "/rules/0/verbs", &json!(["get"]), "rights: Role/tandem-drain grants");
    for verbs in [json!(["list"]), json!(["list", "watch", "get"]), json!(["*"]), json!([])] {
        changed(role, "/rules/0/verbs", &verbs, "rights: Role/tandem grants");
    }
    for resources in [json!(["pods", "secrets"]), json!(["pods/log"]), json!(["*"]), json!([])] {
        changed(role, "/rules/0/resources", &resources, "rights: Role/tandem is for [");
    }
    changed(role, "/rules/0/apiGroups", &json!(["", "apps"]), "rights: Role/tandem is for groups");
    changed(OME, "/rules/0/apiGroups", &json!([""]), "rights: Role/tandem-ome is for groups");
    changed(OME, "/rules/0/resources", &json!(["*"]), "rights: Role/tandem-ome is for [");
    changed(role, "/rules", &json!([]), "rights: Role/tandem has 0 rules");
    let granted = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]});
    let mut more = granted.clone();
    more["resourceNames"] = json!(["a"]);
    changed(role, "/rules/0", &more, "rights: Role/tandem has {");
    changed(
        role,
        "/rules",
        &json!([granted, {"nonResourceURLs": ["/*"], "verbs": ["get"]}]),
        "rights: Role/tandem has 2 rules",
    );
    found(
        |deploy| {
            let role = deploy.documents["Role/tandem"].clone();
            deploy.documents.insert("ClusterRole/tandem".to_owned(), role);
        },
        "rights: for the whole cluster",
    );
}

#[test]
fn rights_that_reach_somebody_else_or_nobody_are_found() {
    changed(
        ROUTER,
        "/spec/template/spec/serviceAccountName",
        &json!("default"),
        "rights: there is no account default",
    );
    changed(
        ROUTER,
        "/spec/template/spec/serviceAccountName",
        &Value::Null,
        "rights: there is no account default",
    );
    let token = "/spec/template/spec/automountServiceAccountToken";
    changed(ROUTER, token, &json!(false), "rights: Deployment/tandem and a token");
    changed("Deployment/engine", token, &json!(true), "rights: Deployment/engine and a token");
    changed("ServiceAccount/tandem", "/automountServiceAccountToken", &json!(true), "rights: any Pod gets");
    let binding = "RoleBinding/tandem";
    changed(binding, "/subjects/0/name", &json!("default"), "rights: RoleBinding/tandem binds it to");
    changed(binding, "/subjects/0/kind", &json!("Group"), "rights: RoleBinding/tandem binds it to");
    changed(binding, "/subjects", &json!([]), "rights: RoleBinding/tandem binds it to");
    changed(binding, "/roleRef/kind", &json!("ClusterRole"), "rights: RoleBinding/tandem binds {");
    changed(binding, "/roleRef/name", &json!("view"), "rights: Role/tandem is bound to the wrong one");
    changed(
        binding,
        "/roleRef/name",
        &json!("tandem-drain"),
        "rights: Role/tandem-drain is bound to the wrong one",
    );
    for id in [binding, "Role/tandem", DRAIN, OME, "RoleBinding/tandem-ome"] {
        found(|deploy| _ = deploy.documents.remove(id), "rights: not three Roles and two bindings");
    }
}

/// From a drain, and from taking it back.
#[tokio::test]
async fn a_drain_asks_exactly_what_its_role_grants() {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let cluster = Cluster::start().await;
    cluster.api.create(pod("chat-0", &engine));
    let process = cluster.ready_router("").await;
    poll("the Pod", async || endpoint(&process, &engine).await.is_some()).await;
    for more in [&[][..], &["--abort"]] {
        let mut command = tandem("drain");
        command.args(["default/chat-0", "--admin", &format!("http://{}", process.admin), "--kubeconfig"]);
        let (code, _, err) = run(command.arg(cluster.kubeconfig()).args(more)).await;
        assert_eq!(code, Some(0), "{err}");
    }
    let asked: BTreeSet<String> = (cluster.api.requests().iter())
        .filter(|request| request.kind == RequestKind::Other)
        .inspect(|request| assert_eq!(request.path, "/api/v1/namespaces/default/pods/chat-0"))
        .map(|request| request.method.to_lowercase())
        .collect();
    assert_eq!(asked, DRAIN_VERBS.iter().map(|verb| (*verb).to_owned()).collect());
}

/// The verb that a right is asked for by.
fn verb(request: &Recorded) -> &'static str {
    assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/api/v1/namespaces/default/pods"));
    match request.kind {
        RequestKind::List => "list",
        RequestKind::Watch => "watch",
        RequestKind::Other => "another",
    }
}

#[tokio::test]
async fn a_router_asks_exactly_what_the_role_grants() {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let cluster = Cluster::start().await;
    let process = cluster.ready_router("").await;
    poll("a watch", async || cluster.api.open_watches() == 1).await;
    cluster.api.create(pod("chat-0", &engine));
    poll("the Pod", async || endpoint(&process, &engine).await.is_some()).await;
    cluster.api.end_watches();
    poll("another watch", async || cluster.api.watches() > 1).await;
    let asked: BTreeSet<&str> = cluster.api.requests().iter().map(verb).collect();
    assert_eq!(asked, VERBS.iter().copied().collect());
}
