//! Credentials of the API server that change while the router runs, over HTTP with the product's own client (B160).

use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::kube::{Credentials, FakeKube, RequestKind, write_token};
use tandem::testkit::router::TestRouter;
use tokio::time::sleep;

use super::rig::*;
use super::silence::{at, over_http, wait};

async fn engine(api: &FakeKube, name: &str) -> EngineHandle {
    let engine = Engine::start_tcp(Script::always(chat_json(name))).await;
    api.create(at(name, engine.addr()));
    engine
}

fn names(router: &TestRouter) -> Vec<String> {
    let all = router.admin.endpoints.list().endpoints;
    let mut names: Vec<_> = all
        .into_iter()
        .filter(|e| e.selectable)
        .filter_map(|e| Some(e.pod?.replace("default/", "")))
        .collect();
    names.sort();
    names
}

/// The file is swapped, then the old token is refused; the watch that is open is cut later.
#[tokio::test]
async fn b160_a_rotated_token_is_read_again_and_no_event_is_missed() {
    let api = FakeKube::new();
    let server = api.serve().await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = server.kubeconfig(dir.path(), Credentials::TokenFile("token-a"));
    api.accept_tokens(&["token-a"]);
    let one = engine(&api, "one").await;
    let router = over_http(kubeconfig, secs(1)).await;
    wait("one", || names(&router) == ["one"]).await;
    write_token(dir.path(), "token-b");
    api.accept_tokens(&["token-b"]);
    let two = engine(&api, "two").await;
    wait("two", || names(&router) == ["one", "two"]).await;
    api.cut_watches();
    let three = engine(&api, "three").await;
    api.force_delete("default", "one");
    wait("three", || names(&router) == ["three", "two"]).await;
    let with_b = |kind| {
        let good = |r: &tandem::testkit::kube::Recorded| {
            r.kind == kind && r.token.as_deref() == Some("token-b") && r.status == Some(200)
        };
        api.requests().iter().any(good)
    };
    wait("lists and watches with the new token", || with_b(RequestKind::List) && with_b(RequestKind::Watch))
        .await;
    let refused = api.requests().iter().filter(|r| r.status == Some(401)).count();
    assert!(refused <= 4, "{refused} requests with the old token: once each, not again and again");
    let scrape = router.scrape();
    assert!(scrape.sum("tandem_discovery_list_failures_total", &[("kind", "unauthorized")]) <= 2.0);
    drop(server);
    router.assert_invariants(&[&one, &two, &three]).await;
}

/// The old token is refused before the new one is there: the last set is kept, and asked for at a decent pace.
#[tokio::test]
async fn b160_a_revoked_token_keeps_the_last_set_until_the_next_one_is_there() {
    let api = FakeKube::new();
    let server = api.serve().await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = server.kubeconfig(dir.path(), Credentials::TokenFile("token-a"));
    api.accept_tokens(&["token-a"]);
    let one = engine(&api, "one").await;
    let router = over_http(kubeconfig, secs(1)).await;
    wait("one", || names(&router) == ["one"]).await;
    let before = api.requests().len();
    api.accept_tokens(&["token-b"]);
    api.cut_watches();
    let two = engine(&api, "two").await;
    sleep(secs(4)).await;
    assert_eq!(names(&router), ["one"]);
    let asked = api.requests().len() - before;
    assert!((2..=9).contains(&asked), "{asked} requests in 4 s of 401");
    let mut client = router.client().await;
    assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
    drop(client);
    write_token(dir.path(), "token-b");
    wait("two", || names(&router) == ["one", "two"]).await;
    assert!((router.admin.readiness)().ready);
    drop(server);
    router.assert_invariants(&[&one, &two]).await;
}

/// A file that is away, or an empty one, for a while is one more failure.
#[tokio::test]
async fn b160_a_token_file_that_is_missing_for_a_while_is_waited_for() {
    let api = FakeKube::new();
    let server = api.serve().await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = server.kubeconfig(dir.path(), Credentials::TokenFile("token-a"));
    api.accept_tokens(&["token-a"]);
    std::fs::remove_file(dir.path().join("token")).unwrap();
    let one = engine(&api, "one").await;
    let router = over_http(kubeconfig, secs(1)).await;
    sleep(secs(2)).await;
    assert!(!(router.admin.readiness)().ready && names(&router).is_empty());
    write_token(dir.path(), "token-a");
    wait("one", || names(&router) == ["one"] && (router.admin.readiness)().ready).await;
    drop(server);
    router.assert_invariants(&[&one]).await;
}
