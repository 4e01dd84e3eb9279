//! The router's account: a service account of the namespace, with the rights that a scenario gives it.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::LocalSubjectAccessReview;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{SOON, until};

pub(super) const ACCOUNT: &str = "router";
const GROUP: &str = "rbac.authorization.k8s.io";

fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// The account, and a role of its own that gives nothing yet.
pub(super) async fn make_account(cluster: &Cluster) {
    let (new, metadata) = (PostParams::default(), json!({ "name": ACCOUNT }));
    let account = read(json!({ "metadata": metadata }));
    cluster.of::<ServiceAccount>().create(&new, &account).await.unwrap();
    let role = read(json!({ "metadata": metadata, "rules": [] }));
    cluster.of::<Role>().create(&new, &role).await.unwrap();
    let binding = read(json!({
        "metadata": metadata,
        "roleRef": { "apiGroup": GROUP, "kind": "Role", "name": ACCOUNT },
        "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": cluster.ns }],
    }));
    cluster.of::<RoleBinding>().create(&new, &binding).await.unwrap();
}

/// A token of the account, for an hour.
pub(super) async fn token(cluster: &Cluster) -> String {
    let request: TokenRequest = read(json!({ "spec": { "audiences": [], "expirationSeconds": 3600 } }));
    let accounts = cluster.of::<ServiceAccount>();
    let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
    answer.expect("TokenRequest").status.unwrap().token
}

/// Gives these rights on Pods instead of those before, and waits until they hold: the server reads roles by a watch of its own.
pub(super) async fn grant(cluster: &Cluster, verbs: &[&str]) {
    let rules = json!([
        { "apiGroups": [""], "resources": ["pods"], "verbs": verbs },
        { "apiGroups": ["ome.io"], "resources": ["inferenceservices"], "verbs": ["list", "watch"] },
    ]);
    let rules = if verbs.is_empty() { json!([]) } else { rules };
    let patch = Patch::Merge(json!({ "rules": rules }));
    cluster.of::<Role>().patch(ACCOUNT, &PatchParams::default(), &patch).await.unwrap();
    for verb in ["list", "watch"] {
        let wanted = verbs.contains(&verb);
        until("the rights hold", SOON, || async {
            let allowed = may(cluster, verb).await;
            if allowed == wanted { Ok(()) } else { Err(format!("{verb}: {allowed}")) }
        })
        .await;
    }
    // Of several servers each has its own watch.
    tokio::time::sleep(Duration::from_millis(200)).await;
}

async fn may(cluster: &Cluster, verb: &str) -> bool {
    let user = format!("system:serviceaccount:{}:{ACCOUNT}", cluster.ns);
    let what = json!({ "namespace": cluster.ns, "verb": verb, "resource": "pods" });
    let review: LocalSubjectAccessReview = read(json!({
        "metadata": { "namespace": cluster.ns },
        "spec": { "user": user, "resourceAttributes": what },
    }));
    let answer = cluster.of::<LocalSubjectAccessReview>().create(&PostParams::default(), &review).await;
    answer.unwrap().status.unwrap().allowed
}
