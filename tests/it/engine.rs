//! `tandem engine` as a process: its line, its exit codes, its flags beside `docs/engine.md`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tandem::testkit::client::{RawClient, RawResponse};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::process::SOON;

struct Engine {
    child: Child,
    addr: SocketAddr,
    side: Option<SocketAddr>,
}

async fn engine(flags: &[&str]) -> Engine {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    let mut child =
        command.arg("engine").args(flags).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut line = String::new();
    let mut read = BufReader::new(child.stdout.take().unwrap());
    tokio::time::timeout(SOON, read.read_line(&mut line)).await.unwrap().unwrap();
    let word = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key)?.parse().ok());
    Engine { child, addr: word("addr=").unwrap_or_else(|| panic!("{line:?}")), side: word("side=") }
}

impl Engine {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap()
    }
}

async fn chat(addr: SocketAddr, body: &serde_json::Value) -> RawResponse {
    let body = body.to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    RawClient::connect(addr).await.request(head + &body).await.unwrap()
}

async fn exit(child: &mut Child) -> Option<i32> {
    tokio::time::timeout(SOON, child.wait()).await.unwrap().unwrap().code()
}

#[tokio::test]
async fn a_pair_of_processes_says_what_a_plain_one_says() {
    let plain = engine(&["--wire", "sglang"]).await;
    let prefill = engine(&["--wire", "sglang", "--role", "prefill", "--ttft", "20ms"]).await;
    let decode = engine(&["--wire", "sglang", "--role", "decode"]).await;
    let asked = json!({"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 5, "bootstrap_room": 9,
                       "bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.side.unwrap().port()});
    let (_, pair) = tokio::join!(chat(prefill.addr, &asked), chat(decode.addr, &asked));
    let alone = chat(plain.addr, &asked).await;
    assert_eq!(pair.json()["choices"], alone.json()["choices"]);
}

#[tokio::test]
async fn sigterm_is_exit_code_0_and_what_kills_the_real_oneis_1() {
    let mut one = engine(&["--wire", "vllm", "--role", "decode"]).await;
    kill_process(one.pid(), Signal::TERM).unwrap();
    assert_eq!(exit(&mut one.child).await, Some(0));
    let mut one = engine(&["--wire", "vllm", "--role", "decode"]).await;
    let asked = json!({"messages": [{"role": "user", "content": "x"}], "kv_transfer_params": {"do_remote_prefill": true}});
    assert_eq!(chat(one.addr, &asked).await.status(), 500);
    assert_eq!(exit(&mut one.child).await, Some(1));
    let mut bad = Command::new(env!("CARGO_BIN_EXE_tandem"));
    let bad = bad.args(["engine", "--wire", "vllm", "--script", "nonsense"]).output().await.unwrap();
    assert_eq!(bad.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("`nonsense` is no word of a script"));
}

#[tokio::test]
async fn every_flag_is_documented_and_no_other() {
    let help = Command::new(env!("CARGO_BIN_EXE_tandem")).args(["engine", "--help"]).output().await.unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        words.filter(|word| word.starts_with("--") && word.len() > 3).map(str::to_owned).collect()
    };
    let options = help.split("Examples:").next().unwrap_or_default();
    let mut offered = flags(options);
    offered.remove("--help");
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/engine.md")).unwrap();
    let table: String = document.lines().filter(|line| line.starts_with("| `--")).collect();
    assert_eq!(flags(&table), offered);
}
