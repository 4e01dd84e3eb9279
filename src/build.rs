//! Facts about the build for `tandem --version`. None is needed to build: without git they say "unknown".

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    println!("cargo::rerun-if-env-changed=BUILD_REVISION");
    // Not TANDEM_…: cargo hands these to what it runs, and the router would take them for its own keys.
    fact("BUILD_OF_REVISION", revision());
    fact("BUILD_OF_RUSTC", first_line(Command::new(variable("RUSTC")).arg("--version")));
    fact("BUILD_OF_TARGET", Some(variable("TARGET")));
    fact("BUILD_OF_PROFILE", Some(variable("PROFILE")));
}

fn fact(name: &str, value: Option<String>) {
    let value = value.filter(|value| !value.is_empty()).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env={name}={value}");
}

/// Given from outside (image builds have no `.git`), else asked of git; only for optimised builds, because following
/// git's state would rebuild the whole package after every commit.
fn revision() -> Option<String> {
    if let Ok(given) = std::env::var("BUILD_REVISION") {
        return Some(given);
    }
    if variable("PROFILE") != "release" {
        return None;
    }
    let log = first_line(Command::new("git").args(["rev-parse", "--git-path", "logs/HEAD"]))?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    first_line(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
