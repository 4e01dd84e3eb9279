//! B95: what a weight means, and what is none: refused in the file at the start, in the file at a reload, and by hand, with the
//! last good split in force.

use rustix::process::Signal;
use serde_json::{Value, json};
use tandem::testkit::fixtures::{chat_body, post_chat};

use super::fleet::{Fleet, Load, observed, put_text};
use crate::process::{Process, poll, run, tandem};

/// An entry's `weight`, as YAML and as JSON.
const BAD: [(&str, &str); 8] = [
    ("", ""),
    ("weight: -1", r#""weight": -1"#),
    ("weight: 1000000000", r#""weight": 1000000000"#),
    ("weight: 1e9", r#""weight": 1e9"#),
    ("weight: 2.5", r#""weight": 2.5"#),
    ("weight: .nan", r#""weight": NaN"#),
    ("weight: .inf", r#""weight": "inf""#),
    ("weight: many", r#""weight": null"#),
];

fn yaml(canary: &str, stable: &str) -> String {
    let entry = |revision: &str, weight: &str| {
        let gap = if weight.is_empty() { "" } else { ", " };
        format!("{{ revision: {revision}{gap}{weight} }}")
    };
    format!("[{}, {}]", entry("canary", canary), entry("stable", stable))
}

/// Reloads that were taken over, and those that were refused.
async fn reloads(process: &Process) -> (f64, f64) {
    let scrape = process.scrape().await;
    let of = |result| scrape.sum("tandem_config_reloads_total", &[("result", result)]);
    (of("ok"), of("error"))
}

/// Whether the process took the file over.
async fn reload(process: &Process, fleet: &Fleet, weights: &str) -> bool {
    let before = reloads(process).await;
    fleet.config(weights);
    process.signal(Signal::HUP);
    poll("the reload", async || reloads(process).await != before).await;
    reloads(process).await.0 > before.0
}

/// Version, source and weights in force.
async fn in_force(process: &Process) -> Value {
    let split = observed(process).await;
    let weights: Vec<&Value> =
        split["cohorts"].as_array().unwrap().iter().map(|cohort| &cohort["weight"]).collect();
    json!([split["version"], split["source"], weights])
}

#[tokio::test]
async fn b95_a_bad_weight_is_refused_everywhere_and_the_last_good_split_stays() {
    let fleet = Fleet::start().await;
    let good = yaml("weight: 0", "weight: 1");
    let process = fleet.launch(&good).await;
    let load = Load::start(2);
    load.at(&process);
    load.answers(20).await;
    let stands = json!([1, "file", [0, 1]]);
    for (bad, by_hand) in BAD {
        for list in [yaml(bad, "weight: 1"), yaml("weight: 1", bad)] {
            let file = fleet.config(&list);
            let (code, out, err) = run(tandem("check").arg(&file)).await;
            assert_eq!(code, Some(2), "{list}: {out}");
            assert!((out + &err).contains(".weight"), "{list}: the key is not named");
            assert!(!reload(&process, &fleet, &list).await, "{list}");
        }
        let gap = if by_hand.is_empty() { "" } else { "," };
        let body = format!(
            r#"{{"service":"chat","weights":[{{"revision":"canary"{gap}{by_hand}}},{{"revision":"stable","weight":1}}]}}"#
        );
        let answer = put_text(&process, &body).await;
        assert_eq!((answer.status(), &answer.json()["error"]["code"]), (400, &json!("bad_split")), "{body}");
        assert!(answer.text().contains("weight") || by_hand.contains("NaN"), "{}", answer.text());
        assert_eq!(in_force(&process).await, stands, "{bad}");
    }
    load.answers(20).await;
    assert_eq!(fleet.canary_requests(""), 0);
    // An empty list is no split either, nor is none at all in an order.
    for body in [r#"{"service":"chat","weights":[]}"#, r#"{"service":"chat"}"#] {
        assert_eq!(put_text(&process, body).await.status(), 400, "{body}");
    }
    assert!(!reload(&process, &fleet, "[]").await);
    assert_eq!(in_force(&process).await, stands);
}

#[tokio::test]
async fn b95_every_good_weight_means_what_it_says() {
    let fleet = Fleet::start().await;
    let process = fleet.launch(&yaml("weight: 0", "weight: 1")).await;
    let load = Load::start(2);
    load.at(&process);
    load.answers(50).await;
    assert_eq!(fleet.canary_requests(""), 0, "the first of the list, at 0");
    load.now("changing");
    assert!(reload(&process, &fleet, &yaml("weight: 90", "weight: 10")).await);
    load.now("90/10");
    load.answers(400).await;
    load.now("changing");
    let canary = fleet.canary_requests("90/10") as f64;
    let share = canary / (canary + fleet.stable_requests("90/10") as f64);
    assert!((share - 0.9).abs() < 6.0 * (0.9_f64 * 0.1 / 400.0).sqrt(), "{share}");
    assert!(reload(&process, &fleet, &yaml("weight: 1000000", "weight: 0")).await);
    load.now("all");
    load.answers(50).await;
    assert!(fleet.canary_requests("all") >= 50);
    assert_eq!(fleet.stable_requests("all"), 0);
    // Nothing for anybody: an answer at once, and no division by zero.
    assert!(reload(&process, &fleet, &yaml("weight: 0", "weight: 0")).await);
    drop(load);
    let answer = process.client().await.request(&post_chat(chat_body("m", false))).await.unwrap();
    assert_eq!((answer.status(), &answer.json()["error"]["code"]), (503, &json!("no_cohort_available")));
    assert_eq!(in_force(&process).await, json!([4, "file", [0, 0]]));
}
