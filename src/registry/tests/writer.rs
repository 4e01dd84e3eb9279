use parking_lot::Mutex;

use super::*;
use crate::config::{Dialect, EngineKind, PodDiscovery, Probe, Service as Config, StaticEndpoint};
use crate::ledger::Hold;
use crate::metrics::{Metrics, Vocabulary};
use crate::registry::{Born, Facts, Job, LaneState, Listener, PodId, PodUpdate, PodVerdict};
use crate::types::role::Role;

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
    update(0, uid, 0, PodVerdict::Withdraw { reason, detail: None })
}

impl Rig {
    fn new(services: &[Config]) -> Self {
        let words = Vocabulary { routes: &[], error_codes: &[], retry_reasons: &[], phases: &[] };
        let (mut writer, view, _) = Writer::new(services, 1, &Metrics::new(&words).unwrap().endpoints);
        let jobs = Arc::new(Jobs::default());
        writer.ask(Arc::clone(&jobs) as Arc<dyn Lanes>);
        Self { writer, view, jobs }
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
        self.writer.order(id, drain)
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
fn the_same_facts_are_the_same_endpoint_and_any_other_fact_a_new_one() {
    let changes: [(&str, fn(&mut Listener)); 7] = [
        ("address", |l| l.host = "192.0.2.9".into()),
        ("port", |l| l.port = 9000),
        ("role", |l| l.role = Role::Decode),
        ("model", |l| l.model = Some("m".into())),
        ("revision", |l| l.revision = "r".into()),
        ("token", |l| l.token = "t".into()),
        ("bootstrap port", |l| l.bootstrap_port = Some(8998)),
    ];
    for (what, change) in changes {
        let mut rig = Rig::plain();
        rig.up("a", 1, "192.0.2.1");
        let before = rig.of("a");
        let hold = Hold::take(&before).unwrap();
        rig.up("a", 1, "192.0.2.1");
        assert!(Arc::ptr_eq(&before, &rig.of("a")), "said again");
        let mut next = listener("a", "192.0.2.1");
        change(&mut next);
        rig.apply(vec![register("a", 1, vec![next])]);
        let after = rig.of("a");
        assert!(before.id != after.id && after.is_selectable() && after.holds() == 0, "{what}");
        assert_eq!(
            (before.is_selectable(), before.reason(), before.holds()),
            (false, Reason::Replaced, 1),
            "{what}"
        );
        assert_eq!(before.authority, "192.0.2.1:8000", "its holds keep the old facts");
        assert!(Arc::ptr_eq(&rig.departed()[0], &before));
        drop(hold);
        rig.up("a", 1, "192.0.2.1");
        if what == "bootstrap port" {
            assert_eq!(rig.of("a").id, after.id, "a source that does not know it says nothing about it");
        } else {
            assert!(
                ![before.id, after.id].contains(&rig.of("a").id),
                "{what}: what it was before is a new one again"
            );
        }
    }
}

#[test]
fn a_replaced_endpoint_is_withdrawn_before_the_new_one_can_be_seen() {
    let mut rig = Rig::plain();
    rig.up("a", 1, "192.0.2.1");
    let before = rig.of("a");
    let moved = register("a", 1, vec![listener("a", "192.0.2.2")]);
    rig.writer.apply(Change::Pods(PodBatch { updates: vec![moved], listed: vec![] }));
    assert!(!before.is_selectable(), "its gate does not wait for the snapshot");
    assert_eq!(rig.all().len(), 1, "and the new one does");
    rig.settle();
    assert_eq!(rig.words(), ["a selectable"]);
    assert_eq!(rig.of("a").host, "192.0.2.2");
}

#[test]
fn of_several_listeners_only_those_that_change_are_replaced() {
    let mut rig = Rig::plain();
    let at = |port| Listener { port, ..listener("a", "192.0.2.1") };
    rig.apply(vec![register("a", 1, vec![at(1), at(2)])]);
    let ids = |rig: &Rig| rig.all().iter().map(|e| (e.port, e.id)).collect::<HashMap<_, _>>();
    let before = ids(&rig);
    rig.apply(vec![register("a", 1, vec![at(2), at(3)])]);
    let after = ids(&rig);
    assert_eq!((after.len(), after[&2]), (2, before[&2]));
    rig.apply(vec![withdraw("a", Reason::NotReady)]);
    assert_eq!(rig.words(), ["a not_ready", "a not_ready"]);
}

#[test]
fn the_later_pod_has_the_address_in_whatever_order_they_come() {
    for older_first in [true, false] {
        let mut rig = Rig::plain();
        let order = if older_first { [("old", 1), ("new", 2)] } else { [("new", 2), ("old", 1)] };
        for (uid, created) in order {
            rig.up(uid, created, "192.0.2.1");
        }
        assert_eq!(rig.words(), ["new selectable", "old address_taken"], "{older_first}");
        // Said again, nothing changes.
        rig.up("old", 1, "192.0.2.1");
        assert_eq!(rig.words(), ["new selectable", "old address_taken"]);
        rig.apply(vec![update(0, "new", 0, PodVerdict::Gone(Reason::Deleted))]);
        assert_eq!(rig.words(), ["old address_taken"], "it has to be said again");
        rig.up("old", 1, "192.0.2.1");
        assert_eq!(rig.words(), ["old selectable"]);
    }
}

#[test]
fn pods_of_one_second_are_told_apart_by_who_was_seen_first() {
    let mut rig = Rig::plain();
    for (uid, version) in [("later", 9), ("earlier", 8)] {
        let born = Born { created: 5, version };
        rig.apply(vec![PodUpdate { born, ..register(uid, 5, vec![listener(uid, "192.0.2.1")]) }]);
    }
    assert_eq!(rig.words(), ["earlier address_taken", "later selectable"]);
}

#[test]
fn an_address_is_free_when_its_pod_does_not_qualify_any_more() {
    let mut rig = Rig::plain();
    rig.up("old", 1, "192.0.2.1");
    rig.up("new", 2, "192.0.2.1");
    rig.apply(vec![withdraw("new", Reason::NotReady)]);
    rig.up("old", 1, "192.0.2.1");
    assert_eq!(rig.words(), ["new not_ready", "old selectable"]);
    rig.up("new", 2, "192.0.2.1");
    assert_eq!(rig.words(), ["new selectable", "old address_taken"]);
    rig.up("new", 2, "192.0.2.7");
    rig.up("old", 1, "192.0.2.1");
    assert_eq!(rig.words(), ["new selectable", "old selectable"]);
}

#[test]
fn one_change_can_move_an_address_from_an_old_pod_to_a_new_one() {
    for swapped in [false, true] {
        let mut rig = Rig::plain();
        rig.up("a", 2, "192.0.2.1");
        let mut updates = vec![
            update(0, "a", 0, PodVerdict::Gone(Reason::NotListed)),
            register("b", 1, vec![listener("b", "192.0.2.1")]),
        ];
        if swapped {
            updates.reverse();
        }
        rig.apply(updates);
        assert_eq!(rig.words(), ["b selectable"], "{swapped}");
    }
}

#[test]
fn an_address_has_one_pod_over_all_services() {
    let mut rig = Rig::new(&[pods(EngineKind::Plain, "one"), pods(EngineKind::Plain, "two")]);
    let at = |service, uid: &str, created| PodUpdate {
        service,
        ..register(uid, created, vec![listener(uid, "192.0.2.1")])
    };
    rig.apply(vec![at(0, "old", 1), at(1, "old", 1)]);
    assert_eq!(rig.words(), ["old selectable", "old selectable"], "one Pod in both");
    rig.apply(vec![at(1, "new", 2)]);
    assert_eq!(rig.words(), ["new selectable", "old address_taken", "old address_taken"]);
    // While one service has the Pod, the address is not free.
    rig.apply(vec![at(0, "new", 2)]);
    rig.apply(vec![PodUpdate { service: 1, ..withdraw("new", Reason::WrongModel) }]);
    rig.apply(vec![at(0, "old", 1)]);
    assert_eq!(rig.words(), ["new selectable", "new wrong_model", "old address_taken", "old address_taken"]);
    rig.apply(vec![PodUpdate { service: 0, ..withdraw("new", Reason::NotReady) }]);
    rig.apply(vec![at(0, "old", 1), at(1, "old", 1)]);
    assert_eq!(rig.words(), ["new not_ready", "new wrong_model", "old selectable", "old selectable"]);
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
fn an_engine_takes_requests_once_it_has_answered() {
    let mut rig = Rig::new(&[probed()]);
    rig.up("a", 1, "192.0.2.1");
    assert_eq!(rig.words(), ["a probing"]);
    let job = rig.last_job();
    assert!(job.endpoint.id == rig.of("a").id && job.models == Some(vec![]) && !job.bootstrap);
    rig.up("a", 1, "192.0.2.1");
    assert_eq!(rig.jobs(), 1, "one is under way");
    rig.verdict(&job, Err("status 503".into()));
    assert_eq!(
        (rig.words(), rig.of("a").detail().as_deref().cloned()),
        (vec!["a probing".into()], Some("status 503".into()))
    );
    rig.verdict(&job, Ok(Facts::default()));
    assert_eq!((rig.words(), rig.of("a").detail()), (vec!["a selectable".into()], None));
}

#[test]
fn a_withdrawal_cancels_the_probe_and_its_verdict_counts_for_nothing() {
    for (reason, departs) in
        [(Reason::NotReady, false), (Reason::NotEligible, false), (Reason::Deleted, true)]
    {
        let mut rig = Rig::new(&[probed()]);
        rig.up("a", 1, "192.0.2.1");
        let first = rig.last_job();
        let verdict =
            if departs { PodVerdict::Gone(reason) } else { PodVerdict::Withdraw { reason, detail: None } };
        rig.apply(vec![update(0, "a", 0, verdict)]);
        assert!(first.cancel.is_cancelled(), "{reason:?}");
        rig.verdict(&first, Ok(Facts::default()));
        assert!(!first.endpoint.is_selectable());
        rig.up("a", 1, "192.0.2.1");
        let second = rig.last_job();
        assert!(second.number != first.number);
        rig.verdict(&first, Ok(Facts::default()));
        assert_eq!(rig.words(), ["a probing"], "of an older job");
        rig.verdict(&second, Ok(Facts::default()));
        assert_eq!(rig.words(), ["a selectable"]);
    }
}

#[test]
fn what_was_learnt_of_an_engine_lasts_as_long_as_its_process() {
    let mut rig = Rig::new(&[probed()]);
    let pass = |rig: &mut Rig| {
        let job = rig.last_job();
        rig.verdict(&job, Ok(Facts::default()));
    };
    rig.up("a", 1, "192.0.2.1");
    pass(&mut rig);
    for (reason, again) in [
        (Reason::NotEligible, false),
        (Reason::DrainAnnotation, false),
        (Reason::NotReady, true),
        (Reason::ReadyUnknown, true),
        (Reason::NotRunning, true),
        (Reason::NoAddress, true),
    ] {
        let before = rig.jobs();
        rig.apply(vec![withdraw("a", reason)]);
        rig.up("a", 1, "192.0.2.1");
        assert_eq!(rig.jobs() - before, usize::from(again), "{reason:?}");
        assert_eq!(rig.of("a").is_selectable(), !again, "{reason:?}");
        pass(&mut rig);
    }
    let restarted = PodVerdict::Register { listeners: vec![listener("a", "192.0.2.1")], epoch: 1 };
    rig.apply(vec![update(0, "a", 1, restarted)]);
    assert_eq!(rig.words(), ["a probing"], "another process");
    pass(&mut rig);
    assert_eq!(rig.words(), ["a selectable"]);
}

#[test]
fn a_pod_whose_address_is_taken_is_not_asked() {
    let mut rig = Rig::new(&[probed()]);
    rig.up("old", 1, "192.0.2.1");
    let job = rig.last_job();
    rig.up("new", 2, "192.0.2.1");
    assert!(job.cancel.is_cancelled(), "it would ask the new one");
    rig.up("old", 1, "192.0.2.1");
    assert_eq!((rig.jobs(), rig.words()), (2, vec!["new probing".into(), "old address_taken".into()]));
}

#[test]
fn a_bootstrap_port_is_learnt_from_the_engine_and_is_no_other_fact() {
    let mut rig = Rig::new(&[pods(EngineKind::Sglang, "chat")]);
    let prefill = || Listener { role: Role::Prefill, ..listener("a", "192.0.2.1") };
    rig.apply(vec![register("a", 1, vec![prefill()])]);
    let job = rig.last_job();
    assert!(job.bootstrap && job.models.is_none());
    rig.verdict(&job, Ok(Facts { bootstrap_port: Some(8998) }));
    let endpoint = rig.of("a");
    assert_eq!((endpoint.bootstrap_port(), endpoint.is_selectable()), (Some(8998), true));
    rig.apply(vec![register("a", 1, vec![prefill()])]);
    assert!(Arc::ptr_eq(&endpoint, &rig.of("a")));
    let decode = Listener { role: Role::Decode, ..listener("d", "192.0.2.2") };
    rig.apply(vec![register("d", 1, vec![decode])]);
    assert!(rig.of("d").is_selectable(), "decodes have no bootstrap server");
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
    let why = PodVerdict::Withdraw { reason: Reason::NoPort, detail: Some("none".into()) };
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

#[tokio::test(start_paused = true)]
async fn whoever_left_is_kept_until_its_last_request_is_over_and_a_while_longer() {
    let mut rig = Rig::plain();
    rig.up("a", 1, "192.0.2.1");
    let endpoint = rig.of("a");
    let hold = Hold::take(&endpoint).unwrap();
    endpoint.started();
    async fn gone(rig: &mut Rig, seconds: u64) -> bool {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        rig.settle();
        rig.departed().is_empty()
    }
    rig.apply(vec![update(0, "a", 0, PodVerdict::Gone(Reason::Deleted))]);
    assert!(!gone(&mut rig, 3600).await, "it carries a request");
    drop(hold);
    let handoff = endpoint.handoffs.begin();
    assert!(!gone(&mut rig, 60).await, "and now KV");
    drop(handoff);
    assert!(gone(&mut rig, 0).await, "its last request began long ago");
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

#[test]
fn pods_stay_when_the_configuration_is_read_again() {
    let mut config = pods(EngineKind::Plain, "chat");
    let mut rig = Rig::new(&[config.clone()]);
    rig.up("a", 1, "192.0.2.1");
    let endpoint = rig.of("a");
    rig.drain(endpoint.id, true);
    config.retries.max = 7;
    let (done, mut answer) = oneshot::channel();
    rig.writer.apply(Change::Services(vec![config], done));
    assert_eq!(answer.try_recv().map(|replaced| (replaced.added, replaced.removed)), Ok((0, 0)));
    assert!(Arc::ptr_eq(&endpoint, &rig.of("a")));
    rig.up("a", 1, "192.0.2.1");
    assert_eq!(rig.words(), ["a admin_drain"], "it keeps everything");
    assert_eq!(rig.view.load().services[0].config.retries.max, 7);
}

#[test]
fn static_endpoints_and_pods_live_side_by_side() {
    let mut config = pods(EngineKind::Plain, "chat");
    config.endpoints = vec![StaticEndpoint::parse("http://192.0.2.1:8000").unwrap()];
    let mut rig = Rig::new(&[config.clone()]);
    rig.up("a", 1, "192.0.2.2");
    assert_eq!(rig.words(), ["a selectable", "static selectable"]);
    config.endpoints.clear();
    let (done, mut answer) = oneshot::channel();
    rig.writer.apply(Change::Services(vec![config], done));
    rig.settle();
    assert_eq!(answer.try_recv().map(|replaced| replaced.removed), Ok(1));
    assert_eq!(rig.words(), ["a selectable"]);
    assert_eq!(rig.departed()[0].reason(), Reason::Removed);
}
