//! "Ids and headers", "The prefill body", and what has no form for two legs.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tandem::config::StaticEndpoint;
use tandem::testkit::engine::openai::{chat_json, kv_answer};
use tandem::testkit::engine::{Engine, Script};
use tandem::testkit::task::spawn;

use super::rig::*;

fn any(kind: tandem::config::EngineKind) -> (Script, Script) {
    (Script::always(prefilled(kind)), Script::always(chat_json("x")))
}

#[tokio::test(start_paused = true)]
async fn b46_b48_the_prefill_body_is_valid_and_the_decodes_is_the_clients() {
    for text in [
        r#"{"model":"m","messages":[],"max_tokens":500,"min_tokens":100,"ignore_eos":true,"stop":["a"],"stream":true}"#,
        r#"{"model":"m","messages":[],"max_completion_tokens":500,"min_completion_tokens":9,"n":3,"echo":true}"#,
        r#"{"model":"m","messages":[],"max_tokens":null,"seed":12345678901234567890,"x":1.0e0}"#,
        r#"{ "model":"m","messages":[] }"#,
    ] {
        let (p, d) = any(NIXL);
        let rig = rig(NIXL, vec![p], vec![d]);
        assert_eq!(rig.send(H1, CHAT, &[], text).await.status, 200);
        let prefill = rig.p[0].log.requests()[0].json();
        let least = prefill["min_tokens"].as_u64().or(prefill["min_completion_tokens"].as_u64()).unwrap_or(0);
        assert_eq!(prefill["max_tokens"], 1, "{prefill}");
        assert!(least <= 1 && prefill["stream"] != json!(true), "{prefill}");
        assert!(prefill["n"].is_null() || prefill["n"] == 1);
        let decode = String::from_utf8(rig.d[0].log.requests()[0].body.clone()).unwrap();
        let params = kv_answer("e")["kv_transfer_params"].to_string();
        let start = text.trim_end().trim_end_matches('}').trim_end();
        assert!(decode.starts_with(start), "{decode}");
        let rest = decode[start.len()..].replace(' ', "");
        assert_eq!(rest, format!(",\"kv_transfer_params\":{params}}}"));
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b50_ids_are_ours_and_equal_on_both_legs_whatever_the_client_says() {
    let long = "x".repeat(10_000);
    for kind in KINDS {
        let (p, d) = any(kind);
        let rig = rig(kind, vec![p], vec![d]);
        for id in ["a", "a", "a#b___c", &long] {
            let body = r#"{"model":"m","messages":[],"rid":"a","request_id":"a"}"#;
            let line = format!("x-request-id: {id}");
            let reply = rig.send(H1, CHAT, &[&line], body).await;
            assert_eq!(reply.status, 200);
            assert_eq!(reply.header("x-request-id") == Some(id), id == "a", "echoed where fit");
        }
        let mut seen = HashSet::new();
        for (p, d) in rig.p[0].log.requests().iter().zip(rig.d[0].log.requests()) {
            let id = p.headers.get("x-request-id").unwrap().to_owned();
            assert_eq!(Some(id.as_str()), d.headers.get("x-request-id"));
            assert!(id.len() <= 81 && seen.insert(id.clone()));
            if kind == SGLANG {
                assert_eq!(
                    (p.json()["rid"].as_str(), d.json()["rid"].as_str()),
                    (Some(id.as_str()), Some(id.as_str()))
                );
            }
        }
        assert_eq!(seen.len(), 4);
        let nonces: HashSet<&str> = seen.iter().map(|id| &id[..16]).collect();
        assert_eq!(nonces.len(), 4, "no id is the beginning of another");
        // The client's id says nothing here, so the check by it is not made.
        assert_pair_invariants(&rig, &[&rig.p[0], &rig.d[0]], &[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn i11_clients_cannot_set_pd_keys_or_steering_headers() {
    for kind in KINDS {
        for proto in [H1, H2] {
            let (p, d) = any(kind);
            let rig = rig(kind, vec![p], vec![d]);
            let text = r#"{"model":"m","messages":[],"bootstrap_host":"evil","bootstrap_port":1,"bootstrap_room":7,"kv_transfer_params":{"remote_engine_id":"evil"},"routed_dp_rank":3,"bootstrap_pair_key":"x"}"#;
            let lines = [
                "x-prefiller-host-port: evil:1",
                "x-data-parallel-rank: 3",
                "x-gateway-destination-endpoint: evil",
                "x-override-model: evil",
                "accept-encoding: gzip",
                "range: bytes=0-1",
                "cookie: a=b",
            ];
            assert_eq!(rig.send(proto, CHAT, &lines, text).await.status, 200);
            for engine in [&rig.p[0], &rig.d[0]] {
                let request = &engine.log.requests()[0];
                let all = String::from_utf8([request.head.clone(), request.body.clone()].concat()).unwrap();
                assert!(!all.contains("evil") && !all.contains("rank") && !all.contains("pair_key"), "{all}");
                assert!(request.headers.get("range").is_none() && request.headers.get("cookie").is_none());
            }
            assert!(rig.p[0].log.requests()[0].headers.get("accept-encoding").is_none());
            assert_eq!(rig.d[0].log.requests()[0].headers.get("accept-encoding"), Some("gzip"));
            rig.done().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b52_every_route_is_two_legs_or_501_and_never_a_lone_leg() {
    const ROUTES: [&str; 12] = [
        CHAT,
        "/v1/completions",
        "/generate",
        "/v1/messages",
        "/v1/responses",
        "/v1/embeddings",
        "/rerank",
        "/v1/rerank",
        "/tokenize",
        "/detokenize",
        "/v1/score",
        "/inference/v1/generate",
    ];
    for kind in KINDS {
        for mixed in [false, true] {
            for path in ROUTES {
                let (p, d) = any(kind);
                let mut rig = rig_with(kind, vec![p], vec![d], |c| {
                    if mixed {
                        c.services[0].endpoints = vec![StaticEndpoint::parse("http://m0:80").unwrap()];
                    }
                });
                let m = Engine::in_memory(&rig.net, "m0", Script::always(chat_json("x")));
                let reply =
                    rig.send(H1, path, &[], r#"{"model":"m","prompt":"a","input":"a","messages":[]}"#).await;
                let (p, d, m_count) =
                    (rig.p[0].log.request_count(), rig.d[0].log.request_count(), m.log.request_count());
                match (reply.status, mixed) {
                    (200, _) if m_count == 0 => assert_eq!((p, d), (1, 1), "{kind:?} {path}"),
                    (200, true) => assert_eq!((p, d, m_count), (0, 0, 1), "{kind:?} {path}"),
                    (501, false) => {
                        assert_eq!((p, d, reply.code().as_str()), (0, 0, "route_unsupported_on_pd"));
                    }
                    (404, _) => assert_eq!((p, d, m_count), (0, 0, 0)),
                    other => panic!("{kind:?} {path}: {other:?} {p} {d} {m_count}"),
                }
                rig.d.push(m);
                rig.done().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b53_prompts_keep_their_shape_and_sglang_gets_a_room_for_each() {
    for (prompt, rooms) in [
        (r#"["用中文写一句话"]"#, 1),
        (r#""one""#, 0),
        (r#"["a","b","c"]"#, 3),
        ("[1,2,3]", 0),
        ("[[1,2],[3]]", 2),
    ] {
        for kind in KINDS {
            let (p, d) = any(kind);
            let rig = rig(kind, vec![p], vec![d]);
            let text = format!(r#"{{"model":"m","prompt":{prompt}}}"#);
            let reply = rig.send(H1, "/v1/completions", &[], &text).await;
            if kind == NIXL && rooms > 1 {
                assert_eq!((reply.status, reply.code().as_str()), (400, "unsupported_on_pd"));
                assert_eq!(reply.json()["error"]["param"], "prompt");
                rig.done().await;
                continue;
            }
            assert_eq!(reply.status, 200);
            for engine in [&rig.p[0], &rig.d[0]] {
                let request = &engine.log.requests()[0];
                assert_eq!(request.path(), "/v1/completions");
                assert!(String::from_utf8_lossy(&request.body).contains(&format!(r#""prompt":{prompt}"#)));
            }
            if kind == SGLANG {
                let room = rig.d[0].log.requests()[0].json()["bootstrap_room"].clone();
                assert_eq!(room.as_array().map_or(0, Vec::len), rooms, "{room}");
            }
            // The kit's check that no room occurs twice reads plain rooms.
            rig.done().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b54_b113_more_samples_are_refused_by_name_on_sglang_and_leave_nothing() {
    let cases = [
        (CHAT, r#"{"model":"m","messages":[],"n":2}"#, "n"),
        (CHAT, r#"{"model":"m","messages":[],"n":4,"stream":true}"#, "n"),
        ("/v1/completions", r#"{"model":"m","prompt":"a","best_of":2}"#, "best_of"),
        ("/generate", r#"{"model":"m","text":"a","sampling_params":{"n":2}}"#, "sampling_params.n"),
        (CHAT, r#"{"model":"m","messages":[],"use_beam_search":true}"#, "use_beam_search"),
    ];
    for (path, text, param) in cases {
        for proto in [H1, H2] {
            let (p, d) = any(SGLANG);
            let rig = rig(SGLANG, vec![p], vec![d]);
            let reply = rig.send(proto, path, &[], text).await;
            assert_eq!((reply.status, reply.code().as_str()), (400, "unsupported_on_pd"));
            assert_eq!(reply.json()["error"]["param"], param);
            assert_eq!((rig.p[0].log.request_count(), rig.d[0].log.request_count()), (0, 0));
            assert_eq!((rig.holds(), rig.handoffs()), (vec![0, 0], 0));
            rig.done().await;
        }
    }
    let (p, d) = any(NIXL);
    let rig = rig(NIXL, vec![p], vec![d]);
    assert_eq!(rig.send(H1, CHAT, &[], cases[0].1).await.status, 200);
    assert_eq!(
        (rig.p[0].log.requests()[0].json()["n"].clone(), rig.d[0].log.requests()[0].json()["n"].clone()),
        (json!(1), json!(2))
    );
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn b113_a_body_that_cannot_be_written_anew_is_refused_and_leaves_nothing() {
    let deep = format!(r#"{{"model":"m","messages":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000));
    let cases = [
        r#"{"model":"m","messages":[{"role":"user","content":[[["#,
        r#"{"model":"m","messages":[]}}"#,
        r#"{"model":"m","messages":[],"model":"n"}"#,
        r#"[{"model":"m","messages":[]}]"#,
        r#"{"model":"m","messages":[],"n":1e999}"#,
        r#"{"model":"m","messages":[],"n":99999999999999999999}"#,
        "",
        deep.as_str(),
    ];
    for kind in KINDS {
        for (n, text) in cases.into_iter().enumerate() {
            for proto in [H1, H2] {
                let (p, d) = any(kind);
                let rig = rig(kind, vec![p], vec![d]);
                let reply = rig.send(proto, CHAT, &[], text).await;
                // What is nested deeply, or counts too much, may be the engine's to refuse, but then it was sent whole.
                let sent = rig.p[0].log.request_count();
                assert!(
                    reply.complete && (reply.status == 400 || sent == 1),
                    "{kind:?} {n}: {}",
                    reply.status
                );
                assert_eq!(reply.status == 400, sent == 0, "{kind:?} {n}");
                tokio::time::sleep(secs(1)).await;
                assert_eq!((rig.holds(), rig.handoffs()), (vec![0, 0], 0));
                rig.done().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b136_rooms_are_plain_integers_below_2_63_equal_on_both_legs() {
    let (p, d) = any(SGLANG);
    let rig = Arc::new(rig(SGLANG, vec![p], vec![d]));
    let n = crate::replay::scale(100, 100_000);
    let asked: Vec<_> = (0..n)
        .map(|_| {
            let rig = Arc::clone(&rig);
            spawn(async move { rig.ask(H1, false).await.status })
        })
        .collect();
    for status in asked {
        assert_eq!(status.await.unwrap(), 200);
    }
    let rooms = |engine: &tandem::testkit::engine::EngineHandle| {
        let text = |r: tandem::testkit::engine::RecordedRequest| {
            let body = String::from_utf8(r.body).unwrap();
            let room = body.split("\"bootstrap_room\":").nth(1).unwrap().trim_end_matches('}').to_owned();
            assert!(room.bytes().all(|b| b.is_ascii_digit()), "{room}");
            assert!((1000..1 << 63).contains(&room.parse::<u64>().unwrap()));
            let value: Value = serde_json::from_str(&body).unwrap();
            (value["rid"].as_str().unwrap().to_owned(), room)
        };
        engine.log.requests().into_iter().map(text).collect::<HashSet<_>>()
    };
    let (p, d) = (rooms(&rig.p[0]), rooms(&rig.d[0]));
    assert_eq!((p.len(), p == d), (n, true));
    Arc::into_inner(rig).unwrap().done().await;
}
