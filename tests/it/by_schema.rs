//! Documents against a schema of `docs/schemas`, by an implementation of JSON Schema that is not ours.

use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value};

/// The mistakes of each document.
pub(crate) fn mistakes(schema: &str, documents: &[&Value]) -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(tandem::testkit::openai::python());
    command.arg(root.join("tests/schema.py")).arg(root.join("docs/schemas").join(schema));
    for (n, document) in documents.iter().enumerate() {
        let file = dir.path().join(format!("{n:03}.json"));
        std::fs::write(&file, document.to_string()).unwrap();
        command.arg(&file);
    }
    let output = command.output().unwrap();
    let said = serde_json::from_slice::<Map<String, Value>>(&output.stdout);
    let said = said.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let mut said: Vec<_> = said.into_iter().collect();
    said.sort_by(|a, b| a.0.cmp(&b.0));
    said.into_iter().map(|(_, mistakes)| mistakes).collect()
}

/// `document` with another value at this path, the last step of which may be new.
pub(crate) fn put(document: &Value, path: &str, value: Value) -> Value {
    let mut document = document.clone();
    let (parent, key) = path.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[key] = value;
    document
}
