//! A canary that was taken back stays so: over restarts (B91), and whatever its Pods do (B100).

use rustix::process::Signal;
use serde_json::json;

use super::fleet::{Fleet, Load, observed, put};
use crate::process::{Process, SOON, poll};

const ABORTED: &str = "[{ revision: canary, weight: 0 }, { revision: stable, weight: 1 }]";

async fn kill(mut process: Process) {
    process.signal(Signal::KILL);
    process.exited(SOON).await;
}

/// The state after a start is the file's, whatever an operator had said before and whichever Pods are seen first.
#[tokio::test]
async fn b91_no_restart_sends_anything_to_an_aborted_canary() {
    let fleet = Fleet::start().await;
    let load = Load::start(4);
    let mut process = fleet.launch(ABORTED).await;
    for round in 0..20 {
        load.at(&process);
        load.answers(30).await;
        let split = observed(&process).await;
        assert_eq!((&split["source"], &split["version"]), (&json!("file"), &json!(1)), "{split}");
        assert_eq!(split["cohorts"][0]["weight"], 0, "{split}");
        assert_eq!(split["cohorts"][0]["covered"], true, "it could have taken some: {split}");
        // Every other time an operator has aborted too, at this router alone.
        if round % 2 == 1 {
            put(&process, 7, 0).await;
            assert_eq!(observed(&process).await["volatile"], true);
            load.answers(10).await;
        }
        kill(process).await;
        assert_eq!(fleet.canary_requests(""), 0, "in round {round}");
        process = fleet.launch(ABORTED).await;
    }
    // What an operator gives the canary by hand is forgotten by a restart: the file's zero holds again.
    load.at(&process);
    load.now("by hand");
    poll("ready", async || process.admin_get("/readyz").await.status() == 200).await;
    put(&process, 50, 50).await;
    load.answers(100).await;
    assert!(fleet.canary_requests("by hand") > 10, "nothing here would have been seen");
    kill(process).await;
    load.now("restarted");
    let process = fleet.launch(ABORTED).await;
    load.at(&process);
    load.answers(200).await;
    assert_eq!(fleet.canary_requests("restarted"), 0);
}

#[tokio::test]
async fn b100_an_aborted_canary_gets_nothing_while_its_pods_stay_ready() {
    let mut fleet = Fleet::start().await;
    let half = "[{ revision: canary, weight: 50 }, { revision: stable, weight: 50 }]";
    let process = fleet.launch(half).await;
    poll("both", async || {
        let split = observed(&process).await;
        split["cohorts"].as_array().unwrap().iter().all(|cohort| cohort["covered"] == true)
    })
    .await;
    let load = Load::start(8);
    load.at(&process);
    load.now("before");
    load.answers(200).await;
    assert!(fleet.canary_requests("before") > 20);
    put(&process, 50, 0).await;
    load.now("after");
    load.answers(300).await;
    // Its Pods are as they were, and then there are more of them than of the stable release.
    let canary = observed(&process).await["cohorts"][0].clone();
    assert_eq!((&canary["weight"], &canary["covered"]), (&json!(0), &json!(true)));
    for name in ["a-canary-2", "c-canary-1", "c-canary-2"] {
        fleet.canary(name).await;
    }
    poll("more of them", async || selectable(&process).await == 5).await;
    load.now("more");
    load.answers(300).await;
    assert_eq!((fleet.canary_requests("after"), fleet.canary_requests("more")), (0, 0));
}

/// How many endpoints may be given requests by everything but the split.
async fn selectable(process: &Process) -> usize {
    let all = process.admin_get("/endpoints").await.json();
    all["endpoints"].as_array().unwrap().iter().filter(|e| e["selectable"] == true).count()
}
