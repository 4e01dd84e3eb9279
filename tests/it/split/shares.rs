//! Shares, coverage and zero (I1, I2).

use std::collections::BTreeMap;
use std::time::Duration;

use tandem::admin::SplitChange;
use tandem::config::{CohortsBy, EngineKind, SplitEntry};
use tandem::types::clock::now;
use tokio::time::sleep;

use super::rig::*;

const PLAIN: EngineKind = EngineKind::Plain;

fn counts(seen: &BTreeMap<&'static str, usize>, names: &[&str]) -> Vec<usize> {
    names.iter().map(|name| seen.get(name).copied().unwrap_or(0)).collect()
}

/// Within five deviations of what the weight says.
fn is_share(count: usize, of: usize, share: f64) -> bool {
    let (count, of) = (count as f64, of as f64);
    (count - of * share).abs() <= 5.0 * (of * share * (1.0 - share)).sqrt()
}

#[tokio::test(start_paused = true)]
async fn shares_are_the_weights_and_what_no_entry_takes_gets_nothing() {
    let all = [Is("mixed", "r1", ""), Is("mixed", "r2", ""), Is("mixed", "r2", ""), Is("mixed", "r3", "")];
    let rig = Rig::start(PLAIN, &all, Some(vec![revision("r1", 90), revision("r2", 10)]), |_| {}).await;
    rig.ask_well(1000).await;
    let seen = counts(&rig.seen("mixed"), &["r1", "r2", "r3"]);
    assert!(is_share(seen[0], 1000, 0.9) && seen[0] + seen[1] == 1000, "{seen:?}");
    let share = rig.share("r2");
    assert_eq!((share.weight, share.requests_since_version, share.covered), (10, seen[1] as u64, true));
    assert!((share.target_share - 0.1).abs() < 1e-9 && share.share_since_version.unwrap() < 0.2);
    let line = rig.lines().pop().unwrap();
    assert_eq!((&line["split_version"], line["cohort"].is_string()), (&1.into(), true));
    let requests =
        |cohort: &str| rig.router.scrape().sum("tandem_cohort_requests_total", &[("cohort", cohort)]);
    assert_eq!((requests("r1"), requests("r2")), (seen[0] as f64, seen[1] as f64));
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn exact_zero_and_exact_all() {
    let all = [Is("mixed", "r1", ""), Is("mixed", "r2", "")];
    let rig = Rig::start(PLAIN, &all, Some(vec![revision("r1", 0), revision("r2", 7)]), |_| {}).await;
    rig.ask_well(300).await;
    assert_eq!(counts(&rig.seen("mixed"), &["r1", "r2"]), [0, 300]);
    // It is the only one, but it has no weight: nobody may serve.
    rig.mark(1, false).await;
    let began = now();
    let reply = &rig.ask(1, &[]).await[0];
    assert_eq!((reply.status, reply.code.as_str()), (503, "no_cohort_available"));
    let held = began.elapsed();
    assert!((2.0..2.2).contains(&held.as_secs_f64()), "{held:?}");
    assert_eq!(counts(&rig.seen("mixed"), &["r1"]), [0]);
    assert_eq!(rig.share("r2").lacks.as_deref(), Some("no_endpoint"));
    // One that comes back while it is held serves it.
    let ask = rig.ask(1, &[]);
    let back = async {
        sleep(Duration::from_secs(1)).await;
        rig.mark(1, true).await;
    };
    let (reply, ()) = tokio::join!(ask, back);
    assert_eq!(reply[0].status, 200);
    // Every weight 0 is a split like any other, and nothing to wait for.
    assert_eq!(rig.put(vec![revision("r1", 0), revision("r2", 0)], None).await, SplitChange::Applied(2));
    let began = now();
    let reply = &rig.ask(1, &[]).await[0];
    assert_eq!((reply.status, reply.code.as_str()), (503, "no_cohort_available"));
    assert!(began.elapsed() < Duration::from_millis(100));
    rig.end().await;
}

/// Endpoints are there and selectable, but of a revision that the split does not name.
#[tokio::test(start_paused = true)]
async fn a_split_that_names_nobody_who_is_there_serves_nobody() {
    let rig = Rig::start(PLAIN, &[Is("mixed", "r1", "")], Some(vec![revision("r9", 1)]), |_| {}).await;
    let reply = &rig.ask(1, &[]).await[0];
    assert_eq!((reply.status, reply.code.as_str()), (503, "no_cohort_available"));
    assert_eq!(rig.seen("mixed")["r1"], 0);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_share_of_an_uncovered_cohort_goes_to_the_others_and_is_counted() {
    let all =
        [Is("prefill", "r1", ""), Is("decode", "r1", ""), Is("prefill", "r2", ""), Is("decode", "r2", "")];
    let rig = Rig::start(NIXL, &all, Some(vec![revision("r1", 1), revision("r2", 1)]), |_| {}).await;
    rig.mark(3, false).await;
    rig.ask_well(200).await;
    assert_eq!(counts(&rig.seen("prefill"), &["r1", "r2"]), [200, 0], "no lone prefill of r2");
    let (share, passed) = (rig.share("r2"), rig.share("r2").passed_on);
    assert_eq!((share.covered, share.lacks.as_deref()), (false, Some("no_decode")));
    assert!(is_share(passed["no_decode"] as usize, 200, 0.5), "{passed:?}");
    rig.mark(3, true).await;
    rig.ask_well(200).await;
    assert!(is_share(counts(&rig.seen("prefill"), &["r2"])[0], 200, 0.5));
    rig.end().await;
}

/// Which revisions of both sides served the same request.
fn pairs(rig: &Rig, word: fn(&Is) -> &'static str) -> Vec<(&'static str, &'static str)> {
    let (prefills, decodes) = (rig.ids("prefill", word), rig.ids("decode", word));
    let mut pairs: Vec<_> = prefills.iter().filter_map(|(id, p)| Some((*p, *decodes.get(id)?))).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

#[tokio::test(start_paused = true)]
async fn no_request_is_served_by_two_releases_whatever_changes() {
    let p = |revision| Is("prefill", revision, "");
    let d = |revision| Is("decode", revision, "");
    let sides = |prefill: &[&str], decode: &[&str], weight| SplitEntry {
        prefill: prefill.iter().map(|r| (*r).to_owned()).collect(),
        decode: decode.iter().map(|r| (*r).to_owned()).collect(),
        weight,
        ..SplitEntry::default()
    };
    let both = [p("e1"), p("e2"), d("d1"), d("d2")];
    // Both change; only the engine; only the decoder.
    for (all, split, wanted) in [
        (
            &both[..],
            vec![sides(&["e1"], &["d1"], 60), sides(&["e2"], &["d2"], 40)],
            vec![("e1", "d1"), ("e2", "d2")],
        ),
        (
            &both[..3],
            vec![sides(&["e1"], &[], 60), sides(&["e2"], &[], 40)],
            vec![("e1", "d1"), ("e2", "d1")],
        ),
        (
            &[p("e1"), d("d1"), d("d2")],
            vec![sides(&[], &["d1"], 60), sides(&[], &["d2"], 40)],
            vec![("e1", "d1"), ("e1", "d2")],
        ),
    ] {
        let rig = Rig::start(NIXL, all, Some(split), |_| {}).await;
        rig.ask_well(200).await;
        assert_eq!(pairs(&rig, |is| is.1), wanted);
        let first = counts(
            &rig.seen(if all.len() == 3 && all[1].0 == "decode" { "decode" } else { "prefill" }),
            &["e1", "d1"],
        );
        assert!(is_share(first.iter().sum(), 200, 0.6), "{first:?}");
        rig.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_split_tokens_are_cohorts_by_what_they_can_carry() {
    let all = [
        Is("prefill", "", "v1"),
        Is("decode", "", "v1"),
        Is("decode", "", "v1"),
        Is("prefill", "", "v2"),
        Is("prefill", "", "v2"),
        Is("prefill", "", "v2"),
        Is("decode", "", "v2"),
        Is("decode", "", "v2"),
        Is("decode", "", "v2"),
    ];
    let rig = Rig::start(NIXL, &all, None, |_| {}).await;
    rig.ask_well(400).await;
    assert_eq!(pairs(&rig, |is| is.2), [("v1", "v1"), ("v2", "v2")]);
    let v2 = rig.ids("prefill", |is| is.2).values().filter(|token| **token == "v2").count();
    assert!(is_share(v2, 400, 0.75), "{v2}: three pairs against one");
    // Tokens on one side only: everything pairs.
    let all = [Is("prefill", "", ""), Is("decode", "", "v1"), Is("decode", "", "v2")];
    let rig = Rig::start(NIXL, &all, None, |_| {}).await;
    rig.ask_well(100).await;
    assert_eq!(pairs(&rig, |is| is.2), [("", "v1"), ("", "v2")]);
    // No labels at all: one cohort, of which nothing is said.
    let rig = Rig::start(NIXL, &[Is("prefill", "", ""), Is("decode", "", "")], None, |_| {}).await;
    rig.ask_well(10).await;
    assert_eq!((rig.share("all").requests_since_version, rig.lines()[0].get("cohort")), (10, None));
    // By revision, where one label stands on both roles.
    let all =
        [Is("prefill", "r1", ""), Is("decode", "r1", ""), Is("prefill", "r2", ""), Is("decode", "r2", "")];
    let rig = Rig::start(NIXL, &all, None, |service| service.cohorts_by = CohortsBy::Revision).await;
    rig.ask_well(100).await;
    assert_eq!(pairs(&rig, |is| is.1), [("r1", "r1"), ("r2", "r2")]);
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_split_by_hand_is_whole_versioned_and_volatile() {
    let all = [Is("mixed", "r1", ""), Is("mixed", "r2", "")];
    let rig = Rig::start(PLAIN, &all, Some(vec![revision("r1", 1)]), |_| {}).await;
    let source = || {
        let view = rig.router.admin.splits.split();
        (view.services[0].version, view.services[0].source.clone(), view.services[0].volatile)
    };
    assert_eq!(source(), (1, "file".to_owned(), false));
    rig.ask_well(50).await;
    assert_eq!(rig.put(vec![revision("r2", 1)], Some(7)).await, SplitChange::Conflict(1));
    assert_eq!(rig.put(vec![revision("r2", 1)], Some(1)).await, SplitChange::Applied(2));
    assert_eq!(source(), (2, "admin".to_owned(), true));
    rig.ask_well(50).await;
    assert_eq!(counts(&rig.seen("mixed"), &["r1", "r2"]), [50, 50], "from the answer on");
    assert_eq!(rig.share("r2").requests_since_version, 50);
    let back = rig.router.admin.splits.set_split("chat", None, None).await;
    assert_eq!((back, source()), (SplitChange::Applied(3), (3, "file".to_owned(), false)));
    assert_eq!(rig.router.admin.splits.set_split("other", None, None).await, SplitChange::UnknownService);
    rig.ask_well(10).await;
    assert_eq!(counts(&rig.seen("mixed"), &["r1"]), [60]);
    rig.end().await;
}
