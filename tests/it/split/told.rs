//! What a request says of its session in its body, what responses and engines are told, and endpoints of the configuration.

use serde_json::{Value, json};
use tandem::config::{EngineKind, RouterConfig, Service, StaticEndpoint};
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, Script};
use tandem::testkit::fixtures::{chat_body, post};
use tandem::testkit::router::{TestRouter, config};

use super::rig::*;

fn two(weights: [u64; 2]) -> Vec<tandem::config::SplitEntry> {
    vec![revision("r1", weights[0]), revision("r2", weights[1])]
}

const ALL: [Is; 2] = [Is("mixed", "r1", ""), Is("mixed", "r2", "")];

/// The body of a chat with one more member.
fn chat_of(member: &str, value: &Value) -> String {
    let mut body: Value = serde_json::from_str(&chat_body("m", false)).unwrap();
    body[member] = value.clone();
    body.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_member_of_the_body_makes_a_session_where_no_header_does() {
    let rig = Rig::start(EngineKind::Plain, &ALL, Some(two([50, 50])), |service| {
        service.sticky.headers = vec!["x-session-id".to_owned()];
        service.sticky.body_field = Some("user".to_owned());
        service.cohort_headers = true;
    })
    .await;
    let mut client = rig.client().await;
    let mut home = async |lines: &[&str], member: &str, value: Value| {
        let answer = client.request(&post(CHAT, lines, chat_of(member, &value))).await.unwrap();
        answer.header("x-tandem-cohort").unwrap().to_owned()
    };
    let mut homes = std::collections::BTreeSet::new();
    for n in 0..40 {
        // Twice the same, as text and as a number.
        let of_text = home(&[], "user", json!(format!("u{n}"))).await;
        assert_eq!(home(&[], "user", json!(format!("u{n}"))).await, of_text);
        assert_eq!(home(&[], "user", json!(n)).await, home(&[], "user", json!(n)).await);
        let line = format!("x-session-id: s{n}");
        let by_header = home(&[&line], "user", json!("u1")).await;
        assert_eq!(home(&[&line], "user", json!("u2")).await, by_header, "the header counts first");
        homes.insert(of_text);
    }
    assert_eq!(homes.len(), 2);
    // What is no session is drawn: nobody, another member, another type.
    for (member, value) in
        [("user", json!("")), ("user", Value::Null), ("user", json!({"a": 1})), ("other", json!("u1"))]
    {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..40 {
            seen.insert(home(&[], member, value.clone()).await);
        }
        assert_eq!(seen.len(), 2, "{member} {value}");
    }
    drop(client);
    rig.end().await;
}

/// Each attempt's own, and the client's own claims never.
#[tokio::test(start_paused = true)]
async fn clients_and_engines_are_told_where_that_is_asked_for() {
    let told = |request: &tandem::testkit::engine::RecordedRequest| {
        ["x-tandem-cohort", "x-tandem-split-version"].map(|name| request.headers.get(name).map(str::to_owned))
    };
    for on in [false, true] {
        let rig =
            Rig::start(EngineKind::Plain, &ALL, Some(two([0, 1])), |service| service.cohort_headers = on)
                .await;
        let mut client = rig.client().await;
        let claims = ["x-tandem-cohort: r1", "x-tandem-split-version: 77"];
        let answer = client.request(&post(CHAT, &claims, chat_body("m", false))).await.unwrap();
        assert_eq!(answer.header("x-tandem-cohort").is_some(), on);
        rig.put(two([0, 1]), None).await;
        let answer = client.request(&post(CHAT, &[], chat_body("m", false))).await.unwrap();
        assert_eq!(answer.header("x-tandem-split-version"), on.then_some("2"));
        let requests = rig.engines[1].1.log.requests_to(CHAT);
        let wanted = |version: &str| [on.then(|| "r2".to_owned()), on.then(|| version.to_owned())];
        assert_eq!([told(&requests[0]), told(&requests[1])], [wanted("1"), wanted("2")]);
        drop(client);
        rig.end().await;
    }
}

#[tokio::test]
async fn endpoints_of_the_configuration_have_revisions_and_tokens() {
    let engines = [
        Engine::start_tcp(Script::always(chat_json("r1"))).await,
        Engine::start_tcp(Script::always(chat_json("r2"))).await,
    ];
    let at = |n: usize| StaticEndpoint {
        revision: format!("r{}", n + 1),
        ..StaticEndpoint::parse(&format!("http://{}", engines[n].addr())).unwrap()
    };
    let service = Service { split: Some(two([0, 1])), ..Service::plain("chat", vec![at(0), at(1)]) };
    let router = TestRouter::start(RouterConfig { services: vec![service], ..config(&[]) }).await;
    for _ in 0..20 {
        router.client().await.request(&post(CHAT, &[], chat_body("m", false))).await.unwrap();
    }
    assert_eq!(engines.map(|engine| engine.log.requests_to(CHAT).len()), [0, 20]);
}
