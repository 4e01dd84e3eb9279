//! Answers without a body: complete at their head, over both protocols, and the connection to the engine lives on.

use bytes::Bytes;
use http::Request;
use tandem::testkit::engine::{Body, Engine, Response, Script};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::router::{TestRouter, config_for};

/// Each is asked for twice; whether both come over one connection.
fn answers() -> Vec<(Response, bool)> {
    vec![
        (Response::new(200, Body::Full(Bytes::new())), true),
        (Response::new(204, Body::Empty), true),
        (Response::new(304, Body::Empty), true),
        // It says that a body follows where none can: not to be trusted with another request.
        (Response::new(204, Body::Empty).header("content-length", "3"), false),
    ]
}

#[tokio::test]
async fn an_answer_without_a_body_is_ok_and_its_connection_is_reused() {
    for (answer, reused) in answers() {
        for h2 in [false, true] {
            let engine = Engine::start_tcp(Script::always(answer.clone())).await;
            let router = TestRouter::start(config_for(&[&engine])).await;
            for _ in 0..2 {
                let body = chat_body("m", false);
                let (status, length) = if h2 {
                    let mut client = router.h2_client().await;
                    let request = Request::post("http://test/v1/chat/completions")
                        .header("content-type", "application/json")
                        .body(())
                        .unwrap();
                    let seen = client.request(request, Bytes::from(body)).await.unwrap();
                    (seen.status.as_u16(), seen.body.len())
                } else {
                    let mut client = router.client().await;
                    let seen = client.request(&post_chat(&body)).await.unwrap();
                    (seen.status(), seen.body.len())
                };
                assert_eq!((status, length), (answer.status, 0));
            }
            router.assert_invariants(&[&engine]).await;
            let outcomes: Vec<_> = router.access_lines().iter().map(|line| line["outcome"].clone()).collect();
            assert_eq!(outcomes, ["ok", "ok"], "{} over h2: {h2}", answer.status);
            let conns = engine.log.conns().len();
            assert_eq!(conns, if reused { 1 } else { 2 }, "{} over h2: {h2}", answer.status);
        }
    }
}
