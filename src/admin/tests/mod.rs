//! Every documented route over a real loopback connection; nothing undocumented; nobody changes anything unasked.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::metrics::Vocabulary;
use crate::registry::Snapshot;
use crate::types::boot::Boot;

mod split;
use crate::types::drain_order::DrainOrder;

const DOCUMENT: &str = include_str!("../../../docs/admin-api.md");
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// As in the documentation.
fn example_status() -> RouterStatus {
    let role = |role: &'static str, selectable, in_flight, handoffs| RoleStatus {
        role: role.into(),
        selectable,
        total: 2,
        ejected: 0,
        in_flight,
        handoffs,
    };
    RouterStatus {
        version: "0.1.0".to_owned(),
        revision: "1a2b3c4d".to_owned(),
        phase: "running".to_owned(),
        ready: true,
        awaiting: vec![],
        uptime_s: 86_400,
        in_flight: 3,
        connections: 12,
        config_ok: true,
        restart_needed: 0,
        snapshot: 4,
        services: vec![ServiceStatus {
            name: "chat".to_owned(),
            engine: "sglang".to_owned(),
            models: vec!["mistral-7b".to_owned()],
            discovery: DiscoveryStatus { state: "ready".into(), status: None },
            lacks: None,
            roles: vec![role("prefill", 2, 1, 1), role("decode", 1, 3, 0)],
        }],
    }
}

/// One endpoint, `3`, that records what it is told, and a Pod that gives none.
#[derive(Default)]
struct Fleet {
    orders: Mutex<Vec<(String, Option<DrainOrder>)>>,
    ended: bool,
}

impl EndpointControl for Fleet {
    fn list(&self) -> super::Fleet {
        let endpoints = vec![EndpointStatus {
            id: "3".to_owned(),
            service: "chat".to_owned(),
            url: "http://10.0.0.7:8000".to_owned(),
            role: "mixed".into(),
            selectable: true,
            reason: None,
            in_flight: 3,
            handoffs: 0,
            ejected: false,
            draining: false,
            since_s: 312,
            pod: Some("llm/chat-0".to_owned()),
            pod_uid: Some("5f0c1f5e-6a3a-4d0e-9a1b-2f4f8f6c7d11".to_owned()),
            model: Some("mistral-7b".to_owned()),
            revision: Some("6d4b75cb6d".to_owned()),
            ..EndpointStatus::default()
        }];
        let pods = vec![PodStatus {
            service: "chat".to_owned(),
            namespace: "llm".to_owned(),
            name: "chat-1".to_owned(),
            uid: "0b6f1f5e-11aa-4c1e-8d2c-77a1c3d9e0f2".to_owned(),
            reason: "no_port".into(),
            detail: Some("no container declares port 8000; declared: http (8080)".to_owned()),
            since_s: 12,
        }];
        super::Fleet { snapshot: 4, endpoints, pods }
    }

    fn order<'a>(&'a self, id: &'a str, order: Option<DrainOrder>) -> Ordering<'a> {
        Box::pin(async move {
            if self.ended {
                return DrainChange::Unavailable;
            }
            let mut orders = self.orders.lock();
            if id != "3" && id != "http://10.0.0.7:8000" {
                return DrainChange::Unknown;
            }
            let repeated = orders.last().is_some_and(|last| last == &(id.to_owned(), order.clone()));
            orders.push((id.to_owned(), order));
            if repeated { DrainChange::Unchanged } else { DrainChange::Changed }
        })
    }
}

struct Admin {
    address: SocketAddr,
    fleet: Arc<Fleet>,
    readiness: Arc<Mutex<Readiness>>,
    _dir: tempfile::TempDir,
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Admin {
    /// `token`: the content of the token file; `peer`: who connects, by what the listener is told.
    async fn start(token: Option<&str>, peer: &str) -> Self {
        Self::with_fleet(token, peer, Fleet::default()).await
    }

    #[expect(clippy::disallowed_methods, reason = "a test server has no tracker")]
    async fn with_fleet(token: Option<&str>, peer: &str, fleet: Fleet) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        if let Some(token) = token {
            std::fs::write(&path, token).unwrap();
        }
        let words =
            Vocabulary { routes: &["chat"], error_codes: &[], retry_reasons: &[], phases: &["running"] };
        let (passed, awaiting) =
            (vec!["configuration".into()], vec!["endpoints".into(), "front door".into()]);
        let readiness = Readiness { ready: false, phase: "running", awaiting, passed };
        let (fleet, readiness) = (Arc::new(fleet), Arc::new(Mutex::new(readiness)));
        let asked = Arc::clone(&readiness);
        let state = AdminState {
            readiness: Arc::new(move || asked.lock().clone()),
            status: Arc::new(example_status),
            endpoints: Arc::clone(&fleet) as Arc<dyn EndpointControl>,
            splits: Arc::clone(&fleet) as Arc<dyn SplitControl>,
            observe: Arc::new(|| Ok(br#"{"workers":[]}"#.to_vec())),
            reporter: Arc::new(Reporter::new(
                Arc::new(ArcSwap::from_pointee(Snapshot::new(1, Vec::new()))),
                Boot::now(),
            )),
            refresh: Arc::new(|| {}),
            config_text: Arc::new(arc_swap::ArcSwap::from_pointee("listen: 0.0.0.0:8080\n".to_owned())),
            metrics: Metrics::new(&words).unwrap(),
            token: Arc::new(AdminToken::load(token.map(|_| path.as_path())).unwrap()),
        };
        let peer: SocketAddr = peer.parse().unwrap();
        let app = routes(state).layer(axum::Extension(ConnectInfo(peer)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, fleet, readiness, _dir: dir }
    }

    /// `headers` are whole lines with their ends.
    async fn send(&self, method: &str, path: &str, headers: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "").await
    }
}

/// Rows of the document: method, path, statuses.
fn documented() -> Vec<(&'static str, &'static str, Vec<u16>)> {
    let row = |line: &'static str| {
        let cells: Vec<&str> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        METHODS.contains(&cells[0]).then(|| {
            let statuses = cells[2].split(", ").map(|status| status.parse().unwrap()).collect();
            (cells[0], cells[1], statuses)
        })
    };
    DOCUMENT.lines().filter(|line| line.starts_with("| ")).filter_map(row).collect()
}

#[tokio::test]
async fn each_documented_route_answers_and_no_other_exists() {
    let admin = Admin::start(Some("tok"), "192.0.2.1:1").await;
    let rows = documented();
    assert_eq!(rows.len(), 16);
    for (method, path, statuses) in &rows {
        let path = path.replace("{id}", "3");
        let path =
            if path == "/split" && *method == "DELETE" { format!("{path}?service=chat") } else { path };
        let reply = admin.send(method, &path, "authorization: Bearer tok\r\n").await;
        assert!(statuses.contains(&reply.status), "{method} {path}: {reply:?}");
    }
    let in_document: BTreeSet<&str> = rows.iter().map(|row| row.1).collect();
    let source = include_str!("../mod.rs");
    let in_code: BTreeSet<&str> =
        source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(in_document, in_code);
    for path in in_document {
        for method in METHODS {
            let takes = |m: &str| rows.iter().any(|row| row.1 == path && row.0 == m);
            if takes(method) || (method == "HEAD" && takes("GET")) {
                continue;
            }
            let reply = admin.send(method, &path.replace("{id}", "3"), "authorization: Bearer tok\r\n").await;
            assert_eq!(reply.status, 405, "{method} {path}");
            assert!(reply.head.contains("\r\nallow: "), "{}", reply.head);
        }
    }
}

#[tokio::test]
async fn the_examples_of_the_document_are_real() {
    let admin = Admin::start(None, "127.0.0.1:1").await;
    let shown = |reply: &Reply| assert!(DOCUMENT.contains(reply.body.trim_end()), "{}", reply.body);
    shown(&admin.get("/nothing").await);
    shown(&admin.get("/readyz").await);
    shown(&admin.get("/readyz?verbose").await);
    shown(&admin.get("/endpoints").await);
    shown(&admin.send("PUT", "/endpoints/3/drain", "").await);
}

#[tokio::test]
async fn probes_say_what_is_awaited_and_which_phase_it_is() {
    let admin = Admin::start(None, "127.0.0.1:1").await;
    for path in ["/livez", "/healthz"] {
        let reply = admin.get(path).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "ok\n"));
    }
    let reply = admin.get("/readyz").await;
    assert_eq!((reply.status, reply.body.contains("awaiting: endpoints, front door")), (503, true));
    *admin.readiness.lock() =
        Readiness { ready: true, phase: "running", awaiting: vec![], passed: vec!["endpoints".into()] };
    let reply = admin.get("/readyz").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "ok\n"));
    let reply = admin.get("/readyz?verbose").await;
    assert_eq!(reply.body, "[+]endpoints ok\nok\nphase: running\n");
    *admin.readiness.lock() = Readiness { ready: false, phase: "draining", awaiting: vec![], passed: vec![] };
    let reply = admin.get("/readyz").await;
    assert_eq!((reply.status, reply.body.as_str()), (503, "not ready\nphase: draining\n"));
}

#[tokio::test]
async fn scrapes_have_their_content_type_and_their_own_families() {
    let admin = Admin::start(None, "192.0.2.1:1").await;
    let main = admin.get("/metrics").await;
    assert!(main.head.contains("content-type: text/plain; version=0.0.4"), "{}", main.head);
    assert!(main.body.contains("tandem_build_info{version=\""));
    let fleet = admin.get("/metrics/endpoints").await;
    assert!(fleet.head.contains("content-type: text/plain; version=0.0.4"));
    assert!(!fleet.body.contains("tandem_build_info"));
    assert_eq!(admin.get("/config").await.body, "listen: 0.0.0.0:8080\n");
}

#[tokio::test]
async fn nothing_changes_without_the_token() {
    let admin = Admin::start(Some("admin-tok"), "127.0.0.1:1").await;
    for method in METHODS {
        for authorization in ["", "authorization: Bearer user-key\r\n", "x-api-key: admin-tok\r\n"] {
            for path in ["/endpoints/3/drain", "/endpoints/none/drain", "/endpoints/%ff/drain"] {
                let reply = admin.send(method, path, authorization).await;
                let expected = if matches!(method, "PUT" | "DELETE") { 401 } else { 405 };
                assert_eq!(reply.status, expected, "{method} {path} {authorization}");
                assert_eq!(reply.head.contains("www-authenticate: bearer"), expected == 401);
            }
        }
    }
    for method in ["GET", "POST", "PATCH"] {
        admin.send(method, "/endpoints/3/drain", "authorization: Bearer admin-tok\r\n").await;
    }
    assert_eq!(*admin.fleet.orders.lock(), []);
}

#[tokio::test]
async fn without_a_token_a_remote_peer_is_forbidden() {
    let admin = Admin::start(None, "192.0.2.1:1").await;
    let reply = admin.send("PUT", "/endpoints/3/drain", "authorization: Bearer x\r\n").await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &Value::from("admin_forbidden")));
    assert_eq!(*admin.fleet.orders.lock(), []);
}

#[tokio::test]
async fn a_drain_reaches_the_endpoint_once_per_order_and_says_what_changed() {
    let admin = Admin::start(Some("tok"), "192.0.2.1:1").await;
    let auth = "authorization: Bearer tok\r\n";
    let put = |path: &'static str| admin.send("PUT", path, auth);
    assert_eq!(put("/endpoints/3/drain").await.json()["changed"], true);
    assert_eq!(put("/endpoints/3/drain").await.json()["changed"], false);
    let back = admin.send("DELETE", "/endpoints/3/drain", auth).await.json();
    assert_eq!((&back["draining"], &back["changed"]), (&Value::from(false), &Value::from(true)));
    assert_eq!(put("/endpoints/http%3A%2F%2F10.0.0.7%3A8000/drain").await.status, 200);
    let missing = put("/endpoints/none/drain").await;
    assert_eq!((missing.status, &missing.json()["error"]["code"]), (404, &Value::from("unknown_endpoint")));
    assert_eq!(put("/endpoints/%ff/drain").await.status, 400);
    assert_eq!(admin.fleet.orders.lock().len(), 4);
    let order = "/endpoints/3/drain?reason=new%20disk&deadline=2026-12-01T10:30:00Z&force=true";
    let reply = put(order).await.json();
    assert_eq!((&reply["changed"], &reply["volatile"]), (&Value::from(true), &Value::from(true)));
    let said = admin.fleet.orders.lock().last().unwrap().1.as_ref().unwrap().to_string();
    assert_eq!(said, "new disk; deadline=2026-12-01T10:30:00Z; force");
    assert_eq!(put("/endpoints/3/drain?until=now").await.status, 400);
}

#[tokio::test]
async fn an_ending_process_takes_no_changes() {
    let fleet = Fleet { ended: true, ..Fleet::default() };
    let admin = Admin::with_fleet(None, "127.0.0.1:1", fleet).await;
    assert_eq!(admin.send("PUT", "/endpoints/3/drain", "").await.status, 503);
}

#[tokio::test]
async fn look_alike_paths_are_unknown() {
    let admin = Admin::start(None, "127.0.0.1:1").await;
    for path in ["/", "//livez", "/livez/", "/LIVEZ", "/endpoints/", "/endpoints/a/b/drain", "/x/../livez"] {
        let reply = admin.send("PUT", path, "").await;
        assert_eq!(reply.status, 404, "{path}");
        assert_eq!(reply.json()["error"]["code"], "unknown_admin_path");
    }
    assert_eq!(*admin.fleet.orders.lock(), []);
}

/// Collects what is logged on this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_change_is_one_audit_line_that_cannot_be_forged() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    // With a single subscriber in the process, whichever test reaches the line first decides whether it is enabled for
    // all, by its own thread, which has none. With two, both are asked.
    let _other = tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(std::io::sink).finish());
    let _scope = tracing::subscriber::set_default(subscriber);
    let admin = Admin::start(Some("s3cret"), "10.0.0.9:1").await;
    let auth = "authorization: Bearer s3cret\r\n";
    admin.send("PUT", "/endpoints/3/drain", auth).await;
    admin.send("PUT", "/endpoints/3/drain", "authorization: Bearer other\r\n").await;
    admin.send("PUT", "/endpoints/x%0aINFO%20audit/drain", auth).await;
    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    let audit: Vec<&str> = text.lines().filter(|line| line.contains("audit")).map(str::trim).collect();
    assert_eq!(audit.len(), 1, "{text}");
    assert!(DOCUMENT.lines().any(|line| line == audit[0]), "{}", audit[0]);
    assert!(!text.contains("s3cret"));
}

#[tokio::test]
async fn status_is_the_documented_document() {
    let document = include_str!("../../../docs/admin-api.md");
    let shown = serde_json::to_string(&serde_json::to_value(example_status()).unwrap()).unwrap();
    assert!(document.contains(&shown), "{shown}");
}
