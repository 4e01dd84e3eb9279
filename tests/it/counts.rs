//! The judge of the instruction counts, on counts that are made up: what it lets pass, and what it does not.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn counts(rustc: &str, counts: &Value) -> String {
    json!({"made_with": {"rustc": rustc}, "counts": counts}).to_string()
}

/// Compares `measured` with `reference`; further words go to the script.
fn judged(reference: &str, measured: &str, words: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("reference"), reference).unwrap();
    std::fs::write(path("measured"), measured).unwrap();
    let mut command = Command::new("python3");
    command.arg(Path::new(ROOT).join("benches/counts.py")).args(words);
    command.arg("--reference").arg(path("reference")).arg("--measured").arg(path("measured"));
    let output = command.output().expect("python3 is there");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn passes(before: &Value, now: &Value) -> bool {
    judged(&counts("a", before), &counts("a", now), &[]).status.success()
}

#[test]
fn counts_over_ten_percent_more_are_refused() {
    let before = json!({"peek/small": 1000.0, "gate": 20.0});
    assert!(passes(&before, &before));
    assert!(passes(&before, &json!({"peek/small": 1100.0, "gate": 20.0})));
    assert!(!passes(&before, &json!({"peek/small": 1101.0, "gate": 20.0})));
    // Of a step that small a few instructions are no news.
    assert!(passes(&before, &json!({"peek/small": 1000.0, "gate": 24.0})));
    assert!(!passes(&before, &json!({"peek/small": 1000.0, "gate": 25.0})));
    assert!(passes(&before, &json!({"peek/small": 10.0, "gate": 20.0})));
}

#[test]
fn counts_without_a_counterpart_are_refused() {
    let (one, both) = (json!({"a": 100.0}), json!({"a": 100.0, "b": 100.0}));
    assert!(!passes(&one, &both), "a step that nobody holds to anything");
    assert!(!passes(&both, &one), "a step that is measured no more");
}

#[test]
fn counts_of_another_compiler_are_said_to_be_and_are_judged_all_the_same() {
    let (before, now) = (json!({"a": 100.0}), json!({"a": 111.0}));
    let output = judged(&counts("1.95.0", &before), &counts("1.96.0", &now), &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("rustc 1.95.0, this is 1.96.0"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

/// The file in the repository is one that the script reads, and names every plane of the request path.
#[test]
fn counts_of_the_reference_name_every_step() {
    let text = std::fs::read_to_string(Path::new(ROOT).join("benches/counts.json")).unwrap();
    let reference: Value = serde_json::from_str(&text).unwrap();
    let counts = reference["counts"].as_object().unwrap();
    for step in ["peek/", "splice/", "select/", "gate/", "head/", "decode/", "observe/", "access/", "chat/"] {
        assert!(counts.keys().any(|name| name.starts_with(step)), "no {step}");
    }
    assert!(counts.values().all(|count| count.as_f64().is_some_and(|count| count > 0.0)));
    assert!(judged(&text, &text, &[]).status.success());
}
