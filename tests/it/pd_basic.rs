//! Prefill/decode pairs against scripted engines: what each leg is sent, and what the client gets.

use std::time::Duration;

use serde_json::json;
use tandem::config::{EngineKind, RouterConfig, StaticEndpoint, VllmConnector};
use tandem::testkit::engine::openai::{ChatStream, chat_json, error, kv_answer};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, Response, Script, Step};
use tandem::testkit::fixtures::{chat_body, post, post_chat};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::{TestRouter, config};

struct Rig {
    p: EngineHandle,
    d: EngineHandle,
    router: TestRouter,
}

fn rig(kind: EngineKind, prefill: Script, decode: Script) -> Rig {
    let net = MemoryNet::new();
    let p = Engine::in_memory(&net, "p0", prefill);
    let d = Engine::in_memory(&net, "d0", decode);
    let mut config: RouterConfig = config(&["unused:80".to_owned()]);
    let service = &mut config.services[0];
    service.engine = kind;
    service.endpoints.clear();
    service.prefill = vec![StaticEndpoint::parse("http://p0:80").unwrap()];
    service.decode = vec![StaticEndpoint::parse("http://d0:80").unwrap()];
    let router = TestRouter::in_memory(config, &net);
    Rig { p, d, router }
}

const NIXL: EngineKind = EngineKind::Vllm(VllmConnector::Nixl);

fn params() -> Vec<Step> {
    Response::json(200, kv_answer("e").to_string()).into_steps()
}

#[tokio::test(start_paused = true)]
async fn vllm_the_prefill_comes_first_and_its_parameters_go_to_the_decode() {
    let rig = rig(NIXL, Script::always(params()), Script::always(ChatStream::new(3).usage()));
    let mut client = rig.router.memory_client().await;
    let answer = client.request(&post_chat(chat_body("m", true))).await.unwrap();
    assert!(answer.is_complete());
    assert_eq!(answer.events().last().unwrap().data, "[DONE]");
    let (p, d) = (rig.p.log.requests(), rig.d.log.requests());
    assert_eq!((p.len(), d.len()), (1, 1));
    assert_eq!(p[0].json()["stream"], false);
    assert_eq!(p[0].json()["max_tokens"], 1);
    assert_eq!(d[0].json()["kv_transfer_params"]["remote_block_ids"], json!([[1, 2]]));
    assert_eq!(p[0].headers.get("x-request-id"), d[0].headers.get("x-request-id"));
    client.close();
    rig.router.assert_pair_invariants(&[&rig.p], &[&rig.d]).await;
    assert_eq!(rig.router.endpoints_of_pairs()[0].handoffs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn vllm_a_prefill_without_parameters_is_a_loud_502() {
    let rig = rig(NIXL, Script::always(chat_json("x")), Script::openai("m"));
    let mut client = rig.router.memory_client().await;
    let answer = client.request(&post_chat(chat_body("m", true))).await.unwrap();
    assert_eq!((answer.status(), answer.json()["error"]["code"].as_str()), (502, Some("prefill_no_kv")));
    assert_eq!(rig.d.log.request_count(), 0);
    client.close();
    rig.router.assert_pair_invariants(&[&rig.p], &[&rig.d]).await;
}

#[tokio::test(start_paused = true)]
async fn vllm_a_failed_pull_before_the_first_token_becomes_a_status() {
    let role = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    let failed = "data: {\"error\":{\"message\":\"Internal server error\",\"code\":500}}\n\ndata: [DONE]\n\n";
    let decode = Response::new(200, tandem::testkit::engine::Body::Chunked(vec![role.into(), failed.into()]))
        .header("content-type", "text/event-stream");
    let rig = rig(NIXL, Script::always(params()), Script::always(decode));
    let mut client = rig.router.memory_client().await;
    let answer = client.request(&post_chat(chat_body("m", true))).await.unwrap();
    assert_eq!(answer.status(), 500);
    assert_eq!(answer.json()["error"]["message"], "Internal server error");
    client.close();
    // The decode answered in its own way: the hand-off is held to the end of its lease.
    assert_eq!(rig.router.endpoints_of_pairs()[0].handoffs.count(), 1);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(rig.router.endpoints_of_pairs()[0].handoffs.count(), 0);
    rig.router.assert_pair_invariants(&[&rig.p], &[&rig.d]).await;
}

#[tokio::test(start_paused = true)]
async fn sglang_both_legs_share_a_room_and_the_client_gets_the_decode() {
    let prefill = Script::always(
        [Step::Sleep(Duration::from_millis(20))]
            .into_iter()
            .chain(chat_json("p").into_steps())
            .collect::<Vec<_>>(),
    );
    let rig =
        rig(EngineKind::Sglang, prefill, Script::always(ChatStream::new(3).gap(Duration::from_millis(30))));
    let mut client = rig.router.memory_client().await;
    let answer = client.request(&post_chat(chat_body("m", true))).await.unwrap();
    assert!(answer.is_complete());
    let (p, d) = (rig.p.log.requests(), rig.d.log.requests());
    assert_eq!((p.len(), d.len()), (1, 1));
    assert_eq!(p[0].body, d[0].body, "the same body");
    let body = d[0].json();
    assert_eq!(body["bootstrap_host"], "p0");
    assert!(body["bootstrap_room"].as_u64().unwrap() >= 1000);
    assert!(body["rid"].as_str().unwrap().len() > 17);
    client.close();
    rig.router.assert_pair_invariants(&[&rig.p], &[&rig.d]).await;
    assert_eq!(rig.router.endpoints_of_pairs()[0].handoffs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn b41_sglang_a_prefills_400_reaches_the_client_and_ends_the_decode() {
    let prefill = Script::openai("m").route("/v1/chat/completions", Script::always(error(400, "too long")));
    let decode = Script::openai("m").on("/v1/chat/completions", vec![Step::Stall]);
    let rig = rig(EngineKind::Sglang, prefill, decode);
    let mut client = rig.router.memory_client().await;
    let started = tandem::types::clock::now();
    let answer = client.request(&post_chat(chat_body("m", true))).await.unwrap();
    assert_eq!(answer.status(), 400);
    assert!(tandem::types::clock::now() - started < Duration::from_millis(500));
    client.close();
    rig.d.log.wait_all_closed(Duration::from_secs(20)).await;
    let aborts = rig.d.log.requests_to("/abort_request");
    assert!(!aborts.is_empty());
    let rid = rig.d.log.requests_to("/v1/chat/completions")[0].json()["rid"].clone();
    assert_eq!(aborts[0].json()["rid"], rid);
    rig.router.assert_pair_invariants(&[&rig.p], &[&rig.d]).await;
}

#[tokio::test(start_paused = true)]
async fn sglang_each_prompt_of_a_list_is_aborted_by_its_own_id() {
    let path = "/v1/completions";
    let prefill = Script::openai("m").on(path, error(400, "too long"));
    let decode = Script::openai("m").on(path, vec![Step::Stall]);
    let rig = rig(EngineKind::Sglang, prefill, decode);
    let mut client = rig.router.memory_client().await;
    let body = json!({"model": "m", "stream": true, "prompt": ["a", "b"]}).to_string();
    assert_eq!(client.request(&post(path, &[], body)).await.unwrap().status(), 400);
    client.close();
    rig.d.log.wait_all_closed(Duration::from_secs(20)).await;
    let rids = rig.d.log.requests_to(path)[0].json()["rid"].as_array().unwrap().clone();
    let aborted: Vec<_> =
        rig.d.log.requests_to("/abort_request").iter().map(|abort| abort.json()["rid"].clone()).collect();
    assert_eq!(rids.len(), 2);
    assert!(rids.iter().all(|rid| aborted.contains(rid)), "{rids:?} {aborted:?}");
    rig.router.assert_pair_invariants(&[&rig.p], &[&rig.d]).await;
}

#[tokio::test(start_paused = true)]
async fn sglang_an_error_event_of_the_prefill_is_its_error() {
    let path = "/v1/chat/completions";
    let failed =
        "data: {\"error\":{\"message\":\"Prefill bootstrap failed\",\"code\":500}}\n\ndata: [DONE]\n\n";
    let stream = Response::new(200, tandem::testkit::engine::Body::Chunked(vec![failed.into()]))
        .header("content-type", "text/event-stream");
    let prefill = Script::openai("m").on(path, stream);
    let decode = Script::openai("m").on(path, vec![Step::Stall]);
    let rig = rig(EngineKind::Sglang, prefill, decode);
    let mut client = rig.router.memory_client().await;
    let answer = client.request(&post_chat(chat_body("m", true))).await.unwrap();
    assert_eq!(answer.status(), 500);
    assert_eq!(answer.json()["error"]["message"], "Prefill bootstrap failed");
    client.close();
    rig.d.log.wait_all_closed(Duration::from_secs(20)).await;
    rig.router.assert_pair_invariants(&[&rig.p], &[&rig.d]).await;
}
