//! Clients that ask one request after the other, whose right answers are known.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::super::ask::{Question, ask};
use crate::drain::Tracker;

/// For one answer.
const LIMIT: Duration = Duration::from_secs(20);
/// Clients. So many requests may have been decided under the split before when another comes into force.
pub(super) const WIDTH: usize = 8;

/// What each of them does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Between two requests, milliseconds.
    pause: (u64, u64),
    tokens: u32,
}

impl Load {
    /// A dozen requests a second, with engines that take their time.
    pub(super) const GENTLE: Self = Self { pause: (50, 250), tokens: 12 };
    pub(super) const QUICK: Self = Self { pause: (0, 2), tokens: 4 };
}

/// Dropping it ends the asking; [`Clients::end`] also waits for what is open.
#[derive(Debug)]
pub(super) struct Clients {
    stop: CancellationToken,
    tasks: Tracker,
    told: Arc<Told>,
}

#[derive(Debug, Default)]
struct Told {
    right: AtomicU64,
    failed: AtomicU64,
    /// Of the first that failed.
    why: Mutex<Option<String>>,
}

impl Clients {
    pub(super) fn start(front: SocketAddr, load: Load) -> Self {
        let clients =
            Self { stop: CancellationToken::new(), tasks: Tracker::default(), told: Arc::default() };
        for client in 0..WIDTH {
            let (stop, told) = (clients.stop.clone(), Arc::clone(&clients.told));
            clients.tasks.spawn("demo-client", async move {
                let mut n = 0_u64;
                while !stop.is_cancelled() {
                    told.add(one(front, client, n, load.tokens).await);
                    n += 1;
                    stop.run_until_cancelled(sleep(pause(load))).await;
                }
            });
        }
        clients
    }

    pub(super) fn right(&self) -> u64 {
        self.told.right.load(Ordering::Relaxed)
    }

    pub(super) fn failed(&self) -> u64 {
        self.told.failed.load(Ordering::Relaxed)
    }

    /// Why the first one failed.
    pub(super) fn why(&self) -> Option<String> {
        self.told.why.lock().clone()
    }

    /// No further request; over when the open ones are.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        let _ = timeout(LIMIT, self.tasks.wait()).await; // each has that limit itself
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Told {
    fn add(&self, result: anyhow::Result<()>) {
        match result {
            Ok(()) => self.right.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                self.why.lock().get_or_insert_with(|| format!("{error:#}"));
                self.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

async fn one(front: SocketAddr, client: usize, n: u64, tokens: u32) -> anyhow::Result<()> {
    let question = Question::new(&format!("Question {n} of client {client}"), tokens, !n.is_multiple_of(3));
    let answer = timeout(LIMIT, ask(front, &question)).await;
    let answer = answer.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer for {LIMIT:?}")))?;
    let (id, status) = (&answer.request_id, answer.status);
    anyhow::ensure!(status.is_success(), "request {id}: status {status}");
    anyhow::ensure!(answer.right, "request {id}: a text that does not follow from its prompt");
    Ok(())
}

fn pause(load: Load) -> Duration {
    Duration::from_millis(fastrand::u64(load.pause.0..=load.pause.1))
}
