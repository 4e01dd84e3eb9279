//! `tandem demo` as a newcomer meets it: the commands it prints, what it shows, how it ends; and as a script does.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tandem::testkit::client::RawClient;
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::request_head;
use tandem::testkit::openai::python;
use tandem::types::clock::now;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::process::{SOON, Sink, run, tandem};

const ANY: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];

struct Demo {
    child: Child,
    out: Sink,
    err: Sink,
}

/// A demo on free ports whose first text is printed.
async fn demo(flags: &[&str]) -> Demo {
    let mut child = tandem("demo").args(ANY).args(flags).spawn().unwrap();
    let (out, err) = (Sink::of(child.stdout.take().unwrap()), Sink::of(child.stderr.take().unwrap()));
    let demo = Demo { child, out, err };
    demo.shown("its last command", |text| text.contains("/endpoints\n\n")).await;
    demo
}

impl Demo {
    /// Waits until what was shown is so.
    async fn shown(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        eventually(SOON * 3, what, || {
            let text = self.out.text();
            if is(&text) { Ok(text) } else { Err(format!("{text}\n{}", self.err.text())) }
        })
        .await
    }

    /// The last line, which may be read after the process's end was.
    async fn sum(&self) -> String {
        let is_sum = |line: &str| line.starts_with("in flight/served: ");
        let shown = self.shown("the sum", |text| {
            text.contains("\nleaving: ") && text.ends_with('\n') && text.lines().last().is_some_and(is_sum)
        });
        shown.await.lines().last().unwrap().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap(), signal).unwrap();
    }

    async fn exit(&mut self) -> Option<i32> {
        tokio::time::timeout(SOON, self.child.wait()).await.unwrap().unwrap().code()
    }
}

/// Every address that it said it listens on: front door, admin, four engines.
fn addresses(shown: &str) -> BTreeSet<SocketAddr> {
    let after = shown.split("http://").skip(1);
    let found: BTreeSet<SocketAddr> = after
        .filter_map(|rest| {
            let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'));
            rest[..end.unwrap_or(rest.len())].parse().ok()
        })
        .collect();
    assert_eq!(found.len(), 6, "{shown}");
    found
}

/// The printed command that begins so, with the lines that belong to it.
fn command(shown: &str, begins: &str) -> String {
    let at = shown.find(&format!("\n{begins}")).unwrap_or_else(|| panic!("no {begins:?} in {shown}")) + 1;
    let rest = &shown[at..];
    let end = if rest.lines().next().unwrap().ends_with("<<'END'") { "\nEND\n" } else { "\n" };
    rest[..rest.find(end).unwrap() + end.len()].to_owned()
}

/// As typed into a shell, where `python3` has the openai package. Standard output.
async fn typed(command: &str) -> String {
    let python = python();
    let path = format!("{}:{}", python.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("PATH", path).kill_on_drop(true).stdin(Stdio::null());
    // Longer than elsewhere: on a busy machine the package alone takes seconds to load.
    let output = tokio::time::timeout(SOON * 6, shell.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{command}\n{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

fn text(stream: &str) -> String {
    let events = events(stream);
    events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect()
}

#[tokio::test]
async fn the_commands_it_prints_work_as_printed() {
    let mut demo = demo(&["--no-traffic"]).await;
    let shown = demo.out.text();
    let curl = command(&shown, "curl -N");
    let stream = typed(&curl).await;
    assert!(stream.ends_with("data: [DONE]\n\n"), "{stream}");
    let said = text(&stream);
    assert_eq!(said.split_whitespace().count(), 80);
    assert_eq!(typed(&command(&shown, "python3 -")).await.trim(), said.trim());
    let counted = typed(&command(&shown, "curl -s http")).await;
    assert!(
        counted.contains("outcome=\"ok\"") && counted.lines().all(|l| l.contains("tandem_requests_total"))
    );
    let listed: Value = serde_json::from_str(&typed(shown.trim_end().lines().last().unwrap()).await).unwrap();
    assert_eq!(listed["endpoints"].as_array().unwrap().len(), 4);
    demo.shown("both requests", |text| text.matches("stream  200 ok  TTFT ").count() == 2).await;

    let before: Value = serde_json::from_str(&typed(&command(&shown, "curl -X PUT")).await).unwrap();
    assert_eq!((&before["changed"], &before["draining"]), (&Value::Bool(true), &Value::Bool(true)));
    demo.shown("the drain", |text| text.contains("\nD4 is drained\n")).await;
    let so_far = demo.out.text().len();
    typed(&command(&shown, "curl --data")).await;
    // Which prefill is asked first is a matter of chance.
    let quick = curl.replace(":80,", ":2,");
    let mut asked = 0;
    while !demo.out.text().contains("retried: prefill_busy") {
        assert!(asked < 40, "no request met the refusal: {}", demo.out.text());
        assert!(typed(&quick).await.ends_with("data: [DONE]\n\n"));
        asked += 1;
    }
    let text = demo.shown("the last request", |text| text[so_far..].matches("200 ok").count() >= asked).await;
    assert!(!text[so_far..].contains("→D4"), "{text}");
    demo.signal(Signal::INT);
    assert_eq!(demo.exit().await, Some(0));
}

#[tokio::test]
async fn it_sends_requests_of_its_own_and_shows_plain_lines_where_there_is_no_terminal() {
    let mut demo = demo(&["--engine", "sglang"]).await;
    let shown = demo.shown("three requests", |text| text.matches("200 ok").count() >= 3).await;
    assert!(!shown.contains('\x1b'), "{shown}");
    demo.signal(Signal::TERM);
    assert_eq!(demo.exit().await, Some(0));
    let last = demo.sum().await;
    assert!(last.starts_with("in flight/served: P1 0/") && last.contains(", 0 wrong"), "{last}");
    assert_eq!(demo.err.text(), "");
}

#[tokio::test]
async fn an_interrupt_ends_everything_soon_with_exit_code_0() {
    let mut demo = demo(&[]).await;
    let shown = demo.shown("a request", |text| text.contains("200 ok")).await;
    let all = addresses(&shown);
    let children = format!("/proc/{0}/task/{0}/children", demo.child.id().unwrap());
    assert_eq!(std::fs::read_to_string(children).unwrap(), "", "one process");
    let asked = now();
    demo.signal(Signal::INT);
    assert_eq!(demo.exit().await, Some(0));
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    for address in all {
        assert!(TcpStream::connect(address).await.is_err(), "{address} still answers");
    }
}

#[tokio::test]
async fn an_open_stream_gets_a_second_and_then_an_error() {
    let mut demo = demo(&["--no-traffic"]).await;
    let shown = demo.out.text();
    let url = shown.split("router    http://").nth(1).unwrap().split_whitespace().next().unwrap();
    let body =
        r#"{"model":"demo","stream":true,"max_tokens":4000,"messages":[{"role":"user","content":"x"}]}"#;
    let length = format!("content-length: {}", body.len());
    let head = request_head("POST", "/v1/chat/completions", &["content-type: application/json", &length]);
    let mut client = RawClient::connect(url.parse().unwrap()).await;
    client.send([head.as_ref(), body.as_bytes()].concat()).await.unwrap();
    let admin = command(&shown, "curl -s").replace("/metrics | grep tandem_requests_total", "/endpoints");
    crate::process::poll("the stream", async || typed(&admin).await.contains("\"in_flight\":1")).await;
    demo.signal(Signal::INT);
    assert_eq!(demo.exit().await, Some(0));
    let last = demo.sum().await;
    assert!(last.contains("; requests: 1 forced"), "{last}");
}

/// Ctrl-C as the terminal sends it. Python's `pty` is the terminal, of no size that it tells.
#[tokio::test]
async fn on_a_terminal_it_is_a_table_drawn_in_place() {
    let spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let mut terminal = Command::new("python3");
    terminal.args(["-c", spawn, env!("CARGO_BIN_EXE_tandem"), "demo"]).args(ANY).env("TERM", "xterm");
    let mut child = terminal.kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let out = Sink::of(child.stdout.take().unwrap());
    let table = eventually(SOON, "a table with a request", || {
        let text = out.text();
        let table = text.rsplit("\x1b[J").nth(1).unwrap_or_default().to_owned();
        if table.contains(" ok") { Ok(table) } else { Err(text) }
    })
    .await;
    let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
    assert!(lines[0].starts_with("engine  role     address"), "{table}");
    for (line, name) in
        lines[1..5].iter().zip(["P1      prefill", "P2      prefill", "D3      decode", "D4      decode"])
    {
        assert!(line.starts_with(name) && line.contains("serving"), "{table}");
    }
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{table}");
    child.stdin.as_mut().unwrap().write_all(b"\x03").await.unwrap();
    let status = tokio::time::timeout(SOON, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_ends_it() {
    let mut child = tandem("demo").args(ANY).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(tokio::time::timeout(SOON, child.wait()).await.unwrap().unwrap().code(), Some(0));
}

#[tokio::test]
async fn an_address_that_is_taken_is_said_with_the_flag_that_chooses_another() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, other) in [("--listen", "--admin-listen"), ("--admin-listen", "--listen")] {
        let (code, out, err) = run(tandem("demo").args([flag, &address, other, "127.0.0.1:0"])).await;
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        let said = format!("cannot listen on {address} (choose another with {flag} IP:PORT");
        assert!(err.contains(&said) && err.contains("Address already in use"), "{err}");
    }
}

#[tokio::test]
async fn once_asks_every_engine_and_its_document_is_as_documented() {
    for engine in ["vllm", "sglang"] {
        let (code, out, err) = run(tandem("demo").args(["--once", "--json", "--engine", engine])).await;
        assert_eq!(code, Some(0), "{out}\n{err}");
        let document: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(document["ok"], true);
        assert_eq!((&document["engine"], &document["problems"]), (&engine.into(), &Value::Array(vec![])));
        let requests = document["requests"].as_array().unwrap();
        let good = |r: &&Value| r["status"] == 200 && r["outcome"] == "ok" && r["text"] == "right";
        assert_eq!((requests.len(), requests.iter().filter(good).count()), (8, 8));
        assert_eq!(
            requests.iter().filter(|r| r["stream"] == true && r["ttft_ms"].as_f64() > Some(50.0)).count(),
            4
        );
        assert_eq!(requests.iter().filter(|r| r["stream"] == false && r["ttft_ms"].is_null()).count(), 4);
        let sum = |list: &str| {
            document[list].as_array().unwrap().iter().map(|x| x["requests"].as_u64().unwrap()).sum()
        };
        assert_eq!((sum("pairs"), sum("endpoints")), (8_u64, 16_u64));
        let names: Vec<&str> =
            document["endpoints"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["P1", "P2", "D3", "D4"]);
        assert_eq!(documented_keys(), keys(&document));
    }
    let (code, out, _) = run(tandem("demo").arg("--once")).await;
    assert_eq!(
        (code, out.lines().count(), out.lines().last()),
        (Some(0), 9, Some("ok: every text was right"))
    );
}

fn keys(value: &Value) -> BTreeSet<String> {
    let inside = |values: Vec<&Value>| values.into_iter().flat_map(keys).collect::<BTreeSet<_>>();
    match value {
        Value::Object(map) => map.keys().cloned().chain(inside(map.values().collect())).collect(),
        Value::Array(list) => inside(list.iter().collect()),
        _ => BTreeSet::new(),
    }
}

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/demo.md")).unwrap()
}

/// Code spans of the document's table, without those that are values.
fn documented_keys() -> BTreeSet<String> {
    let page = page();
    let (_, table) = page.split_once("## The document").unwrap();
    let spans = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let values = ["vllm", "sglang", "demo", "right", "wrong"];
    spans
        .map(|span| span.trim_end_matches("[]"))
        .filter(|span| !values.contains(span))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn every_flag_is_documented_and_no_other() {
    let (_, help, _) = run(tandem("demo").arg("--help")).await;
    let flags = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        words.filter(|word| word.starts_with("--") && word.len() > 3).map(str::to_owned).collect()
    };
    let mut offered = flags(help.split("Examples:").next().unwrap());
    offered.remove("--help");
    let page = page();
    let table: String = page.lines().filter(|line| line.starts_with("| `--")).collect();
    assert_eq!(flags(&table), offered);
    for wrong in [&["--json"][..], &["--once", "--no-traffic"]] {
        assert_eq!(run(tandem("demo").args(wrong)).await.0, Some(2), "{wrong:?}");
    }
}
