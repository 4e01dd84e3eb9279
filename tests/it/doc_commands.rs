//! The commands in the documents, as a reader would type them.
//!
//! What needs nothing but this program is run, in the order of the document: engines and routers in the background, the rest to
//! its end, and with curl the requests between them. Every `127.0.0.1:PORT` becomes a free port, the same one within a
//! document. Commands that would build, install or need a cluster or real engines are only looked up.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tandem::types::clock;

use super::process::SOON;

/// Commands of others that documents may name; those with a `/` are files of the repository.
const OTHERS: [&str; 4] = ["cargo", "kubectl", "head", "python3"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Commands of the blocks of these languages, continued lines joined, each with its comment.
fn commands(document: &str, languages: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    let mut begun = String::new();
    for line in document.lines() {
        if let Some(language) = line.strip_prefix("```") {
            inside = !inside && languages.contains(&language);
        } else if inside {
            // A console shows what was typed behind `$`, and answers.
            let typed = if languages.contains(&"console") { line.strip_prefix("$ ") } else { Some(line) };
            let Some(typed) = typed else { continue };
            begun.push_str(typed);
            if let Some(kept) = begun.strip_suffix('\\').map(str::to_owned) {
                begun = kept;
                continue;
            }
            let line = std::mem::take(&mut begun);
            let (command, comment) = line.split_once(" #").unwrap_or((&line, ""));
            if !command.trim().is_empty() && !command.starts_with('#') {
                found.push((command.trim().to_owned(), comment.trim().to_owned()));
            }
        }
    }
    found
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// One reader with a terminal for each thing that goes on.
struct Reader {
    ports: BTreeMap<String, u16>,
    folder: tempfile::TempDir,
    running: Vec<(String, Child)>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl Reader {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for example in std::fs::read_dir(root().join("config")).unwrap().flatten() {
            let to = folder.path().join("config");
            std::fs::create_dir_all(&to).unwrap();
            std::fs::copy(example.path(), to.join(example.file_name())).unwrap();
        }
        // "router.yaml" and "token" are what a reader has.
        std::fs::copy(root().join("config/minimal.yaml"), folder.path().join("router.yaml")).unwrap();
        std::fs::write(folder.path().join("token"), "secret").unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tandem"), bin.join("tandem")).unwrap();
        Self { ports: BTreeMap::new(), folder, running: Vec::new() }
    }

    fn port(&mut self, written: &str) -> u16 {
        *self.ports.entry(written.to_owned()).or_insert_with(free_port)
    }

    fn at(&mut self, port: &str) -> SocketAddr {
        ([127, 0, 0, 1], self.port(port)).into()
    }

    /// The command with ports of its own.
    fn moved(&mut self, command: &str) -> String {
        let mut moved = String::new();
        for (i, part) in command.replace("localhost:", "127.0.0.1:").split("127.0.0.1:").enumerate() {
            if i == 0 {
                moved.push_str(part);
                continue;
            }
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let port = self.port(&part[..digits]);
            moved.extend(["127.0.0.1:", &port.to_string(), &part[digits..]]);
        }
        moved
    }

    fn shell(&mut self, command: &str) -> Command {
        let (front, admin) = (self.at("8080"), self.at("9090"));
        let mut shell = Command::new("bash");
        // The environment of whoever runs the tests is not under test.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TANDEM_"))
        {
            shell.env_remove(name);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        shell
            .args(["-c", command])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()));
        if command.contains("tandem router") {
            shell.env("TANDEM_LISTEN", front.to_string()).env("TANDEM_ADMIN_LISTEN", admin.to_string());
        } else {
            shell.env("TANDEM_ADMIN", format!("http://{admin}"));
        }
        shell
    }

    /// Starts what serves until it is ended; returns when `at` takes connections.
    fn serve(&mut self, command: &str, at: SocketAddr) {
        let mut shell = self.shell(&format!("exec {command}"));
        let child = shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("bash");
        self.running.push((command.to_owned(), child));
        let since = clock::now();
        while TcpStream::connect(at).is_err() {
            let child = &mut self.running.last_mut().unwrap().1;
            let over = child.try_wait().unwrap();
            if over.is_some() || since.elapsed() > SOON {
                let _ = child.kill();
                let output = self.running.pop().unwrap().1.wait_with_output().unwrap();
                panic!("`{command}` does not serve at {at}: {}", String::from_utf8_lossy(&output.stderr));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn run(&mut self, command: &str) -> Output {
        self.shell(command).output().expect("bash")
    }

    fn end_all(&mut self) {
        for (_, mut child) in self.running.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A router that another one follows at the same ports ends, and so does a demo.
    fn end_servers_of(&mut self, word: &str) {
        let (ended, kept) = self.running.drain(..).partition(|(command, _)| command.contains(word));
        self.running = kept;
        for (_, mut child) in ended as Vec<(String, Child)> {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a command is to this test.
fn take(reader: &mut Reader, command: &str, comment: &str) {
    let words: Vec<&str> = command.split_whitespace().skip_while(|word| word.contains('=')).collect();
    let command = command.replace("cargo run -- ", "tandem ");
    let moved = reader.moved(&command);
    match words[..] {
        ["tandem", "engine", ..] => {
            let port = command
                .split_once("--listen 127.0.0.1:")
                .and_then(|(_, rest)| rest.split_whitespace().next());
            let at = reader.at(port.expect("an engine in a document has a port"));
            reader.serve(&moved, at);
        }
        ["tandem", "router", ..] => {
            reader.end_servers_of("tandem router");
            let at = reader.at("8080");
            reader.serve(&moved, at);
        }
        ["tandem", "demo", ..] | ["cargo", "run", "--", "demo", ..] if !command.contains("--once") => {
            reader.end_all();
            let (front, admin) = (reader.at("8080"), reader.at("9090"));
            reader.serve(&format!("{moved} --listen {front} --admin-listen {admin}"), front);
            reader.end_all();
        }
        ["tandem" | "curl", ..] => {
            let output = reader.run(&moved);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "`{command}`: {}\n{said}\n{err}", output.status);
            assert!(!said.is_empty(), "`{command}` says nothing");
            // `# 400 invalid_json`: what it shows.
            let code = comment.split_once(' ').filter(|(status, _)| status.parse::<u16>().is_ok());
            let shown = said.contains("\"error\":") == code.is_some()
                && code.is_none_or(|(_, code)| said.contains(code));
            assert!(shown, "`{command}` # {comment}: {said}");
        }
        [first, ..] if first.contains('/') => assert!(root().join(first).exists(), "{first}"),
        ["python3", script, ..] => assert!(root().join(script).exists(), "{script}"),
        [first, ..] => assert!(OTHERS.contains(&first), "`{command}`: not a command that this test knows"),
        [] => {}
    }
}

fn follow(document: &str) -> usize {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let mut reader = Reader::new();
    let commands = commands(&text, &["sh"]);
    for (command, comment) in &commands {
        take(&mut reader, command, comment);
    }
    commands.len()
}

#[test]
fn the_commands_of_the_readme_work_in_their_order() {
    assert!(follow("README.md") > 10);
}

#[test]
fn the_commands_of_the_other_documents_work_in_their_order() {
    let mut followed = 0;
    for folder in ["docs", "tests", "load-tests"] {
        for document in std::fs::read_dir(root().join(folder)).unwrap().flatten() {
            let name = document.file_name().to_string_lossy().into_owned();
            if Path::new(&name).extension().is_some_and(|kind| kind == "md") {
                followed += follow(&format!("{folder}/{name}"));
            }
        }
    }
    assert!(followed > 20, "{followed}");
}

#[test]
fn the_python_of_the_readme_reads_a_stream() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let script = text.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let mut reader = Reader::new();
    for (command, comment) in commands(&text, &["sh"]) {
        if command.starts_with("tandem engine") || command.contains("--worker") {
            take(&mut reader, &command, &comment);
        }
    }
    let script = reader.moved(script);
    let output = Command::new(tandem::testkit::openai::python()).args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.split_whitespace().count(), 16, "{said}");
}

/// Every command line of this program that a text names, also in the middle of a sentence and in the texts of `--help`.
fn named(text: &str) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2);
    let lines = text.lines().map(str::trim);
    let all = spans.chain(lines).filter(|part| part.starts_with("tandem ") && !part.contains('…'));
    all.filter(|part| part.contains(" --")).map(str::to_owned).collect()
}

#[test]
fn flags_that_documents_and_help_texts_name_exist() {
    let mut texts = vec![std::fs::read_to_string(root().join("README.md")).unwrap()];
    for document in std::fs::read_dir(root().join("docs")).unwrap().flatten() {
        texts.extend(std::fs::read_to_string(document.path()).ok());
    }
    let tandem = env!("CARGO_BIN_EXE_tandem");
    for command in [
        "router",
        "check",
        "status",
        "endpoints",
        "split",
        "drain",
        "engine",
        "demo",
        "install",
        "completions",
        "man",
    ] {
        let help = Command::new(tandem).args([command, "--help"]).env("COLUMNS", "110").output().unwrap();
        texts.push(String::from_utf8_lossy(&help.stdout).replace("\\\n", " "));
    }
    let mut looked_up = 0;
    for text in &texts {
        for command in named(&text.replace("\\\n", " ")) {
            let words = command.split(['|', '>', '#', '`']).next().unwrap_or_default();
            let words =
                words.split_whitespace().skip(1).filter(|word| !matches!(*word, "--help" | "--version"));
            let output = Command::new(tandem).args(words).arg("--help").output().unwrap();
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "`{command}`: {err}");
            looked_up += 1;
        }
    }
    assert!(looked_up > 30, "{looked_up}");
}
