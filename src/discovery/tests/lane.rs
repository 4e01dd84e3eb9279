use std::io;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::*;
use crate::config::Upstream;
use crate::discovery::fixtures::{metrics, service};
use crate::registry::{Endpoint, Facts, Listener, PodId};
use crate::testkit::engine::openai::models;
use crate::testkit::engine::{Engine, IntoSteps as _, Response, Script, Step};
use crate::testkit::memory::{DialFault, MemoryNet};
use crate::types::clock::now;
use crate::types::role::Role;
use crate::upstream::{DialFuture, Io};

#[derive(Debug)]
struct NetDial(MemoryNet);

impl Dial for NetDial {
    fn dial(&self, host: &str, port: u16) -> DialFuture {
        let (net, host) = (self.0.clone(), host.to_owned());
        Box::pin(async move { io::Result::Ok(Io::Boxed(Box::new(net.dial_host(&host, port).await?))) })
    }
}

struct Rig {
    net: MemoryNet,
    lanes: Probers,
    handle: Option<Handle>,
    told: mpsc::Receiver<Change>,
    tasks: Tracker,
}

impl Rig {
    fn new() -> Self {
        let (net, tasks) = (MemoryNet::new(), Tracker::default());
        let (handle, told) = mpsc::channel(64);
        let metrics = metrics().discovery.lanes.clone();
        let lanes = Probers::new(Arc::new(NetDial(net.clone())), tasks.clone(), &handle, metrics);
        Self { net, lanes, handle: Some(handle), told, tasks }
    }

    /// Asks for the models of the engine at this address; whoever cancels the token does not want to know.
    fn submit(&self, host: &str, number: u64) -> CancellationToken {
        self.job(host, number, Some(vec!["m".to_owned()]), false)
    }

    fn job(
        &self,
        host: &str,
        number: u64,
        models: Option<Vec<String>>,
        bootstrap: bool,
    ) -> CancellationToken {
        let cancel = CancellationToken::new();
        let endpoint = endpoint(host);
        let (engine, cancel_too) = (crate::config::EngineKind::Sglang, cancel.clone());
        self.lanes.submit(Job {
            endpoint,
            number,
            bootstrap,
            models,
            facts: false,
            engine,
            cancel: cancel_too,
        });
        cancel
    }

    async fn verdict(&mut self) -> (u64, Result<Facts, String>) {
        match self.told.recv().await {
            Some(Change::Probed(Probed { job, result, .. })) => (job, result),
            other => panic!("{other:?}"),
        }
    }

    fn is_busy(&self, host: &str) -> bool {
        self.lanes.state(&format!("http://{host}:8000")).busy
    }
}

fn endpoint(host: &str) -> Arc<Endpoint> {
    let pod = PodId { namespace: "ns".into(), name: host.into(), uid: host.into() };
    let at = Listener {
        host: host.to_owned(),
        port: 8000,
        role: Role::Prefill,
        bootstrap_port: None,
        model: None,
        revision: String::new(),
        token: String::new(),
        pod: Some(Arc::new(pod)),
    };
    let upstream: Upstream =
        service(crate::config::EngineKind::Sglang, crate::config::Dialect::Tandem).upstream;
    let metrics = metrics();
    Endpoint::new(&at, 1, &upstream, |url, role| metrics.endpoints.for_endpoint(url, role))
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Takes so long for each answer.
fn slow(time: Duration) -> Script {
    Script::always([vec![Step::Sleep(time)], models(&["m"]).into_steps()].concat())
}

#[tokio::test(start_paused = true)]
async fn jobs_of_one_url_run_in_order_and_one_at_a_time() {
    let mut rig = Rig::new();
    let engine = Engine::in_memory(&rig.net, "a", slow(ms(100)));
    for number in 1..=3 {
        rig.submit("a", number);
    }
    assert!(rig.is_busy("a"));
    let began = now();
    for number in 1..=3 {
        assert_eq!(rig.verdict().await, (number, Ok(Facts::default())));
        assert_eq!(now() - began, ms(100 * number));
    }
    let times: Vec<_> =
        engine.log.requests().iter().map(|request| (request.head_at - began).as_millis()).collect();
    assert_eq!(times, [0, 100, 200]);
    sleep(ms(1)).await;
    assert!(!rig.is_busy("a") && rig.tasks.is_empty(), "a lane that is done is closed");
    rig.submit("a", 4);
    assert_eq!(rig.verdict().await.0, 4, "and opened again");
}

#[tokio::test(start_paused = true)]
async fn no_url_waits_for_another() {
    let mut rig = Rig::new();
    let _engines = ["b", "c"].map(|name| Engine::in_memory(&rig.net, name, slow(ms(10))));
    rig.net.set_fault("a", DialFault::BlackHole);
    let began = now();
    for (number, host) in ["a", "a", "b", "c"].into_iter().enumerate() {
        rig.submit(host, number as u64);
    }
    let mut done = [rig.verdict().await.0, rig.verdict().await.0];
    done.sort_unstable();
    assert_eq!((done, now() - began), ([2, 3], ms(10)));
    let (number, result) = rig.verdict().await;
    assert_eq!((number, now() - began), (0, Duration::from_secs(5)));
    assert!(result.unwrap_err().contains("no answer within 5s"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_is_never_told_and_holds_nobody_up() {
    let mut rig = Rig::new();
    let engine = Engine::in_memory(&rig.net, "a", slow(ms(1000)));
    let (running, waiting) = (rig.submit("a", 1), rig.submit("a", 2));
    rig.submit("a", 3);
    sleep(ms(10)).await;
    waiting.cancel();
    running.cancel();
    let began = now();
    assert_eq!(rig.verdict().await.0, 3);
    assert_eq!(now() - began, ms(1000));
    assert_eq!(engine.log.request_count(), 2, "the second was not even asked");
    assert!(rig.told.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_the_pause_before_the_next_try() {
    let mut rig = Rig::new();
    rig.net.set_fault("a", DialFault::Refuse);
    let cancel = rig.submit("a", 1);
    assert!(rig.verdict().await.1.is_err());
    cancel.cancel();
    sleep(ms(1)).await;
    assert!(!rig.is_busy("a") && rig.tasks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn jobs_that_nobody_wants_do_not_pile_up() {
    let rig = Rig::new();
    rig.net.set_fault("a", DialFault::BlackHole);
    for number in 0..1000 {
        rig.submit("a", number).cancel();
    }
    assert!(rig.lanes.state("http://a:8000").waiting <= 1, "{:?}", rig.lanes.state("http://a:8000"));
}

#[tokio::test(start_paused = true)]
async fn a_job_is_tried_until_it_passes_under_its_number_and_a_reason_is_told_once() {
    let mut rig = Rig::new();
    let began = now();
    rig.net.set_fault("a", DialFault::Refuse);
    rig.submit("a", 7);
    let (number, result) = rig.verdict().await;
    assert!(number == 7 && result.unwrap_err().starts_with("GET /v1/models: cannot connect"));
    sleep(ms(3900)).await;
    assert!(rig.told.try_recv().is_err(), "the same reason again");
    // 0.25, 0.75, 1.75, 3.75: then every two seconds.
    assert_eq!(rig.net.dials("a"), 5);
    rig.net.set_fault("a", DialFault::None);
    let _engine = Engine::in_memory(
        &rig.net,
        "a",
        Script::always(Response::text(503, "")).on("/v1/models", models(&["m"])),
    );
    assert_eq!(rig.verdict().await, (7, Ok(Facts::default())));
    assert_eq!(now() - began, ms(5750));
}

#[tokio::test(start_paused = true)]
async fn jobs_that_fail_side_by_side_keep_their_pauses() {
    let mut rig = Rig::new();
    rig.net.set_fault("a", DialFault::Refuse);
    rig.submit("a", 1);
    rig.submit("a", 2);
    assert_eq!([rig.verdict().await.0, rig.verdict().await.0], [1, 2]);
    sleep(ms(3900)).await;
    assert_eq!(rig.net.dials("a"), 10, "five tries each");
}

#[tokio::test(start_paused = true)]
async fn a_new_job_does_not_wait_for_the_pause_of_another() {
    let mut rig = Rig::new();
    let _engine = Engine::in_memory(&rig.net, "a", Script::always(models(&["m"])));
    rig.job("a", 1, Some(vec!["other".to_owned()]), false);
    assert_eq!(rig.verdict().await.0, 1);
    sleep(secs(30)).await;
    let began = now();
    rig.submit("a", 2);
    assert_eq!((rig.verdict().await.0, now() - began), (2, ms(0)));
}

#[tokio::test(start_paused = true)]
async fn others_of_the_lane_have_their_turn_between_two_tries() {
    let mut rig = Rig::new();
    let _engine = Engine::in_memory(&rig.net, "a", Script::always(models(&["m"])));
    rig.job("a", 1, Some(vec!["other".to_owned()]), false);
    rig.submit("a", 2);
    assert_eq!([rig.verdict().await.0, rig.verdict().await.0], [1, 2]);
    assert!(rig.is_busy("a"), "the first is still wanted");
}

#[tokio::test(start_paused = true)]
async fn a_new_reason_is_told_too() {
    let mut rig = Rig::new();
    let answers = vec![
        Response::text(503, "").into_steps(),
        Response::text(200, "<html>").into_steps(),
        models(&["x"]).into_steps(),
        models(&["x", "m"]).into_steps(),
    ];
    let _engine = Engine::in_memory(&rig.net, "a", Script::queue(answers));
    rig.submit("a", 1);
    for why in ["GET /v1/models: status 503", "GET /v1/models: no list of models"] {
        assert_eq!(rig.verdict().await, (1, Err(why.to_owned())));
    }
    let none = "GET /v1/models: it serves [\"x\"], none of the service's models";
    assert_eq!(rig.verdict().await, (1, Err(none.to_owned())));
    assert_eq!(rig.verdict().await, (1, Ok(Facts::default())));
}

#[tokio::test(start_paused = true)]
async fn a_prefill_counts_when_its_bootstrap_server_lists_every_rank() {
    let mut rig = Rig::new();
    let info = Response::json(200, r#"{"disaggregation_bootstrap_port":8998}"#);
    let _engine = Engine::in_memory(&rig.net, "a", Script::always(info));
    let ranks = vec![Response::text(503, "").into_steps(), Response::text(200, "").into_steps()];
    let bootstrap = Engine::in_memory(&rig.net, "a:8998", Script::queue(ranks));
    rig.job("a", 1, None, true);
    let missing = "bootstrap server, port 8998: not every rank has registered";
    assert_eq!(rig.verdict().await, (1, Err(missing.to_owned())));
    assert_eq!(rig.verdict().await, (1, Ok(Facts { bootstrap_port: Some(8998), ..Facts::default() })));
    assert!(bootstrap.log.requests()[0].target.starts_with("/route?prefill_dp_rank=-1&"));
}

#[tokio::test(start_paused = true)]
async fn lanes_end_with_the_writer() {
    let mut rig = Rig::new();
    let _engine = Engine::in_memory(&rig.net, "a", slow(ms(10)));
    rig.submit("a", 1);
    drop(rig.handle.take());
    assert!(rig.told.recv().await.is_none(), "the lanes keep no writer alive");
    sleep(ms(20)).await;
    assert!(rig.tasks.is_empty());
}
