use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::json;

use super::super::exit::Exit;
use super::*;
use crate::admin::{CohortMembers, CohortShare, Members, ServiceCohorts, TokenPairs};
use crate::config::SplitEntry;

fn share(cohort: &str, weight: u64, entry: SplitEntry) -> CohortShare {
    CohortShare {
        cohort: cohort.to_owned(),
        weight,
        target_share: 0.5,
        share_1m: Some(0.25),
        share_5m: None,
        share_since_version: Some(1.0 / 3.0),
        requests_since_version: 9,
        covered: true,
        lacks: None,
        passed_on: BTreeMap::new(),
        entry: Some(entry),
    }
}

/// The first by one revision and a token, the second by both sides and with a name of its own.
fn chat() -> ServiceSplit {
    let word = |text: &str| Some(text.to_owned());
    let one = SplitEntry { revision: word("r1"), token: word("kv-v1"), weight: 7, ..SplitEntry::default() };
    let sides = (vec!["p2".to_owned()], vec!["d2".to_owned(), "d3".to_owned()]);
    let other = SplitEntry {
        name: word("next"),
        prefill: sides.0,
        decode: sides.1,
        weight: 3,
        ..SplitEntry::default()
    };
    ServiceSplit {
        service: "chat".to_owned(),
        version: 4,
        source: "file".to_owned(),
        rollout: None,
        volatile: false,
        cohorts: vec![share("r1", 7, one), share("next", 3, other)],
    }
}

fn members(cohort: &str) -> CohortMembers {
    CohortMembers {
        cohort: cohort.to_owned(),
        prefill: Members::default(),
        decode: Members::default(),
        mixed: Members::default(),
        tokens: vec![],
    }
}

fn shown(split: ServiceSplit, cohorts: Vec<CohortMembers>) -> String {
    let cohorts = vec![ServiceCohorts { service: split.service.clone(), cohorts }];
    view::text(
        &SplitView { schema: 1, services: vec![split] },
        &CohortView { schema: 1, registry_version: 1, services: cohorts },
    )
}

#[test]
fn every_cohort_is_a_row_and_columns_that_nobody_fills_are_left_out() {
    let mut all = [members("r1"), members("next")];
    let mixed = |selectable, total| Members { selectable, total, revisions: vec![] };
    (all[0].mixed, all[1].mixed) = (mixed(2, 3), mixed(0, 1));
    let mut split = chat();
    (split.cohorts[1].covered, split.cohorts[1].lacks) = (false, Some("no_endpoint".to_owned()));
    assert_eq!(
        shown(split.clone(), all.to_vec()),
        "chat: version 4, source file\n\
         COHORT  WEIGHT  TARGET  1 MIN  5 MIN  SINCE VERSION  REQUESTS  COVERED          MIXED\n\
         r1      7       50.0%   25.0%  -      33.3%          9         yes              2/3\n\
         next    3       50.0%   25.0%  -      33.3%          9         NO: no_endpoint  0/1\n"
    );
    (all[0].prefill, all[0].decode) = (mixed(1, 1), mixed(2, 2));
    let token = |token: &str, pairs| TokenPairs { token: token.to_owned(), prefill: 1, decode: 2, pairs };
    all[0].tokens = vec![token("", 1), token("kv-v1", 2)];
    split.cohorts[1].passed_on = BTreeMap::from([("no_decode".to_owned(), 3), ("no_pair".to_owned(), 1)]);
    let text = shown(split, all.to_vec());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].ends_with("PREFILL  DECODE  MIXED  PAIRS       PASSED ON"), "{text}");
    assert!(lines[2].ends_with("yes              1/1      2/2     2/3    1, kv-v1 2  -"), "{text}");
    assert!(lines[3].ends_with("-        -       0/1    -           3 no_decode, 1 no_pair"), "{text}");
}

#[test]
fn where_the_split_comes_from_is_said() {
    let first = |source: &str, volatile, version| {
        let split = ServiceSplit { source: source.to_owned(), volatile, version, ..chat() };
        shown(split, vec![]).lines().next().unwrap().to_owned()
    };
    assert_eq!(first("admin", true, 5), "chat: version 5, source admin (volatile)");
    assert_eq!(first("ome", false, 5), "chat: version 5, source ome");
    assert_eq!(
        first("none", false, 0),
        "chat: version 0, source none: cohorts are weighted by what they can carry"
    );
}

#[test]
fn a_weight_is_a_name_and_a_whole_number() {
    assert_eq!(weight("r2=10"), Ok(("r2".to_owned(), 10)));
    assert_eq!(weight("a=b=0"), Ok(("a=b".to_owned(), 0)));
    for wrong in ["r2", "=1", "r2=", "r2=-1", "r2=0.5", "r2=10%", ""] {
        assert!(weight(wrong).is_err(), "{wrong}");
    }
}

fn said(result: Result<change::Order, Trouble>) -> (Exit, String) {
    match result {
        Err(Trouble::Said(exit, why)) => (exit, why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_named_weights_change_and_entries_are_put_back_whole() {
    let order = change::set(&chat(), &[("next".to_owned(), 90)]).unwrap();
    assert_eq!((&order.method, &*order.path), (&Method::PUT, "/split"));
    assert_eq!(
        order.body,
        Some(json!({"service": "chat", "expected_version": 4, "weights": [
            {"revision": "r1", "token": "kv-v1", "weight": 7},
            {"name": "next", "prefill": ["p2"], "decode": ["d2", "d3"], "weight": 90},
        ]}))
    );
    let both = [("r1".to_owned(), 0), ("next".to_owned(), 1)];
    let body = change::set(&chat(), &both).unwrap().body.unwrap();
    assert_eq!((&body["weights"][0]["weight"], &body["weights"][1]["weight"]), (&json!(0), &json!(1)));
}

#[test]
fn what_cannot_be_set_is_said_with_what_can() {
    let (exit, why) = said(change::set(&chat(), &[("r1".to_owned(), 1), ("r9".to_owned(), 1)]));
    assert_eq!((exit, &*why), (Exit::Usage, "chat: no cohort is named \"r9\"; there are: r1, next"));
    let (exit, why) = said(change::set(&chat(), &[("r1".to_owned(), 1), ("r1".to_owned(), 2)]));
    assert!(exit == Exit::Usage && why.contains("\"r1\" twice"), "{why}");
    let mut none = chat();
    none.cohorts.iter_mut().for_each(|cohort| cohort.entry = None);
    let (exit, why) = said(change::set(&none, &[("r1".to_owned(), 1)]));
    assert!(exit == Exit::Failure && why.contains("no split is in force"), "{why}");
}

#[test]
fn a_reset_names_the_service_whatever_it_is_called() {
    let order = change::reset(&ServiceSplit { service: "a&b ü".to_owned(), ..chat() });
    assert_eq!((order.method, &*order.path), (Method::DELETE, "/split?service=a%26b%20%C3%BC"));
    assert!(order.body.is_none());
}

#[test]
fn an_answer_is_done_a_conflict_or_a_reason() {
    let answer = |status: StatusCode, body: &'static str| {
        change::done("http://r:9090", "chat", &(status, Bytes::from_static(body.as_bytes())))
    };
    let done = answer(StatusCode::OK, r#"{"service":"chat","version":5,"volatile":true,"new":1}"#).unwrap();
    assert!(done.volatile);
    let order = change::set(&chat(), &[("next".to_owned(), 90)]).unwrap();
    assert_eq!(order.says(&done), "chat: version 5 is in force: r1 7, next 90\n");
    assert_eq!(
        change::reset(&chat()).says(&done),
        "chat: version 5 is in force: the configured split again\n"
    );
    let message = r#"{"error":{"message":"weights[0].weight: too much"}}"#;
    for (status, wanted) in [
        (StatusCode::CONFLICT, "chat: another split was applied meanwhile; look and try again"),
        (StatusCode::UNAUTHORIZED, "--token-file names the router's admin token"),
        (StatusCode::BAD_REQUEST, "weights[0].weight: too much"),
        (StatusCode::SERVICE_UNAVAILABLE, "503"),
    ] {
        match answer(status, message) {
            Err(Trouble::Said(Exit::Failure, why)) => assert!(why.contains(wanted), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(answer(StatusCode::OK, "{}").is_err());
}

#[test]
fn where_the_weights_come_from_is_told_and_what_is_wrong_with_it() {
    let of = |known, version, problem: Option<&str>| {
        let problem = problem.map(str::to_owned);
        let rollout =
            Some(crate::admin::RolloutView { object: "models/llama".to_owned(), version, known, problem });
        let told = shown(ServiceSplit { rollout, ..chat() }, vec![]);
        told.lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(of(false, 0, None), "InferenceService models/llama: not read yet: nobody is served");
    assert_eq!(
        of(true, 0, Some("there is none")),
        "InferenceService models/llama: gives no weights; there is none"
    );
    let bad = "InferenceService models/llama: followed at version 7; the percents sum to 110";
    assert_eq!(of(true, 7, Some("the percents sum to 110")), bad);
}
