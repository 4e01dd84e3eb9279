//! Chat streams that arrive when they arrive (Poisson, whatever the answers take), each checked word by word.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tandem::types::clock::{Instant, now};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Longest wait for one whole answer.
const LIMIT: Duration = Duration::from_secs(40);
/// Requests that are open at one time; one more is an error.
const OPEN: usize = 5000;
/// A connection that was unused for so long is not used again.
const STALE: Duration = Duration::from_secs(4);

/// A front door, and whether a load balancer would send new requests there.
#[derive(Debug)]
pub(crate) struct Target {
    front: SocketAddr,
    pub(crate) open: AtomicBool,
    idle: Mutex<Vec<(SendRequest<Full<Bytes>>, Instant)>>,
    served: AtomicU64,
}

impl Target {
    pub(crate) fn new(front: SocketAddr) -> Self {
        Self { front, open: AtomicBool::new(true), idle: Mutex::default(), served: AtomicU64::new(0) }
    }

    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

/// One request.
#[derive(Debug)]
pub(crate) struct Sample {
    /// When it was to arrive; every time counts from here.
    pub(crate) due: Instant,
    /// First word, and end.
    pub(crate) took: Result<(Duration, Duration), String>,
}

/// The running load.
#[derive(Debug)]
pub(crate) struct Load {
    shared: Arc<Shared>,
    pacer: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    targets: Vec<Arc<Target>>,
    events: u32,
    turn: AtomicUsize,
    open: AtomicUsize,
    stop: AtomicBool,
    samples: Mutex<Vec<Sample>>,
}

impl Load {
    /// `rate` requests a second, each for `events` words.
    pub(crate) fn start(targets: &[Arc<Target>], rate: f64, events: u32, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            targets: targets.to_vec(),
            events,
            turn: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            samples: Mutex::default(),
        });
        let (sender, mut starts) = unbounded_channel();
        let mine = Arc::clone(&shared);
        // A thread of its own: the event loop's timers have a grain of a millisecond.
        std::thread::spawn(move || tick(&sender, rate, seed, &mine));
        let mine = Arc::clone(&shared);
        let pacer = tokio::spawn(async move {
            let mut number = 0_u64;
            while let Some(due) = starts.recv().await {
                number += 1;
                tokio::spawn(Arc::clone(&mine).one(number, due));
            }
        });
        Self { shared, pacer }
    }

    /// No more requests; those that are open are waited for.
    pub(crate) async fn stop(self) -> Vec<Sample> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.pacer.await;
        while self.shared.open.load(Ordering::Relaxed) > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        std::mem::take(&mut *self.shared.samples.lock())
    }
}

fn tick(sender: &UnboundedSender<Instant>, rate: f64, seed: u64, shared: &Shared) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut due = now() + Duration::from_millis(20);
    while !shared.stop.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(now()));
        // Counted here, so that the end does not miss one that no task has begun yet.
        shared.open.fetch_add(1, Ordering::Relaxed);
        if sender.send(due).is_err() {
            return;
        }
        // Exponential distances make Poisson arrivals; 1 - u is never 0.
        due += Duration::from_secs_f64(-(1.0 - random.f64()).ln() / rate);
    }
}

impl Shared {
    async fn one(self: Arc<Self>, number: u64, due: Instant) {
        let took = if self.open.load(Ordering::Relaxed) > OPEN {
            Err("too many are open".to_owned())
        } else {
            let answer = timeout(LIMIT, ask(&self.targets, &self.turn, number, self.events));
            answer.await.unwrap_or_else(|_| Err(format!("no end within {LIMIT:?}")))
        };
        let took = took
            .map(|(first, end)| (first.saturating_duration_since(due), end.saturating_duration_since(due)));
        self.samples.lock().push(Sample { due, took });
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One request to a target that is open, in turn; when the first word and the end were here.
pub(crate) async fn ask(
    targets: &[Arc<Target>],
    turn: &AtomicUsize,
    number: u64,
    events: u32,
) -> Result<(Instant, Instant), String> {
    let turn = turn.fetch_add(1, Ordering::Relaxed);
    let order = (0..targets.len()).map(|n| &targets[(turn + n) % targets.len()]);
    let target = order.into_iter().find(|target| target.open.load(Ordering::Relaxed));
    let target = target.ok_or("no router is ready")?;
    target.served.fetch_add(1, Ordering::Relaxed);
    let body = Bytes::from(format!(
        r#"{{"model":"tiny","messages":[{{"role":"user","content":"roll number {number}"}}],"stream":true,"max_tokens":{events}}}"#
    ));
    let request = Request::post("/v1/chat/completions")
        .header("host", target.front.to_string())
        .header("content-type", "application/json")
        .body(Full::new(body.clone()))
        .map_err(|error| error.to_string())?;
    let mut connection = connection(target).await?;
    let answer = connection.send_request(request).await.map_err(|error| format!("{error:?}"))?;
    let status = answer.status();
    let mut words = Words::default();
    let mut stream = answer.into_body();
    while let Some(frame) = stream.frame().await {
        let frame = frame.map_err(|error| format!("in the stream: {error:?}"))?;
        words.take(frame.data_ref().map_or(&[][..], |data| data));
    }
    let end = now();
    let right = tandem::engine::expected(0, &body, events);
    if status != 200 || !words.done || Some(&words.said) != right.as_ref() {
        let rest = String::from_utf8_lossy(&words.rest);
        return Err(format!("{status}, said {:?} {}{rest}", words.said, words.odd));
    }
    if connection.ready().await.is_ok() {
        target.idle.lock().push((connection, now()));
    }
    Ok((words.first.unwrap_or(end), end))
}

/// One that was left open, or a new one.
async fn connection(target: &Target) -> Result<SendRequest<Full<Bytes>>, String> {
    loop {
        let Some((connection, since)) = target.idle.lock().pop() else { break };
        if since.elapsed() < STALE && connection.is_ready() && !connection.is_closed() {
            return Ok(connection);
        }
    }
    let stream = TcpStream::connect(target.front).await.map_err(|error| format!("connect: {error}"))?;
    let _ = stream.set_nodelay(true);
    let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(|error| format!("{error:?}"))?;
    tokio::spawn(driver);
    Ok(sender)
}

/// What a stream says, read as it comes.
#[derive(Debug, Default)]
struct Words {
    rest: Vec<u8>,
    said: String,
    first: Option<Instant>,
    done: bool,
    /// The first thing in it that belongs to no such stream.
    odd: String,
}

impl Words {
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = memchr::memchr(b'\n', &self.rest) {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.line(line.trim_ascii());
        }
    }

    fn line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data: ") else {
            if !line.is_empty() && self.odd.is_empty() {
                self.odd = String::from_utf8_lossy(line).into_owned();
            }
            return;
        };
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let event: serde_json::Value = serde_json::from_slice(data).unwrap_or_default();
        if !event["error"].is_null() || event.is_null() {
            self.odd = String::from_utf8_lossy(data).into_owned();
        }
        let word = event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
        if !word.is_empty() {
            self.first = self.first.or_else(|| Some(now()));
            self.said.push_str(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    const WORD: &str = "data: {\"choices\":[{\"delta\":{\"content\":\" a\"}}]}\n\n";

    #[test]
    fn the_first_word_is_no_role_and_may_come_in_pieces() {
        let mut words = Words::default();
        words.take(ROLE.as_bytes());
        assert_eq!(words.first, None);
        let (front, back) = WORD.split_at(20);
        words.take(front.as_bytes());
        assert_eq!(words.first, None);
        words.take(back.as_bytes());
        words.take(format!("{WORD}data: [DONE]\n\n").as_bytes());
        assert!(words.first.is_some() && words.done && words.odd.is_empty());
        assert_eq!(words.said, " a a");
    }

    #[test]
    fn an_error_event_is_kept() {
        let mut words = Words::default();
        words.take(b"data: {\"error\":{\"code\":\"x\"}}\n\ndata: [DONE]\n\n");
        assert!(words.odd.contains("\"x\""));
    }
}
