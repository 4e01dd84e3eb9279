//! The lines of a watch.

use bytes::Bytes;
use serde_json::{Value, json};

use super::selector::Filter;
use super::store::Change;

/// One line, with its end.
#[derive(Debug, Clone)]
pub(super) struct Line(pub(super) Bytes);

impl Line {
    /// What a change means to a watch with this filter. A Pod that no longer matches is DELETED, as it was before
    /// the change but at the change's version; one that matches again is ADDED.
    pub(super) fn of(change: &Change, filter: &Filter) -> Option<Self> {
        let matches = |object: Option<&Value>| object.is_some_and(|o| filter.matches(&change.key, o));
        match (matches(change.before()), matches(change.after())) {
            (false, true) => Some(Self(line("ADDED", change.after()?))),
            (true, true) => Some(Self(line("MODIFIED", change.after()?))),
            (true, false) => Some(Self(line("DELETED", &change.last_seen()?))),
            (false, false) => None,
        }
    }
}

pub(super) fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}

/// A Pod's bookmark also carries an empty spec and status.
pub(super) fn bookmark(version: u64, annotations: Option<Value>) -> Bytes {
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if let Some(annotations) = annotations {
        metadata["annotations"] = annotations;
    }
    let object = json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": { "containers": null },
        "status": {},
    });
    line("BOOKMARK", &object)
}
