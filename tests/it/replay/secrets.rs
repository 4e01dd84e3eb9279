//! B184: with everything logged that can be, no sink holds a credential, a prompt or a query string; one access line per
//! request, which no client can forge.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tandem::testkit::client::RawClient;
use tandem::testkit::engine::openai::{ChatStream, chat_json, error};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Script, Step};
use tandem::testkit::eventually::eventually;
use tandem::testkit::fixtures::{chat_body_with, get, post};
use tokio::net::TcpStream;

use crate::process::{Process, SOON, run, tandem};

const CHAT: &str = "/v1/chat/completions";
/// Every secret of this test starts so, in some spelling.
const MARK: &str = "hunter";

fn answer(request: &RecordedRequest) -> Vec<Step> {
    match request.json()["model"].as_str().unwrap_or_default() {
        "bad" => error(401, "Incorrect API key provided: hunter-echo").into_steps(),
        "lost" => Step::Reset.into_steps(),
        "cut" => ChatStream::new(1).then(Step::Reset).into_steps(),
        "garbage" => vec![Step::write("hunter-garbage\r\n\r\n")],
        _ => chat_json("hunter-answer").into_steps(),
    }
}

fn yaml(engine: &EngineHandle, dead: &str, dir: &Path, format: &str) -> String {
    let path = |name: &str| dir.join(name).display().to_string();
    format!(
        "api_keys_file: {keys}\nadmin: {{ token_file: {token} }}\nlog: {{ level: trace }}\n\
         access_log: {{ format: {format} }}\nshutdown: {{ delay: 0s, grace: 1s }}\n\
         services:\n  - name: s\n    retries: {{ max: 1 }}\n    policy: {{ mixed: round_robin }}\n    \
         discovery: {{ static: {{ mixed: [{{ url: \"{url}\" }}, {{ url: \"{dead}\" }}] }} }}\n    \
         upstream: {{ authorization: {{ from_secret: {secret} }}, cookies: true }}\n",
        keys = path("keys"),
        token = path("token"),
        secret = path("secret"),
        url = engine.url(),
    )
}

/// Requests with a secret in every place a client can put one; each ends somehow.
async fn exercise(process: &Process) -> usize {
    let lines = [
        "Authorization: Bearer hunter-front",
        "X-Api-Key: hunter-user",
        "Api-Key: hunter-azure",
        "Cookie: session=hunter-cookie",
        "Proxy-Authorization: Basic hunter-proxy",
        "X-Vendor-Token: hunter-vendor",
        "X-Request-Id: id hunter",
    ];
    let mut requests = Vec::new();
    for model in ["m", "bad", "lost", "cut", "garbage"] {
        for stream in [false, true] {
            let body = chat_body_with(model, stream, "my password is hunter-prompt");
            requests.push(post(&format!("{CHAT}?key=hunter-query&api_key=%68unter-encoded"), &lines, body));
        }
    }
    requests.push(post(CHAT, &lines, "{\"model\":\"m\",\"api_key\":\"hunter-body\" broken"));
    requests.push(post(CHAT, &lines, "{\"stream\":\"hunter-type\",\"api_key\":\"hunter-body\"}"));
    requests.push(post(CHAT, &["X-Api-Key: hunter-wrong"], "{}"));
    requests.push(post("/v1/hunter-path?hunter-query", &lines, "{}"));
    requests.push(get("/v1/models?key=hunter-query"));
    for request in &requests {
        let mut client: RawClient<TcpStream> = process.client().await;
        client.send(request).await.unwrap();
        let _ = client.read_response().await; // whatever comes back, also nothing
    }
    requests.len()
}

fn assert_clean(what: &str, text: &str) {
    for spelling in [MARK, "%68unter", "aHVudGVy", "\\u0068unter"] {
        let found = text.lines().find(|line| line.to_lowercase().contains(&spelling.to_lowercase()));
        assert_eq!(found, None, "{what} holds a secret");
    }
}

#[tokio::test]
async fn b184_no_sink_holds_a_secret_at_trace_level() {
    for format in ["json", "text"] {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in
            [("keys", "hunter-front\n"), ("token", "hunter-admin\n"), ("secret", "hunter-engine\n")]
        {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        let engine = Engine::start_tcp(Script::new(answer)).await;
        let mut dead = Engine::start_tcp(Script::new(answer)).await;
        dead.refuse().await;
        let yaml = yaml(&engine, &dead.url(), dir.path(), format);
        let mut process = Process::from_yaml(&yaml, dir.path(), &[]).await;
        let sent = exercise(&process).await;
        let id =
            process.admin_get("/endpoints").await.json()["endpoints"][0]["id"].as_str().unwrap().to_owned();
        for token in ["hunter-admin", "hunter-not-admin"] {
            let line = format!("Authorization: Bearer {token}");
            process.admin_call("PUT", &format!("/endpoints/{id}/drain?token=hunter-query"), &[&line]).await;
        }
        for path in
            ["/metrics", "/metrics/endpoints", "/config", "/endpoints", "/readyz?verbose&x=hunter", "/livez"]
        {
            let page = process.admin_get(path).await;
            assert_eq!(page.status(), 200);
            assert_clean(path, &page.text());
        }
        // A secret that stops being one is reported without its text.
        std::fs::write(dir.path().join("keys"), "hunter two\n").unwrap();
        let took_note = || if process.stderr().contains("not reloaded") { Ok(()) } else { Err(()) };
        eventually(SOON, "the bad key file to be noticed", took_note).await;
        process.signal(Signal::TERM);
        assert_eq!(process.exited(SOON).await.code(), Some(0));
        let (out, err) = (process.stdout(), process.stderr());
        assert_clean("standard output", &out);
        assert_clean("standard error", &err);
        assert!(err.contains("DEBUG"), "no debug line:\n{err}");
        assert_eq!(out.lines().count(), sent, "one access line per request:\n{out}");
        // And yet the engine got what was meant for it.
        assert!(engine.log.request_count() > 8);
        assert!(
            engine
                .log
                .requests()
                .iter()
                .all(|r| r.headers.get("authorization") == Some("Bearer hunter-engine"))
        );
    }
}

#[tokio::test]
async fn b184_user_information_in_an_engine_url_is_refused_without_being_shown() {
    for url in [
        "http://user:hunter-pass@127.0.0.1:1",
        "http://hunter-token@127.0.0.1:1",
        "http://u:hunter%40x@h:1/p",
    ] {
        let (code, out, err) = run(tandem("router").args(["--worker", url])).await;
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("user information"), "{err}");
        assert_clean("standard error", &(out + &err));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("r.yaml");
        let yaml = format!(
            "services:\n  - name: s\n    discovery: {{ static: {{ mixed: [{{ url: \"{url}\" }}] }} }}\n"
        );
        std::fs::write(&file, yaml).unwrap();
        for form in ["table", "json"] {
            let (code, out, err) = run(tandem("check").arg(&file).args(["--print", "--output", form])).await;
            assert_eq!(code, Some(2), "{err}");
            assert_clean("check", &(out + &err));
        }
        let (code, _, err) = run(tandem("router").env("TANDEM_ADMIN_TOKEN", "hunter-env")).await;
        assert_eq!(code, Some(2), "{err}");
        assert_clean("standard error", &err);
    }
}

/// Whatever a client writes into the fields that are logged, it stays one line, and the other fields stay what they are.
#[tokio::test]
async fn b184_a_client_cannot_forge_a_line() {
    let engine = Engine::start_tcp(Script::always(chat_json("hi"))).await;
    let url = engine.url();
    let models = [
        "m\",\"outcome\":\"forged\",\"x\":\"",
        "a\nforged line",
        "a\r\n{\"outcome\":\"forged\"}",
        "\u{1b}[2Jforged",
        "\u{2028}forged\u{85}\u{202e}",
        "m outcome=forged",
        "\" outcome=forged \"",
    ];
    for format in ["json", "text"] {
        let process =
            Process::start(&["--worker", &url, "--threads", "1", "--access-log-format", format]).await;
        for model in models {
            let mut client = process.client().await;
            let answer = client.request(&post(CHAT, &[], chat_body_with(model, false, "x"))).await.unwrap();
            assert_eq!(answer.status(), 200);
        }
        let count = || process.stdout().lines().count();
        eventually(SOON, "the lines", || if count() >= models.len() { Ok(()) } else { Err(count()) }).await;
        let out = process.stdout();
        assert_eq!(out.lines().count(), models.len(), "{out}");
        assert!(!out.contains(['\u{1b}', '\u{2028}', '\u{85}', '\u{202e}', '\r']));
        for (line, model) in out.lines().zip(models) {
            if format == "json" {
                let line: Value = serde_json::from_str(line).unwrap();
                assert_eq!((&line["outcome"], &line["model"]), (&Value::from("ok"), &Value::from(model)));
            } else {
                assert!(line.contains(" outcome=ok "), "{line}");
                // Outside the quoted name there is one outcome.
                let quoted = line.split(" model=").nth(1).unwrap();
                assert!(quoted.starts_with('"'), "{line}");
            }
        }
    }
}
