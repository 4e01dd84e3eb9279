//! A real pair over loopback: rooms, pages, and what a wrong cancellation does to them.

use super::*;
use crate::engine::{DuplicateRoom, MARK};

/// A prefill, a decode, and the fields that join them.
pub(super) struct Pair {
    pub(super) prefill: Running,
    pub(super) decode: Running,
}

impl Pair {
    pub(super) async fn start(change: impl Fn(&mut EngineConfig)) -> Self {
        let mut configs = [config(Wire::Sglang, Role::Prefill), config(Wire::Sglang, Role::Decode)];
        configs.iter_mut().for_each(change);
        let [prefill, decode] = configs;
        Self { prefill: engine(prefill).await, decode: engine(decode).await }
    }

    pub(super) fn body(&self, prompt: &str, room: u64, more: &Value) -> Value {
        let mut body = body(prompt, more);
        body["bootstrap_host"] = json!("127.0.0.1");
        body["bootstrap_port"] = json!(self.prefill.side_addr.unwrap().port());
        body["bootstrap_room"] = json!(room);
        body
    }

    async fn ask(&self, prompt: &str, room: u64, more: &Value) -> (RawResponse, RawResponse) {
        let body = self.body(prompt, room, more);
        tokio::join!(chat(self.prefill.addr, &body), chat(self.decode.addr, &body))
    }

    pub(super) async fn idle(&self) {
        for engine in [&self.prefill, &self.decode] {
            engine.wait(SOON, crate::engine::State::is_idle).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_pair_answers_what_a_plain_engine_says_and_the_prefill_one_token() {
    let pair = Pair::start(|_| {}).await;
    for (room, stream) in [(1000, false), (1001, true)] {
        let (prefill, decode) =
            pair.ask("hello there", room, &json!({"max_tokens": 6, "stream": stream})).await;
        assert_eq!((said(&prefill), said(&decode)), (right("hello there", 1), right("hello there", 6)));
    }
    pair.idle().await;
    let state = pair.decode.state();
    assert_eq!((state.count("transfers"), state.count("mismatched"), state.count("corrupted")), (2, 0, 0));
}

#[tokio::test]
async fn either_half_may_come_first() {
    let pair = Pair::start(|_| {}).await;
    for (room, first, second) in
        [(7, pair.prefill.addr, pair.decode.addr), (8, pair.decode.addr, pair.prefill.addr)]
    {
        let asked = pair.body("who is first", room, &json!({"max_tokens": 3}));
        let early = beside({
            let asked = asked.clone();
            async move { chat(first, &asked).await }
        });
        tokio::time::sleep(ms(30)).await;
        assert!(!early.is_finished(), "it waits for the other");
        assert_eq!(chat(second, &asked).await.status(), 200);
        assert_eq!(early.await.unwrap().status(), 200);
    }
    pair.idle().await;
}

#[tokio::test]
async fn the_decode_uses_the_kv_of_its_room_whatever_its_own_prompt_says() {
    let pair = Pair::start(|_| {}).await;
    let (mine, other) =
        (pair.body("mine", 5, &json!({"max_tokens": 4})), pair.body("other", 5, &json!({"max_tokens": 4})));
    let (_, answer) = tokio::join!(chat(pair.prefill.addr, &other), chat(pair.decode.addr, &mine));
    assert_eq!(said(&answer), right("other", 4));
    assert_eq!(pair.decode.state().count("mismatched"), 1);
}

#[tokio::test]
async fn a_half_without_its_other_fails_after_its_time_out_in_the_recorded_words() {
    let pair = Pair::start(|config| {
        config.waits.bootstrap = ms(60);
        config.waits.waiting = ms(60);
    })
    .await;
    let alone = pair.body("alone", 77, &json!({"stream": true}));
    for (addr, words) in [
        (
            pair.prefill.addr,
            ["Prefill bootstrap failed for request rank=0 req.rid='", "in KVPoll.Bootstrapping"],
        ),
        (
            pair.decode.addr,
            ["Decode transfer failed for request rank=0 decode_req.req.rid='", "in KVPoll.WaitingForInput"],
        ),
    ] {
        let answer = chat(addr, &alone).await;
        let events = answer.events();
        let error = events[0].json();
        assert_eq!((answer.status(), events.len(), events[1].is_done()), (200, 2, true));
        assert_eq!(error["error"]["type"], "INTERNAL_SERVER_ERROR");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(words[0])
                && message.contains("timed out after 0.1s")
                && message.ends_with(words[1]),
            "{message}"
        );
        let whole = chat(addr, &pair.body("alone", 78, &json!({}))).await;
        assert_eq!((whole.status(), &whole.json()["type"]), (500, &json!("500")));
    }
    pair.idle().await;
}

#[tokio::test]
async fn a_live_room_is_used_once_or_hangs_or_fails_as_configured() {
    for (duplicate, at_least) in [(DuplicateRoom::Fail, ms(0)), (DuplicateRoom::Hang, ms(600))] {
        let pair = Pair::start(|config| {
            config.duplicate_room = duplicate;
            config.waits.bootstrap = ms(600);
        })
        .await;
        let first = pair.body("one", 9, &json!({}));
        let addr = pair.prefill.addr;
        let _first = beside(async move { chat(addr, &first).await });
        pair.prefill.wait(SOON, |state| state.rooms_held == 1).await.unwrap();
        let began = crate::types::clock::now();
        let second = chat(addr, &pair.body("two", 9, &json!({}))).await;
        assert_eq!((second.status(), pair.prefill.state().count("duplicate_rooms")), (500, 1));
        assert!(began.elapsed() >= at_least, "{duplicate:?} {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn several_samples_share_a_room_and_fail() {
    let pair = Pair::start(|config| config.duplicate_room = DuplicateRoom::Fail).await;
    let (prefill, decode) = pair.ask("many", 9, &json!({"n": 2})).await;
    assert_eq!((prefill.status(), decode.status()), (500, 500));
    assert!(pair.decode.state().count("duplicate_rooms") > 0);
}

#[tokio::test]
async fn a_list_of_prompts_meets_in_a_room_each() {
    let pair = Pair::start(|_| {}).await;
    let port = pair.prefill.side_addr.unwrap().port();
    let asked = json!({"model": "tiny", "prompt": ["a", "b c"], "max_tokens": 3, "bootstrap_host": ["127.0.0.1", "127.0.0.1"],
                       "bootstrap_port": [port, port], "bootstrap_room": [50, 60]});
    let path = "/v1/completions";
    let (_, decode) =
        tokio::join!(ask(pair.prefill.addr, path, "", &asked), ask(pair.decode.addr, path, "", &asked));
    let plain = engine(config(Wire::Sglang, Role::Plain)).await;
    let plain = ask(plain.addr, path, "", &asked).await;
    assert_eq!(decode.json()["choices"], plain.json()["choices"]);
    pair.idle().await;
}

#[tokio::test]
async fn a_request_without_a_room_or_with_a_string_for_one_is_a_400() {
    let pair = Pair::start(|_| {}).await;
    for addr in [pair.prefill.addr, pair.decode.addr] {
        assert_eq!(chat(addr, &body("x", &json!({}))).await.status(), 400);
        assert_eq!(chat(addr, &body("x", &json!({"bootstrap_room": "5"}))).await.status(), 400);
    }
}

#[tokio::test]
async fn a_decode_without_a_host_dies_and_its_connections_with_it() {
    let pair = Pair::start(|_| {}).await;
    let mut other = connect(pair.decode.addr).await;
    let mut client = connect(pair.decode.addr).await;
    let answer =
        client.request(post("/v1/chat/completions", "", &body("x", &json!({"bootstrap_room": 5})))).await;
    assert!(answer.is_err(), "closed without an answer");
    assert!(pair.decode.is_dead() && other.read_head().await.is_err());
    assert!(TcpStream::connect(pair.decode.addr).await.is_err(), "nobody listens");
    let sturdy = engine(EngineConfig { fragile: false, ..config(Wire::Sglang, Role::Decode) }).await;
    assert_eq!(chat(sturdy.addr, &body("x", &json!({"bootstrap_room": 5}))).await.status(), 500);
}

/// Aborts a decode in the middle of its prefill's write, then serves one more request.
async fn aborted_while_written(guard: bool, abort_path: bool) -> (Pair, String) {
    let pair = Pair::start(|config| {
        config.guard = guard;
        config.timing.transfer = ms(400);
        config.waits.disconnect = ms(10);
        config.pages = 4;
    })
    .await;
    let asked = pair.body("first", 1, &json!({"rid": "r-1", "max_tokens": 3}));
    let (prefill, body) = (pair.prefill.addr, asked.clone());
    let prefill = beside(async move { chat(prefill, &body).await });
    let mut decode = connect(pair.decode.addr).await;
    decode.send(post("/v1/chat/completions", "", &asked)).await.unwrap();
    let began = crate::types::clock::now();
    while get(pair.prefill.addr, "/mock/state").await.json()["rooms"][0]["phase"] != "writing" {
        assert!(began.elapsed() < SOON);
        tokio::time::sleep(ms(2)).await;
    }
    // The decode hears of it over loopback.
    tokio::time::sleep(ms(30)).await;
    if abort_path {
        assert_eq!(ask(pair.decode.addr, "/abort_request", "", &json!({"rid": "r-"})).await.status(), 200);
        assert_eq!(decode.read_response().await.unwrap().status(), 500);
    } else {
        decode.close();
    }
    pair.decode.wait(SOON, |state| state.live == 0).await.unwrap();
    assert_eq!(prefill.await.unwrap().status(), 200, "the write went on");
    let (_, next) = pair.ask("second", 2, &json!({"max_tokens": 3})).await;
    pair.idle().await;
    (pair, said(&next))
}

#[tokio::test]
async fn without_the_guard_an_abort_during_the_write_corrupts_the_next_request() {
    for abort_path in [true, false] {
        let (pair, text) = aborted_while_written(false, abort_path).await;
        assert!(text.contains(MARK) && text != right("second", 3), "{text}");
        let state = pair.decode.state();
        assert_eq!((state.count("corrupted"), state.count("dirtied") > 0, state.pages_dirty), (1, true, 0));
        let (_, after) = pair.ask("third", 3, &json!({"max_tokens": 3})).await;
        assert_eq!(said(&after), right("third", 3), "once");
    }
}

#[tokio::test]
async fn with_the_guard_the_pages_wait_for_the_write_and_nothing_is_corrupted() {
    let (pair, text) = aborted_while_written(true, true).await;
    assert_eq!(text, right("second", 3));
    let state = pair.decode.state();
    assert_eq!((state.count("corrupted"), state.pages_deferred, state.pages_used), (0, 0, 0));
}

#[tokio::test]
async fn without_the_guard_a_decode_that_is_kept_until_its_prefill_answered_is_harmless() {
    let pair = Pair::start(|config| {
        config.guard = false;
        config.timing = Timing { transfer: ms(20), ..slow(ms(20)) };
        config.waits.disconnect = ms(1);
    })
    .await;
    let asked = pair.body("first", 1, &json!({"max_tokens": 100}));
    let mut decode = connect(pair.decode.addr).await;
    decode.send(post("/v1/chat/completions", "", &asked)).await.unwrap();
    assert_eq!(chat(pair.prefill.addr, &asked).await.status(), 200);
    decode.close();
    pair.idle().await;
    let (_, next) = pair.ask("second", 2, &json!({"max_tokens": 3})).await;
    assert_eq!((said(&next), pair.decode.state().count("dirtied")), (right("second", 3), 0));
}

#[tokio::test]
async fn a_closed_socket_is_noticed_after_its_delay_and_an_orphan_sits_until_the_time_out() {
    let pair = Pair::start(|config| {
        config.waits.disconnect = ms(300);
        config.waits.bootstrap = Duration::from_secs(3);
    })
    .await;
    let mut client = connect(pair.prefill.addr).await;
    client.send(post("/v1/chat/completions", "", &pair.body("x", 3, &json!({})))).await.unwrap();
    pair.prefill.wait(SOON, |state| state.rooms_held == 1).await.unwrap();
    let left = crate::types::clock::now();
    client.close();
    let log = pair.prefill.log.clone();
    assert!(log.wait(SOON, |records| records.conns[0].left.is_some()).await);
    assert_eq!(pair.prefill.state().rooms_held, 1, "not yet");
    pair.prefill.wait(SOON, |state| state.rooms == 0).await.unwrap();
    assert!(left.elapsed() >= ms(290), "{:?}", left.elapsed());
    assert_eq!(log.records().requests[0].stopped, Some("peer_left"));
}

#[tokio::test]
async fn an_abort_before_the_rid_is_registered_is_lost_and_matches_by_prefix_after() {
    let pair = Pair::start(|config| config.waits.register = ms(300)).await;
    let asked = pair.body("x", 3, &json!({"rid": "nonce-1"}));
    let addr = pair.prefill.addr;
    let request = beside(async move { chat(addr, &asked).await });
    pair.prefill.wait(SOON, |state| state.rooms_held == 1).await.unwrap();
    let abort = json!({"rid": "nonce"});
    ask(addr, "/abort_request", "", &abort).await;
    tokio::time::sleep(ms(320)).await;
    assert_eq!((pair.prefill.state().rooms_held, pair.prefill.state().count("aborts_lost")), (1, 1));
    ask(addr, "/abort_request", "", &abort).await;
    assert_eq!(request.await.unwrap().status(), 500);
    assert_eq!(pair.prefill.state().count("aborts"), 1);
    pair.idle().await;
}

#[tokio::test]
async fn a_killed_prefill_and_a_dead_bootstrap_port_fail_the_decode_in_the_recorded_words() {
    let pair = Pair::start(|config| config.timing.ttft = Duration::from_mins(1)).await;
    let asked = pair.body("x", 3, &json!({"stream": true}));
    let (prefill, decode) = (pair.prefill.addr, pair.decode.addr);
    let body = asked.clone();
    let _prefill = beside(async move {
        connect(prefill).await.request(post("/v1/chat/completions", "", &body)).await.is_ok()
    });
    let body = asked.clone();
    let answer = beside(async move { chat(decode, &body).await });
    pair.decode.wait(SOON, |state| state.pages_used > 0).await.unwrap();
    tokio::time::sleep(ms(30)).await;
    pair.prefill.kill();
    let error = answer.await.unwrap().events()[0].json();
    assert!(
        error["error"]["message"].as_str().unwrap().contains("Lost connection with prefill instance"),
        "{error}"
    );
    let dead = chat(decode, &pair.body("x", 4, &json!({}))).await;
    assert_eq!(dead.status(), 500);
    assert!(dead.json()["message"].as_str().unwrap().starts_with("Decode handshake failed"));
    assert_eq!(get(decode, "/health").await.status(), 200);
}

#[tokio::test]
async fn the_bootstrap_server_answers_as_the_real_one() {
    let pair = Pair::start(|_| {}).await;
    let side = pair.prefill.side_addr.unwrap();
    assert_eq!(get(side, "/health").await.text(), "OK");
    let all = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1";
    assert_eq!(get(side, all).await.json()["follow_bootstrap_room"], true);
    assert_eq!(get(side, "/route").await.status(), 400);
}
