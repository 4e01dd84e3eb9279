use super::*;
use crate::config::{StaticEndpoint, VllmConnector};
use crate::registry::EngineFacts;
use crate::types::fact::Fact;

const PACE: Duration = Duration::from_secs(15);

fn sglang() -> Config {
    pods(EngineKind::Sglang, "chat")
}

fn said(facts: &[(Fact, &str)]) -> Facts {
    let mut engine = EngineFacts::default();
    for (fact, value) in facts {
        engine.set(*fact, value);
    }
    Facts { engine: Some(engine), ..Facts::default() }
}

fn pages(size: &str) -> Facts {
    said(&[(Fact::PageSize, size)])
}

/// No answer to anything.
fn silent() -> Facts {
    let mut engine = EngineFacts::default();
    engine.incomplete = true;
    Facts { engine: Some(engine), ..Facts::default() }
}

impl Rig {
    /// A decode of token `kv` at an address of its own, whose engine has not answered yet.
    fn decode(&mut self, uid: &str, created: i64) -> Job {
        let ip = format!("192.0.2.{created}");
        let at = Listener { role: Role::Decode, token: "kv".into(), ..listener(uid, &ip) };
        self.apply(vec![register(uid, created, vec![at])]);
        self.last_job()
    }

    fn says(&mut self, uid: &str, created: i64, facts: Facts) {
        let job = self.decode(uid, created);
        self.verdict(&job, Ok(facts));
    }

    /// Contradictions that were counted.
    fn drifts(&self) -> u64 {
        let page = self.metrics.render();
        let lines = page.lines().filter(|line| line.starts_with("tandem_engine_drift_total{"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}

#[test]
fn an_engine_that_contradicts_its_label_is_never_selectable() {
    let mut rig = Rig::new(&[sglang()]);
    rig.says("a", 1, pages("1"));
    let job = rig.decode("b", 2);
    assert!(job.facts && job.engine == EngineKind::Sglang);
    assert_eq!(rig.words(), ["a selectable", "b probing"]);
    // Before anything is judged, whatever else changes meanwhile.
    rig.writer.apply(Change::Probed(Probed {
        id: job.endpoint.id,
        job: job.number,
        result: Ok(pages("64")),
    }));
    let again = Listener { role: Role::Decode, token: "kv".into(), ..listener("b", "192.0.2.2") };
    rig.writer.apply(Change::Pods(PodBatch { updates: vec![register("b", 2, vec![again])], listed: vec![] }));
    assert!(!job.endpoint.is_selectable());
    rig.settle();
    assert_eq!(rig.words(), ["a selectable", "b engine_drift"]);
    let detail = "the engine reports page_size 64, others of pairing token kv report 1";
    assert_eq!(rig.of("b").detail().as_deref().map(String::as_str), Some(detail));
    assert_eq!(rig.drifts(), 1);
}

#[test]
fn the_verdict_follows_the_majority_and_who_is_there() {
    let mut rig = Rig::new(&[sglang()]);
    rig.says("a", 1, pages("1"));
    rig.says("b", 2, pages("64"));
    assert_eq!(rig.words(), ["a selectable", "b engine_drift"]);
    rig.says("c", 3, pages("64"));
    assert_eq!(rig.words(), ["a engine_drift", "b selectable", "c selectable"]);
    rig.apply(vec![withdraw("c", Reason::NotEligible)]);
    assert_eq!(rig.words(), ["a selectable", "b engine_drift", "c not_eligible"], "it has no vote");
    // What is known of it is held against the others before it takes a request.
    rig.says("c", 3, Facts::default());
    assert_eq!(rig.words(), ["a engine_drift", "b selectable", "c selectable"]);
    rig.apply(vec![update(0, "c", 3, PodVerdict::Gone(Reason::Deleted))]);
    rig.apply(vec![update(0, "a", 1, PodVerdict::Gone(Reason::Deleted))]);
    assert_eq!(rig.words(), ["b selectable"], "nobody is left to contradict");
}

#[test]
fn every_other_reason_keeps_its_word() {
    let mut rig = Rig::new(&[sglang()]);
    rig.says("a", 1, pages("1"));
    rig.says("b", 2, pages("64"));
    let id = rig.of("b").id;
    rig.drain(id, true);
    assert_eq!(rig.words(), ["a selectable", "b admin_drain"]);
    rig.drain(id, false);
    assert_eq!(rig.words(), ["a selectable", "b engine_drift"]);
    assert!(rig.of("b").detail().is_some());
    rig.apply(vec![withdraw("b", Reason::NotEligible)]);
    assert_eq!(rig.words(), ["a selectable", "b not_eligible"]);
    let jobs = rig.jobs();
    rig.decode("b", 2);
    assert_eq!((rig.words(), rig.jobs()), (vec!["a selectable".into(), "b engine_drift".into()], jobs));
    assert_eq!(rig.drifts(), 1, "it is the same contradiction");
}

#[tokio::test(start_paused = true)]
async fn one_that_contradicts_is_asked_again_until_it_says_something_else() {
    let mut rig = Rig::new(&[sglang()]);
    rig.says("a", 1, pages("1"));
    rig.says("b", 2, pages("64"));
    for round in 1..=3 {
        let before = rig.jobs();
        tokio::time::advance(Duration::from_millis(14_999)).await;
        rig.settle();
        assert_eq!(rig.jobs(), before);
        assert!(rig.writer.wakes_at().unwrap() <= clock::now() + Duration::from_millis(1));
        tokio::time::advance(Duration::from_millis(1)).await;
        rig.settle();
        assert_eq!(rig.jobs(), before + 1, "that one alone");
        let job = rig.last_job();
        assert!(job.facts && !job.bootstrap && job.models.is_none() && job.endpoint.id == rig.of("b").id);
        rig.verdict(&job, Ok(if round == 2 { silent() } else { pages("64") }));
        assert_eq!(rig.words(), ["a selectable", "b engine_drift"], "no answer clears nobody");
    }
    assert_eq!(rig.drifts(), 1, "one contradiction, however often it is said");
    tokio::time::advance(PACE).await;
    rig.settle();
    let job = rig.last_job();
    rig.verdict(&job, Ok(pages("1")));
    assert_eq!(
        (rig.words(), rig.of("b").detail()),
        (vec!["a selectable".into(), "b selectable".into()], None)
    );
    let jobs = rig.jobs();
    tokio::time::advance(PACE * 2).await;
    rig.settle();
    assert_eq!(rig.jobs(), jobs, "there is nothing to ask");
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_answer_takes_requests_and_is_asked_on_beside_them() {
    let mut rig = Rig::new(&[sglang()]);
    rig.says("a", 1, pages("1"));
    rig.says("b", 2, silent());
    assert_eq!(rig.words(), ["a selectable", "b selectable"]);
    tokio::time::advance(PACE).await;
    rig.settle();
    let job = rig.last_job();
    assert_eq!(
        (job.endpoint.id, rig.words()),
        (rig.of("b").id, vec!["a selectable".into(), "b selectable".into()])
    );
    rig.verdict(&job, Ok(pages("64")));
    assert_eq!(rig.words(), ["a selectable", "b engine_drift"]);
}

/// The others may say something else by now: at no instant it is selectable.
#[test]
fn one_that_returns_is_judged_by_those_that_are_there_then() {
    let mut rig = Rig::new(&[sglang()]);
    rig.says("a", 1, pages("64"));
    let a = rig.of("a");
    rig.apply(vec![withdraw("a", Reason::NotEligible)]);
    rig.says("b", 2, pages("1"));
    rig.says("c", 3, pages("1"));
    let at = Listener { role: Role::Decode, token: "kv".into(), ..listener("a", "192.0.2.1") };
    let back = vec![register("a", 1, vec![at])];
    rig.writer.apply(Change::Pods(PodBatch { updates: back, listed: vec![] }));
    assert!(!a.is_selectable());
    rig.settle();
    assert_eq!(rig.words(), ["a engine_drift", "b selectable", "c selectable"]);
}

/// The same for one that gets its address back.
#[test]
fn one_that_gets_its_address_back_is_judged_before_it_takes_a_request() {
    let mut rig = Rig::new(&[sglang()]);
    rig.says("a", 1, pages("64"));
    let a = rig.of("a");
    let at = Listener { role: Role::Decode, token: "kv".into(), ..listener("late", "192.0.2.1") };
    rig.apply(vec![register("late", 9, vec![at])]);
    rig.says("b", 2, pages("1"));
    rig.says("c", 3, pages("1"));
    let gone = vec![update(0, "late", 9, PodVerdict::Gone(Reason::Deleted))];
    rig.writer.apply(Change::Pods(PodBatch { updates: gone, listed: vec![] }));
    assert!(!a.is_selectable());
    rig.settle();
    assert_eq!(rig.words(), ["a engine_drift", "b selectable", "c selectable"]);
}

#[test]
fn what_it_said_is_forgotten_with_its_process() {
    let mut rig = Rig::new(&[sglang()]);
    rig.says("a", 1, pages("1"));
    rig.says("b", 2, pages("64"));
    rig.apply(vec![withdraw("b", Reason::NotReady)]);
    rig.says("b", 2, pages("1"));
    assert_eq!(rig.words(), ["a selectable", "b selectable"]);
    rig.apply(vec![withdraw("a", Reason::NotReady)]);
    rig.says("a", 1, pages("64"));
    assert_eq!(rig.words(), ["a selectable", "b engine_drift"]);
    assert_eq!(rig.drifts(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reload_turns_the_guard_off_and_on() {
    let mut rig = Rig::new(&[sglang()]);
    rig.says("a", 1, pages("1"));
    rig.says("b", 2, pages("64"));
    let set = |rig: &mut Rig, on| {
        let (done, _) = oneshot::channel();
        rig.writer.apply(Change::Services(vec![Config { cohorts_guard: on, ..sglang() }], done));
        rig.settle();
    };
    set(&mut rig, false);
    assert_eq!(rig.words(), ["a selectable", "b selectable"]);
    let jobs = rig.jobs();
    let at = Listener { role: Role::Decode, token: "kv".into(), ..listener("c", "192.0.2.3") };
    rig.apply(vec![register("c", 3, vec![at])]);
    assert_eq!((rig.jobs(), rig.words().len()), (jobs, 3), "and nobody is asked");
    assert!(rig.of("c").is_selectable());
    set(&mut rig, true);
    assert_eq!(rig.words(), ["a selectable", "b engine_drift", "c selectable"]);
    tokio::time::advance(PACE).await;
    rig.settle();
    let asked: Vec<u64> = rig.jobs.0.lock()[jobs..].iter().map(|job| job.endpoint.id).collect();
    assert_eq!(asked.len(), 2, "the one that contradicts, and the one that was never asked");
    assert!(asked.contains(&rig.of("c").id));
}

/// Only Pods, only engines that say something, and of vLLM only those under a label.
#[test]
fn who_claims_nothing_is_not_asked() {
    let nixl = EngineKind::Vllm(VllmConnector::Nixl);
    for (engine, token, revision, asked) in [
        (EngineKind::Plain, "kv", "r1", false),
        (nixl, "", "", false),
        (nixl, "kv", "", true),
        (nixl, "", "r1", true),
        (EngineKind::Sglang, "", "", true),
    ] {
        let mut rig = Rig::new(&[pods(engine, "chat")]);
        let (role, token, revision) = (Role::Decode, token.to_owned(), revision.to_owned());
        rig.apply(vec![register(
            "a",
            1,
            vec![Listener { role, revision, token, ..listener("a", "192.0.2.1") }],
        )]);
        assert_eq!((rig.jobs(), rig.of("a").is_selectable()), (usize::from(asked), !asked), "{engine:?}");
    }
    let listed = StaticEndpoint::parse("http://192.0.2.1:8000").unwrap();
    let rig = Rig::new(&[Config {
        engine: EngineKind::Sglang,
        decode: vec![listed],
        ..Config::plain("chat", Vec::new())
    }]);
    assert_eq!((rig.jobs(), rig.words()), (0, vec!["static selectable".into()]));
}
