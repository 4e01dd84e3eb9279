//! The examples, the documentation and the JSON Schema of the configuration.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use tandem::config::{self, File, KEYS, OTHER_VARIABLES, RouterConfig};
use tandem::types::role::Role;

use super::{code, err, load, out, root, run, tandem, text_of, written};

#[test]
fn every_example_loads_and_router_yaml_is_the_defaults() {
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(root("config")).expect("config/").flatten() {
        let config = load(File::read(&entry.path()).expect("readable"));
        seen.insert(entry.file_name().to_string_lossy().into_owned());
        if entry.file_name() == "router.yaml" {
            let endpoints = config.services[0].endpoints.clone();
            let services = vec![config::Service::plain("chat", endpoints)];
            assert_eq!(config, RouterConfig { services, ..RouterConfig::defaults() });
        }
    }
    assert!(
        seen.contains("router.yaml") && seen.contains("minimal.yaml") && seen.contains("two-services.yaml")
    );
}

/// router.yaml with the Pods of its comments in place of the listed endpoints.
fn router_yaml_with_pods() -> String {
    let text = text_of("config/router.yaml");
    let (before, rest) = text.split_once("      static:\n").expect("listed endpoints");
    let (_, rest) = rest.split_once("      # Or Pods").expect("Pods in comments");
    let mut in_comments = true;
    let pods = rest.lines().skip(1).map(|line| {
        let shown = line.strip_prefix("      # ").filter(|_| in_comments);
        in_comments = shown.is_some();
        shown.map_or_else(|| format!("{line}\n"), |shown| format!("      {shown}\n"))
    });
    before.to_owned() + &pods.collect::<String>()
}

#[test]
fn the_comments_of_router_yaml_are_the_defaults_of_pods() {
    let file = File { name: "router.yaml".to_owned(), text: router_yaml_with_pods() };
    let selector = [("app".to_owned(), "chat".to_owned())].into();
    let mut service = config::Service::plain("chat", Vec::new());
    service.pods = Some(config::PodDiscovery::of(config::Dialect::Tandem, selector));
    assert_eq!(load(file), RouterConfig { services: vec![service], ..RouterConfig::defaults() });
}

#[test]
fn the_example_of_pods_has_what_its_comments_say() {
    let config = load(File::read(&root("config/kubernetes.yaml")).expect("readable"));
    let pods: Vec<_> = config.services.iter().map(|s| s.pods.as_ref().expect("Pods")).collect();
    assert_eq!(
        (pods[0].ports.as_slice(), pods[0].keys.role.as_deref()),
        (&[config::Port::Number(8080)][..], Some("component"))
    );
    let mut keys = config::Keys::of(config::Dialect::Tandem);
    keys.revision = Some("app.kubernetes.io/version".to_owned());
    assert_eq!(pods[1].keys, keys);
    let mode = |n: usize| config::Eligibility::default().mode_of(Role::Decode, pods[n].dialect);
    assert_eq!((mode(0), mode(1)), (config::Mode::Off, config::Mode::Required));
    let checked = run(tandem(&["check", "config/kubernetes.yaml"]).current_dir(root("")));
    assert_eq!(out(&checked), "config/kubernetes.yaml: ok (2 services, 0 endpoints and the Pods of 2)\n");
}

#[test]
fn router_yaml_or_the_example_of_an_engine_writes_every_key_with_its_default() {
    // A form of `authorization`, shown there in a comment: both cannot stand at once.
    let other_form = "services[].upstream.authorization.from_secret";
    assert!(text_of("config/router.yaml").contains("{ from_secret: "));
    let yaml = |text: &str| {
        let words = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options::<serde_json::Value>(text, words).expect("YAML")
    };
    let (file, pods) = (yaml(&text_of("config/router.yaml")), yaml(&router_yaml_with_pods()));
    let (sglang, vllm) = (yaml(&text_of("config/sglang.yaml")), yaml(&text_of("config/vllm.yaml")));
    // A split has no default: its keys are shown by an example.
    let split = yaml(&text_of("config/canary.yaml"));
    let weights = &split["services"][0]["split"]["weights"];
    let (of_split, others): (Vec<&config::Key>, Vec<_>) =
        KEYS.iter().partition(|key| key.path.starts_with("services[].split."));
    for key in of_split.into_iter().filter(|key| key.path.contains("weights")) {
        let name = key.path.rsplit('.').next().expect("a name");
        assert!(weights.as_array().expect("a list").iter().any(|entry| !entry[name].is_null()), "{name}");
    }
    let ome = yaml(&text_of("config/ome.yaml"));
    for key in ["namespace", "name"] {
        assert!(ome["services"][0]["split"]["inferenceservice"][key].is_string(), "{key}");
    }
    for key in others.into_iter().filter(|key| key.path != other_form) {
        let path = format!("/{}", key.path.replace("[]", ".0").replace('.', "/"));
        let paired =
            ["engine.connector", "static.prefill", "static.decode"].iter().any(|k| key.path.contains(k));
        let files = if paired { vec![&sglang, &vllm] } else { vec![&file, &pods] };
        let value = files.iter().find_map(|file| file.pointer(&path)).ok_or(key.path).expect("every key");
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if key.default != "required" {
            assert_eq!(shown, key.default, "{}", key.path);
        }
    }
}

/// Compares a document with what the code makes of it; `UPDATE_DOCS=1` writes it instead.
fn generated(path: &str, made: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root(path), made).expect("written");
    }
    assert!(text_of(path) == made, "{path} is not what the code says: run the tests once with UPDATE_DOCS=1");
}

/// The rows are made from the table of keys; where a row stands, and the text around it, is the document's own.
#[test]
fn the_documentation_has_exactly_the_keys_of_the_code() {
    let text = text_of("docs/configuration.md");
    let key_of = |line: &str| {
        let cells = line.split(" | ").count() == 6;
        line.strip_prefix("| `").filter(|_| cells).and_then(|rest| rest.split('`').next()).map(str::to_owned)
    };
    let documented: Vec<String> = text.lines().filter_map(key_of).collect();
    assert_eq!(
        documented,
        KEYS.iter().map(|key| key.path).collect::<Vec<_>>(),
        "one row for each key, in their order"
    );
    let line = |line: &str| {
        let key = key_of(line).and_then(|path| KEYS.iter().find(|key| key.path == path));
        key.map_or_else(|| line.to_owned(), config::row) + "\n"
    };
    generated("docs/configuration.md", &text.lines().map(line).collect::<String>());
    assert!(
        KEYS.iter().all(|key| key.meaning.len() > 15 && !key.meaning.contains(" | ")),
        "every key has a meaning"
    );
    for variable in OTHER_VARIABLES {
        assert!(text.contains(&format!("| `{variable}` |")), "{variable}");
    }
}

#[test]
fn the_schema_is_what_check_prints() {
    let output = run(&mut tandem(&["check", "--schema"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    generated("docs/schemas/router.schema.json", &out(&output));
}

/// By an implementation of JSON Schema that is not ours.
fn by_schema(files: &[PathBuf]) -> serde_json::Value {
    let mut command = Command::new(tandem::testkit::openai::python());
    command.arg(root("tests/schema.py")).arg(root("docs/schemas/router.schema.json")).args(files);
    let output = run(&mut command);
    serde_json::from_str(&out(&output)).map_err(|e| format!("{e}: {}", err(&output))).expect("JSON")
}

#[test]
fn the_schema_takes_the_examples_and_refuses_what_check_refuses() {
    let directory = tempfile::tempdir().expect("a directory");
    let example = root("config/kubernetes.yaml").display().to_string();
    let printed = written(&directory, &out(&run(&mut tandem(&["check", &example, "--print"]))));
    let examples = std::fs::read_dir(root("config")).expect("config/").flatten().map(|entry| entry.path());
    let examples: Vec<_> = examples.chain([printed.into()]).collect();
    let found = by_schema(&examples);
    for example in &examples {
        assert_eq!(found[example.display().to_string()], serde_json::json!([]));
    }
    let service = "services: [{ name: chat, discovery: { static: { mixed: [{ url: http://a:1 }] } } }]";
    let of_process = [
        "lisetn: 0.0.0.0:1",
        "limits: { body: 64MB }",
        "limits: { in_flight: many }",
        "limits: { nothing: 1 }",
        "timeouts: { idle: 5 }",
        "timeouts: { idle: 5 minutes }",
        "access_log: { format: xml }",
        "access_log: { sample: 2 }",
        "listen: 8080",
        "threads: some",
        "observer: { on_front_door: maybe }",
    ];
    let of_pods = [
        "dialect: tandem",
        "selector: {}",
        "selector: { a b: c }",
        "selector: { a: b c }",
        "selector: { a: b }, ports: []",
        "selector: { a: b }, ports: [Http]",
        "selector: { a: b }, ports: [80, 80]",
        "selector: { a: b }, dialect: none",
        "selector: { a: b }, namespace: a.b",
        "selector: { a: b }, keys: { role: a/b/c }",
        "selector: { a: b }, keys: { eligible: a= }",
        "selector: { a: b }, keys: { mixed_values: a }",
    ];
    let of_process = of_process.map(|more| format!("{service}\n{more}\n"));
    let of_pods = of_pods
        .map(|pods| format!("services: [{{ name: chat, discovery: {{ kubernetes: {{ {pods} }} }} }}]\n"));
    let mut files = Vec::new();
    for (i, text) in of_process.into_iter().chain(of_pods).enumerate() {
        let path = directory.path().join(format!("{i}.yaml"));
        std::fs::write(&path, &text).expect("a temporary file");
        let checked = run(&mut tandem(&["check", &path.display().to_string()]));
        assert_eq!(code(&checked), 2, "{text}");
        files.push((path, text));
    }
    let found = by_schema(&files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>());
    for (path, text) in files {
        let mistakes = found[path.display().to_string()].as_array().map_or(0, Vec::len);
        assert!(mistakes > 0, "{text}");
    }
}
