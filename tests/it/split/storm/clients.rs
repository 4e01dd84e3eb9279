//! Requests: with a session or without, streamed or not, some of them left half way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tandem::testkit::client::RawClient;
use tandem::testkit::fixtures::{chat_body, post};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::FRONT;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::host::{KINDS, Kind};
use super::ms;
use crate::split::rig::CHAT;

/// Header of a request: the newest version that was in force when it was sent. Engines get it too.
pub(super) const SENT_AT: &str = "x-sent-at";
const CLIENTS: u64 = 40;
const SESSIONS: u64 = 50;

/// What clients share with the driver.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// By service: the newest version that an order was answered with.
    pub(super) versions: [AtomicU64; KINDS.len()],
    /// By status; 0: the client left; 1: the answer broke off.
    pub(super) answers: Mutex<BTreeMap<u16, u64>>,
}

pub(super) fn start(seed: u64, requests: u64, net: &MemoryNet, load: &Arc<Load>) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        let random = fastrand::Rng::with_seed(seed.wrapping_mul(1000) + n);
        clients.spawn(client(random, requests / CLIENTS, net.clone(), Arc::clone(load)));
    }
    clients
}

async fn client(mut random: fastrand::Rng, requests: u64, net: MemoryNet, load: Arc<Load>) {
    for _ in 0..requests {
        sleep(ms(random.u64(0..40))).await;
        let status = ask(&mut random, &net, &load).await;
        *load.answers.lock().entry(status).or_default() += 1;
    }
}

async fn ask(random: &mut fastrand::Rng, net: &MemoryNet, load: &Load) -> u16 {
    let at = random.usize(..KINDS.len());
    let kind: Kind = KINDS[at];
    let mut lines = vec![format!("{SENT_AT}: {}", load.versions[at].load(Ordering::Relaxed))];
    if random.bool() {
        lines.push(format!("x-session-id: s{}", random.u64(..SESSIONS)));
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut client = RawClient::in_memory(net.dial(FRONT).await.unwrap());
    client.send(post(CHAT, &lines, chat_body(kind.name(), random.bool()))).await.unwrap();
    if random.u8(..12) == 0 {
        sleep(ms(random.u64(1..40))).await;
        return 0;
    }
    client.read_response().await.map_or(1, |answer| if answer.is_complete() { answer.status() } else { 1 })
}
