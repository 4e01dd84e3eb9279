//! The little that clients ask before they ask for Pods.

use serde_json::{Value, json};

use super::query::Route;

pub(super) fn document(route: &Route) -> Value {
    match route {
        Route::Discovery("api") => json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }),
        Route::Discovery("v1") => json!({
            "kind": "APIResourceList",
            "groupVersion": "v1",
            "resources": [
                resource("namespaces", "namespace", "Namespace", false, &["create", "delete", "get", "list"]),
                resource("pods", "pod", "Pod", true, &[
                    "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
                ]),
                resource("pods/status", "", "Pod", true, &["get", "patch", "update"]),
            ],
        }),
        Route::Discovery(_) => json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [] }),
        _ => json!({
            "major": "1",
            "minor": "36",
            "gitVersion": "v1.36.2",
            "gitCommit": "fake",
            "gitTreeState": "clean",
            "buildDate": super::store::CREATED,
            "goVersion": "go1.26",
            "compiler": "gc",
            "platform": "linux/amd64",
        }),
    }
}

fn resource(name: &str, singular: &str, kind: &str, namespaced: bool, verbs: &[&str]) -> Value {
    json!({ "name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": verbs })
}
