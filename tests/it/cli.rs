//! Commands that look at a running router, and what a package installs beside the binary.

use serde_json::{Value, json};
use tandem::testkit::engine::{Engine, Script};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::kube::{Fault, RequestKind};

use super::pods::{Cluster, endpoint, pod};
use super::process::{Process, poll, run, tandem};

async fn asked(command: &str, process: &Process, more: &[&str]) -> (Option<i32>, String, String) {
    let url = format!("http://{}", process.admin);
    run(tandem(command).args(["--admin", &url]).args(more)).await
}

#[tokio::test]
async fn status_and_endpoints_show_a_running_router() {
    let [prefill, decode] =
        [Engine::start_tcp(Script::openai("m")).await, Engine::start_tcp(Script::openai("m")).await];
    let (prefill, url) = (prefill.url(), decode.url());
    let flags = ["--engine", "sglang", "--prefill", &prefill, "--decode", &url, "--model", "m"];
    let process = Process::start(&flags).await;
    let (code, out, err) = asked("status", &process, &[]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("running, ready") && out.contains("configuration: as in the file"), "{out}");
    let row = |role: &str| {
        let line = out.lines().find(|line| line.contains(role)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("prefill"), ["default", "sglang", "m", "prefill", "1/1", "0", "0"]);
    assert_eq!(row("decode"), ["decode", "1/1", "0", "0"]);

    let (code, out, _) = asked("endpoints", &process, &["--output", "json"]).await;
    let listed: Value = serde_json::from_str(&out).unwrap();
    let all = listed["endpoints"].as_array().unwrap();
    assert_eq!((code, all.len(), all[0]["service"].as_str()), (Some(0), 2, Some("default")));
    let decode = all.iter().find(|e| e["role"] == "decode").unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(process.admin_call("PUT", &format!("/endpoints/{decode}/drain"), &[]).await.status(), 200);
    let (_, out, _) = asked("endpoints", &process, &[]).await;
    let line = out.lines().find(|line| line.contains(" decode ")).unwrap();
    assert!(line.contains(&url) && line.contains("NO") && line.ends_with("admin_drain"), "{out}");
    let (code, out, _) = asked("status", &process, &[]).await;
    assert!(out.contains("default: answers 503, no selectable decode endpoint"), "{out}");
    assert_eq!(code, Some(0), "still ready: it answers 503");
    let (_, out, _) = asked("status", &process, &["--output", "json"]).await;
    let status: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["services"][0]["lacks"], "decode");
    let mut client = process.client().await;
    assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 503);
}

#[tokio::test]
async fn an_engine_that_fails_is_in_the_log_once_in_the_status_and_in_the_log_again_when_it_answers() {
    let mut engine = Engine::start_tcp(Script::openai("m")).await;
    let url = engine.url();
    let process = Process::start(&["--worker", &url]).await;
    engine.refuse().await;
    let status = async || {
        let mut client = process.client().await;
        client.request(&post_chat(chat_body("m", false))).await.unwrap().status()
    };
    for _ in 0..5 {
        assert_eq!(status().await, 502);
    }
    let is = |text: &str| ("message", Value::from(text));
    let down =
        process.logged(&[is("engine fails: the last choice for a while"), ("level", "WARN".into())]).await;
    assert_eq!((&down["endpoint"], &down["role"]), (&Value::from(url.as_str()), &Value::from("mixed")));
    let (code, out, _) = asked("status", &process, &[]).await;
    assert!(out.contains("default: 1 mixed put last after failures"), "{out}");
    assert!(code == Some(0) && out.contains("0 requests in flight"), "{out}");
    engine.accept_again().await;
    assert_eq!(status().await, 200);
    process.logged(&[is("engine answers again"), ("level", "INFO".into())]).await;
    assert_eq!(process.log_lines().iter().filter(|line| line["level"] == "WARN").count(), 1);
}

#[tokio::test]
async fn endpoints_are_listed_by_role_in_the_order_of_a_request() {
    let flags = ["--engine", "vllm", "--decode", "http://127.0.0.1:1", "--prefill", "http://127.0.0.1:2"];
    let process = Process::start(&[&flags[..], &["--worker", "http://127.0.0.1:3"]].concat()).await;
    let (_, out, _) = asked("endpoints", &process, &[]).await;
    let roles: Vec<_> = out.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(roles, ["prefill", "decode", "mixed"], "{out}");
}

#[tokio::test]
async fn pods_are_shown_with_what_is_known_of_them() {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let cluster = Cluster::start().await;
    let named =
        pod("chat-0", &engine).label("tandem.dev/revision", "r7").label("tandem.dev/pairing-token", "kv-2");
    cluster.api.create(named);
    cluster.api.create(pod("chat-1", &engine).ready("False"));
    cluster.api.create(pod("chat-2", &engine).annotation("tandem.dev/ports", "http"));
    let process = cluster.ready_router("").await;
    cluster.api.update("default", "chat-0", |pod| {
        pod["metadata"]["annotations"]["tandem.dev/drain"] = "new disk".into();
    });
    poll("the drain", async || endpoint(&process, &engine).await.unwrap()["selectable"] == false).await;
    let (code, out, err) = asked("endpoints", &process, &[]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let words = |begins: &str| {
        let line =
            out.lines().find(|line| line.split_whitespace().nth(1) == Some(begins) || line.contains(begins));
        line.unwrap_or_else(|| panic!("{out}")).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let url = engine.url();
    let row = words(&url);
    assert_eq!(row[1..5], ["chat", "mixed", &url, "NO"], "{out}");
    assert_eq!(row[6..], ["0", "default/chat-0", "r7", "kv-2", "drain_annotation:", "new", "disk"], "{out}");
    assert!(out.contains("\n\nSERVICE  POD WITHOUT ENDPOINT"), "{out}");
    assert_eq!(
        (&*words("default/chat-1")[0], &words("default/chat-1")[3..]),
        ("chat", &["not_ready".to_owned()][..])
    );
    assert!(
        words("default/chat-2").join(" ").contains("no_port: tandem.dev/ports: \"http\" is no port"),
        "{out}"
    );
    let (_, out, _) = asked("endpoints", &process, &["--output", "json"]).await;
    let [mut shown, mut real]: [Value; 2] =
        [serde_json::from_str(&out).unwrap(), process.admin_get("/endpoints").await.json()];
    for document in [&mut shown, &mut real] {
        for list in ["endpoints", "pods"] {
            for row in document[list].as_array_mut().unwrap() {
                assert!(row["since_s"].take().is_u64());
            }
        }
    }
    assert_eq!(shown, real, "the document as it is");
    let (code, out, _) = asked("status", &process, &[]).await;
    assert!(code == Some(0) && !out.contains("Pods"), "known: {out}");
}

#[tokio::test]
async fn status_says_why_pods_are_not_known() {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    for (fault, state, status, said) in [
        (
            Fault::status(403),
            "refused",
            json!(403),
            "chat: the API server REFUSES its Pods with 403: the router's",
        ),
        (Fault::BlackHole, "waiting", Value::Null, "chat: its Pods are not known yet, the first list"),
    ] {
        let cluster = Cluster::start().await;
        cluster.api.create(pod("chat-0", &engine));
        cluster.api.always(RequestKind::List, Some(fault));
        let process = cluster.router("").await;
        let discovery =
            async || process.admin_get("/status").await.json()["services"][0]["discovery"].clone();
        let wanted = json!({"state": state, "status": status});
        poll(state, async || discovery().await == wanted).await;
        let (code, out, _) = asked("status", &process, &[]).await;
        assert!(code == Some(1) && out.contains("NOT READY, awaiting endpoints of chat ("), "{out}");
        assert!(out.contains(said), "{out}");
        assert!(
            out.lines()
                .any(|line| line.split_whitespace().eq(["chat", "plain", "any", "-", "0/0", "0", "0"])),
            "{out}"
        );
    }
}

#[tokio::test]
async fn exit_codes_tell_what_is_wrong() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let engine = Engine::start_tcp(Script::openai("m")).await;
    for command in ["status", "endpoints"] {
        for (admin, wanted, said) in [
            (format!("http://{closed}"), 3, "is the router running"),
            (closed.to_string(), 3, "is the router running"),
            ("http://127.0.0.1".to_owned(), 2, "the port is missing"),
            ("http://127.0.0.1:1/x".to_owned(), 2, "a path has no meaning"),
            ("https://127.0.0.1:1".to_owned(), 2, "http://HOST:PORT"),
            (engine.url(), 1, "is this the admin listener"),
        ] {
            let (code, out, err) = run(tandem(command).args(["--admin", &admin])).await;
            assert_eq!((code, out.as_str()), (Some(wanted), ""), "{command} {admin}: {err}");
            assert!(err.starts_with("tandem: ") && err.contains(said) && err.lines().count() == 1, "{err}");
        }
        let (code, ..) = run(tandem(command).args(["--output", "xml"])).await;
        assert_eq!(code, Some(2));
    }
}

#[tokio::test]
async fn tandem_admin_names_the_router_too() {
    let engine = Engine::start_tcp(Script::openai("m")).await;
    let process = Process::start(&["--worker", &engine.url()]).await;
    let url = format!("http://{}", process.admin);
    let (code, out, _) = run(tandem("status").env("TANDEM_ADMIN", &url)).await;
    assert_eq!(code, Some(0), "{out}");
}

#[tokio::test]
async fn completions_and_manual_pages_know_every_command_and_flag() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = run(tandem("completions").arg(shell)).await;
        assert_eq!(code, Some(0));
        for word in ["router", "endpoints", "first-byte-timeout"] {
            assert!(out.contains(word), "{shell} {word}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("man1");
    let (code, out, err) = run(tandem("man").args(["--dir", at.to_str().unwrap()])).await;
    assert_eq!(code, Some(0), "{err}");
    let (_, help, _) = run(&mut tandem("--help")).await;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"router") && commands.len() >= 7, "{commands:?}");
    for command in commands.iter().filter(|command| **command != "help") {
        let page = std::fs::read_to_string(at.join(format!("tandem-{command}.1"))).unwrap();
        assert!(page.contains("Exit codes") || page.contains("EXIT"), "{command}");
        assert!(out.contains(&format!("tandem-{command}.1")), "{out}");
    }
    let (_, out, _) = run(&mut tandem("man")).await;
    assert!(out.starts_with(".ie") || out.contains(".TH tandem"), "{out}");
}

/// Every command explains itself by example.
#[tokio::test]
async fn every_command_has_examples_and_exit_codes_in_its_help() {
    let (_, help, _) = run(&mut tandem("--help")).await;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for command in
        commands.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next())
    {
        if command != "help" {
            let (code, out, _) = run(tandem("help").arg(command)).await;
            assert!(code == Some(0) && out.contains("Examples:") && out.contains("Exit codes:"), "{command}");
        }
    }
}
