use serde_json::{Value, json};

use super::*;
use crate::config::{Dialect, EngineKind, Service};
use crate::discovery::fixtures::{VLLM, changed, metrics, object, service};
use crate::testkit::metrics::Scrape;
use crate::types::clock::now;

const MARK: &str = "modeldeployment.gpustack.ai/endpoint-eligible";
const ROLE: &str = "modeldeployment.gpustack.ai/role-kind";

struct Rig {
    source: Source,
    metrics: Arc<crate::metrics::Metrics>,
}

impl Rig {
    fn new(services: &[Service]) -> Self {
        let metrics = metrics();
        let one = |(n, service): (usize, &Service)| {
            (Rules::of(n, service).unwrap(), metrics.discovery.service(&service.name).unwrap())
        };
        let source = Source::new(services.iter().enumerate().map(one).collect());
        Self { source, metrics }
    }

    fn changed(&mut self, object: &Value) -> Vec<String> {
        words(&self.source.changed(&object.to_string(), now()).0)
    }

    fn list(&mut self, version: u64, objects: &[Value]) -> (Vec<String>, Vec<(String, u64)>) {
        let (mut pods, mut bad) = (Vec::new(), Vec::new());
        for object in objects {
            match decode(&object.to_string(), self.source.wanted()) {
                Ok(pod) => pods.push(Arc::new(pod)),
                Err(wrong) => bad.push(wrong),
            }
        }
        match self.source.list(version, pods, &bad, now()) {
            Reconciled::Applied(batch, changed) => (words(&batch), changed),
            Reconciled::Discarded => (vec!["discarded".to_owned()], Vec::new()),
        }
    }

    #[expect(clippy::cast_sign_loss, reason = "a count")]
    fn count(&self, family: &str, labels: &[(&str, &str)]) -> u64 {
        Scrape::parse(&self.metrics.render()).sum(family, labels) as u64
    }
}

/// Service, UID and verdict of each update, sorted; then services whose list it is.
fn words(batch: &PodBatch) -> Vec<String> {
    let word = |update: &PodUpdate| {
        let verdict = match &update.verdict {
            PodVerdict::Register { listeners, .. } => format!("register {}", listeners.len()),
            PodVerdict::Withdraw { reason, .. } => reason.as_str().to_owned(),
            PodVerdict::Gone(reason) => format!("gone {}", reason.as_str()),
        };
        format!("{} {} {verdict}", update.service, update.pod.uid)
    };
    let mut words: Vec<String> = batch.updates.iter().map(word).collect();
    words.sort_unstable();
    words.extend(batch.listed.iter().map(|service| format!("listed {service}")));
    words
}

fn plain() -> Service {
    service(EngineKind::Plain, Dialect::Vllm)
}

/// A Pod with this UID at this version.
fn pod(uid: &str, version: u64, change: impl FnOnce(&mut Value)) -> Value {
    changed(|pod| {
        pod["metadata"]["uid"] = uid.into();
        pod["metadata"]["name"] = format!("pod-{uid}").into();
        pod["metadata"]["resourceVersion"] = version.to_string().into();
        change(pod);
    })
}

fn unready(pod: &mut Value) {
    pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "False" }]);
}

fn out_of_reach(pod: &mut Value) {
    pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "Unknown" }]);
}

#[test]
fn news_are_said_once_and_old_news_never() {
    let mut rig = Rig::new(&[plain()]);
    assert_eq!(rig.changed(&pod("a", 5, |_| {})), ["0 a register 1"]);
    assert!(rig.changed(&pod("a", 5, |_| {})).is_empty());
    assert!(rig.changed(&pod("a", 4, unready)).is_empty());
    assert_eq!(rig.changed(&pod("a", 6, unready)), ["0 a not_ready"]);
    let gone =
        Identity { uid: Some("a".into()), namespace: "ns".into(), name: "pod-a".into(), version: Some(7) };
    assert_eq!(words(&rig.source.deleted(&gone, now())), ["0 a gone deleted"]);
    assert!(words(&rig.source.deleted(&gone, now())).is_empty());
    assert!(rig.changed(&pod("a", 6, |_| {})).is_empty(), "it does not come back");
}

#[test]
fn what_cannot_be_read_is_skipped_with_one_warning_and_still_says_who_it_is() {
    let mut rig = Rig::new(&[plain()]);
    rig.changed(&pod("a", 5, |_| {}));
    for version in 6..9 {
        let bad = pod("a", version, |pod| pod["metadata"]["labels"] = 5.into());
        let (batch, who) = rig.source.changed(&bad.to_string(), now());
        assert!(batch.updates.is_empty());
        assert_eq!((who.uid.as_deref(), who.version), (Some("a"), Some(version)), "the watch did tell");
    }
    let nobody = Identity { uid: None, namespace: "ns".into(), name: "x".into(), version: Some(1) };
    assert!(words(&rig.source.deleted(&nobody, now())).is_empty());
    let skipped = rig.count("tandem_discovery_skipped_objects_total", &[("reason", "bad_object")]);
    assert_eq!(skipped, 2, "each object once");
    // In a list it keeps its Pod where it was.
    let bad = pod("a", 9, |pod| pod["metadata"]["labels"] = 5.into());
    assert_eq!(rig.list(9, &[bad]).0, ["listed 0"]);
}

#[test]
fn a_list_says_what_is_new_and_names_what_the_watch_owes() {
    let mut rig = Rig::new(&[plain()]);
    let first = rig.list(10, &[pod("a", 5, |_| {}), pod("b", 6, unready)]);
    assert_eq!(first, (vec!["0 a register 1".into(), "0 b not_ready".into(), "listed 0".into()], vec![]));
    assert!(rig.source.is_synced() && rig.source.listed() == 10);
    let second = rig.list(20, &[pod("b", 15, |_| {}), pod("c", 16, |_| {})]);
    let said = ["0 a gone not_listed", "0 b register 1", "0 c register 1", "listed 0"].map(str::to_owned);
    assert_eq!(second.0, said);
    let mut owed = second.1;
    owed.sort_unstable();
    assert_eq!(owed, [("a".into(), 20), ("b".into(), 15), ("c".into(), 16)]);
    assert_eq!(rig.list(19, &[]).0, ["discarded"]);
    assert_eq!(rig.list(20, &[pod("b", 15, |_| {}), pod("c", 16, |_| {})]).1, [], "nothing new");
}

#[test]
fn services_that_share_a_stream_judge_each_for_itself() {
    let of = |name: &str| Service {
        name: name.into(),
        models: vec![name.into()],
        ..service(EngineKind::Plain, Dialect::LlmD)
    };
    let mut rig = Rig::new(&[of("a"), of("b")]);
    let model = |model: &'static str| {
        move |pod: &mut Value| pod["metadata"]["labels"]["llm-d.ai/model"] = model.into()
    };
    assert_eq!(rig.changed(&pod("u", 5, model("a"))), ["0 u register 1", "1 u wrong_model"]);
    assert_eq!(rig.changed(&pod("u", 6, model("b"))), ["0 u wrong_model", "1 u register 1"]);
    assert_eq!(rig.list(7, &[]).0, ["0 u gone not_listed", "1 u gone not_listed", "listed 0", "listed 1"]);
}

fn worker(uid: &str, version: u64, marked: bool) -> Value {
    pod(uid, version, |pod| {
        pod["metadata"]["labels"][ROLE] = "prefill".into();
        if marked {
            pod["metadata"]["labels"][MARK] = "true".into();
        }
    })
}

#[test]
fn a_role_latches_at_the_first_list_and_not_by_events_before_it() {
    let mut rig = Rig::new(&[service(VLLM, Dialect::Gpustack)]);
    assert_eq!(rig.changed(&worker("a", 5, true)), ["0 a register 1"]);
    assert_eq!(
        rig.changed(&worker("b", 6, false)),
        ["0 b register 1"],
        "what else there is, is not known yet"
    );
    assert!(rig.source.latches().is_empty());
    let (said, _) = rig.list(10, &[worker("a", 5, true), worker("b", 9, true)]);
    assert_eq!(said, ["0 a register 1", "0 b register 1", "listed 0"]);
    assert_eq!(rig.source.latches(), BTreeMap::from([("chat".to_owned(), vec![Role::Prefill])]));
    assert_eq!(rig.changed(&worker("b", 11, false)), ["0 b not_eligible"]);
    assert_eq!(rig.count("tandem_eligibility_latched", &[("role", "prefill")]), 1);
}

#[test]
fn an_event_that_completes_the_fleet_latches_and_judges_everybody_again() {
    let mut rig = Rig::new(&[service(VLLM, Dialect::Gpustack)]);
    let unmarked_and_unready = |version| {
        let mut pod = worker("b", version, false);
        unready(&mut pod);
        pod
    };
    rig.list(10, &[worker("a", 5, false), worker("b", 6, false)]);
    assert_eq!(rig.changed(&worker("a", 11, true)), ["0 a register 1"], "one of two");
    let said = rig.changed(&unmarked_and_unready(12));
    assert!(said.contains(&"0 b not_ready".to_owned()), "{said:?}");
    assert_eq!(rig.source.latches().len(), 1, "every Ready one is marked now");
    assert_eq!(rig.changed(&worker("b", 13, false)), ["0 b not_eligible"]);
}

#[test]
fn half_of_a_role_latches_after_two_relists_in_which_none_was_added() {
    let mut rig = Rig::new(&[service(VLLM, Dialect::Gpustack)]);
    let fleet = [worker("a", 5, true), worker("b", 6, false)];
    for (version, latched) in [(10, false), (11, false), (12, true)] {
        let (said, _) = rig.list(version, &fleet);
        assert_eq!(!rig.source.latches().is_empty(), latched, "{version}");
        assert_eq!(said.contains(&"0 b not_eligible".to_owned()), latched, "{said:?}");
    }
}

#[test]
fn a_latch_from_the_state_file_counts_from_the_first_event_on() {
    let mut rig = Rig::new(&[service(VLLM, Dialect::Gpustack)]);
    rig.source.restore_latch("other", Role::Prefill);
    rig.source.restore_latch("chat", Role::Prefill);
    assert_eq!(rig.changed(&worker("a", 5, false)), ["0 a not_eligible"]);
}

#[test]
fn fail_static_keeps_who_serves_and_takes_nobody_new() {
    let mut service = plain();
    service.eligibility.fail_static = true;
    let mut rig = Rig::new(&[service]);
    rig.changed(&pod("a", 5, |_| {}));
    assert_eq!(rig.changed(&pod("a", 6, out_of_reach)), ["0 a register 1"]);
    assert_eq!(rig.changed(&pod("b", 7, out_of_reach)), ["0 b ready_unknown"]);
    assert_eq!(rig.changed(&pod("a", 8, unready)), ["0 a not_ready"]);
    assert_eq!(rig.changed(&pod("a", 9, out_of_reach)), ["0 a ready_unknown"], "it did not serve any more");
}

#[tokio::test(start_paused = true)]
async fn more_than_half_of_a_role_out_of_reach_within_a_minute_is_one_alarm() {
    let mut rig = Rig::new(&[plain()]);
    let alarms = |rig: &Rig| rig.count("tandem_mass_withdrawals_total", &[]);
    for (n, uid) in ["a", "b", "c", "d"].into_iter().enumerate() {
        rig.changed(&pod(uid, 10 + n as u64, |_| {}));
    }
    rig.changed(&pod("a", 20, out_of_reach));
    rig.changed(&pod("b", 21, out_of_reach));
    assert_eq!(alarms(&rig), 0, "half is not more than half");
    rig.changed(&pod("c", 22, out_of_reach));
    rig.changed(&pod("d", 23, out_of_reach));
    assert_eq!(alarms(&rig), 1, "once");
    for (n, uid) in ["a", "b", "c", "d"].into_iter().enumerate() {
        rig.changed(&pod(uid, 30 + n as u64, |_| {}));
    }
    for (n, uid) in ["a", "b", "c"].into_iter().enumerate() {
        rig.changed(&pod(uid, 40 + n as u64, out_of_reach));
        tokio::time::advance(std::time::Duration::from_secs(61)).await;
    }
    assert_eq!(alarms(&rig), 1, "one by one over minutes is no incident");
}

#[test]
fn a_pod_that_cannot_be_used_is_one_warning_for_each_reason() {
    let mut service = plain();
    service.pods.as_mut().unwrap().ports = vec![crate::config::Port::Number(9)];
    let mut rig = Rig::new(&[service]);
    let skipped =
        |rig: &Rig, reason: &str| rig.count("tandem_discovery_skipped_objects_total", &[("reason", reason)]);
    for version in 5..8 {
        assert_eq!(rig.changed(&pod("a", version, |_| {})), ["0 a no_port"]);
    }
    assert_eq!(skipped(&rig, "no_port"), 1);
    let nowhere = |pod: &mut Value| {
        pod["status"]["podIP"] = Value::Null;
        pod["status"]["podIPs"] = Value::Null;
    };
    rig.changed(&pod("a", 9, nowhere));
    assert_eq!(skipped(&rig, "no_address"), 1);
    rig.changed(&pod("b", 10, |pod| {
        nowhere(pod);
        unready(pod);
    }));
    assert_eq!(skipped(&rig, "no_address"), 1, "a Pod that only starts is none");
    assert!(rig.changed(&object()).contains(&"0 u no_port".to_owned()));
}
