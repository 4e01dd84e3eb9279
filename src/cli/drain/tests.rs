//! The proof, round by round, and against a second, naive reading of the rule.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::proof::{Answer, Proof, Round, State, Verdict, read};
use super::target::{Pod, Target};
use crate::types::clock::{Instant, now};

const SETTLE: Duration = Duration::from_secs(30);

/// What a router says; the rest is as it should be.
#[derive(Debug, Clone)]
struct Said {
    boot: u64,
    seq: u64,
    document: Value,
}

fn entry(uid: &str) -> Value {
    json!({
        "uid": uid, "namespace": "llm", "pod": "chat-0", "service": "chat", "url": "http://10.0.0.7:8000",
        "role": "prefill", "revision": null, "pairing_token": null, "selectable": false, "reason": "terminating",
        "volatile_drain": false, "withdrawn_age_ms": 5, "last_dispatch_age_ms": null,
        "in_flight": {"waiting": 0, "reserved": 0, "prefill": 0, "decode": 0, "handoff": 0},
        "forced": 0, "quiesced_for_ms": 5,
    })
}

/// Quiet, of this boot, with this number.
fn quiet(boot: u64, seq: u64) -> Said {
    Said { boot, seq, document: json!({"endpoints": [entry("u")], "pods": []}) }
}

impl Said {
    fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        *self.document.pointer_mut(pointer).unwrap() = value.into();
        self
    }

    fn body(&self) -> Value {
        let mut body = self.document.clone();
        body["schema"] = json!(1);
        body["registry_version"] = json!(1);
        body["router"] =
            json!({"instance": "r", "boot_generation": self.boot, "seq": self.seq, "now_ms": self.seq});
        body
    }
}

fn answer(said: &Said) -> Answer {
    read(said.body().to_string().as_bytes())
}

fn pod(uid: Option<&str>) -> Target {
    let (namespace, name) = ("llm".to_owned(), "chat-0".to_owned());
    Target::Pod(Pod { namespace, name, uid: uid.map(str::to_owned) })
}

fn round(at: Instant, answers: &[(&str, Answer)]) -> Round {
    let answers = answers.iter().map(|(at, answer)| ((*at).to_owned(), answer.clone())).collect();
    Round { at, answers, nameless: BTreeMap::new() }
}

/// The verdicts of rounds a second apart.
fn verdicts(target: &Target, rounds: &[&[(&str, Answer)]]) -> Vec<Verdict> {
    let (mut proof, mut at) = (Proof::new(SETTLE), now());
    let mut verdict = |answers: &&[(&str, Answer)]| {
        at += Duration::from_secs(1);
        proof.add(target, &round(at, answers)).verdict
    };
    rounds.iter().map(&mut verdict).collect()
}

fn good(boot: u64, seq: u64) -> Answer {
    answer(&quiet(boot, seq))
}

fn away() -> Answer {
    Err("refused".to_owned())
}

use Verdict::{Nobody, Open, Proven, Quiet, Unknown};

#[test]
fn two_quiet_rounds_of_the_same_routers_prove_it_and_one_does_not() {
    let of = |rounds: &[&[(&str, Answer)]]| verdicts(&pod(Some("u")), rounds);
    assert_eq!(of(&[&[("a", good(1, 1))], &[("a", good(1, 2))]]), [Quiet, Proven]);
    let two = |seq| [("a", good(1, seq)), ("b", good(2, seq))];
    assert_eq!(of(&[&two(1), &two(2)]), [Quiet, Proven]);
    assert_eq!(of(&[&[], &[]]), [Unknown, Unknown], "no router is no proof");
}

/// Each once between quiet rounds: none of them proves anything, and the next begins anew.
#[test]
fn what_is_open_or_unknown_holds_it_up() {
    let open = |kind: &str| quiet(1, 2).with(&format!("/endpoints/0/in_flight/{kind}"), 1);
    let mut table: Vec<(&str, Answer, Verdict)> =
        crate::metrics::KINDS.map(|kind| (kind, answer(&open(kind)), Open)).to_vec();
    table.extend([
        ("selectable", answer(&quiet(1, 2).with("/endpoints/0/selectable", true)), Open),
        ("not at rest", answer(&quiet(1, 2).with("/endpoints/0/quiesced_for_ms", Value::Null)), Open),
        ("no such UID", answer(&quiet(1, 2).with("/endpoints/0/uid", "v")), Unknown),
        ("nothing", answer(&quiet(1, 2).with("/endpoints", json!([]))), Unknown),
        ("not reached", away(), Unknown),
        ("the same answer", good(1, 1), Unknown),
        ("an older answer", good(1, 0), Unknown),
    ]);
    for (what, answer, verdict) in table {
        let rounds: &[&[(&str, Answer)]] = &[
            &[("a", good(1, 1)), ("b", good(2, 1))],
            &[("a", answer), ("b", good(2, 2))],
            &[("a", good(1, 3)), ("b", good(2, 3))],
            &[("a", good(1, 4)), ("b", good(2, 4))],
        ];
        assert_eq!(verdicts(&pod(Some("u")), rounds), [Quiet, verdict, Quiet, Proven], "{what}");
    }
}

#[test]
fn a_name_that_leads_nowhere_is_unknown() {
    let (mut proof, at) = (Proof::new(SETTLE), now());
    let mut nameless = round(at, &[("a", good(1, 1))]);
    nameless.nameless.insert("tandem-admin:9090".to_owned(), "no such name".to_owned());
    let judged = proof.add(&pod(Some("u")), &nameless);
    assert_eq!(judged.verdict, Unknown);
    assert_eq!(judged.states["tandem-admin:9090"], State::Unknown("no such name".to_owned()));
    assert_eq!(proof.add(&pod(Some("u")), &round(at, &[("a", good(1, 2))])).verdict, Quiet);
}

/// What it says after `after` seconds without another change.
fn settles(
    changed: &[(&str, Answer)],
    later: impl Fn(u64) -> Vec<(&'static str, Answer)>,
    why: (&str, &str),
) {
    let (mut proof, start) = (Proof::new(SETTLE), now());
    let target = pod(Some("u"));
    let mut add = |second: u64, answers: &[(&str, Answer)]| {
        proof.add(&target, &round(start + Duration::from_secs(second), answers))
    };
    assert_eq!(add(0, &[("a", good(1, 1)), ("b", good(2, 1))]).verdict, Quiet);
    let judged = add(1, changed);
    assert_eq!(judged.verdict, Unknown);
    assert!(matches!(&judged.states[why.0], State::Unknown(said) if said.contains(why.1)), "{judged:?}");
    for second in 2..=30 {
        assert_eq!(add(second, &later(second)).verdict, Unknown, "{second}");
    }
    assert_eq!(add(31, &later(31)).verdict, Quiet);
    assert_eq!(add(32, &later(32)).verdict, Proven);
}

#[test]
fn a_router_that_restarted_came_or_went_is_unknown_until_the_set_has_settled() {
    let two = |boot: u64| move |seq: u64| vec![("a", good(boot, seq)), ("b", good(2, seq))];
    settles(&[("a", good(9, 1)), ("b", good(2, 2))], two(9), ("a", "restarted"));
    let three = |seq| vec![("a", good(1, seq)), ("b", good(2, seq)), ("c", good(3, seq))];
    settles(&[("a", good(1, 2)), ("b", good(2, 2)), ("c", good(3, 1))], three, ("c", "new"));
    settles(&[("b", good(2, 2))], |seq| vec![("b", good(2, seq))], ("a", "gone"));
    // Another instance with the same generation is another process, too.
    let mut other = quiet(1, 2).body();
    other["router"]["instance"] = json!("s");
    let same = |seq: u64| {
        let mut body = quiet(1, seq).body();
        body["router"]["instance"] = json!("s");
        vec![("a", read(body.to_string().as_bytes())), ("b", good(2, seq))]
    };
    settles(&[("a", read(other.to_string().as_bytes())), ("b", good(2, 2))], same, ("a", "restarted"));
}

#[test]
fn a_router_that_is_back_unchanged_needs_no_time_and_one_that_was_never_heard_does() {
    let of = |rounds: &[&[(&str, Answer)]]| verdicts(&pod(Some("u")), rounds);
    let back: &[&[(&str, Answer)]] = &[
        &[("a", good(1, 1))],
        &[("a", away())],
        &[("a", away())],
        &[("a", good(1, 2))],
        &[("a", good(1, 3))],
    ];
    assert_eq!(of(back), [Quiet, Unknown, Unknown, Quiet, Proven]);
    let restarted: &[&[(&str, Answer)]] =
        &[&[("a", good(1, 1))], &[("a", away())], &[("a", good(9, 1))], &[("a", good(9, 2))]];
    assert_eq!(of(restarted), [Quiet, Unknown, Unknown, Unknown]);
    let first: &[&[(&str, Answer)]] = &[&[("a", away())], &[("a", good(1, 1))], &[("a", good(1, 2))]];
    assert_eq!(of(first), [Unknown, Unknown, Unknown]);
}

#[test]
fn all_that_have_the_name_count_where_no_uid_is_known() {
    let mut both = quiet(1, 1).document;
    let mut second = entry("v");
    second["in_flight"]["decode"] = json!(1);
    both["endpoints"].as_array_mut().unwrap().push(second);
    let both = |seq| answer(&Said { boot: 1, seq, document: both.clone() });
    let rounds: &[&[(&str, Answer)]] = &[&[("a", both(1))], &[("a", both(2))]];
    assert_eq!(verdicts(&pod(None), rounds), [Open, Open]);
    assert_eq!(verdicts(&pod(Some("u")), rounds), [Quiet, Proven]);
    assert_eq!(verdicts(&pod(Some("v")), rounds), [Open, Open]);
}

#[test]
fn a_pod_without_endpoint_has_nothing_in_flight() {
    let bare = json!([{"uid": "u", "namespace": "llm", "pod": "chat-0", "service": "chat", "reason": "no_port",
        "known_for_ms": 1}]);
    let said = |seq| answer(&quiet(1, seq).with("/endpoints", json!([])).with("/pods", bare.clone()));
    let rounds: &[&[(&str, Answer)]] = &[&[("a", said(1))], &[("a", said(2))]];
    for (target, verdict) in [(pod(Some("u")), Proven), (pod(None), Proven), (pod(Some("v")), Nobody)] {
        assert_eq!(verdicts(&target, rounds)[1], verdict);
    }
}

/// Two services may have it: both count.
#[test]
fn what_is_known_by_nobody_is_told_from_what_was_known() {
    let listed = |url: &str| Target::Listed(url.to_owned());
    let rounds: &[&[(&str, Answer)]] = &[&[("a", good(1, 1))], &[("a", good(1, 2))]];
    assert_eq!(verdicts(&listed("http://10.0.0.7:8000"), rounds), [Quiet, Proven]);
    assert_eq!(verdicts(&listed("http://10.0.0.7:800"), rounds), [Nobody, Nobody]);
    let none = |seq| answer(&quiet(1, seq).with("/endpoints", json!([])));
    let left: &[&[(&str, Answer)]] = &[&[("a", good(1, 1))], &[("a", none(2))]];
    assert_eq!(verdicts(&listed("http://10.0.0.7:8000"), left), [Quiet, Unknown]);
    let half: &[&[(&str, Answer)]] = &[&[("a", none(1)), ("b", away())], &[("a", none(2)), ("b", away())]];
    assert_eq!(verdicts(&listed("http://10.0.0.7:8000"), half), [Unknown, Unknown]);
}

#[test]
fn an_answer_of_another_form_is_none() {
    let with = |key: &str, value: Value| {
        let mut body = quiet(1, 1).body();
        body[key] = value;
        body.to_string()
    };
    for (body, says) in [
        (with("schema", json!(2)), "schema 2"),
        (with("schema", Value::Null), "schema null"),
        (with("router", json!({})), "not as expected"),
        ("{}".to_owned(), "schema null"),
        ("<html>".to_owned(), "no JSON"),
        (String::new(), "no JSON"),
    ] {
        let said = read(body.as_bytes());
        assert!(said.as_ref().is_err_and(|why| why.contains(says)), "{body}: {said:?}");
    }
    let mut more = quiet(1, 1).body();
    more["later"] = json!(1);
    assert!(read(more.to_string().as_bytes()).is_ok(), "fields may be added");
    more["endpoints"][0]["in_flight"]["transfer"] = json!(1);
    assert!(read(more.to_string().as_bytes()).is_err(), "a kind that is not known may be above zero");
}

/// What a router does in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Quiet,
    Open,
    Selectable,
    Unaware,
    Silent,
    Absent,
    Restart,
    Repeat,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => Just(Act::Quiet),
        1 => Just(Act::Open),
        1 => Just(Act::Selectable),
        1 => Just(Act::Unaware),
        1 => Just(Act::Silent),
        1 => Just(Act::Absent),
        1 => Just(Act::Restart),
        1 => Just(Act::Repeat),
    ]
}

/// Per router of one round: boot, number, and whether it was quiet; `None`: no answer.
type Seen = BTreeMap<usize, Option<(u64, u64, bool)>>;

/// The rule once more, read off the whole history.
fn allowed(history: &[(u64, Seen)]) -> bool {
    let [.., (before_at, before), (_, last)] = history else { return false };
    let mut at_rest = !last.is_empty() && before.keys().eq(last.keys());
    for (router, now) in last {
        let then = before.get(router).copied().flatten();
        at_rest &=
            matches!((then, now), (Some((boot, seq, true)), Some((b, s, true))) if boot == *b && *s > seq);
    }
    // The newest number of each process was not a repeated one in the round before either.
    let mut newest: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    let mut known: BTreeMap<usize, Option<u64>> = BTreeMap::new();
    let mut begun = false;
    for (n, (at, seen)) in history.iter().enumerate() {
        let mut changed = known.keys().any(|router| !seen.contains_key(router));
        known.retain(|router, _| seen.contains_key(router));
        for (router, said) in seen {
            let boot = said.map(|(boot, ..)| boot);
            let same = match (known.get(router), boot) {
                (None, _) | (Some(None), Some(_)) => false,
                (Some(_), None) => true,
                (Some(Some(old)), Some(new)) => *old == new,
            };
            changed |= !same;
            if boot.is_some() || !known.contains_key(router) {
                known.insert(*router, boot);
            }
            if let Some((boot, seq, _)) = said {
                let newest = newest.entry((*router, *boot)).or_default();
                at_rest &= n + 2 < history.len() || *seq > *newest;
                *newest = (*newest).max(*seq);
            }
        }
        if changed && begun && (n + 1 == history.len() || before_at < &(at + 30)) {
            return false;
        }
        begun |= !seen.is_empty();
    }
    at_rest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn there_is_a_proof_where_the_rule_says_so_and_nowhere_else(
        rounds in proptest::collection::vec((1_u64..40, [acts(), acts(), acts()]), 1..12),
    ) {
        let (mut proof, start) = (Proof::new(SETTLE), now());
        let (mut boots, mut seqs) = ([1_u64, 1, 1], [1_u64, 1, 1]);
        let (mut history, mut second): (Vec<(u64, Seen)>, u64) = (Vec::new(), 0);
        for (pause, acts) in rounds {
            second += pause;
            let mut answers = Vec::new();
            let mut seen = Seen::new();
            for (router, act) in acts.into_iter().enumerate() {
                if act == Act::Restart {
                    boots[router] += 1;
                    seqs[router] = 1;
                } else if act != Act::Repeat {
                    seqs[router] += 1;
                }
                let (boot, seq) = (boots[router], seqs[router]);
                let said = quiet(boot, seq);
                let said = match act {
                    Act::Open => said.with("/endpoints/0/in_flight/handoff", 1),
                    Act::Selectable => said.with("/endpoints/0/selectable", true),
                    Act::Unaware => said.with("/endpoints", json!([])),
                    _ => said,
                };
                let calm = matches!(act, Act::Quiet | Act::Restart | Act::Repeat);
                let name = ["a", "b", "c"][router];
                match act {
                    Act::Absent => {}
                    Act::Silent => {
                        answers.push((name, away()));
                        seen.insert(router, None);
                    }
                    _ => {
                        answers.push((name, answer(&said)));
                        seen.insert(router, Some((boot, seq, calm)));
                    }
                }
            }
            history.push((second, seen));
            let judged = proof.add(&pod(Some("u")), &round(start + Duration::from_secs(second), &answers));
            let wanted = allowed(&history);
            prop_assert_eq!(judged.verdict == Proven, wanted, "{:?}", history);
            if wanted {
                break;
            }
        }
    }
}
