//! A gentle load of its own, so that there is something to see at once: a request every second or so, two of three
//! streamed, prompts short and long.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::ask::{Question, ask};
use crate::drain::Tracker;

/// Between two requests, milliseconds.
const PAUSE: std::ops::Range<u64> = 300..1500;
/// Words of a prompt, and tokens of an answer.
const WORDS: std::ops::Range<usize> = 4..400;
const TOKENS: std::ops::Range<u32> = 16..80;

/// The load. Dropping it ends its requests.
#[derive(Debug)]
pub(super) struct Traffic {
    stop: CancellationToken,
    tasks: Tracker,
    texts: Arc<Texts>,
}

/// Answers that were read to the end and compared.
#[derive(Debug, Default)]
struct Texts {
    right: AtomicU64,
    wrong: AtomicU64,
}

impl Traffic {
    pub(super) fn start(front: SocketAddr) -> Self {
        let traffic =
            Self { stop: CancellationToken::new(), tasks: Tracker::default(), texts: Arc::default() };
        let (stop, tasks, texts) = (traffic.stop.clone(), traffic.tasks.clone(), Arc::clone(&traffic.texts));
        traffic.tasks.spawn("demo-traffic", async move {
            while stop.run_until_cancelled(sleep(pause())).await.is_some() {
                let (stop, texts) = (stop.clone(), Arc::clone(&texts));
                tasks.spawn_light(async move {
                    stop.run_until_cancelled(one(front, &texts)).await;
                });
            }
        });
        traffic
    }

    /// Texts that were right, and that were not.
    pub(super) fn texts(&self) -> (u64, u64) {
        (self.texts.right.load(Ordering::Relaxed), self.texts.wrong.load(Ordering::Relaxed))
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A request that fails is in the view like everybody's; only a wrong text would be seen nowhere else.
async fn one(front: SocketAddr, texts: &Texts) {
    let question = Question::new(&prompt(), fastrand::u32(TOKENS), fastrand::u8(..3) > 0);
    if let Ok(answer) = ask(front, &question).await
        && answer.status.is_success()
    {
        let count = if answer.right { &texts.right } else { &texts.wrong };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn pause() -> Duration {
    Duration::from_millis(fastrand::u64(PAUSE))
}

/// No two are alike, so that no answer is right for two.
fn prompt() -> String {
    let words = std::iter::repeat_with(|| format!("w{}", fastrand::u16(..)));
    words.take(fastrand::usize(WORDS)).collect::<Vec<_>>().join(" ")
}
