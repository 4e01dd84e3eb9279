//! Body limits: one configured limit everywhere, and a client over it that can read so.

use std::time::Duration;

use bytes::Bytes;
use tandem::config::RouterConfig;
use tandem::proxy::request::route::{BodyKind, Route};
use tandem::testkit::client::BodyEnd;
use tandem::testkit::engine::{Engine, EngineHandle, RecordedRequest, Response, Script};
use tandem::testkit::fixtures::{big_chat_body, chat_body, get, request_head};
use tandem::testkit::router::{TestRouter, config_for};
use tandem::testkit::wire::PeerEnd;
use tandem::testkit::wire::chunked::{LAST_CHUNK, chunk};

use super::ask::{BOTH, CHAT, Seen, ask, h2_request};
use super::{keys_file, scale};

const MIB: usize = 1 << 20;
const SOON: Duration = Duration::from_secs(5);

async fn rig(change: impl FnOnce(&mut RouterConfig)) -> (EngineHandle, TestRouter) {
    let engine = Engine::start_tcp(Script::always(Response::json(200, "{}"))).await;
    let mut config = config_for(&[&engine]);
    change(&mut config);
    let router = TestRouter::start(config).await;
    (engine, router)
}

/// CI: limit 2.5 MiB, sizes around it and around the 2 MiB of the report on one route, the bound on the others. Full: every
/// size on every route, and the default limit of 64 MiB too.
#[tokio::test]
async fn b123_the_configured_limit_is_the_limit_on_every_route() {
    let limits = scale(vec![5 * MIB / 2], vec![5 * MIB / 2, 64 * MIB]);
    for limit in limits {
        let (engine, router) = rig(|config| config.limits.body = limit as u64).await;
        let fine = [1_998_718, 2 * MIB, 2 * MIB + 1, limit - 1, limit];
        let mut expected = 0;
        for path in [CHAT, "/v1/completions", "/v1/responses", "/v1/audio/transcriptions"] {
            let multipart = "Content-Type: multipart/form-data; boundary=x";
            let headers: &[&str] = if path.contains("audio") { &[multipart] } else { &[] };
            // Every size on every route takes long in CI; the bound itself is met on each.
            let fine = if path == CHAT { &fine[..] } else { scale(&fine[4..], &fine[..]) };
            let sizes = fine.iter().copied().chain((limit > 9 * MIB).then_some(8_500_000));
            for (n, size) in sizes.enumerate() {
                let body = Bytes::from(big_chat_body("m", false, size));
                let seen = ask(&router, BOTH[n % 2], "POST", path, headers, &body).await;
                assert_eq!(seen.status, 200, "{path} {size}");
                // In place: the log's own copies would take longer than the requests.
                let whole = |r: &RecordedRequest| r.body == body && r.path() == path;
                let what = format!("{path} with {size} bytes");
                engine.log.wait_until(SOON, &what, |seen, _| seen.last().is_some_and(whole)).await;
                expected += 1;
            }
            for protocol in BOTH {
                let body = big_chat_body("m", false, limit + 1);
                let seen = ask(&router, protocol, "POST", path, headers, &body).await;
                seen.assert_error(413, "request_too_large");
                assert!(seen.json()["error"]["message"].as_str().unwrap().contains(&limit.to_string()));
                expected += 1;
            }
        }
        assert_eq!(engine.log.request_count() + 8, expected, "none over the limit");
        let refused = router.scrape().get("tandem_request_errors_total", &[("code", "request_too_large")]);
        assert_eq!(refused, Some(8.0));
        assert_eq!(router.access_lines().len(), expected);
        router.assert_invariants(&[&engine]).await;
    }
}

#[tokio::test]
async fn b123_the_limit_holds_for_each_route_by_announced_and_by_counted_length() {
    let (engine, router) = rig(|config| config.limits.body = 1000).await;
    for &route in Route::ALL {
        let media = match route.body() {
            BodyKind::Json => "Content-Type: application/json",
            BodyKind::Multipart => "Content-Type: multipart/form-data; boundary=x",
            BodyKind::None => continue,
        };
        let mut client = router.client().await;
        let head = request_head("POST", route.as_str(), &[media, "Content-Length: 1001"]);
        client.send(head).await.unwrap();
        Seen::h1(&client.read_response().await.unwrap()).assert_error(413, "request_too_large");
        let mut client = router.client().await;
        let head = request_head("POST", route.as_str(), &[media, "Transfer-Encoding: chunked"]);
        client.send([head.as_ref(), &chunk(&[b'x'; 600]), &chunk(&[b'x'; 401])].concat()).await.unwrap();
        Seen::h1(&client.read_response().await.unwrap()).assert_error(413, "request_too_large");
    }
    assert_eq!(engine.log.request_count(), 0);
    router.assert_invariants(&[&engine]).await;
}

const LIMIT: usize = 10 * MIB;
const OVER: usize = 11 * MIB;

#[tokio::test]
async fn b125_over_h1_the_413_is_read_by_a_client_that_sends_first_and_reads_later() {
    let (engine, router) = rig(|config| config.limits.body = LIMIT as u64).await;
    let body = vec![b'x'; OVER];
    let announced = format!("Content-Length: {OVER}");
    let chunked = [chunk(&body).as_ref(), LAST_CHUNK].concat();
    let framings =
        [(announced.as_str(), body.as_slice()), ("Transfer-Encoding: chunked", chunked.as_slice())];
    for (framing, body) in framings {
        for reads_meanwhile in [true, false] {
            let mut client = router.client().await;
            if !reads_meanwhile {
                client.stop_reading();
            }
            client.send(request_head("POST", CHAT, &[framing])).await.unwrap();
            client.send(body).await.unwrap();
            client.resume_reading();
            let answer = client.read_response().await.unwrap();
            Seen::h1(&answer).assert_error(413, "request_too_large");
            assert_eq!(answer.header("connection"), Some("close"));
            let (rest, end, _) = client.read_to_end().await.unwrap();
            assert_eq!((rest.len(), end), (0, PeerEnd::Fin));
        }
    }
    assert_eq!(engine.log.request_count(), 0);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn b125_over_h2_the_413_ends_its_stream_without_an_error_and_the_connection_lives() {
    let (engine, router) = rig(|config| config.limits.body = LIMIT as u64).await;
    let mut client = router.h2_client().await;
    for announced in [true, false] {
        let length = format!("content-length: {OVER}");
        let headers: &[&str] = if announced { &[&length] } else { &[] };
        let request = h2_request("POST", CHAT, headers);
        let mut stream = client.start(request, None).await.unwrap();
        let id = stream.stream;
        stream.send(Bytes::from(vec![b'x'; OVER]), true).unwrap();
        let answer = stream.finish().await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.end), (413, BodyEnd::Complete));
        let error = &serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap()["error"];
        assert_eq!(error["code"], "request_too_large");
        assert!(answer.headers.get("connection").is_none());
        // What was not read is called off with NO_ERROR.
        assert!(matches!(client.frames.reset_of(id), None | Some(0)));
        let chat = Bytes::from(chat_body("m", false));
        let next = client.request(h2_request("POST", CHAT, &[]), chat).await.unwrap();
        assert_eq!((next.status.as_u16(), next.end), (200, BodyEnd::Complete));
    }
    assert!(client.frames.goaways().is_empty());
    client.abort();
    assert_eq!(engine.log.request_count(), 2);
    router.assert_invariants(&[&engine]).await;
}

#[tokio::test]
async fn a_refused_body_that_ends_leaves_the_connection_in_step_where_it_may_stay() {
    let keys = keys_file();
    let (engine, router) = rig(|config| config.api_keys_file = Some(keys.path().to_owned())).await;
    let mut client = router.client().await;
    let announced = format!("Content-Length: {MIB}");
    let body = vec![b'x'; MIB];
    let chunked = [chunk(&body).as_ref(), LAST_CHUNK].concat();
    for (framing, body) in [(announced.as_str(), &body), ("Transfer-Encoding: chunked", &chunked)] {
        let head = request_head("POST", CHAT, &[framing]);
        client.send([head.as_ref(), body, &get("/health")].concat()).await.unwrap();
        Seen::h1(&client.read_response().await.unwrap()).assert_error(401, "invalid_api_key");
        assert_eq!(client.read_response().await.unwrap().status(), 200, "the request behind it is served");
    }
    client.close();
    router.assert_invariants(&[&engine]).await;
}
