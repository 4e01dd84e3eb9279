//! The documents say what the code says, both ways, and their links lead somewhere. (Configuration, metrics, access log and
//! admin routes are compared beside their code.)

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use http::{Request, StatusCode};
use tandem::config::KEYS;
use tandem::metrics::names;
use tandem::proxy::dispatch::REASONS;
use tandem::proxy::error::{Failure, Refusal, Shed};
use tandem::proxy::request::head;
use tandem::proxy::request::peek::peek;
use tandem::proxy::rescue::{CODES, Rescue, error_json, rescue};
use tandem::registry::{Reason, Role};
use tandem::upstream::{Fault, LegError, Written};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path))
        .map_err(|error| format!("{path}: {error}"))
        .expect("a document")
}

/// Cells of the table rows whose first cell begins with a code span; code marks and outer space are gone.
fn rows(document: &str) -> Vec<Vec<String>> {
    let row = |line: &str| -> Vec<String> {
        let inner = line.trim().trim_start_matches('|').strip_suffix('|').unwrap_or_default();
        inner.split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    document.lines().filter(|line| line.starts_with("| `")).map(row).collect()
}

fn files(under: &str, kind: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(under)).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let relative = format!("{under}/{name}");
        if path.is_dir() && !matches!(name.as_str(), "target" | ".venv" | "out" | "corpus") {
            found.extend(files(&relative, kind));
        } else if name.ends_with(kind) {
            found.push(path);
        }
    }
    found
}

fn refused(head: Request<()>) -> Failure {
    let (parts, ()) = head.into_parts();
    Failure::Refused(head::check(&parts, 64).expect_err("a bad head").into())
}

fn bad_heads() -> Vec<Failure> {
    let chat = || Request::post("/v1/chat/completions").header("host", "a");
    let built = |builder: http::request::Builder| refused(builder.body(()).expect("a request"));
    vec![
        built(chat().header("content-length", "+1")),
        built(Request::post("/v1/chat/completions")),
        built(Request::get("/none").header("host", "a")),
        built(Request::get("/v1/chat/completions").header("host", "a")),
        built(Request::get(format!("/{}", "x".repeat(99))).header("host", "a")),
        built(chat().header("authorization", "a").header("authorization", "b")),
        built(chat().header("expect", "more")),
        built(chat().header("content-encoding", "gzip")),
        built(chat().header("content-type", "text/plain")),
        Failure::Refused(Refusal::head_too_large(&tandem::config::RouterConfig::defaults().limits)),
    ]
}

fn bad_bodies() -> Vec<Failure> {
    let bodies: [&[u8]; 3] = [b"{", b"{\"model\":1}", b"{\"model\":\"a\",\"model\":\"a\"}"];
    bodies.iter().map(|body| Failure::Refused(peek(body).expect_err("a bad body").into())).collect()
}

fn others() -> Vec<Failure> {
    let leg = |fault, written| Failure::Upstream(LegError { fault, written, answered: false, reused: None });
    let mut all = vec![
        Failure::Forced,
        Failure::Unauthorized,
        Failure::BodyTooLarge { limit: 1 },
        Failure::BodyTimeout,
        Failure::BodyBroken,
        Failure::Shed(Shed::InFlight),
        Failure::Shed(Shed::Buffered),
        Failure::ModelNotFound { model: None },
        Failure::NoEndpoint { service: "s".to_owned(), role: Role::Mixed, registered: false },
        Failure::NoCohort { service: "s".to_owned(), all_zero: true },
        Failure::PrefillNoKv,
        Failure::Prefill { error: LegError::before_write(Fault::Lost), decode_asked: true },
        Failure::Prefill { error: LegError::before_write(Fault::FirstByteTimeout), decode_asked: false },
        Failure::UnsupportedOnPd("x"),
        Failure::PrefillNoKv,
        tandem::proxy::dispatch::unsupported("n", "why"),
        Failure::NoBootstrap,
        Failure::Unobservable("x".to_owned()),
        Failure::Internal("x"),
        leg(Fault::Connect, Written::Nothing),
        leg(Fault::ConnectTimeout, Written::Nothing),
        leg(Fault::Local, Written::Nothing),
        leg(Fault::LocalPort, Written::Nothing),
        Failure::Upstream(LegError::cut()),
        Failure::Prefill { error: LegError::cut(), decode_asked: false },
    ];
    let after =
        [Fault::Lost, Fault::Malformed("x"), Fault::FirstByteTimeout, Fault::IdleTimeout, Fault::WriteStall];
    all.extend(after.into_iter().map(|fault| leg(fault, Written::All)));
    all
}

fn kind_of(rescue: &Rescue) -> String {
    let json = error_json(rescue.status, rescue.code, "", None, "");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("an error body");
    json["error"]["type"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn every_error_code_is_documented_with_its_status_type_outcome_and_headers() {
    let document = text("docs/errors.md");
    let table: BTreeMap<String, Vec<String>> =
        rows(&document).into_iter().filter(|row| row.len() == 7).map(|row| (row[0].clone(), row)).collect();
    let documented: BTreeSet<&str> = table.keys().map(String::as_str).collect();
    assert_eq!(documented, CODES.iter().copied().collect());
    let mut seen = BTreeSet::from(["upstream_error"]);
    for failure in [bad_heads(), bad_bodies(), others()].concat() {
        let rescue = rescue(&failure);
        let row = &table[rescue.code];
        assert_eq!(row[1], rescue.status.as_u16().to_string(), "{row:?}");
        assert_eq!(row[2], kind_of(&rescue), "{row:?}");
        assert_eq!(row[3], rescue.outcome.as_str(), "{row:?}");
        assert_eq!(row[4].contains("Retry-After"), rescue.retry_after.is_some(), "{row:?}");
        assert_eq!(row[4].contains("Allow"), rescue.allow.is_some(), "{row:?}");
        assert!(!rescue.close || row[4].contains("closes"), "{row:?}");
        assert!(!rescue.no_retry || row[4].contains("x-should-retry: false"), "{row:?}");
        assert_eq!(row[4].contains("WWW-Authenticate"), rescue.status == StatusCode::UNAUTHORIZED, "{row:?}");
        seen.insert(rescue.code);
    }
    assert_eq!(seen, CODES.iter().copied().collect(), "a code that this test makes no example of");
}

#[test]
fn codes_of_the_access_log_alone_are_those_in_the_code() {
    let document = text("docs/errors.md");
    let documented: BTreeSet<String> =
        rows(&document).into_iter().filter(|row| row.len() == 3).map(|row| row[0].clone()).collect();
    let source = text("src/proxy/relay/ticket.rs") + &text("src/proxy/relay/stream.rs");
    let words = source.split('"').skip(1).step_by(2);
    let in_code: BTreeSet<String> =
        words.filter(|w| w.starts_with("client_") || w.starts_with("upstream_")).map(str::to_owned).collect();
    assert_eq!(documented, in_code);
}

/// Rows under a heading, up to the next one.
fn rows_of(document: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, rest) = document.split_once(&format!("\n## {heading}\n")).expect("a heading");
    rows(rest.split("\n## ").next().unwrap_or_default())
}

#[test]
fn every_reason_of_an_endpoint_is_documented_with_what_to_do() {
    let table = rows_of(&text("docs/discovery.md"), "Reasons");
    let words: Vec<&str> = table.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(words, Reason::ALL.map(Reason::as_str), "one row for each, in their order");
    for row in &table {
        assert!(row.len() == 3 && row[1].len() > 12 && !row[2].is_empty(), "{row:?}");
    }
    // The order of the checks names nothing else.
    let checks = rows(&text("docs/discovery.md").replace("| it", "| `it`").replace("| its", "| `its`"));
    let named: BTreeSet<&str> =
        checks.iter().filter(|row| row.len() == 2).flat_map(|row| row[1].split(", ")).collect();
    let known: BTreeSet<&str> = words.into_iter().collect();
    assert!(named.len() > 10 && named.is_subset(&known), "{:?}", named.difference(&known));
}

#[test]
fn every_kind_of_failure_of_the_api_server_is_documented() {
    let documented: BTreeSet<String> = rows_of(&text("docs/discovery.md"), "When the API server fails")
        .into_iter()
        .map(|row| row[0].clone())
        .collect();
    let source = text("src/discovery/kube/failure.rs");
    let words = source.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("Self::")?
            .split_once(" => \"")
            .and_then(|(_, rest)| rest.strip_suffix("\","))
    });
    assert_eq!(documented, words.map(str::to_owned).collect());
}

/// In a table, a query or a sentence of any document.
#[test]
fn every_metric_that_a_document_names_exists() {
    let known: BTreeSet<&str> = names::ALL.iter().map(|family| family.name).collect();
    let is_known = |name: &str| {
        let bare =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        known.contains(name) || known.contains(bare)
    };
    let mut unknown = BTreeSet::new();
    for document in files("docs", ".md").into_iter().chain([root().join("README.md")]) {
        let text = std::fs::read_to_string(&document).expect("a document");
        let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        let named = words.filter(|word| word.starts_with("tandem_") && !word.ends_with('_'));
        unknown.extend(named.filter(|name| !is_known(name)).map(str::to_owned));
    }
    assert_eq!(unknown, BTreeSet::new());
}

#[test]
fn the_life_of_a_request_has_a_heading_for_each_stage_in_order() {
    let module = text("src/proxy/mod.rs");
    let stages: Vec<String> = module
        .lines()
        .filter_map(|line| line.strip_prefix("//! ")?.split_once(". `"))
        .map(|(number, rest)| format!("## {number}. {}", rest.split('`').next().unwrap_or_default()))
        .collect();
    let folders = std::fs::read_dir(root().join("src/proxy")).expect("src/proxy").flatten();
    assert_eq!(stages.len(), folders.filter(|entry| entry.path().is_dir()).count());
    let document = text("docs/request-lifecycle.md");
    let headings: Vec<&str> = document.lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(headings[..stages.len()], stages);
}

#[test]
fn the_life_of_a_request_has_every_retry_reason_and_every_time_limit() {
    let document = text("docs/request-lifecycle.md");
    let reasons: BTreeSet<&str> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix("` |")?.rsplit_once("| `"))
        .map(|(_, reason)| reason)
        .collect();
    assert_eq!(reasons, REASONS.iter().copied().collect());
    let documented: BTreeSet<String> = rows(&document)
        .into_iter()
        .map(|row| row[0].clone())
        .filter(|key| key.starts_with("timeouts."))
        .collect();
    let keys = KEYS.iter().map(|key| key.path.to_owned()).filter(|key| key.starts_with("timeouts."));
    assert_eq!(documented, keys.collect());
}

#[test]
fn every_dependency_has_a_reason_and_nothing_else_has_one() {
    let manifest = text("Cargo.toml");
    let mut section = "";
    let mut dependencies = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if matches!(section, "[dependencies]" | "[dev-dependencies]")
            && let Some((name, _)) = line.split_once(" = ")
            && name != "tandem"
        {
            dependencies.insert(name.to_owned());
        }
    }
    let decision = text("docs/decisions/0010-dependencies.md");
    let (reasons, others) = decision.split_once("## Not used").expect("both parts");
    let (table, prose) = reasons.split_once("\nFor tests").expect("a sentence about tests");
    let crates = |line: &str| {
        let cell = line.split(" | ").next().unwrap_or_default();
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut named: BTreeSet<String> = table.lines().filter(|l| l.starts_with("| `")).flatten_names(crates);
    named.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned).filter(|word| word != "testing"));
    assert_eq!(named, dependencies);
    let unused: BTreeSet<String> = others.lines().filter(|l| l.starts_with("| `")).flatten_names(crates);
    assert!(unused.is_disjoint(&dependencies), "used after all: {:?}", unused.intersection(&dependencies));
}

trait FlattenNames<'a>: Iterator<Item = &'a str> + Sized {
    fn flatten_names(self, names: impl Fn(&str) -> Vec<String>) -> BTreeSet<String> {
        self.flat_map(names).collect()
    }
}
impl<'a, I: Iterator<Item = &'a str>> FlattenNames<'a> for I {}

/// `crate::<plane>` in the code of a plane, its tests left out.
fn imports(plane: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files(&format!("src/{plane}"), ".rs") {
        let name = file.display().to_string();
        if name.ends_with("tests.rs") || name.contains("/tests/") {
            continue;
        }
        let source = std::fs::read_to_string(&file).expect("a source file");
        let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for after in code
            .lines()
            .filter(|l| !l.trim_start().starts_with("//"))
            .flat_map(|l| l.split("crate::").skip(1))
        {
            found.insert(after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found.remove(plane);
    found
}

#[test]
fn planes_import_what_the_architecture_says_and_nothing_else() {
    let document = text("docs/architecture.md");
    let mut planes = BTreeSet::new();
    for row in rows(&document).into_iter().filter(|row| row[0].starts_with("src/")) {
        let plane = row[0].trim_start_matches("src/").to_owned();
        if plane != "testkit" {
            let said: BTreeSet<String> =
                row[2].split(", ").filter(|w| *w != "-").map(str::to_owned).collect();
            assert_eq!(imports(&plane), said, "{plane}");
        }
        planes.insert(plane);
    }
    let folders = std::fs::read_dir(root().join("src")).expect("src").flatten();
    let folders = folders.filter(|entry| entry.path().is_dir());
    assert_eq!(planes, folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect());
}

/// The README repeats two rows of medians; Tandem's is the dearer of its two.
#[test]
fn figures_of_the_readme_are_those_of_the_benchmarks() {
    let (readme, benchmarks) = (text("README.md"), text("docs/benchmarks.md"));
    let (_, pairs) = benchmarks.split_once("\n## Prefill/decode").expect("figures with two legs");
    let figures = |document: &str, row: &str| -> Vec<f64> {
        let line = document.lines().find(|line| line.starts_with(row)).expect("a row of figures");
        let medians =
            line.trim_matches('|').split('|').skip(1).filter_map(|cell| cell.split_whitespace().next());
        medians.filter_map(|median| median.parse().ok()).collect()
    };
    for (in_readme, in_benchmarks, half) in [
        ("| small chat, µs of CPU |", "| small chat, µs/request |", 0.5),
        ("| streamed event, µs of CPU |", "| saturated, µs/event |", 0.05),
    ] {
        let [_, sglang, vllm, sglang_router, smg, vllm_router] = figures(pairs, in_benchmarks)[..] else {
            unreachable!("another table")
        };
        let wanted = [sglang.max(vllm), vllm_router, sglang_router, smg];
        let said = figures(&readme, in_readme);
        let near = said.iter().zip(wanted).all(|(said, wanted)| (said - wanted).abs() <= half + 1e-9);
        assert!(said.len() == 4 && near, "{said:?} for {wanted:?}");
    }
}

/// GitHub's anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut documents = files("docs", ".md");
    documents.extend(files("tests", ".md"));
    documents.extend(files("load-tests", ".md"));
    documents.push(root().join("README.md"));
    let mut broken = Vec::new();
    for document in documents {
        let text = std::fs::read_to_string(&document).expect("a document");
        let folder = document.parent().expect("a folder");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (path, part) = target.split_once('#').map_or((target, None), |(p, a)| (p, Some(a)));
            let file = if path.is_empty() { document.clone() } else { folder.join(path) };
            let found = std::fs::read_to_string(&file).unwrap_or_default();
            let headed =
                part.is_none_or(|part| found.lines().any(|l| l.starts_with('#') && anchor(l) == part));
            if !target.contains("://") && (!file.exists() || !headed) {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn documents_named_in_the_code_exist() {
    let mut missing = Vec::new();
    for file in [files("src", ".rs"), files("tests", ".rs"), files("load-tests", ".rs")].concat() {
        let source = std::fs::read_to_string(&file).expect("a source file");
        for named in source.split("docs/").skip(1) {
            let end =
                named.find(|c: char| !(c.is_alphanumeric() || "-_./".contains(c))).unwrap_or(named.len());
            let path = format!("docs/{}", named[..end].trim_end_matches('.'));
            if Path::new(&path).extension().is_some_and(|kind| kind == "md") && !root().join(&path).exists() {
                missing.push(format!("{}: {path}", file.display()));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}
