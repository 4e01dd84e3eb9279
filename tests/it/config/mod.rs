//! The command line as an operator meets it; `documents`: what describes the configuration.

mod documents;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tandem::config::{self, File, RouterConfig, Source};

fn tandem(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    // The environment of whoever runs the tests is not under test.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TANDEM_")) {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

fn run(command: &mut Command) -> Output {
    command.output().expect("the binary runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text_of(path: &str) -> String {
    std::fs::read_to_string(root(path)).map_err(|e| format!("{path}: {e}")).expect("readable")
}

fn written(directory: &tempfile::TempDir, text: &str) -> String {
    let path = directory.path().join("router.yaml");
    std::fs::write(&path, text).expect("a temporary file");
    path.display().to_string()
}

fn load(file: File) -> RouterConfig {
    let name = file.name.clone();
    config::load(&Source { file: Some(file), ..Source::default() })
        .map_err(|p| format!("{name}: {p:?}"))
        .expect("a configuration")
}

#[test]
fn check_reports_every_mistake_on_standard_error_and_exits_2() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = written(&directory, "lisetn: 1\nthreads: many\nservices: []\n");
    let output = run(&mut tandem(&["check", &file]));
    assert_eq!((code(&output), out(&output)), (2, String::new()));
    let lines: Vec<_> = err(&output).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(
        lines[0].starts_with(&format!("{file}:1:1: lisetn: unknown key; did you mean `listen`?; allowed: "))
    );
    assert!(
        lines[1]
            .starts_with(&format!("{file}:2:10: threads: not a whole number (got `many`); allowed: auto"))
    );
    assert!(lines[2].starts_with(&format!("{file}:3:11: services: nothing to serve")));
    assert_eq!(lines[3], "3 mistakes in the configuration");
}

#[test]
fn check_counts_what_it_found_good() {
    let output = run(tandem(&["check", "config/two-services.yaml"]).current_dir(root("")));
    assert_eq!(out(&output), "config/two-services.yaml: ok (2 services, 3 endpoints)\n");
    assert_eq!((code(&output), err(&output)), (0, String::new()));
}

#[test]
fn check_notes_what_is_perhaps_not_meant() {
    let directory = tempfile::tempdir().expect("a directory");
    let mixed = "{name: a, engine: {kind: vllm}, discovery: {static: {mixed: [{url: http://h:1}]}}}";
    let file = written(&directory, &format!("services: [{mixed}]\n"));
    let said = out(&run(&mut tandem(&["check", &file])));
    assert!(
        said.lines().count() == 2 && said.contains("\nnote: services[0] (a): engine.kind is vllm"),
        "{said}"
    );
    let json = run(&mut tandem(&["check", &file, "--output", "json"]));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["notes"].as_array().map(Vec::len), Some(1));
    let printed = out(&run(&mut tandem(&["check", &file, "--print"])));
    assert_eq!(load(File { name: "printed".to_owned(), text: printed }).services[0].endpoints.len(), 1);
    let pairs = run(tandem(&["check", "config/sglang.yaml"]).current_dir(root("")));
    assert_eq!(out(&pairs), "config/sglang.yaml: ok (1 service, 4 endpoints)\n");
}

#[test]
fn the_router_takes_pairs_as_flags() {
    // Refused for the admin address alone: everything else was understood.
    let flags = "router --engine sglang --prefill http://h:1,bootstrap=9001 --prefill http://h:2 --decode http://d:1 \
                 --policy round_robin --cancel-decode-grace 0 --kv-lease 1m --handoff-max-age 20s --admin-listen x";
    let output = run(&mut tandem(&flags.split_whitespace().collect::<Vec<_>>()));
    let lines: Vec<_> = err(&output).lines().map(str::to_owned).collect();
    assert!(code(&output) == 2 && lines.len() == 2 && lines[0].starts_with("--admin-listen: "), "{lines:?}");
}

#[test]
fn what_check_prints_is_the_same_configuration() {
    let name = root("config/two-services.yaml");
    let output = run(&mut tandem(&["check", &name.display().to_string(), "--print"]));
    let printed = load(File { name: "printed".to_owned(), text: out(&output) });
    assert_eq!(printed, load(File::read(&name).expect("readable")));
}

#[test]
fn check_speaks_json_for_good_and_bad_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let good = run(&mut tandem(&[
        "check",
        &root("config/minimal.yaml").display().to_string(),
        "--output",
        "json",
        "--print",
    ]));
    let good: serde_json::Value = serde_json::from_slice(&good.stdout).expect("JSON");
    assert_eq!(
        (&good["ok"], &good["endpoints"], &good["problems"]),
        (&true.into(), &2.into(), &serde_json::json!([]))
    );
    assert_eq!(good["effective"]["timeouts"]["first_byte"], "10m");
    let bad = run(&mut tandem(&["check", &written(&directory, "threads: 0\n"), "--output", "json"]));
    assert_eq!(code(&bad), 2);
    let bad: serde_json::Value = serde_json::from_slice(&bad.stdout).expect("JSON");
    assert_eq!(
        (&bad["ok"], &bad["problems"][1]["key"], &bad["problems"][1]["line"]),
        (&false.into(), &"threads".into(), &1.into())
    );
}

#[test]
fn check_applies_the_environment_unless_told_not_to() {
    let file = root("config/minimal.yaml").display().to_string();
    let with = run(tandem(&["check", &file]).env("TANDEM_THREADS", "none"));
    assert!(code(&with) == 2 && err(&with).starts_with("TANDEM_THREADS: threads: "), "{}", err(&with));
    assert_eq!(code(&run(tandem(&["check", &file, "--no-env"]).env("TANDEM_THREADS", "none"))), 0);
}

#[test]
fn a_file_that_cannot_be_read_is_a_configuration_mistake() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("no.yaml").display().to_string();
    for arguments in [["check", &missing].as_slice(), &["router", "--config", &missing]] {
        let output = run(&mut tandem(arguments));
        assert!(code(&output) == 2 && err(&output).starts_with(&format!("{missing}: cannot be read")));
    }
    let binary = directory.path().join("binary");
    std::fs::write(&binary, [0xff, 0xfe]).expect("a temporary file");
    assert!(err(&run(&mut tandem(&["check", &binary.display().to_string()]))).contains("not UTF-8"));
    assert_eq!(code(&run(&mut tandem(&["check", "/dev/zero"]))), 2);
}

#[test]
fn router_refuses_mistakes_of_flags_file_and_environment_together() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = written(&directory, "log: {level: loud}\n");
    let output = run(tandem(&["router", "--worker", "https://h:1", "--grace", "5"])
        .env("TANDEM_CONFIG", &file)
        .env("TANDEM_LIMITS_BODY", "1MB"));
    assert_eq!(code(&output), 2);
    for start in
        [&format!("{file}:1:14: log.level"), "TANDEM_LIMITS_BODY: ", "--worker: services[0]", "--grace: "]
    {
        assert!(err(&output).lines().any(|line| line.starts_with(start)), "{start}: {}", err(&output));
    }
}

#[test]
fn usage_mistakes_exit_2_and_help_and_version_exit_0() {
    for arguments in
        [&[][..], &["nonsense"], &["router", "--nonsense"], &["check"], &["check", "f", "--output", "xml"]]
    {
        let output = run(&mut tandem(arguments));
        assert!(code(&output) == 2 && !err(&output).is_empty() && out(&output).is_empty(), "{arguments:?}");
    }
    for arguments in [
        &["--help"][..],
        &["router", "--help"],
        &["check", "--help"],
        &["demo", "--help"],
        &["-h"],
        &["router", "-h"],
    ] {
        let output = run(&mut tandem(arguments));
        assert_eq!(code(&output), 0);
        assert!(out(&output).contains("Examples:") && out(&output).contains("Exit codes:"), "{arguments:?}");
    }
    let version = out(&run(&mut tandem(&["--version"])));
    for fact in [env!("CARGO_PKG_VERSION"), "revision: ", "compiler: rustc", "target: "] {
        assert!(version.contains(fact), "{version}");
    }
}

#[test]
fn the_checks_that_help_shows_work() {
    let help = out(&run(&mut tandem(&["check", "--help"])));
    let commands: Vec<_> =
        help.lines().map(str::trim).filter(|line| line.starts_with("tandem check")).collect();
    assert!(commands.len() >= 3);
    for command in commands {
        let words = command.split(['>', '|']).next().unwrap_or_default().split_whitespace().skip(1);
        let output = run(tandem(&words.collect::<Vec<_>>()).current_dir(root("config")));
        assert_eq!(code(&output), 0, "{command}: {}", err(&output));
    }
}
