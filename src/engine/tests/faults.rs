//! Scripts, the log, and the engine on a paused clock.

use std::sync::Arc;

use super::*;
use crate::engine::{Dialer, Ended, Left, Rule, Socket, unbound};
use crate::testkit::client::BodyFraming;
use crate::testkit::memory::MemoryNet;
use crate::testkit::wire::PeerEnd;
use crate::types::clock::now;

async fn scripted(words: &str, more: &Value) -> Result<RawResponse, crate::testkit::client::ClientError> {
    let engine = engine(config(Wire::Vllm, Role::Plain)).await;
    let asked = post("/v1/chat/completions", &format!("x-mock: {words}\r\n"), &body("x", more));
    connect(engine.addr).await.request(asked).await
}

#[tokio::test]
async fn a_header_scripts_its_request() {
    let stream = json!({"stream": true, "max_tokens": 5});
    assert_eq!(scripted("status=429", &stream).await.unwrap().status(), 429);
    assert_eq!(scripted("plain:status=503;decode:reset", &stream).await.unwrap().status(), 503);
    assert!(scripted("reset", &stream).await.is_err());
    for (words, end) in [("after=2,close", PeerEnd::Fin), ("after=2,reset", PeerEnd::Rst)] {
        let engine = engine(config(Wire::Vllm, Role::Plain)).await;
        let mut client = connect(engine.addr).await;
        let asked = post("/v1/chat/completions", &format!("x-mock: {words}\r\n"), &body("x", &stream));
        let cut = client.request(asked).await.unwrap();
        assert_eq!(client.ended().await.map(|(how, _)| how), Some(end));
        assert_eq!(
            (cut.framing.clone(), cut.is_complete()),
            (BodyFraming::ChunkedTruncated, false),
            "{end:?}"
        );
        assert_eq!(said(&cut), right("x", 2));
    }
    let error = scripted("after=2,error", &stream).await.unwrap();
    assert!(error.is_complete() && error.text().contains("data: {\"error\": "));
    let abort = scripted("after=2,abort", &stream).await.unwrap();
    assert!(abort.text().contains("\"finish_reason\":\"abort\""), "{}", abort.text());
    assert_eq!(scripted("nonsense", &stream).await.unwrap().status(), 400);
    let began = now();
    scripted("delay=60ms", &stream).await.unwrap();
    assert!(began.elapsed() >= ms(60));
}

#[tokio::test]
async fn an_end_can_come_at_a_time_or_only_on_a_connection_that_was_used() {
    let engine = engine(EngineConfig { timing: slow(ms(40)), ..config(Wire::Vllm, Role::Plain) }).await;
    let asked = |words: &str| {
        let more = json!({"stream": true, "max_tokens": 3});
        post("/v1/chat/completions", &format!("x-mock: {words}\r\n"), &body("x", &more))
    };
    let cut = connect(engine.addr).await.request(asked("at=60ms,reset")).await.unwrap();
    assert_eq!((cut.is_complete(), said(&cut)), (false, right("x", 2)));
    let mut client = connect(engine.addr).await;
    for (words, whole) in [
        // Its end was for it alone: the next one outlives it.
        ("@127.0.0.1:at=100ms,reset", true),
        ("reused;@elsewhere:reset", true),
        ("reused,reset", false),
    ] {
        let answer = client.request(asked(words)).await;
        assert_eq!(answer.is_ok_and(|answer| answer.is_complete()), whole, "{words}");
    }
    let fresh = connect(engine.addr).await.request(asked("reused,reset")).await.unwrap();
    assert!(fresh.is_complete());
}

#[tokio::test]
async fn rules_apply_to_requests_to_come_as_often_as_they_say() {
    let engine = engine(config(Wire::Sglang, Role::Plain)).await;
    engine.script(Rule::parse("2*status=503").unwrap());
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(chat(engine.addr, &body("x", &json!({}))).await.status());
    }
    assert_eq!(statuses, [503, 503, 200]);
    let control = connect(engine.addr)
        .await
        .request("PUT /mock/script HTTP/1.1\r\nhost: e\r\ncontent-length: 12\r\n\r\n1*status=500")
        .await;
    assert_eq!(control.unwrap().status(), 200);
    assert_eq!(chat(engine.addr, &body("x", &json!({}))).await.status(), 500);
}

#[tokio::test]
async fn the_log_has_exact_bytes_connections_and_when_the_peer_left() {
    let engine = engine(config(Wire::Vllm, Role::Plain)).await;
    let mut client = connect(engine.addr).await;
    let odd = "POST /v1/chat/completions HTTP/1.1\r\nHOST:  e\r\nContent-Type: application/json; charset=utf-8\r\nX-a: b\r\ncontent-length: 62\r\n\r\n{ \"messages\":[{\"role\":\"user\",\"content\":\"x\"}], \"max_tokens\": 2}";
    assert_eq!(odd.split_once("\r\n\r\n").unwrap().1.len(), 62);
    client.request(odd).await.unwrap();
    client.request("GET /health HTTP/1.1\r\nhost: e\r\n\r\n").await.unwrap();
    client.close();
    assert!(engine.log.wait(SOON, |records| records.conns[0].closed_at.is_some()).await);
    let records = engine.log.records();
    assert_eq!(records.requests[0].raw, odd);
    assert_eq!((records.requests[1].conn, records.requests[1].ordinal), (records.requests[0].conn, 1));
    assert_eq!(records.requests[0].ended.map(|(how, _)| how), Some(Ended::Answered));
    assert_eq!(records.conns[0].left.map(|(how, _)| how), Some(Left::Fin));
    let json = get(engine.addr, "/mock/log").await.json();
    assert_eq!(json["requests"][0]["raw_latin1"], odd);
    assert_eq!(json["connections"][0]["peer_left"]["how"], "fin");
}

#[tokio::test]
async fn a_peer_that_leaves_in_silence_is_seen_at_once_by_vllm() {
    let engine = engine(EngineConfig {
        timing: Timing { ttft: Duration::from_mins(1), ..slow(ms(0)) },
        ..config(Wire::Vllm, Role::Plain)
    })
    .await;
    for reset in [false, true] {
        let mut client = connect(engine.addr).await;
        client.send(post("/v1/chat/completions", "", &body("x", &json!({})))).await.unwrap();
        engine.wait(SOON, |state| state.live == 1).await.unwrap();
        if reset {
            client.reset();
        } else {
            client.close();
        }
        engine.wait(SOON, |state| state.live == 0).await.unwrap();
    }
    let how: Vec<_> = engine.log.records().conns.iter().map(|conn| conn.left.map(|(how, _)| how)).collect();
    assert_eq!(how, [Some(Left::Fin), Some(Left::Reset)]);
    assert_eq!(engine.state().count("disconnects"), 2);
}

#[tokio::test]
async fn more_requests_than_may_run_wait_their_turn() {
    let engine = engine(EngineConfig {
        max_running: 1,
        timing: Timing { ttft: ms(40), ..slow(ms(0)) },
        ..config(Wire::Vllm, Role::Plain)
    })
    .await;
    let began = now();
    let asked = body("x", &json!({"max_tokens": 1}));
    tokio::join!(chat(engine.addr, &asked), chat(engine.addr, &asked), chat(engine.addr, &asked));
    assert!(began.elapsed() >= ms(120), "{:?}", began.elapsed());
}

/// An SGLang engine on the in-memory network, with the real waits.
fn in_memory(role: Role, name: &'static str, net: &MemoryNet) -> Arc<Running> {
    let dial = net.clone();
    let dialer = Dialer::new(move |host, port| {
        let net = dial.clone();
        async move { Ok(Box::new(net.dial_host(&host, port).await?) as Box<dyn Socket>) }
    });
    let engine = Arc::new(unbound(EngineConfig::new(Wire::Sglang, role), dialer, 8998));
    for (listener, side) in [(net.listen(name), false), (net.listen(&format!("{name}:8998")), true)] {
        let (engine, mut listener) = (Arc::clone(&engine), listener);
        beside(async move {
            while let Ok(stream) = listener.accept().await {
                if side {
                    drop(beside(engine.serve_side(Box::new(stream))));
                } else {
                    drop(beside(engine.serve(Box::new(stream))));
                }
            }
        });
    }
    engine
}

#[tokio::test(start_paused = true)]
async fn a_pair_works_in_memory_and_waits_the_real_300_s_in_no_time() {
    let net = MemoryNet::new();
    let engines = [in_memory(Role::Prefill, "p", &net), in_memory(Role::Decode, "d", &net)];
    let asked = body("x", &json!({"max_tokens": 3, "bootstrap_host": "p", "bootstrap_room": 4}));
    let to = |name: &'static str| {
        let (net, request) = (net.clone(), post("/v1/chat/completions", "", &asked));
        async move { RawClient::in_memory(net.dial(name).await.unwrap()).request(request).await.unwrap() }
    };
    let (prefill, decode) = tokio::join!(to("p"), to("d"));
    assert_eq!((said(&prefill), said(&decode)), (right("x", 1), right("x", 3)));
    let began = now();
    assert_eq!(to("d").await.status(), 500);
    assert_eq!(began.elapsed().as_secs(), 300);
    assert!(engines.iter().all(|engine| engine.state().is_idle()));
}
