//! Clients that ask all the time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tandem::testkit::client::RawClient;
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::task::spawn;
use tandem::types::clock::{Instant, now};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::router::Router;

/// Between the end of one request and the next one of the same client.
const PAUSE: Duration = Duration::from_millis(2);

/// Requests under way.
pub struct Load {
    stop: CancellationToken,
    clients: Vec<JoinHandle<()>>,
    answers: Arc<Mutex<Answers>>,
}

#[derive(Debug, Default)]
pub struct Answers {
    pub good: usize,
    /// When it began, and what became of it.
    pub bad: Vec<(Instant, String)>,
}

impl Answers {
    fn count(&mut self, began: Instant, bad: Option<String>) {
        match bad {
            None => self.good += 1,
            Some(bad) => self.bad.push((began, bad)),
        }
    }
}

impl Load {
    pub fn on(router: &Router, clients: usize) -> Self {
        let (stop, answers) = (CancellationToken::new(), Arc::<Mutex<Answers>>::default());
        let front = router.process.front;
        let client = |_| {
            let (stop, answers) = (stop.clone(), Arc::clone(&answers));
            spawn(async move {
                let mut client = RawClient::connect(front).await;
                while !stop.is_cancelled() {
                    let began = now();
                    let result = client.request(&post_chat(chat_body("m", false))).await;
                    let bad = match result {
                        Ok(answer) if answer.status() == 200 && answer.is_complete() => None,
                        Ok(answer) => {
                            Some(format!("{} {}", answer.status(), String::from_utf8_lossy(&answer.body)))
                        }
                        Err(error) => {
                            client = RawClient::connect(front).await;
                            Some(error.to_string())
                        }
                    };
                    answers.lock().count(began, bad);
                    sleep(PAUSE).await;
                }
            })
        };
        let clients = (0..clients).map(client).collect();
        Self { stop, clients, answers }
    }

    /// Good answers so far.
    pub fn good(&self) -> usize {
        self.answers.lock().good
    }

    /// Ends, every request answered.
    pub async fn end(self) -> Answers {
        self.stop.cancel();
        for client in self.clients {
            client.await.unwrap();
        }
        std::mem::take(&mut *self.answers.lock())
    }

    /// [`Self::end`], and none failed. How many there were.
    pub async fn none_failed(self) -> usize {
        let Answers { good, bad } = self.end().await;
        assert!(
            bad.is_empty(),
            "{} of {} failed: {:?}",
            bad.len(),
            good + bad.len(),
            &bad[..bad.len().min(5)]
        );
        good
    }
}
