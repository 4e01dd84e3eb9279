//! Runs the real `openai` Python client against a base URL, as its users would.
//!
//! The script is `tests/openai_client.py`; `tests/setup.sh` makes the environment that it needs. A missing
//! environment fails the test, naming that script: nothing is skipped in silence.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Runs these scenarios (see the script) against `base_url`, `…/v1` included, and returns their results by
/// name. Does not block the runtime.
pub async fn run(base_url: &str, scenarios: &[&str]) -> Value {
    run_with(base_url, &[], scenarios).await
}

/// [`run`] with options of the script, such as `--key` and `--retries`.
pub async fn run_with(base_url: &str, options: &[&str], scenarios: &[&str]) -> Value {
    let (python, script) = (python(), tests_dir().join("openai_client.py"));
    let mut command = Command::new(python);
    command.arg(script).args(options).arg(base_url).args(scenarios);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    parse(&output)
}

fn parse(output: &Output) -> Value {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "openai_client.py: {}\n{out}\n{err}", output.status);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("openai_client.py: {error}\n{out}\n{err}"))
}

/// The interpreter with the packages that the tests need.
pub fn python() -> PathBuf {
    let python = tests_dir().join(".venv/bin/python");
    assert!(python.exists(), "{} is missing: run tests/setup.sh", python.display());
    python
}

fn tests_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}
