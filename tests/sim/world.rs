//! API server, router, engines that judge what they are sent, and clients that never stop asking.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tandem::config::{
    Dialect, EngineKind, Labels, ModelMatch, PodDiscovery, Probe, RouterConfig, Service, VllmConnector,
};
use tandem::registry::View;
use tandem::testkit::engine::openai::{ChatStream, chat_json, kv_answer, models};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Response, Script, Step};
use tandem::testkit::fixtures::{chat_body_with, post_chat};
use tandem::testkit::kube::FakeKube;
use tandem::testkit::memory::{DialFault, MemoryNet};
use tandem::testkit::router::{TestRouter, config};
use tandem::testkit::task::spawn;
use tandem::types::clock::{Instant, now};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::eye::{Coverage, may_be_sent};
use super::history::RELIST;
use super::ms;
use super::pods::{Kind, MODELS, address};

/// Addresses that Pods may have.
pub(super) const ADDRESSES: u8 = 11;
const CLIENTS: usize = 3;
/// How long a connection may take, and an engine to list its models, to both services in turn.
pub(super) const SLOWEST_DIAL: Duration = ms(300);
pub(super) const ANSWERS_IN: Duration = ms(700);
/// How long a question that hung, and the pause after it, may keep an engine out that answers again.
const THAWS_IN: Duration = ms(8_000);

/// What clients and engines share with the driver.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Milliseconds between two requests of a client, at most.
    pub(super) pace: AtomicU64,
    stop: AtomicBool,
    wrong: Mutex<Vec<String>>,
    pub(super) sent: AtomicU64,
    pub(super) refused: AtomicU64,
    /// By address: until when the engine there does not list its models, and whether it then says nothing at all.
    cold: Mutex<HashMap<String, (Instant, bool)>>,
    /// Requests that were refused for want of an endpoint: of which service, and when they began.
    refusals: Mutex<Vec<(usize, Instant, String)>>,
}

impl Notes {
    pub(super) fn wrong(&self) -> Option<String> {
        self.wrong.lock().first().cloned()
    }

    /// The engine there lists no models for a while.
    pub(super) fn freeze(&self, ip: u8, time: Duration, hangs: bool) {
        self.cold.lock().insert(address(ip), (now() + time, hangs));
    }

    /// It may not have answered yet since then.
    pub(super) fn may_be_cold(&self, host: &str) -> bool {
        self.cold.lock().get(host).is_some_and(|(until, _)| *until + THAWS_IN > now())
    }

    fn models(&self, host: &str) -> Vec<Step> {
        let cold = self.cold.lock().get(host).copied().filter(|(until, _)| *until > now());
        let answer = match cold {
            Some((_, true)) => return vec![Step::Stall],
            Some(_) => Response::text(503, "loading"),
            None => models(&MODELS),
        };
        [vec![Step::Sleep(ms(20))], answer.into_steps()].concat()
    }

    /// Refusals are right where a service had nothing selectable.
    pub(super) fn judge_refusals(&self, coverage: [Coverage; 2]) -> Result<(), String> {
        for (service, began, text) in self.refusals.lock().drain(..) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            if !coverage[service].may_refuse(began) {
                let name = MODELS[service];
                return Err(format!(
                    "a client was refused from {began:?} on while {name:?} had an endpoint: {text}"
                ));
            }
        }
        Ok(())
    }
}

pub(super) struct World {
    pub(super) api: FakeKube,
    pub(super) router: TestRouter,
    pub(super) notes: Arc<Notes>,
    net: MemoryNet,
    _engines: Vec<EngineHandle>,
    clients: Vec<JoinHandle<()>>,
}

impl World {
    pub(super) fn new(kind: Kind) -> Self {
        let api = FakeKube::with_replicas(2);
        let net = MemoryNet::new();
        let router = TestRouter::in_memory_with_pods(settings(kind), &net, Arc::new(api.balanced()));
        let notes = Arc::new(Notes::default());
        notes.pace.store(40, Ordering::Relaxed);
        let engine = |n| {
            let script = script(Arc::clone(&router.shared.view), Arc::clone(&notes));
            Engine::in_memory(&net, &address(n), script)
        };
        let engines = (1..=ADDRESSES).map(engine).collect();
        let clients = (0..CLIENTS).map(|n| spawn(client(n, net.clone(), Arc::clone(&notes)))).collect();
        Self { api, router, notes, net, _engines: engines, clients }
    }

    /// Connecting to the engine there takes so long from now on: time between a decision and the first byte.
    pub(super) fn slow_dials(&self, ip: u8, time: Duration) {
        let fault = if time.is_zero() { DialFault::None } else { DialFault::Delay(time) };
        self.net.set_fault(&address(ip), fault);
    }

    /// Until the last answer is read.
    pub(super) async fn stop_clients(&mut self) {
        self.notes.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.await.unwrap();
        }
    }
}

fn settings(kind: Kind) -> RouterConfig {
    let selector: Labels = BTreeMap::from([("app".to_owned(), "llm".to_owned())]);
    let service = |model: &str| {
        let mut service = Service::plain(model, Vec::new());
        service.models = vec![model.to_owned()];
        service.model_match = ModelMatch::Listed;
        let pods = PodDiscovery::of(Dialect::Tandem, selector.clone());
        let probe = if kind == Kind::Probed { Probe::Models } else { Probe::Off };
        service.pods = Some(PodDiscovery { relist: RELIST, probe, ..pods });
        if kind == Kind::Pairs {
            service.engine = EngineKind::Vllm(VllmConnector::Nixl);
            // What the API says counts at once here; a question to the engine takes its time.
            service.cohorts_guard = false;
        }
        service
    };
    RouterConfig { services: MODELS.map(service).into(), ..config(&[]) }
}

/// An engine of any role, which looks whether it may be asked at all.
fn script(view: View, notes: Arc<Notes>) -> Script {
    Script::new(move |request| {
        let at = request.headers.get("host").unwrap_or_default();
        if request.path() == "/v1/models" {
            return notes.models(at.split(':').next().unwrap_or_default());
        }
        let (role, steps) = answer(request);
        if let Err(wrong) = may_be_sent(&view, at, role) {
            notes.wrong.lock().push(format!("I3: {wrong}"));
        }
        steps
    })
}

/// As the words of the prompt say: milliseconds to think, and events of a stream. What it is asked as, too.
fn answer(request: &RecordedRequest) -> (&'static str, Vec<Step>) {
    let body = request.json();
    let words = body["messages"][0]["content"].as_str().unwrap_or_default();
    let mut numbers = words.split(' ').map_while(|word| word.parse::<u64>().ok());
    let think = Step::Sleep(ms(numbers.next().unwrap_or(0)));
    let kv = &body["kv_transfer_params"];
    let (role, steps) = if kv["do_remote_decode"] == true {
        ("prefill", Response::json(200, kv_answer("e").to_string()).into_steps())
    } else {
        let events = usize::try_from(numbers.next().unwrap_or(1)).unwrap();
        let stream = body["stream"] == true;
        let steps = if stream {
            ChatStream::new(events).gap(ms(20)).into_steps()
        } else {
            chat_json("x").into_steps()
        };
        (if kv.is_null() { "mixed" } else { "decode" }, steps)
    };
    (role, [vec![think], steps].concat())
}

/// One request after the other, on one connection.
async fn client(number: usize, net: MemoryNet, notes: Arc<Notes>) {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut connection = connect(&net).await;
    while !notes.stop.load(Ordering::Relaxed) {
        sleep(ms(random.u64(..notes.pace.load(Ordering::Relaxed).max(1)))).await;
        let service = random.usize(..2);
        let (stream, think, events) = (random.u8(..8) == 0, random.u64(..20), random.u64(1..30));
        let body = chat_body_with(MODELS[service], stream, &format!("{think} {events}"));
        let began = now();
        let answer = connection.request(&post_chat(body)).await;
        notes.sent.fetch_add(1, Ordering::Relaxed);
        let wrong = match answer {
            Ok(answer) if answer.status() == 200 => {
                let whole = answer.is_complete()
                    && (!stream || answer.events().last().is_some_and(|e| e.data == "[DONE]"));
                (!whole).then(|| format!("half an answer: {:?}", answer.text()))
            }
            Ok(answer) if answer.status() == 503 => {
                notes.refusals.lock().push((service, began, answer.text()));
                None
            }
            Ok(answer) => Some(format!("{}: {:?}", answer.status(), answer.text())),
            Err(error) => Some(error.to_string()),
        };
        if let Some(wrong) = wrong {
            notes.wrong.lock().push(format!("client of {:?} from {began:?}: {wrong}", MODELS[service]));
            return;
        }
    }
}

type Client = tandem::testkit::client::RawClient<tandem::testkit::memory::MemoryStream>;

async fn connect(net: &MemoryNet) -> Client {
    Client::in_memory(net.dial(tandem::testkit::router::FRONT).await.unwrap())
}
