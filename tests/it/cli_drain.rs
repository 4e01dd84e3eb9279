//! `tandem drain` of listed engines with two routers for the replicas, and `tandem install`: each a process of its own. Pods:
//! `cli_drain_pods.rs`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tandem::testkit::client::RawClient;
use tandem::testkit::engine::openai::{ChatStream, chat_json, error, kv_answer};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Response, Script, Step};
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::types::clock::now;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::process::{Process, SOON, Sink, poll, run, tandem};

/// A stream that lasts until its client leaves, or a short answer.
pub(crate) fn answer(request: &RecordedRequest) -> Vec<Step> {
    if request.path() == "/v1/chat/completions" && request.json()["stream"] == true {
        ChatStream::new(2).then(Step::Stall).into_steps()
    } else {
        chat_json("hi").into_steps()
    }
}

/// Two engines behind each of two routers; one of them is to leave.
struct Rig {
    leaving: EngineHandle,
    staying: EngineHandle,
    routers: [Process; 2],
}

impl Rig {
    async fn start(flags: &[&str]) -> Self {
        let [leaving, staying] =
            [Engine::start_tcp(Script::new(answer)).await, Engine::start_tcp(Script::new(answer)).await];
        let (a, b) = (leaving.url(), staying.url());
        let flags = [&["--worker", &a, "--worker", &b, "--policy", "round_robin"][..], flags].concat();
        let routers = [Process::start(&flags).await, Process::start(&flags).await];
        Self { leaving, staying, routers }
    }

    /// Of the leaving engine, at both routers.
    fn drain(&self, more: &[&str]) -> Command {
        drain(&self.leaving.url(), &self.routers, more)
    }

    /// A stream on each engine through this router.
    async fn streams(&self, router: usize) -> [RawClient<TcpStream>; 2] {
        let mut clients = [self.routers[router].client().await, self.routers[router].client().await];
        for client in &mut clients {
            client.send(&post_chat(chat_body("m", true))).await.unwrap();
        }
        self.leaving.log.wait_for(1, SOON).await;
        clients
    }

    /// Four short requests through each router, and how many of them the leaving engine got.
    async fn asked(&self) -> usize {
        let got = || self.leaving.log.requests_to("/v1/chat/completions").len();
        let before = got();
        for router in &self.routers {
            for _ in 0..4 {
                let answer = router.client().await.request(&post_chat(chat_body("m", false))).await.unwrap();
                assert_eq!(answer.status(), 200);
            }
        }
        got() - before
    }

    /// Whether the leaving engine is withdrawn at each router.
    async fn drained(&self) -> [bool; 2] {
        let url = self.leaving.url();
        [at(&self.routers[0], &url).await, at(&self.routers[1], &url).await].map(|e| e["draining"] == true)
    }
}

fn drain(engine: &str, routers: &[Process], more: &[&str]) -> Command {
    let mut command = tandem("drain");
    command.arg(engine);
    for router in routers {
        command.args(["--admin", &format!("http://{}", router.admin)]);
    }
    command.args(more);
    command
}

/// An engine as a router lists it.
async fn at(router: &Process, url: &str) -> Value {
    let list = router.admin_get("/endpoints").await.json();
    list["endpoints"].as_array().unwrap().iter().find(|e| e["url"] == url).unwrap().clone()
}

/// A drain that goes on, and what it says meanwhile.
pub(crate) struct Running {
    child: Child,
    pub(crate) out: Sink,
    pub(crate) err: Sink,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (out, err) = (Sink::of(child.stdout.take().unwrap()), Sink::of(child.stderr.take().unwrap()));
        Self { child, out, err }
    }

    /// Waits until it says so in a line of its own.
    pub(crate) async fn says(&self, line: &str) {
        eventually(SOON, line, || {
            let text = self.out.text();
            if text.lines().any(|said| said == line) { Ok(()) } else { Err(text) }
        })
        .await;
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) async fn code(&mut self) -> Option<i32> {
        let code = tokio::time::timeout(SOON, self.child.wait()).await.unwrap().unwrap().code();
        self.out.ended().await;
        self.err.ended().await;
        code
    }
}

/// A line of progress: the engine, then each router in order of its address.
fn line(engine: &str, routers: &[Process; 2], open: [&str; 2]) -> String {
    let mut parts = [0, 1].map(|i| format!("{} {}", routers[i].admin, open[i]));
    parts.sort();
    format!("{engine}: {}", parts.join("; "))
}

#[tokio::test]
async fn it_waits_until_no_router_has_a_request_open_there_and_undo_gives_it_back() {
    let rig = Rig::start(&[]).await;
    let url = rig.leaving.url();
    let streams = rig.streams(1).await;
    let mut drain = Running::start(rig.drain(&[]));
    drain.says(&line(&url, &rig.routers, ["nothing open", "1 decode"])).await;
    assert_eq!(rig.drained().await, [true, true]);
    assert_eq!(rig.asked().await, 0, "a request for an engine that leaves");
    // Longer than a round.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(drain.runs(), "it did not wait for the stream");
    drop(streams);
    drain.says(&line(&url, &rig.routers, ["nothing open", "nothing open"])).await;
    assert_eq!(drain.code().await, Some(0));

    let (code, out, err) = run(&mut rig.drain(&["--abort"])).await;
    let said = line(&url, &rig.routers, ["selectable", "selectable"]);
    let said = format!("{said}\n{url}: taken back\n");
    assert_eq!((code, out, err), (Some(0), said, String::new()));
    assert_eq!((rig.drained().await, rig.asked().await), ([false, false], 4));
    assert_eq!(run(&mut rig.drain(&["--abort"])).await.0, Some(0), "nothing is left to take back");
}

#[tokio::test]
async fn what_is_open_at_the_end_of_the_wait_is_exit_code_1_and_the_drain_stands() {
    let rig = Rig::start(&[]).await;
    let _streams = rig.streams(0).await;
    let asked = now();
    let (code, out, err) = run(&mut rig.drain(&["--wait", "2s"])).await;
    let waited = asked.elapsed();
    assert!(waited >= Duration::from_secs(2), "{waited:?}");
    let said = line(&rig.leaving.url(), &rig.routers, ["1 decode", "nothing open"]);
    assert_eq!((code, out), (Some(1), said + "\n"), "a line where something changes: {err}");
    assert!(err.contains("not drained in time; the drain stands, --abort takes it back"), "{err}");
    assert_eq!((rig.drained().await, rig.asked().await), ([true, true], 0));
}

/// An order that a router has is no news to it: one line of its audit, however long the wait.
#[tokio::test]
async fn each_router_is_told_once_and_told_why() {
    let rig = Rig::start(&[]).await;
    let _streams = rig.streams(0).await;
    assert_eq!(run(&mut rig.drain(&["--wait", "3s"])).await.0, Some(1));
    for router in &rig.routers {
        let told = router.log_lines().into_iter().filter(|line| line["action"] == "endpoint.drain").count();
        assert_eq!(told, 1, "{}", router.stderr());
    }
    // What there is to say goes with the order, also to a router that has a drain already.
    let listed = rig.routers[0].admin_get("/endpoints").await.text();
    let report = rig.routers[0].admin_get("/observer/inflight").await.text();
    let router = Engine::start_tcp(Script::new(move |request| match request.path() {
        "/endpoints" => Response::json(200, listed.clone()).into_steps(),
        path if path.starts_with("/observer/inflight") => Response::json(200, report.clone()).into_steps(),
        _ => Response::json(200, "{}").into_steps(),
    }))
    .await;
    let more = ["--reason", "new disk", "--force-at", "2099-12-01T10:30:00Z", "--wait", "2s"];
    run(drain(&rig.leaving.url(), &[], &["--admin", &router.url()]).args(more)).await;
    let told: Vec<String> =
        router.log.requests().iter().filter(|r| r.method == "PUT").map(|r| r.target.clone()).collect();
    let query = "?reason=new%20disk&deadline=2099-12-01T10%3A30%3A00Z&force=true";
    assert!(told.len() == 1 && told[0].ends_with(query), "{told:?}");
}

/// The headless Service names it until it has ended, so its requests are waited for too.
#[tokio::test]
async fn a_router_that_is_leaving_takes_the_order_and_counts() {
    let rig = Rig::start(&["--shutdown-delay", "1ms"]).await;
    let streams = rig.streams(0).await;
    rig.routers[0].signal(Signal::TERM);
    poll("the listener to close", async || {
        rig.routers[0].admin_get("/readyz").await.text().contains("phase: draining")
    })
    .await;
    let mut drain = Running::start(rig.drain(&["--wait", "60s"]));
    drain.says(&line(&rig.leaving.url(), &rig.routers, ["1 decode", "nothing open"])).await;
    assert_eq!(rig.drained().await, [true, true]);
    assert!(drain.runs());
    drop(streams);
}

#[tokio::test]
async fn a_router_that_does_not_answer_is_exit_code_3_and_the_others_are_told() {
    let rig = Rig::start(&[]).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = format!("http://{closed}");
    for (more, drained) in [(&["--wait", "1s"][..], true), (&["--abort", "--wait", "1s"], false)] {
        let (code, out, err) = run(rig.drain(&["--admin", &silent]).args(more)).await;
        assert_eq!(code, Some(3), "{out}{err}");
        assert!(out.contains(&closed.to_string()) && out.contains("refused"), "{out}");
        assert!(err.contains("not known to be ") && err.contains("refused"), "{err}");
        assert_eq!(rig.drained().await, [drained; 2]);
    }
    let nameless = ["--admin", "http://no-such-name.invalid:9090", "--wait", "0s"];
    let (code, out, _) = run(&mut rig.drain(&nameless)).await;
    assert!(code == Some(3) && out.contains("no-such-name.invalid:9090 unknown: "), "{code:?} {out}");
}

#[tokio::test]
async fn an_engine_that_no_router_lists_is_exit_code_1_at_once() {
    let rig = Rig::start(&[]).await;
    for more in [&["--wait", "60s"][..], &["--undo"]] {
        let (code, out, err) = run(&mut drain("http://engine-9.engine:8000", &rig.routers, more)).await;
        let said = if more.len() == 2 { "does not know it" } else { "has nothing to take back" };
        assert_eq!((code, out.matches(said).count()), (Some(1), 2), "{err}");
        assert!(err.contains("no router lists http://engine-9.engine:8000"), "{err}");
    }
    // One that does not list it is unknown, however many do, and the slash at the end is no difference.
    let other = Process::start(&["--worker", &rig.staying.url()]).await;
    let admin = format!("http://{}", other.admin);
    let url = rig.leaving.url() + "/";
    let (code, out, err) = run(&mut drain(&url, &rig.routers, &["--admin", &admin, "--wait", "1s"])).await;
    let said = format!("{} unknown: it does not know it", other.admin);
    assert!(code == Some(3) && out.contains(&said), "{out}{err}");
    assert_eq!(rig.drained().await, [true, true]);
}

#[tokio::test]
async fn a_token_that_is_refused_is_said_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let written = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (written("right", "admin-token-1\n"), written("wrong", "admin-token-2\n"));
    let rig = Rig::start(&["--admin-token-file", &right]).await;
    let refused = |(code, out, err): (Option<i32>, String, String)| {
        assert_eq!(code, Some(1), "{out}{err}");
        for said in ["401", "this needs the admin token", "--token-file"] {
            assert!(err.contains(said) && err.lines().count() == 1, "{err}");
        }
    };
    for more in [&[][..], &["--token-file", &wrong]] {
        refused(run(rig.drain(more).args(["--wait", "60s"])).await);
        assert_eq!(rig.drained().await, [false, false]);
    }
    assert_eq!(run(&mut rig.drain(&["--token-file", &right])).await.0, Some(0));
    refused(run(&mut rig.drain(&["--abort", "--token-file", &wrong])).await);
    assert_eq!(rig.drained().await, [true, true]);
    assert_eq!(run(rig.drain(&["--undo"]).env("TANDEM_TOKEN_FILE", &right)).await.0, Some(0));
    assert_eq!(rig.drained().await, [false, false]);
    let (code, _, err) = run(&mut rig.drain(&["--token-file", "/no/such/file"])).await;
    assert!(code == Some(2) && err.contains("--token-file: /no/such/file: "), "{err}");
}

/// What a router without a token tells peers that are not on its machine. The others are told all the same.
#[tokio::test]
async fn a_router_that_takes_no_orders_from_here_is_said_at_once() {
    let rig = Rig::start(&[]).await;
    let mut listed = rig.routers[0].admin_get("/endpoints").await.json();
    listed["endpoints"].as_array_mut().unwrap().retain(|e| e["url"] == rig.leaving.url());
    let report = rig.routers[0].admin_get("/observer/inflight").await.text();
    let router = Engine::start_tcp(Script::new(move |request| match request.path() {
        "/endpoints" => Response::json(200, listed.to_string()).into_steps(),
        path if path.starts_with("/observer/inflight") => Response::json(200, report.clone()).into_steps(),
        _ => error(403, "only from this machine").into_steps(),
    }))
    .await;
    let admin = router.url();
    let (code, out, err) = run(&mut rig.drain(&["--admin", &admin, "--wait", "60s"])).await;
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("403") && err.contains("only from this machine"), "{err}");
    assert_eq!(rig.drained().await, [true, true]);
}

/// P's part is over with its answer, and still D has to pull the KV from it: until D's first token, or the lease's end if
/// nobody knows what became of D.
#[tokio::test]
async fn a_prefill_is_not_drained_while_it_keeps_kv() {
    let prefill = Engine::start_tcp(Script::always(Response::json(200, kv_answer("e").to_string()))).await;
    let decode = Engine::start_tcp(Script::always(Step::Stall)).await;
    let (p, d) = (prefill.url(), decode.url());
    let pair = ["--engine", "vllm", "--prefill", &p, "--decode", &d];
    let flags = [&pair[..], &["--kv-lease", "2s", "--handoff-max-age", "1s"]].concat();
    let routers = [Process::start(&flags).await, Process::start(&flags).await];
    let mut client = routers[0].client().await;
    let asked = now();
    client.send(&post_chat(chat_body("m", true))).await.unwrap();
    poll("the hand-off", async || at(&routers[0], &p).await["handoffs"] == 1).await;
    let mut drain = Running::start(drain(&p, &routers, &["--wait", "60s"]));
    drain.says(&line(&p, &routers, ["1 hand-off", "nothing open"])).await;
    assert!(drain.runs());
    decode.reset_connections();
    assert_eq!(drain.code().await, Some(0));
    assert!(asked.elapsed() >= Duration::from_secs(2), "the lease was not over: {:?}", asked.elapsed());
    assert_eq!(at(&routers[0], &p).await["handoffs"], 0);
}

#[tokio::test]
async fn with_health_it_is_given_back_only_once_it_answers() {
    let mut rig = Rig::start(&[]).await;
    assert_eq!(run(&mut rig.drain(&[])).await.0, Some(0));
    let health = rig.leaving.url() + "/health";
    let undo = ["--abort", "--health", &health];
    let refused = async |rig: &Rig, why: &str| {
        let (code, out, err) = run(&mut rig.drain(&undo)).await;
        assert_eq!((code, out.as_str()), (Some(3), ""), "{err}");
        assert!(
            err.contains(&format!("{health}: ")) && err.contains(why) && err.lines().count() == 1,
            "{err}"
        );
        assert_eq!(rig.drained().await, [true, true]);
    };
    rig.leaving.refuse().await;
    refused(&rig, "refused").await;
    rig.leaving.accept_again().await;
    rig.leaving.set_script(Script::always(error(503, "loading")));
    refused(&rig, "answered with 503 Service Unavailable").await;
    rig.leaving.set_script(Script::new(answer));
    assert_eq!(run(&mut rig.drain(&undo)).await.0, Some(0));
    assert_eq!(rig.drained().await, [false, false]);
    assert!(!rig.leaving.log.requests_to("/health").is_empty());

    // Nothing to take back: no reason to kill an engine that starts.
    let (code, out, err) = run(&mut drain("http://engine-9.engine:8000", &rig.routers, &undo)).await;
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    for wrong in [&["--health", &health][..], &["--abort", "--health", "https://x/health"]] {
        let (code, _, err) = run(&mut rig.drain(wrong)).await;
        assert!(
            code == Some(2) && err.contains(if wrong.len() == 2 { "--abort" } else { "--health: " }),
            "{err}"
        );
    }
}

/// Under its own name, wherever that is: the copy works without the original.
#[tokio::test]
async fn install_copies_a_program_that_runs_and_replaces_one_that_does() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("tandem");
    let (code, out, err) = run(tandem("install").arg(directory.path())).await;
    assert_eq!((code, out, err), (Some(0), format!("{}\n", copy.display()), String::new()));
    let mode = std::fs::metadata(&copy).unwrap().permissions().mode();
    assert_eq!(mode & 0o555, 0o555, "for any user: {mode:o}");
    let (code, version, _) = run(Command::new(&copy).arg("--version").kill_on_drop(true)).await;
    assert_eq!((code, version), (Some(0), run(&mut tandem("--version")).await.1));

    let mut router = Command::new(&copy);
    router.args([
        "router",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--worker",
        "http://127.0.0.1:1",
    ]);
    let mut router = router.kill_on_drop(true).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let err = Sink::of(router.stderr.take().unwrap());
    eventually(SOON, "the copy to serve", || {
        if err.text().contains("serving") { Ok(()) } else { Err(err.text()) }
    })
    .await;
    // What is there is replaced as a whole: a shorter one would show.
    let (code, _, said) = run(tandem("install").arg(directory.path())).await;
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(router.try_wait().unwrap().is_none(), "the one that ran has ended");
    assert_eq!(run(Command::new(&copy).arg("--version").stdout(Stdio::piped())).await.0, Some(0));
    let left: Vec<PathBuf> =
        std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, [copy], "nothing else stays there");
}

#[tokio::test]
async fn install_into_a_directory_that_is_not_there_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let (code, out, err) = run(tandem("install").arg(&missing)).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    let said = format!("tandem: {}/tandem: there is no such directory\n", missing.display());
    assert_eq!((err, missing.exists()), (said, false));
}
