//! Requests to every router: plain and streamed, some with a fault of an engine, some that leave before the end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tandem::testkit::client::{BodyEnd, H2Client, RawClient};
use tandem::testkit::fixtures::post;
use tandem::testkit::quiet::VIA;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::routers::Router;

const CHAT: &str = "/v1/chat/completions";
const FAULTS: &[&str] = &[
    "status=500",
    "status=503",
    "delay=5ms,reset",
    "delay=5ms,close",
    "after=1,reset",
    "after=2,close",
    "after=1,error",
    "at=10ms,reset",
    "delay=100ms",
    "ttft=200ms",
    "token=40ms",
];
const PAIRS: &[&str] = &["transfer=80ms", "transfer=150ms", "fail", "no-kv"];

#[derive(Debug)]
pub(crate) struct Load {
    shared: Arc<Shared>,
    pub(crate) by_router: Vec<Arc<AtomicU64>>,
    pub(crate) answers: Arc<Mutex<BTreeMap<u16, u64>>>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    left: AtomicU64,
    sent: AtomicU64,
    stop: AtomicBool,
}

impl Load {
    pub(crate) fn start(routers: &[Router], clients: usize, requests: u64, pace_ms: u64) -> Self {
        let (left, sent, stop) = (AtomicU64::new(requests), AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { left, sent, stop });
        let answers: Arc<Mutex<BTreeMap<u16, u64>>> = Arc::default();
        let (mut tasks, mut by_router) = (Vec::new(), Vec::new());
        for (number, router) in routers.iter().enumerate() {
            let sent: Arc<AtomicU64> = Arc::default();
            by_router.push(Arc::clone(&sent));
            for n in 0..clients {
                let random = fastrand::Rng::with_seed((number * clients + n) as u64);
                let pace = Duration::from_millis(pace_ms);
                let client =
                    Client { router: number, front: router.front, random, open: None, h2: None, pace };
                tasks.push(tokio::spawn(client.run(
                    Arc::clone(&shared),
                    Arc::clone(&sent),
                    Arc::clone(&answers),
                )));
            }
        }
        Self { shared, by_router, answers, tasks }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.left.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn abort(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }

    /// Until the last client is through.
    pub(crate) async fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        while self.tasks.iter().any(|task| !task.is_finished()) {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

struct Client {
    router: usize,
    front: SocketAddr,
    random: fastrand::Rng,
    open: Option<RawClient<TcpStream>>,
    h2: Option<H2Client>,
    /// Mean pause between two requests.
    pace: Duration,
}

impl Client {
    async fn run(
        mut self,
        shared: Arc<Shared>,
        sent: Arc<AtomicU64>,
        answers: Arc<Mutex<BTreeMap<u16, u64>>>,
    ) {
        let one_less = |left: u64| left.checked_sub(1);
        let order = Ordering::Relaxed;
        while !shared.stop.load(order) && shared.left.try_update(order, order, one_less).is_ok() {
            shared.sent.fetch_add(1, order);
            sent.fetch_add(1, order);
            let status = self.ask().await;
            *answers.lock().entry(status).or_default() += 1;
            if status >= 500 {
                // An answer without an engine costs next to nothing: the storm would be of these.
                sleep(Duration::from_millis(2)).await;
            }
            if !self.pace.is_zero() {
                sleep(self.pace.mul_f64(self.random.f64() * 2.0)).await;
            }
        }
    }

    async fn ask(&mut self) -> u16 {
        let random = &mut self.random;
        let model = ["plain", "plain", "pull", "rooms"][random.usize(..4)];
        let (stream, tokens, number) = (random.bool(), random.u32(1..6), random.u32(..));
        let text = match () {
            () if self.pace.is_zero() => String::new(),
            () if random.u16(..500) == 0 => "of the kind that never ends ".repeat(1 << 15),
            () if random.u8(..40) == 0 => "of some length ".repeat(7 << 10),
            () => String::new(),
        };
        let body = format!(
            r#"{{"model":"{model}","messages":[{{"role":"user","content":"storm {number}{text}"}}],"stream":{stream},"max_tokens":{tokens}}}"#
        );
        let mut lines = vec![format!("{VIA}: {}", self.router)];
        if random.u8(..25) == 0 {
            let role = if model == "plain" { "plain" } else { ["prefill", "decode"][random.usize(..2)] };
            let some = if model != "plain" && random.u8(..3) == 0 { PAIRS } else { FAULTS };
            lines.push(format!("X-Mock: {role}:{}", some[random.usize(..some.len())]));
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        if !self.pace.is_zero() && random.u8(..8) == 0 {
            return self.ask_h2(&lines, body).await;
        }
        if !self.pace.is_zero() && random.u16(..400) == 0 {
            return self.ask_slowly(model, number).await;
        }
        let request = post(CHAT, &lines, body);
        let leaves =
            (random.u8(..20) == 0).then(|| (Duration::from_micros(random.u64(500..40_000)), random.bool()));
        let mut client = match self.open.take() {
            Some(client) => client,
            None => RawClient::connect(self.front).await,
        };
        let before = client.arrivals().len();
        if client.send(request).await.is_err() {
            return 1;
        }
        let answer = match leaves {
            Some((after, _)) => timeout(after, client.read_response()).await.ok(),
            None => Some(client.read_response().await),
        };
        let Some(answer) = answer else {
            let by_reset = leaves.is_some_and(|(_, by_reset)| by_reset);
            // A reset throws away what the router has not read: only once it has answered is it certain to count the request.
            if by_reset && client.arrivals().len() > before {
                client.reset();
            }
            return 0;
        };
        match answer {
            Ok(answer) => {
                let (status, whole) = (answer.status(), answer.is_complete());
                if whole && status < 500 {
                    self.open = Some(client);
                }
                if whole { status } else { 1 }
            }
            Err(_) => 1,
        }
    }

    /// A long stream to a client that for a while reads nothing, with little room for what comes meanwhile.
    async fn ask_slowly(&mut self, model: &str, number: u32) -> u16 {
        let mut client = RawClient::connect_small(self.front, 4096).await;
        let body = format!(
            r#"{{"model":"{model}","messages":[{{"role":"user","content":"slow {number}"}}],"stream":true,"max_tokens":1500}}"#
        );
        let via = format!("{VIA}: {}", self.router);
        client.stop_reading();
        if client.send(post(CHAT, &[&via], body)).await.is_err() {
            return 1;
        }
        sleep(Duration::from_millis(self.random.u64(200..3000))).await;
        client.resume_reading();
        match client.read_response().await {
            Ok(answer) if answer.is_complete() => answer.status(),
            _ => 1,
        }
    }

    /// The same over HTTP/2, always to the end. A connection carries a few requests only: its client keeps all its frames.
    async fn ask_h2(&mut self, lines: &[&str], body: String) -> u16 {
        let mut client = match self.h2.take().filter(|_| self.random.u8(..20) != 0) {
            Some(client) => client,
            None => H2Client::connect(self.front).await,
        };
        let mut request = http::Request::post(format!("http://{}{CHAT}", self.front))
            .header("content-type", "application/json");
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        match client.request(request.body(()).unwrap(), body.into()).await {
            Ok(answer) if answer.end == BodyEnd::Complete => {
                self.h2 = Some(client);
                answer.status.as_u16()
            }
            _ => 1,
        }
    }
}
