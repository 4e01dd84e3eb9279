//! Clients of one router: what they ask for, what is to happen to it, and how they leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::json;
use tandem::testkit::client::RawClient;
use tandem::testkit::fixtures::post;
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::quiet::VIA;
use tandem::testkit::router::FRONT;
use tokio::time::sleep;

use super::host::{KINDS, Kind};
use super::ms;

const CHAT: &str = "/v1/chat/completions";

/// What clients share with the driver.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Nobody asks anew.
    pub(super) pause: AtomicBool,
    pub(super) busy: AtomicU64,
    /// By router.
    pub(super) sent: [AtomicU64; super::world::ROUTERS],
    /// By status; 0: the client left.
    pub(super) answers: Mutex<BTreeMap<u16, u64>>,
}

/// Faults of any one engine.
const ANY: &[&str] = &[
    "status=500",
    "status=503",
    "delay=10ms,reset",
    "delay=5ms,close",
    "after=1,reset",
    "after=2,close",
    "after=1,error",
    "at=40ms,reset",
    "delay=300ms",
    "ttft=400ms",
    "token=80ms",
    "token=80ms",
    "hang",
    "after=1,hang",
];
/// Of engines of pairs.
const PAIRS: &[&str] = &[
    "transfer=200ms",
    "transfer=300ms,at=60ms,reset",
    "transfer=300ms,at=40ms,close",
    "transfer=300ms,at=60ms,reset",
    "fail",
    "no-kv",
    "at=60ms,close",
];

fn fault(kind: Kind, random: &mut fastrand::Rng) -> String {
    let role = match kind {
        Kind::Plain => "plain",
        _ if random.bool() => "prefill",
        _ => "decode",
    };
    let some = if kind != Kind::Plain && random.bool() { PAIRS } else { ANY };
    format!("{role}:{}", some[random.usize(..some.len())])
}

/// One request after the other, for ever.
pub(super) async fn client(router: usize, seed: u64, net: MemoryNet, load: Arc<Load>) {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        sleep(ms(random.u64(1..120))).await;
        if load.pause.load(Ordering::Relaxed) {
            continue;
        }
        load.busy.fetch_add(1, Ordering::Relaxed);
        load.sent[router].fetch_add(1, Ordering::Relaxed);
        let status = ask(router, &mut random, &net).await;
        *load.answers.lock().entry(status).or_default() += 1;
        load.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn ask(router: usize, random: &mut fastrand::Rng, net: &MemoryNet) -> u16 {
    let kind = KINDS[random.usize(..KINDS.len())];
    let messages = json!([{"role": "user", "content": format!("storm {}", random.u32(..))}]);
    let body = json!({
        "model": kind.name(), "messages": messages, "stream": random.bool(), "max_tokens": random.u32(1..8),
    });
    let mut lines = vec![format!("{VIA}: {router}")];
    if random.u8(..5) == 0 {
        lines.push(format!("X-Mock: {}", fault(kind, random)));
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut client = RawClient::in_memory(net.dial(FRONT).await.unwrap());
    client.send(post(CHAT, &lines, body.to_string())).await.unwrap();
    if random.u8(..4) == 0 {
        sleep(ms(random.u64(1..250))).await;
        if random.bool() {
            client.reset();
        }
        return 0;
    }
    client.read_response().await.map_or(1, |answer| answer.status())
}
