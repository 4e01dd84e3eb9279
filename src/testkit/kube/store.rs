//! The truth behind every replica: the Pods, and every change ever made to them, in order.
//!
//! No change is ever forgotten, so a delete made between a LIST and a WATCH reaches the watch. What a real server
//! forgets, by compaction or restart, is a number here: older versions are refused, never dropped in silence.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::mischief::{Delivery, Mischief};

/// The version before the first change.
pub const FIRST_VERSION: u64 = 100;
/// When everything was created: the fake knows no wall clock.
pub const CREATED: &str = "2026-01-01T00:00:00Z";
/// When everything was deleted.
pub const DELETED: &str = "2026-01-01T00:10:00Z";

pub(super) type Object = Arc<Value>;
pub(super) type Objects = BTreeMap<Key, Object>;

/// Namespace and name; the order of a LIST.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) ns: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn new(ns: &str, name: &str) -> Self {
        Self { ns: ns.to_owned(), name: name.to_owned() }
    }
}

/// One change of one Pod.
#[derive(Debug, Clone)]
pub struct Change {
    pub(super) version: u64,
    pub(super) key: Key,
    pub(super) before: Option<Object>,
    pub(super) after: Option<Object>,
    pub(super) delivery: Delivery,
}

impl Change {
    /// The resourceVersion it was made at.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Of the Pod.
    pub fn namespace(&self) -> &str {
        &self.key.ns
    }

    /// Of the Pod.
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// The Pod before it, none when it was created.
    pub fn before(&self) -> Option<&Value> {
        self.before.as_deref()
    }

    /// The Pod after it, none when it was deleted.
    pub fn after(&self) -> Option<&Value> {
        self.after.as_deref()
    }

    /// The Pod as it was, at this change's version: what a DELETED event carries.
    pub(super) fn last_seen(&self) -> Option<Value> {
        let mut object = self.before.as_deref()?.clone();
        stamp(&mut object, self.version);
        Some(object)
    }
}

#[derive(Debug)]
pub(super) struct Store {
    version: u64,
    uids: u64,
    live: Objects,
    changes: Vec<Change>,
    pub(super) namespaces: BTreeMap<String, Value>,
    /// Storage has nothing older.
    pub(super) compacted: u64,
}

impl Store {
    pub(super) fn new() -> Self {
        let mut store = Self {
            version: FIRST_VERSION,
            uids: 0,
            live: Objects::new(),
            changes: Vec::new(),
            namespaces: BTreeMap::new(),
            compacted: 0,
        };
        store.namespace("default");
        store
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Something other than a Pod was written.
    pub(super) fn advance(&mut self, by: u64) -> u64 {
        self.version += by;
        self.version
    }

    pub(super) fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012}", self.uids)
    }

    /// The namespace, created when missing; it takes neither a version nor a UID from the Pods.
    pub(super) fn namespace(&mut self, name: &str) -> &Value {
        let version = self.version;
        self.namespaces.entry(name.to_owned()).or_insert_with(|| {
            json!({
                "kind": "Namespace",
                "apiVersion": "v1",
                "metadata": {
                    "name": name,
                    "uid": format!("namespace-{name}"),
                    "resourceVersion": version.to_string(),
                    "creationTimestamp": CREATED,
                    "labels": { "kubernetes.io/metadata.name": name },
                },
                "spec": { "finalizers": ["kubernetes"] },
                "status": { "phase": "Active" },
            })
        })
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Object> {
        self.live.get(key)
    }

    /// Writes the Pod, or removes it, at a new version. Gives what a client is shown.
    pub(super) fn commit(&mut self, key: Key, after: Option<Value>, mischief: &mut Mischief) -> Object {
        self.version += 1;
        let before = self.live.remove(&key);
        let after = after.map(|mut object| {
            stamp(&mut object, self.version);
            Arc::new(object)
        });
        if let Some(object) = &after {
            self.live.insert(key.clone(), Arc::clone(object));
        }
        let mut change = Change { version: self.version, key, before, after, delivery: Delivery::default() };
        change.delivery = mischief.judge(&change);
        let shown = change.after.clone().or_else(|| change.last_seen().map(Arc::new));
        self.changes.push(change);
        shown.expect("a change has a before or an after")
    }

    /// Every Pod as of a version.
    pub(super) fn at(&self, version: u64) -> Objects {
        if version >= self.version {
            return self.live.clone();
        }
        let mut objects = Objects::new();
        for change in self.changes.iter().take_while(|change| change.version <= version) {
            match &change.after {
                Some(object) => objects.insert(change.key.clone(), Arc::clone(object)),
                None => objects.remove(&change.key),
            };
        }
        objects
    }

    /// The changes after `from`, up to and including `to`.
    pub(super) fn between(&self, from: u64, to: u64) -> &[Change] {
        let index = |version| self.changes.partition_point(|change| change.version <= version);
        let (first, last) = (index(from), index(to));
        &self.changes[first..last.max(first)]
    }

    /// The change made at exactly this version.
    pub(super) fn change(&self, version: u64) -> Option<&Change> {
        self.between(version - 1, version).first()
    }
}

/// Writes the version into an object, whatever else is wrong with it.
pub(super) fn stamp(object: &mut Value, version: u64) {
    object["metadata"]["resourceVersion"] = json!(version.to_string());
}

/// A text field by pointer, empty when it is missing.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
