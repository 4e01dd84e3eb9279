use parking_lot::Mutex;

use super::*;
use crate::config::{Dialect, EngineKind, PodDiscovery, Probe, Service as Config};
use crate::ledger::Hold;
use crate::metrics::{Metrics, Vocabulary};
use crate::registry::{Born, Facts, Job, LaneState, Listener, PodId, PodUpdate, PodVerdict};
use crate::types::role::Role;

#[path = "addresses.rs"]
mod addresses;
#[path = "guard.rs"]
mod guard;
#[path = "orders.rs"]
mod orders;
#[path = "probes.rs"]
mod probes;
#[path = "reload.rs"]
mod reload;
#[path = "report.rs"]
mod report;

/// Lanes that only write down what they are asked.
#[derive(Debug, Default)]
struct Jobs(Mutex<Vec<Job>>);

impl Lanes for Jobs {
    fn submit(&self, job: Job) {
        self.0.lock().push(job);
    }

    fn state(&self, _: &str) -> LaneState {
        LaneState::default()
    }
}

struct Rig {
    writer: Writer,
    view: View,
    jobs: Arc<Jobs>,
    metrics: Arc<Metrics>,
}

fn pods(engine: EngineKind, name: &str) -> Config {
    let pods = PodDiscovery::of(Dialect::Vllm, [("app".to_owned(), "llm".to_owned())].into());
    Config { engine, pods: Some(pods), ..Config::plain(name, Vec::new()) }
}

/// Engines have to list their models before their first request.
fn probed() -> Config {
    let mut config = pods(EngineKind::Plain, "chat");
    config.pods.as_mut().unwrap().probe = Probe::Models;
    config
}

fn listener(uid: &str, ip: &str) -> Listener {
    let pod = PodId { namespace: "ns".into(), name: "p".into(), uid: uid.into() };
    Listener {
        host: ip.into(),
        port: 8000,
        role: Role::Mixed,
        bootstrap_port: None,
        model: None,
        revision: String::new(),
        token: String::new(),
        pod: Some(Arc::new(pod)),
    }
}

fn born(created: i64) -> Born {
    Born { created, version: 1 }
}

fn update(service: usize, uid: &str, created: i64, verdict: PodVerdict) -> PodUpdate {
    PodUpdate { service, pod: listener(uid, "").pod.unwrap(), born: born(created), verdict }
}

fn register(uid: &str, created: i64, listeners: Vec<Listener>) -> PodUpdate {
    update(0, uid, created, PodVerdict::Register { listeners, epoch: 0 })
}

fn withdraw(uid: &str, reason: Reason) -> PodUpdate {
    update(0, uid, 0, PodVerdict::withdraw(reason))
}

impl Rig {
    fn new(services: &[Config]) -> Self {
        let words = Vocabulary { routes: &[], error_codes: &[], retry_reasons: &[], phases: &[] };
        let metrics = Metrics::new(&words).unwrap();
        let (mut writer, view, _) = Writer::new(services, 1, &metrics.endpoints);
        writer.count_drift(metrics.discovery.engine_drift.clone());
        let jobs = Arc::new(Jobs::default());
        writer.ask(Arc::clone(&jobs) as Arc<dyn Lanes>);
        Self { writer, view, jobs, metrics }
    }

    fn plain() -> Self {
        Self::new(&[pods(EngineKind::Plain, "chat")])
    }

    /// One change, and the snapshot of it.
    fn apply(&mut self, updates: Vec<PodUpdate>) {
        self.writer.apply(Change::Pods(PodBatch { updates, listed: vec![] }));
        self.settle();
    }

    fn settle(&mut self) {
        self.writer.tick();
        self.writer.flush();
    }

    fn up(&mut self, uid: &str, created: i64, ip: &str) {
        self.apply(vec![register(uid, created, vec![listener(uid, ip)])]);
    }

    fn all(&self) -> Vec<Arc<Endpoint>> {
        self.view.load().services.iter().flat_map(|s| s.all().cloned()).collect()
    }

    /// The only endpoint of a Pod.
    fn of(&self, uid: &str) -> Arc<Endpoint> {
        let all = self.all();
        let found: Vec<_> = all.iter().filter(|e| e.pod.as_ref().is_some_and(|pod| pod.uid == uid)).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        Arc::clone(found[0])
    }

    /// UID and reason of every listed endpoint.
    fn words(&self) -> Vec<String> {
        let word = |e: &Arc<Endpoint>| {
            assert_eq!(e.is_selectable(), e.reason() == Reason::Selectable, "what it says is what it does");
            format!("{} {}", e.pod.as_ref().map_or("static", |pod| &pod.uid), e.reason().as_str())
        };
        let mut words: Vec<String> = self.all().iter().map(word).collect();
        words.sort_unstable();
        words
    }

    fn notes(&self) -> Vec<String> {
        let snapshot = self.view.load();
        snapshot.notes.iter().map(|note| format!("{} {}", note.pod.uid, note.reason.as_str())).collect()
    }

    fn departed(&self) -> Vec<Arc<Endpoint>> {
        self.view.load().departed.iter().map(|gone| Arc::clone(&gone.endpoint)).collect()
    }

    fn version(&self) -> u64 {
        self.view.load().version
    }

    fn drain(&mut self, id: u64, drain: bool) -> Ordered {
        self.writer.order(id, drain.then(DrainOrder::default))
    }

    fn last_job(&self) -> Job {
        self.jobs.0.lock().last().cloned().unwrap()
    }

    fn jobs(&self) -> usize {
        self.jobs.0.lock().len()
    }

    fn verdict(&mut self, job: &Job, result: Result<Facts, String>) {
        let probed = Probed { id: job.endpoint.id, job: job.number, result };
        self.writer.apply(Change::Probed(probed));
        self.settle();
    }
}

#[test]
fn an_operators_drain_outlives_flaps_and_ends_with_the_endpoint() {
    let mut rig = Rig::plain();
    rig.up("a", 1, "192.0.2.1");
    let id = rig.of("a").id;
    assert_eq!(rig.drain(u64::MAX, true), Ordered::Unknown);
    assert_eq!((rig.drain(id, true), rig.drain(id, true)), (Ordered::Changed, Ordered::Unchanged));
    assert_eq!(rig.words(), ["a admin_drain"]);
    for reason in [Reason::NotReady, Reason::NotEligible, Reason::Terminating] {
        rig.apply(vec![withdraw("a", reason)]);
        assert_eq!(rig.words(), [format!("a {}", reason.as_str())]);
        rig.up("a", 1, "192.0.2.1");
        assert_eq!(rig.words(), ["a admin_drain"]);
    }
    rig.apply(vec![withdraw("a", Reason::NotReady)]);
    rig.drain(id, false);
    assert_eq!(rig.words(), ["a not_ready"], "an operator cannot make it ready");
    rig.up("a", 1, "192.0.2.1");
    rig.drain(id, true);
    rig.up("a", 1, "192.0.2.2");
    assert_eq!(rig.words(), ["a selectable"], "a new incarnation was never drained");
    assert_eq!(rig.drain(id, false), Ordered::Unknown, "and the old one is gone for good");
    assert!(!rig.departed()[0].is_selectable());
}

#[test]
fn an_endpoint_that_is_out_anyway_can_be_drained_for_when_it_returns() {
    let mut rig = Rig::plain();
    rig.up("a", 1, "192.0.2.1");
    let id = rig.of("a").id;
    rig.apply(vec![withdraw("a", Reason::NotReady)]);
    assert_eq!(rig.drain(id, false), Ordered::Unchanged, "nobody drained it");
    assert_eq!(rig.drain(id, true), Ordered::Changed);
    assert_eq!(rig.words(), ["a not_ready"]);
    rig.up("a", 1, "192.0.2.1");
    assert_eq!(rig.words(), ["a admin_drain"]);
    assert_eq!((rig.drain(id, false), rig.words()), (Ordered::Changed, vec!["a selectable".into()]));
}

#[test]
fn a_namesake_at_the_same_address_inherits_nothing() {
    let mut rig = Rig::plain();
    rig.up("a", 1, "192.0.2.1");
    let before = rig.of("a");
    let (_hold, handoff) = (Hold::take(&before).unwrap(), before.handoffs.begin());
    for _ in 0..20 {
        before.put_last(&"down");
    }
    rig.drain(before.id, true);
    rig.apply(vec![update(0, "a", 0, PodVerdict::Gone(Reason::Deleted))]);
    rig.up("b", 2, "192.0.2.1");
    let after = rig.of("b");
    assert_eq!(before.url, after.url);
    assert!(after.id != before.id && after.is_selectable() && !after.ejection.is_ejected());
    assert_eq!((after.holds(), after.handoffs.count(), after.last_dispatch()), (0, 0, None));
    assert_eq!((before.holds(), before.handoffs.count(), before.reason()), (1, 1, Reason::Deleted));
    drop(handoff);
}

#[test]
fn every_change_is_a_newer_snapshot_and_what_is_no_change_is_none() {
    let mut rig = Rig::plain();
    let mut last = rig.version();
    let mut newer = |rig: &Rig, what: &str, newer: bool| {
        let version = rig.version();
        assert_eq!(version > last, newer, "{what}: {last} to {version}");
        last = version;
    };
    rig.up("a", 1, "192.0.2.1");
    newer(&rig, "registered", true);
    rig.up("a", 1, "192.0.2.1");
    newer(&rig, "said again", false);
    rig.apply(vec![withdraw("a", Reason::NotReady)]);
    newer(&rig, "withdrawn", true);
    rig.apply(vec![withdraw("a", Reason::NotReady)]);
    newer(&rig, "withdrawn again", false);
    rig.apply(vec![withdraw("b", Reason::NotReady)]);
    newer(&rig, "a note", true);
    rig.apply(vec![withdraw("b", Reason::NotReady)]);
    newer(&rig, "the same note", false);
    rig.apply(vec![update(0, "c", 0, PodVerdict::Gone(Reason::Deleted))]);
    newer(&rig, "nobody left", false);
    rig.apply(vec![update(0, "a", 0, PodVerdict::Gone(Reason::Deleted))]);
    newer(&rig, "left", true);
    rig.apply(vec![]);
    newer(&rig, "nothing", false);
}

#[test]
fn pods_without_an_endpoint_are_noted_with_their_reason() {
    let mut rig = Rig::plain();
    let why = PodVerdict::Withdraw { reason: Reason::NoPort, detail: Some("none".into()), order: None };
    rig.apply(vec![update(0, "b", 1, why), withdraw("a", Reason::NotReady)]);
    assert_eq!(rig.notes().len(), 2);
    rig.apply(vec![withdraw("b", Reason::Terminating)]);
    assert!(rig.notes().contains(&"b terminating".to_owned()));
    rig.up("a", 1, "192.0.2.1");
    assert_eq!((rig.notes(), rig.words()), (vec!["b terminating".into()], vec!["a selectable".into()]));
    rig.apply(vec![withdraw("a", Reason::NotReady)]);
    assert_eq!(rig.notes(), ["b terminating"], "it is among the endpoints");
    rig.apply(vec![update(0, "b", 0, PodVerdict::Gone(Reason::NotListed))]);
    assert!(rig.notes().is_empty());
}

/// Whether nobody who left is known any more, so much later.
async fn gone(rig: &mut Rig, seconds: u64) -> bool {
    tokio::time::advance(Duration::from_secs(seconds)).await;
    rig.settle();
    rig.departed().is_empty()
}

#[tokio::test(start_paused = true)]
async fn whoever_left_is_kept_until_its_last_request_is_over_and_a_while_longer() {
    let mut rig = Rig::plain();
    rig.up("a", 1, "192.0.2.1");
    let endpoint = rig.of("a");
    let hold = Hold::take(&endpoint).unwrap();
    endpoint.started();
    rig.apply(vec![update(0, "a", 0, PodVerdict::Gone(Reason::Deleted))]);
    assert!(!gone(&mut rig, 3600).await, "it carries a request");
    drop(hold);
    let handoff = endpoint.handoffs.begin();
    assert!(!gone(&mut rig, 60).await, "and now KV");
    drop(handoff);
    assert!(!gone(&mut rig, 14).await && gone(&mut rig, 1).await, "15 s after all of it was over");
    rig.up("b", 2, "192.0.2.1");
    rig.apply(vec![update(0, "b", 0, PodVerdict::Gone(Reason::Deleted))]);
    assert!(!gone(&mut rig, 14).await && gone(&mut rig, 1).await);
}

fn listed(rig: &mut Rig, updates: Vec<PodUpdate>) -> Synced {
    rig.writer.apply(Change::Pods(PodBatch { updates, listed: vec![0] }));
    rig.settle();
    rig.view.load().services[0].sync.now()
}

#[tokio::test(start_paused = true)]
async fn a_service_is_ready_when_its_list_is_there_and_everybody_had_a_verdict() {
    let mut rig = Rig::new(&[probed()]);
    let now = |rig: &Rig| rig.view.load().services[0].sync.now();
    rig.up("early", 1, "192.0.2.9");
    assert_eq!(now(&rig), Synced::Waiting, "an event is no list");
    let two = vec![
        register("a", 1, vec![listener("a", "192.0.2.1")]),
        register("b", 1, vec![listener("b", "192.0.2.2")]),
        withdraw("early", Reason::NotReady),
    ];
    assert_eq!(listed(&mut rig, two), Synced::Listed);
    let jobs: Vec<Job> = rig.jobs.0.lock().clone();
    rig.verdict(&jobs[1], Ok(Facts::default()));
    assert_eq!(now(&rig), Synced::Listed, "one is missing, one is not waited for");
    rig.verdict(&jobs[2], Err("not yet".into()));
    assert_eq!(now(&rig), Synced::Ready, "a bad verdict is one");
    rig.writer.apply(Change::Refused(vec![0], 403));
    assert_eq!(now(&rig), Synced::Ready, "the last good view serves");
}

#[tokio::test(start_paused = true)]
async fn a_service_waits_five_seconds_for_verdicts_and_no_longer() {
    let mut rig = Rig::new(&[probed()]);
    let now = |rig: &Rig| rig.view.load().services[0].sync.now();
    let one = || vec![register("a", 1, vec![listener("a", "192.0.2.1")])];
    assert_eq!(listed(&mut rig, one()), Synced::Listed);
    tokio::time::advance(Duration::from_millis(4900)).await;
    assert_eq!(listed(&mut rig, one()), Synced::Listed, "another list starts no new wait");
    tokio::time::advance(Duration::from_millis(100)).await;
    rig.settle();
    assert_eq!((now(&rig), rig.words()), (Synced::Ready, vec!["a probing".into()]));
}

#[test]
fn a_service_without_pods_or_with_a_refusal_says_so() {
    let mut rig = Rig::plain();
    rig.writer.apply(Change::Refused(vec![0], 403));
    assert_eq!(rig.view.load().services[0].sync.now(), Synced::Refused(403));
    assert_eq!(
        listed(&mut rig, vec![]),
        Synced::Ready,
        "it was let in after all, and has nobody to wait for"
    );
}

#[tokio::test(start_paused = true)]
async fn the_running_writer_keeps_the_five_seconds_and_the_retention_by_itself() {
    let config = probed();
    let words = Vocabulary { routes: &[], error_codes: &[], retry_reasons: &[], phases: &[] };
    let (writer, view, changes) = Writer::new(&[config], 1, &Metrics::new(&words).unwrap().endpoints);
    let running = crate::testkit::task::spawn(writer.run());
    let one = vec![register("a", 1, vec![listener("a", "192.0.2.1")])];
    let batch = |updates, listed| Change::Pods(PodBatch { updates, listed });
    changes.send(batch(one, vec![0])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(4990)).await;
    assert_eq!(view.load().services[0].sync.now(), Synced::Listed);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(view.load().services[0].sync.now(), Synced::Ready);
    changes.send(batch(vec![update(0, "a", 0, PodVerdict::Gone(Reason::Deleted))], vec![])).await.unwrap();
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(view.load().departed.len(), 1);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(view.load().departed.is_empty());
    drop(changes);
    running.await.unwrap();
}
