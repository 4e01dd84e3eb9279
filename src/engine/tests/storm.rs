//! Many requests of an SGLang pair that end in every way: nothing may be left, and only a missing guard corrupts.

use super::sglang::Pair;
use super::*;
use crate::engine::MARK;

/// How a request of the storm ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Whole,
    PrefillLeft,
    DecodeLeft,
    BothLeft,
    DecodeAborted,
    PrefillAborted,
}

const WAYS: [Way; 6] =
    [Way::Whole, Way::PrefillLeft, Way::DecodeLeft, Way::BothLeft, Way::DecodeAborted, Way::PrefillAborted];

/// One request; what its decode said, if anybody was left to hear it.
async fn stormy(
    prefill: SocketAddr,
    decode: SocketAddr,
    asked: Value,
    way: Way,
    after: Duration,
) -> Option<String> {
    let rid = json!({"rid": asked["rid"]});
    let request = post("/v1/chat/completions", "", &asked);
    let (mut p, mut d) = (connect(prefill).await, connect(decode).await);
    p.send(&request).await.unwrap();
    d.send(&request).await.unwrap();
    tokio::time::sleep(after).await;
    match way {
        Way::Whole => {}
        Way::PrefillLeft => p.close(),
        Way::BothLeft => return None,
        Way::DecodeLeft => {
            d.close();
            let _ = p.read_response().await;
            return None;
        }
        Way::DecodeAborted => drop(ask(decode, "/abort_request", "", &rid).await),
        Way::PrefillAborted => drop(ask(prefill, "/abort_request", "", &rid).await),
    }
    Some(said(&d.read_response().await.unwrap()))
}

/// A storm of requests that end in every way; the texts that are neither right nor missing, and the decode's last state.
async fn storm(guard: bool) -> (Vec<String>, crate::engine::State) {
    let pair = Pair::start(|config| {
        config.timing = Timing { transfer: ms(20), ttft: ms(10), ..slow(ms(1)) };
        config.waits.bootstrap = ms(1000);
        config.waits.waiting = ms(1000);
        config.waits.disconnect = ms(3);
        config.pages = 64;
        config.guard = guard;
    })
    .await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut running = Vec::new();
    for room in 0..90_u64 {
        let rid = format!("{:08x}-{room}", random.u32(..));
        let asked = pair.body(&format!("prompt {room}"), 1000 + room, &json!({"max_tokens": 4, "rid": rid}));
        let (way, after) = (WAYS[random.usize(..WAYS.len())], ms(random.u64(..50)));
        running.push((room, way, beside(stormy(pair.prefill.addr, pair.decode.addr, asked, way, after))));
        tokio::time::sleep(ms(3)).await;
    }
    let (mut wrong, mut whole) = (Vec::new(), 0);
    for (room, way, one) in running {
        let right = right(&format!("prompt {room}"), 4);
        match one.await.unwrap() {
            Some(text) if text == right => whole += 1,
            // Ended early, at any token.
            Some(text) if way != Way::Whole && right.starts_with(&text) => {}
            Some(text) => wrong.push(text),
            None => {}
        }
    }
    pair.idle().await;
    assert!(whole > 10, "{whole} of 90");
    (wrong, pair.decode.state())
}

#[tokio::test]
async fn whatever_ends_early_nothing_is_left_and_with_the_guard_nothing_is_corrupted() {
    let (wrong, state) = storm(true).await;
    assert_eq!(
        (wrong, state.count("corrupted"), state.count("mismatched"), state.pages_dirty),
        (vec![], 0, 0, 0)
    );
}

#[tokio::test]
async fn the_same_without_the_guard_corrupts_and_says_so() {
    let (wrong, state) = storm(false).await;
    assert!(state.count("dirtied") > 0 && state.count("corrupted") > 0, "{state:?}");
    assert!(wrong.iter().all(|text| text.contains(MARK)), "{wrong:?}");
}
