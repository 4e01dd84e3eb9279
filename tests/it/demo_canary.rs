//! `tandem demo --canary`: its steps and verdict, and its split moved by hand, as the documentation has it.

use std::collections::BTreeSet;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tandem::testkit::eventually::eventually;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::process::{SOON, Sink, tandem};

const ANY: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];

struct Demo {
    child: Child,
    out: Sink,
    admin: String,
}

impl Demo {
    /// On free ports, with its first text printed.
    async fn start(flags: &[&str]) -> Self {
        let mut child = tandem("demo").arg("--canary").args(ANY).args(flags).spawn().unwrap();
        let out = Sink::of(child.stdout.take().unwrap());
        let mut demo = Self { child, out, admin: String::new() };
        let text =
            demo.shown("the first split", |text| text.contains("before: r1 100, r2 0 from now on\n")).await;
        let admin = text.split("admin     ").nth(1).unwrap().split_whitespace().next().unwrap();
        admin.clone_into(&mut demo.admin);
        demo
    }

    async fn shown(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        eventually(SOON * 3, what, || {
            let text = self.out.text();
            if is(&text) { Ok(text) } else { Err(text) }
        })
        .await
    }

    /// A command line as typed beside it. Standard output.
    async fn typed(&self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], ["tandem", "split"], "{line}");
        let (code, out, err) =
            crate::process::run(tandem("split").args(&words[2..]).env("TANDEM_ADMIN", &self.admin)).await;
        assert_eq!(code, Some(0), "{line}: {err}");
        out
    }

    /// The rows of its last table, by the first word of each.
    async fn end(mut self) -> Vec<Vec<String>> {
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        assert_eq!(tokio::time::timeout(SOON, self.child.wait()).await.unwrap().unwrap().code(), Some(0));
        self.out.ended().await;
        let text = self.out.text();
        let table = text.rsplit("\nstep     v").next().unwrap();
        assert!(table.ends_with("\nleaving\n"), "{text}");
        let rows = table.lines().skip(1).filter(|line| *line != "leaving");
        rows.map(|row| row.replace("by hand", "hand").split_whitespace().map(str::to_owned).collect())
            .collect()
    }
}

fn pages() -> [String; 2] {
    ["docs/canary.md", "docs/demo.md"]
        .map(|page| std::fs::read_to_string(format!("{}/{page}", env!("CARGO_MANIFEST_DIR"))).unwrap())
}

/// Every step, judged by what the document itself has, not by its verdict alone.
#[tokio::test]
async fn every_step_gets_its_share_no_pair_is_of_two_releases_and_nothing_fails() {
    for wire in ["vllm", "sglang"] {
        let mut command = tandem("demo");
        command.args(["--canary", "--once", "--json", "--engine", wire]);
        // A thousand requests, on a machine that others share.
        let output = tokio::time::timeout(SOON * 6, command.output()).await.unwrap().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &document["ok"]), (Some(0), &Value::Bool(true)), "{document:#}");
        assert_eq!((&document["failed"], &document["problems"]), (&0.into(), &Value::Array(vec![])));
        let steps = document["steps"].as_array().unwrap();
        let mut recorded = 0;
        for (n, (step, weights)) in
            steps.iter().zip([[100, 0], [90, 10], [50, 50], [100, 0], [0, 100]]).enumerate()
        {
            assert_eq!(step["version"], n + 1);
            assert_eq!([&step["weights"]["r1"], &step["weights"]["r2"]], weights);
            let decodes = ["r1", "r2"].map(|release| step["decodes"][release].as_u64().unwrap());
            let total = decodes[0] + decodes[1];
            assert!(total >= 200 && step["crossed"] == 0 && step["failed"] == 0, "{step:#}");
            assert_eq!(step["prefills"], step["decodes"], "{step:#}");
            for (got, weight) in decodes.into_iter().zip(weights) {
                assert_eq!(got == 0, weight == 0, "{step:#}");
            }
            recorded += total;
        }
        assert_eq!((steps.len(), &document["right"]), (5, &recorded.into()), "{document:#}");
        assert_eq!(documented_keys(), keys(&document));
    }
}

fn keys(value: &Value) -> BTreeSet<String> {
    let inside = |values: Vec<&Value>| values.into_iter().flat_map(keys).collect::<BTreeSet<_>>();
    match value {
        Value::Object(map) => map.keys().cloned().chain(inside(map.values().collect())).collect(),
        Value::Array(list) => inside(list.iter().collect()),
        _ => BTreeSet::new(),
    }
}

/// Code spans of the rows of its table.
fn documented_keys() -> BTreeSet<String> {
    let [_, page] = pages();
    let section = page.split("## A canary").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let spans = rows.flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.map(|span| span.trim_end_matches("[]").to_owned()).collect()
}

/// Where nobody else moves it, so that the answers are the documented ones.
#[tokio::test]
async fn the_documented_commands_move_it_by_hand_with_the_documented_answers() {
    let [page, _] = pages();
    let section = page.split("## Try it").nth(1).unwrap().split("\n## ").next().unwrap();
    let console = section.split("```console\n").nth(1).unwrap().split("```").next().unwrap();
    let demo = Demo::start(&["--no-traffic"]).await;
    assert!(demo.out.text().contains("\nNothing moves by itself:\n"));
    let mut commands = 0;
    for part in console.split("$ ").skip(1) {
        let (line, answer) = part.split_once('\n').unwrap();
        let out = demo.typed(line).await;
        // Shares and requests are whose they are; all the rest is the same.
        let lines = |text: &str| -> Vec<String> {
            let cells = |line: &str| line.split("  ").take(2).collect::<Vec<_>>().join(" ");
            text.lines().map(cells).collect()
        };
        assert_eq!(lines(&out), lines(answer), "{line}: {out}");
        commands += 1;
    }
    assert!(commands >= 4, "{console}");
    let rows = demo.end().await;
    let weights: Vec<&str> = rows.iter().map(|row| &*row[2]).collect();
    // It looks four times a second: one that was soon followed by another may not have been seen.
    assert_eq!((weights[0], weights[weights.len() - 1]), ("100/0", "100/0"), "{rows:?}");
}

#[tokio::test]
async fn it_sends_requests_and_shows_what_a_split_by_hand_comes_to() {
    let demo = Demo::start(&[]).await;
    let shown = demo.out.text();
    assert!(shown.contains("Every 15 s the weights move"), "{shown}");
    let set = shown.lines().find(|line| line.starts_with("tandem split demo --set ")).unwrap();
    demo.typed(&set.replace("r1=90,r2=10", "r1=0,r2=1")).await;
    demo.shown("the split by hand", |text| text.contains("by hand: r1 0, r2 1 from now on\n")).await;
    let at_r2 = async || {
        let out = demo.typed("tandem split demo --json").await;
        let document: Value = serde_json::from_str(&out).unwrap();
        document["split"]["services"][0]["cohorts"][1]["requests_since_version"].as_u64().unwrap()
    };
    crate::process::poll("requests at r2", async || at_r2().await >= 5).await;
    let rows = demo.end().await;
    let hand = rows.iter().find(|row| row[0] == "hand").unwrap();
    assert_eq!((&*hand[2], &hand[7].split_once('/').unwrap().0), ("0/1", &"0"), "no prefill at r1: {hand:?}");
    assert!(hand[7].split_once('/').unwrap().1.parse::<u64>().unwrap() >= 5, "{hand:?}");
    for row in &rows {
        assert_eq!(row[row.len() - 2..], ["0", "0"], "crossed and failed: {row:?}");
    }
}

/// Python's `pty` is the terminal.
#[tokio::test]
async fn on_a_terminal_it_is_a_table_with_what_comes_next() {
    let spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let mut terminal = Command::new("python3");
    terminal.args(["-c", spawn, env!("CARGO_BIN_EXE_tandem"), "demo", "--canary"]).args(ANY);
    terminal.env("TERM", "xterm").kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = terminal.spawn().unwrap();
    let out = Sink::of(child.stdout.take().unwrap());
    let table = eventually(SOON, "a table with requests", || {
        let text = out.text();
        let table = text.rsplit("\x1b[J").nth(1).unwrap_or_default().to_owned();
        if table.contains(" right, 0 failed") && !table.contains(": 0 right") { Ok(table) } else { Err(text) }
    })
    .await;
    let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
    assert!(
        lines[0].starts_with("step     v  weights") && lines[1].starts_with("before   1  100/0"),
        "{table}"
    );
    assert!(table.contains("next: canary, 90/10, in "), "{table}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{table}");
    child.stdin.as_mut().unwrap().write_all(b"\x03").await.unwrap();
    let status = tokio::time::timeout(SOON, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}
