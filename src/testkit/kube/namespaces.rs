//! Namespaces over HTTP: made, read and removed, with the label that servers since 1.21 give them.

use http::StatusCode;
use serde_json::{Value, json};

use super::answer::Asked;
use super::state::State;
use super::status::Status;
use super::store::text;
use super::writes::{Answer, body, commit, merge};

pub(super) fn create(state: &mut State, asked: &Asked) -> Answer {
    let wanted = body(asked)?;
    let name = match (text(&wanted, "/metadata/name"), text(&wanted, "/metadata/generateName")) {
        ("", "") => {
            return Err(Status::invalid("Namespace", "", "metadata.name: Required value: name is required"));
        }
        ("", prefix) => format!("{prefix}{:05}", state.store.version() + 1),
        (name, _) => name.to_owned(),
    };
    if state.store.namespaces.contains_key(&name) {
        return Err(Status::exists("namespaces", &name));
    }
    state.store.advance(1);
    let mut namespace = state.store.namespace(&name).clone();
    merge(&mut namespace["metadata"]["labels"], &wanted["metadata"]["labels"]);
    if namespace["metadata"]["labels"].is_null() {
        namespace["metadata"]["labels"] = json!({ "kubernetes.io/metadata.name": name });
    }
    state.store.namespaces.insert(name, namespace.clone());
    Ok((StatusCode::CREATED, namespace))
}

pub(super) fn get(state: &State, name: &str) -> Answer {
    let namespace = state.store.namespaces.get(name).ok_or_else(|| Status::not_found("namespaces", name))?;
    Ok((StatusCode::OK, namespace.clone()))
}

pub(super) fn list(state: &State) -> Value {
    let items: Vec<&Value> = state.store.namespaces.values().collect();
    let metadata = json!({ "resourceVersion": state.store.version().to_string() });
    json!({ "kind": "NamespaceList", "apiVersion": "v1", "metadata": metadata, "items": items })
}

/// Takes its Pods along, at once.
pub(super) fn delete(state: &mut State, name: &str) -> Answer {
    let (_, namespace) = get(state, name)?;
    let version = state.store.version();
    for key in state.store.at(version).into_keys().filter(|key| key.ns == name) {
        commit(state, &key, None);
    }
    state.store.advance(1);
    state.store.namespaces.remove(name);
    Ok((StatusCode::OK, namespace))
}
