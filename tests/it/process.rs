//! The built binary as a process of its own: free ports, ready before use, killed when dropped.
//!
//! For what only a process shows: signals and exit codes, threads, the log sinks, flags. Everything else is cheaper in
//! process. Addresses come from the process's own `serving` line, so no port is guessed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tandem::testkit::client::{H2Client, RawClient, RawResponse};
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::request_head;
use tandem::testkit::metrics::Scrape;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// Longest wait for anything the process should do soon; generous, because machines are shared.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A running `tandem router`.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub(crate) front: SocketAddr,
    pub(crate) admin: SocketAddr,
    out: Sink,
    err: Sink,
}

impl Process {
    /// With these flags after `router`; listens on free ports and is ready when this returns. Diagnostics are JSON, the
    /// access log goes to standard output.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        Self::ready(flags, true).await
    }

    /// With this configuration file, written to `dir`; the listeners stay on free ports.
    pub(crate) async fn from_yaml(yaml: &str, dir: &Path, flags: &[&str]) -> Self {
        let file = dir.join("router.yaml");
        std::fs::write(&file, yaml).unwrap();
        let flags = [&["--config", file.to_str().unwrap()][..], flags].concat();
        Self::start(&flags).await
    }

    /// The same, with a standard output that nobody reads: a pipe that fills up.
    pub(crate) async fn start_unread(flags: &[&str]) -> Self {
        Self::ready(flags, false).await
    }

    /// With listed endpoints it is ready as soon as it serves.
    async fn ready(flags: &[&str], read: bool) -> Self {
        let process = Self::launch(flags, read).await;
        assert_eq!(process.admin_get("/readyz").await.status(), 200);
        process
    }

    /// Serves when this returns, ready or not. `read`: its standard output is.
    pub(crate) async fn launch(flags: &[&str], read: bool) -> Self {
        let mut command = tandem("router");
        command.args(["--log-format", "json"]).args(flags);
        Self::serving(command, read).await
    }

    /// In place of one that has ended: where that one had its admin listener.
    pub(crate) async fn launch_at(admin: SocketAddr, flags: &[&str]) -> Self {
        let mut command = bare("router");
        let admin = admin.to_string();
        command
            .args(["--listen", "127.0.0.1:0", "--admin-listen", &admin, "--log-format", "json"])
            .args(flags);
        Self::serving(command, true).await
    }

    async fn serving(mut command: Command, read: bool) -> Self {
        let mut child = command.spawn().unwrap();
        let out = if read { Sink::of(child.stdout.take().unwrap()) } else { Sink::default() };
        let err = Sink::of(child.stderr.take().unwrap());
        let serving = eventually(SOON, "the process to serve", || {
            let line = err.json_lines().into_iter().find(|line| line["message"] == "serving");
            line.ok_or_else(|| err.text())
        })
        .await;
        let address = |key: &str| serving[key].as_str().unwrap().parse().unwrap();
        Self { front: address("listen"), admin: address("admin"), child, out, err }
    }

    pub(crate) async fn client(&self) -> RawClient<TcpStream> {
        RawClient::connect(self.front).await
    }

    pub(crate) async fn h2_client(&self) -> H2Client {
        H2Client::connect(self.front).await
    }

    /// `http://` and the front door's address.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.front)
    }

    pub(crate) async fn admin_get(&self, path: &str) -> RawResponse {
        self.admin_call("GET", path, &[]).await
    }

    pub(crate) async fn admin_call(&self, method: &str, path: &str, headers: &[&str]) -> RawResponse {
        let mut client = RawClient::connect(self.admin).await;
        let head = request_head(method, path, &[headers, &["Connection: close"]].concat());
        client.request(&head).await.unwrap()
    }

    /// Both metric pages.
    pub(crate) async fn scrape(&self) -> Scrape {
        let (main, endpoints) =
            (self.admin_get("/metrics").await, self.admin_get("/metrics/endpoints").await);
        Scrape::parse(&(main.text() + &endpoints.text()))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Waits for the end; panics, showing the diagnostics, when it does not come in time.
    pub(crate) async fn exited(&mut self, within: Duration) -> ExitStatus {
        let ended = tokio::time::timeout(within, self.child.wait()).await.ok();
        ended.unwrap_or_else(|| panic!("still running after {within:?}:\n{}", self.err.text())).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Standard output so far.
    pub(crate) fn stdout(&self) -> String {
        self.out.text()
    }

    /// Standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.err.text()
    }

    /// Diagnostics so far.
    pub(crate) fn log_lines(&self) -> Vec<Value> {
        self.err.json_lines()
    }

    /// Waits until `n` access lines came to standard output.
    pub(crate) async fn access_lines(&self, n: usize) -> Vec<Value> {
        eventually(SOON, "access lines", || {
            let lines = self.out.json_lines();
            if lines.len() >= n { Ok(lines) } else { Err(lines) }
        })
        .await
    }

    /// Waits for a diagnostic line that holds these values.
    pub(crate) async fn logged(&self, wanted: &[(&str, Value)]) -> Value {
        eventually(SOON, "a diagnostic line", || {
            let holds = |line: &Value| wanted.iter().all(|(key, value)| line[*key] == *value);
            self.log_lines().into_iter().find(holds).ok_or_else(|| self.err.text())
        })
        .await
    }
}

/// A command line of the binary; `router` listens on free ports. `TANDEM_*` of the test's own environment are left out.
pub(crate) fn tandem(subcommand: &str) -> Command {
    let mut command = bare(subcommand);
    if subcommand == "router" {
        command.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    }
    command
}

fn bare(subcommand: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    command.arg(subcommand);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TANDEM_")) {
        command.env_remove(name);
    }
    command.kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command line to its end. Exit code, standard output, standard error.
pub(crate) async fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = tokio::time::timeout(SOON, command.output()).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Everything a stream of the process has said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sink(Arc<Mutex<Vec<u8>>>, Arc<AtomicBool>);

impl Sink {
    #[expect(clippy::disallowed_methods, reason = "a test has no tracker")]
    pub(crate) fn of(mut stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let sink = Self::default();
        let filled = sink.clone();
        tokio::spawn(async move {
            let mut piece = vec![0; 64 * 1024];
            while let Ok(n) = stream.read(&mut piece).await
                && n > 0
            {
                filled.0.lock().extend_from_slice(&piece[..n]);
            }
            filled.1.store(true, Ordering::Release);
        });
        sink
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }

    /// Waits until nothing more can come.
    pub(crate) async fn ended(&self) {
        poll("the end of a stream", async || self.1.load(Ordering::Acquire)).await;
    }

    /// The complete lines that are JSON.
    fn json_lines(&self) -> Vec<Value> {
        self.text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// Waits until the probe says yes.
pub(crate) async fn poll(what: &str, mut probe: impl AsyncFnMut() -> bool) {
    for _ in 0..SOON.as_millis() / 20 {
        if probe().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("waited {SOON:?} for {what}");
}
