//! Writes and single reads over HTTP: what a suite needs to run against the documented API.
//!
//! As with a real server, a Pod's status is its own resource: the Pod's writes leave it alone and the status's writes
//! leave the spec alone. There is no kubelet; a Pod bound to a node stays terminating until it is deleted with a grace
//! period of 0. Patches of every type but JSON patch are merged as RFC 7386 says.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::answer::Asked;
use super::namespaces;
use super::query::Route;
use super::selector::Filter;
use super::state::State;
use super::status::Status;
use super::store::{CREATED, DELETED, Key, text};

pub(super) type Answer = Result<(StatusCode, Value), Status>;

pub(super) fn answer(state: &mut State, asked: &Asked) -> Answer {
    let method = asked.method.as_str();
    match (method, &asked.route) {
        ("POST", Route::Namespaces) => namespaces::create(state, asked),
        ("GET", Route::Namespaces) => Ok((StatusCode::OK, namespaces::list(state))),
        ("GET", Route::Namespace(name)) => namespaces::get(state, name),
        ("DELETE", Route::Namespace(name)) => namespaces::delete(state, name),
        ("POST", Route::Pods(Some(ns))) => create(state, ns, asked),
        ("DELETE", Route::Pods(Some(ns))) => delete_many(state, ns, asked),
        ("GET", Route::Pod(ns, name) | Route::PodStatus(ns, name)) => get(state, &Key::new(ns, name)),
        ("PUT" | "PATCH", Route::Pod(ns, name)) => change(state, &Key::new(ns, name), asked, Part::Pod),
        ("PUT" | "PATCH", Route::PodStatus(ns, name)) => {
            change(state, &Key::new(ns, name), asked, Part::Status)
        }
        ("DELETE", Route::Pod(ns, name)) => delete(state, &Key::new(ns, name), asked),
        (_, Route::Unknown) => Err(Status::of_code(404)),
        _ => Err(Status::not_allowed()),
    }
}

/// Fills in what a server fills in. The Pod must have a name.
pub(super) fn admit(state: &mut State, ns: &str, pod: &mut Value) -> String {
    let uid = state.store.next_uid();
    pod["kind"] = "Pod".into();
    pod["apiVersion"] = "v1".into();
    pod["metadata"]["namespace"] = ns.into();
    pod["metadata"]["uid"] = uid.clone().into();
    pod["metadata"]["creationTimestamp"] = CREATED.into();
    uid
}

/// Marks the Pod as terminating, as a graceful delete does.
pub(super) fn terminate(pod: &mut Value, grace: u64) {
    pod["metadata"]["deletionTimestamp"] = DELETED.into();
    pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
}

pub(super) fn commit(state: &mut State, key: &Key, pod: Option<Value>) -> Value {
    let State { store, mischief, .. } = state;
    Value::clone(&store.commit(key.clone(), pod, mischief))
}

pub(super) fn body(asked: &Asked) -> Result<Value, Status> {
    let body: Value = serde_json::from_slice(&asked.body)
        .map_err(|error| Status::bad_request(format!("the object provided is unrecognized: {error}")))?;
    if body.is_object() { Ok(body) } else { Err(Status::bad_request("the object provided is unrecognized")) }
}

fn get(state: &State, key: &Key) -> Answer {
    let pod = state.store.get(key).ok_or_else(|| Status::not_found("pods", &key.name))?;
    Ok((StatusCode::OK, Value::clone(pod)))
}

fn create(state: &mut State, ns: &str, asked: &Asked) -> Answer {
    let mut pod = body(asked)?;
    if !state.store.namespaces.contains_key(ns) {
        return Err(Status::not_found("namespaces", ns));
    }
    let own = text(&pod, "/metadata/namespace");
    if !own.is_empty() && own != ns {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(why));
    }
    let name = match (text(&pod, "/metadata/name"), text(&pod, "/metadata/generateName")) {
        ("", "") => {
            return Err(Status::invalid(
                "Pod",
                "",
                "metadata.name: Required value: name or generateName is required",
            ));
        }
        ("", prefix) => format!("{prefix}{:05}", state.store.version() + 1),
        (name, _) => name.to_owned(),
    };
    let key = Key::new(ns, &name);
    if state.store.get(&key).is_some() {
        return Err(Status::exists("pods", &name));
    }
    pod["metadata"]["name"] = name.into();
    pod["status"] = json!({ "phase": "Pending", "qosClass": "BestEffort" });
    admit(state, ns, &mut pod);
    Ok((StatusCode::CREATED, commit(state, &key, Some(pod))))
}

/// What a write is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Pod,
    Status,
}

fn change(state: &mut State, key: &Key, asked: &Asked, part: Part) -> Answer {
    let (_, old) = get(state, key)?;
    let wanted = body(asked)?;
    let new = if asked.method == Method::PUT {
        wanted
    } else {
        if asked.content_type.starts_with("application/json-patch+json") {
            return Err(Status::unsupported_media("JSON patch is not known here"));
        }
        let mut merged = old.clone();
        merge(&mut merged, &wanted);
        merged
    };
    for (field, why) in [
        (
            "/metadata/resourceVersion",
            "the object has been modified; please apply your changes to the latest version and try again",
        ),
        ("/metadata/uid", "Precondition failed: UID in precondition does not match"),
    ] {
        let named = text(&new, field);
        if !named.is_empty() && named != text(&old, field) {
            return Err(Status::conflict(&key.name, why));
        }
    }
    let new = keep(&old, new, part);
    // A write that changes nothing is no change.
    let shown = if new == old { old } else { commit(state, key, Some(new)) };
    Ok((StatusCode::OK, shown))
}

/// What a writer cannot change stays as it was.
fn keep(old: &Value, mut new: Value, part: Part) -> Value {
    let other = if part == Part::Pod { "status" } else { "spec" };
    for field in [other, "kind", "apiVersion"] {
        new[field] = old[field].clone();
    }
    let metadata = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    for field in metadata.into_iter().chain(["deletionTimestamp", "deletionGracePeriodSeconds"]) {
        match old["metadata"].get(field) {
            Some(value) => new["metadata"][field] = value.clone(),
            None => drop(new["metadata"].as_object_mut().and_then(|metadata| metadata.remove(field))),
        }
    }
    new
}

/// RFC 7386: null removes, objects merge, anything else replaces.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        if !value.is_null() {
            merge(&mut target[name], value);
        } else if let Some(fields) = target.as_object_mut() {
            fields.remove(name);
        }
    }
}

/// The grace period and preconditions, from the query and the body.
fn delete(state: &mut State, key: &Key, asked: &Asked) -> Answer {
    let (_, mut pod) = get(state, key)?;
    let options = if asked.body.is_empty() { json!({}) } else { body(asked)? };
    for (field, name) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let wanted = text(&options["preconditions"], &format!("/{field}"));
        let actual = text(&pod, &format!("/metadata/{field}"));
        if !wanted.is_empty() && wanted != actual {
            let why = format!(
                "Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {actual}"
            );
            return Err(Status::conflict(&key.name, &why));
        }
    }
    let asked_for = asked.query.get("gracePeriodSeconds").and_then(|text| text.parse().ok());
    let grace = asked_for.or_else(|| options["gracePeriodSeconds"].as_u64());
    let grace = grace.unwrap_or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30));
    // Nobody would end a Pod that runs nowhere, or one that is over.
    let unbound = text(&pod, "/spec/nodeName").is_empty();
    let over = matches!(text(&pod, "/status/phase"), "Failed" | "Succeeded");
    if grace == 0 || unbound || over {
        return Ok((StatusCode::OK, commit(state, key, None)));
    }
    let current = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
    if current.is_none_or(|current| grace < current) {
        terminate(&mut pod, grace);
        pod = commit(state, key, Some(pod));
    }
    Ok((StatusCode::OK, pod))
}

fn delete_many(state: &mut State, ns: &str, asked: &Asked) -> Answer {
    let selector = |name| asked.query.get(name).unwrap_or_default();
    let filter = Filter::parse(Some(ns.to_owned()), selector("labelSelector"), selector("fieldSelector"))?;
    let version = state.store.version();
    let selected = state.store.at(version).into_iter().filter(|(key, pod)| filter.matches(key, pod));
    let deleted: Result<Vec<Value>, Status> =
        selected.map(|(key, _)| Ok(delete(state, &key, asked)?.1)).collect();
    let metadata = json!({ "resourceVersion": state.store.version().to_string() });
    let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": deleted? });
    Ok((StatusCode::OK, list))
}
