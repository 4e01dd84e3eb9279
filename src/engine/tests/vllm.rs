//! A vLLM pair over loopback: parameters, leases, pulls.

use super::*;
use crate::engine::{Connector, LoadFailure, MARK};

struct Pair {
    prefill: Running,
    decode: Running,
}

impl Pair {
    async fn start(change: impl Fn(&mut EngineConfig)) -> Self {
        let mut configs = [config(Wire::Vllm, Role::Prefill), config(Wire::Vllm, Role::Decode)];
        for one in &mut configs {
            one.waits.lease = Duration::from_secs(30);
        }
        configs.iter_mut().for_each(change);
        let [prefill, decode] = configs;
        Self { prefill: engine(prefill).await, decode: engine(decode).await }
    }

    /// The first leg, as a router writes it.
    async fn keep(&self, prompt: &str) -> Value {
        let params = json!({"do_remote_decode": true, "do_remote_prefill": false});
        let answer =
            chat(self.prefill.addr, &body(prompt, &json!({"max_tokens": 1, "kv_transfer_params": params})))
                .await;
        assert_eq!(said(&answer), right(prompt, 1));
        answer.json()["kv_transfer_params"].clone()
    }

    async fn decode(&self, prompt: &str, params: &Value, stream: bool) -> RawResponse {
        let more = json!({"max_tokens": 6, "stream": stream, "kv_transfer_params": params});
        chat(self.decode.addr, &body(prompt, &more)).await
    }
}

#[tokio::test]
async fn a_pair_answers_what_a_plain_engine_says_and_frees_the_blocks() {
    let pair = Pair::start(|_| {}).await;
    for stream in [false, true] {
        let params = pair.keep("hello there").await;
        assert_eq!(pair.prefill.state().leases, 1);
        let answer = pair.decode("hello there", &params, stream).await;
        assert_eq!(said(&answer), right("hello there", 6));
        assert!(pair.prefill.state().is_idle());
    }
    let metrics = get(pair.decode.addr, "/metrics").await.text();
    assert!(
        metrics.contains("vllm:external_prefix_cache_hits_total{engine=\"0\",model_name=\"tiny\"} 6.0"),
        "{metrics}"
    );
    assert_eq!(pair.decode.state().count("corrupted"), 0);
}

#[tokio::test]
async fn blocks_pulled_a_second_time_or_after_the_lease_are_garbage_with_a_200() {
    let pair = Pair::start(|config| config.waits.lease = ms(600)).await;
    let params = pair.keep("twice").await;
    assert_eq!(said(&pair.decode("twice", &params, false).await), right("twice", 6));
    let again = pair.decode("twice", &params, false).await;
    assert!(again.status() == 200 && said(&again).contains(MARK), "{}", said(&again));
    let params = pair.keep("late").await;
    let state = pair.prefill.wait(SOON, |state| state.leases == 0).await.unwrap();
    assert_eq!((state.leases_expired, state.blocks_held), (1, 0));
    assert!(said(&pair.decode("late", &params, true).await).contains(MARK));
    assert_eq!((pair.prefill.state().count("stale_pulls"), pair.decode.state().count("corrupted")), (2, 2));
}

#[tokio::test]
async fn a_streaming_prefill_keeps_blocks_and_tells_nobody() {
    let pair = Pair::start(|config| config.waits.lease = ms(100)).await;
    let more = json!({"max_tokens": 1, "stream": true, "kv_transfer_params": {"do_remote_decode": true}});
    let answer = chat(pair.prefill.addr, &body("x", &more)).await;
    assert!(!answer.text().contains("remote_block_ids"));
    assert_eq!(pair.prefill.state().leases, 1);
    pair.prefill.wait(SOON, |state| state.leases_expired == 1).await.unwrap();
}

#[tokio::test]
async fn the_decode_says_its_role_before_it_pulls_and_a_failed_pull_is_in_the_stream() {
    let pair = Pair::start(|config| config.waits.dead_remote = ms(600)).await;
    let mut params = pair.keep("x").await;
    params["remote_engine_id"] = json!("another");
    let mut client = connect(pair.decode.addr).await;
    let asked = body("x", &json!({"stream": true, "kv_transfer_params": params}));
    let began = crate::types::clock::now();
    client.send(post("/v1/chat/completions", "", &asked)).await.unwrap();
    let head = client.read_head().await.unwrap();
    client.read_until(b"\"role\"").await.unwrap();
    assert!(head.status == 200 && began.elapsed() < ms(500), "{:?}", began.elapsed());
    let rest = client.read_until(b"[DONE]").await.unwrap();
    let rest = String::from_utf8(rest).unwrap();
    assert!(
        began.elapsed() >= ms(600)
            && rest.contains("data: {\"error\": {\"message\": \"Internal server error\""),
        "{rest}"
    );
    let whole = pair.decode("x", &params, false).await;
    assert_eq!((whole.status(), &whole.json()["error"]["type"]), (500, &json!("InternalServerError")));
    let lenient =
        engine(EngineConfig { load_failure: LoadFailure::Recompute, ..config(Wire::Vllm, Role::Decode) })
            .await;
    let answer =
        chat(lenient.addr, &body("x", &json!({"max_tokens": 6, "kv_transfer_params": params}))).await;
    assert_eq!(said(&answer), right("x", 6));
}

#[tokio::test]
async fn bad_parameters_are_answered_and_then_the_engine_is_gone() {
    let long = "word ".repeat(300);
    let pair = Pair::start(|_| {}).await;
    let short = pair.keep("short").await;
    for (prompt, params) in [("x", json!({"do_remote_prefill": true})), (long.as_str(), short)] {
        let decode = engine(config(Wire::Vllm, Role::Decode)).await;
        let answer = chat(decode.addr, &body(prompt, &json!({"kv_transfer_params": params}))).await;
        assert_eq!(answer.status(), 500);
        assert!(answer.text().contains("EngineCore encountered an issue"), "{}", answer.text());
        tokio::time::timeout(SOON, decode.died()).await.unwrap();
        assert!(TcpStream::connect(decode.addr).await.is_err());
    }
    // Out of range: at once, and it lives.
    let mut params = pair.keep("x").await;
    params["remote_block_ids"] = json!([[99_999]]);
    assert_eq!(pair.decode("x", &params, false).await.status(), 500);
    assert!(!pair.decode.is_dead());
}

#[tokio::test]
async fn a_shorter_prompt_than_the_prefills_gives_the_prefills_words() {
    let pair = Pair::start(|_| {}).await;
    let params = pair.keep("a longer prompt").await;
    let answer = pair.decode("a", &params, false).await;
    assert_eq!((answer.status(), said(&answer)), (200, right("a longer prompt", 6)));
    assert_eq!(pair.decode.state().count("mismatched"), 1);
}

#[tokio::test]
async fn a_refused_decode_frees_the_blocks_and_a_dropped_pull_keeps_them_for_the_lease() {
    let pair = Pair::start(|config| {
        config.timing.transfer = ms(300);
        config.waits.lease = ms(1000);
    })
    .await;
    let params = pair.keep("x").await;
    let refused = body("x", &json!({"max_tokens": 1, "min_tokens": 4, "kv_transfer_params": params}));
    assert_eq!(chat(pair.decode.addr, &refused).await.status(), 400);
    pair.prefill.wait(ms(800), |state| state.leases == 0).await.unwrap();
    let params = pair.keep("x").await;
    let mut client = connect(pair.decode.addr).await;
    client
        .send(post("/v1/chat/completions", "", &body("x", &json!({"kv_transfer_params": params}))))
        .await
        .unwrap();
    tokio::time::sleep(ms(60)).await;
    pair.decode.kill();
    tokio::time::sleep(ms(60)).await;
    assert_eq!(pair.prefill.state().leases, 1, "it may still be reading");
    let state = pair.prefill.wait(SOON, |state| state.leases == 0).await.unwrap();
    assert_eq!(state.leases_expired, 1);
}

#[tokio::test]
async fn a_pull_goes_on_when_its_request_is_dropped() {
    let pair = Pair::start(|config| config.timing.transfer = ms(500)).await;
    let params = pair.keep("x").await;
    let mut client = connect(pair.decode.addr).await;
    client
        .send(post("/v1/chat/completions", "", &body("x", &json!({"kv_transfer_params": params}))))
        .await
        .unwrap();
    tokio::time::sleep(ms(20)).await;
    client.close();
    pair.decode.wait(ms(400), |state| state.live == 0).await.unwrap();
    let state = pair.prefill.wait(SOON, |state| state.leases == 0).await.unwrap();
    assert_eq!(state.leases_expired, 0);
}

#[tokio::test]
async fn a_store_gives_the_decode_what_the_prefill_put_there() {
    let prefill =
        engine(EngineConfig { connector: Connector::Store, ..config(Wire::Vllm, Role::Prefill) }).await;
    let decode = engine(EngineConfig {
        connector: Connector::Store,
        store: prefill.side_addr.map(|side| side.to_string()),
        ..config(Wire::Vllm, Role::Decode)
    })
    .await;
    let asked = body("in the store", &json!({"max_tokens": 4}));
    let first = chat(decode.addr, &asked).await;
    chat(prefill.addr, &body("in the store", &json!({"max_tokens": 1}))).await;
    let second = chat(decode.addr, &asked).await;
    assert_eq!((said(&first), said(&second)), (right("in the store", 4), right("in the store", 4)));
    assert_eq!(decode.state().count("external_hits"), 4);
}

#[tokio::test]
async fn what_the_front_end_refuses() {
    let engine = engine(config(Wire::Vllm, Role::Prefill)).await;
    for (more, status) in [
        (json!({"stream_options": {"include_usage": true}}), 400),
        (json!({"n": 2, "temperature": 0}), 400),
        (json!({"n": 2, "temperature": 1}), 200),
        (json!({"model": "nope"}), 404),
        (json!({"messages": []}), 400),
        (json!({"kv_transfer_params": {}}), 200),
    ] {
        assert_eq!(chat(engine.addr, &body("x", &more)).await.status(), status, "{more}");
    }
    let text = "POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\ncontent-length: 2\r\n\r\n{}";
    let answer = connect(engine.addr).await.request(text).await.unwrap();
    assert!(answer.status() == 400 && answer.text().contains("Unsupported Media Type"), "{}", answer.text());
}

#[tokio::test]
async fn a_request_id_becomes_the_bodys_and_the_same_twice_at_once_is_fine() {
    let engine = engine(EngineConfig { timing: slow(ms(10)), ..config(Wire::Vllm, Role::Plain) }).await;
    let asked = body("x", &json!({"max_tokens": 3}));
    let one = || ask(engine.addr, "/v1/chat/completions", "x-request-id: abc\r\n", &asked);
    let (a, b) = tokio::join!(one(), one());
    assert_eq!((&a.json()["id"], &b.json()["id"]), (&json!("chatcmpl-abc"), &json!("chatcmpl-abc")));
}

#[tokio::test]
async fn sigterm_ends_running_streams_with_abort() {
    let engine = engine(EngineConfig { timing: slow(ms(20)), ..config(Wire::Vllm, Role::Plain) }).await;
    let mut client = connect(engine.addr).await;
    let asked = body("x", &json!({"max_tokens": 1000, "stream": true}));
    client.send(post("/v1/chat/completions", "", &asked)).await.unwrap();
    client.read_until(b"\"content\":\" ").await.unwrap();
    engine.stop().await;
    let text = String::from_utf8(client.read_to_end().await.unwrap().0).unwrap();
    assert!(
        text.contains("\"finish_reason\":\"abort\"")
            && text.contains("data: [DONE]")
            && text.ends_with("0\r\n\r\n"),
        "{text}"
    );
}
