//! B102: when nobody with a weight is left, nobody serves. A cohort at 0 is no last resort, whatever became of the others.

use tandem::config::EngineKind;
use tandem::testkit::engine::openai::error;
use tandem::testkit::engine::{Script, Step};
use tandem::testkit::kube::set_ready;

use super::rig::*;

/// Two engines of each role of `stable` (100) and of `canary` (0), the latter healthy throughout.
fn engines(kind: EngineKind) -> Vec<Is> {
    let roles: &[&str] = if kind == EngineKind::Plain { &["mixed"] } else { &["prefill", "decode"] };
    let of = |revision| roles.iter().flat_map(move |role| [Is(role, revision, ""); 2]);
    of("canary").chain(of("stable")).collect()
}

async fn rig(kind: EngineKind) -> Rig {
    let split = vec![revision("stable", 100), revision("canary", 0)];
    Rig::start(kind, &engines(kind), Some(split), |service| {
        service.sticky.headers = vec!["x-session-id".to_owned()];
        // A retry for each that fails, of everybody who is there.
        service.retries.max = 8;
        service.retries.floor = 1000;
    })
    .await
}

fn of(rig: &Rig, revision: &str) -> Vec<usize> {
    (0..rig.engines.len()).filter(|n| rig.engines[*n].0.1 == revision).collect()
}

/// Every answer is this one, with a session and without.
async fn all_get(rig: &Rig, status: u16, code: &str) {
    for n in 0..5 {
        let session = format!("x-session-id: s{n}");
        for lines in [&[][..], &[session.as_str()]] {
            let reply = &rig.ask(1, lines).await[0];
            assert_eq!((reply.status, reply.code.as_str()), (status, code));
        }
    }
    let canary = of(rig, "canary");
    assert!(canary.iter().all(|n| rig.engines[*n].1.log.requests_to(CHAT).is_empty()), "a request at 0");
}

#[tokio::test(start_paused = true)]
async fn b102_a_healthy_canary_at_zero_is_no_last_resort() {
    for kind in [EngineKind::Plain, NIXL] {
        let rig = rig(kind).await;
        let stable = of(&rig, "stable");
        // None of them may be given requests: they lost their mark, then they are not ready.
        for n in &stable {
            rig.mark(*n, false).await;
        }
        all_get(&rig, 503, "no_cohort_available").await;
        for n in &stable {
            rig.mark(*n, true).await;
            rig.api.update("default", &format!("e{n}"), |pod| set_ready(pod, "False", None));
        }
        rig.until("they are not ready", || rig.selectable() == rig.engines.len() - stable.len()).await;
        all_get(&rig, 503, "no_cohort_available").await;
        for n in &stable {
            rig.api.force_delete("default", &format!("e{n}"));
        }
        all_get(&rig, 503, "no_cohort_available").await;
        assert_eq!(rig.share("stable").weight, 100);
        rig.end().await;
    }
}

/// Each of them fails, is excluded, and the canary at 0 is all that is left to try: what the last one said is the answer.
#[tokio::test(start_paused = true)]
async fn b102_what_is_left_after_every_failure_is_not_the_canary_at_zero() {
    for kind in [EngineKind::Plain, NIXL] {
        let mut rig = rig(kind).await;
        let stable = of(&rig, "stable");
        for n in &stable {
            rig.engines[*n].1.set_script(Script::always(error(500, "broken")));
        }
        all_get(&rig, 500, "").await;
        for n in &stable {
            rig.engines[*n].1.set_script(Script::always(Step::Reset));
            rig.engines[*n].1.refuse().await;
            rig.engines[*n].1.close_connections();
        }
        all_get(&rig, 502, "upstream_connect_failed").await;
        rig.end().await;
    }
}
