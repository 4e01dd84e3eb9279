//! What stays with a cohort: sessions, and further attempts of a request.

use std::collections::BTreeMap;

use tandem::config::EngineKind;
use tandem::testkit::engine::openai::error;
use tandem::testkit::engine::{Script, Step};

use super::rig::*;

fn sticky(service: &mut tandem::config::Service) {
    service.sticky.headers = vec!["x-session-id".to_owned()];
}

/// The revision that each of so many sessions goes to.
async fn homes(rig: &Rig, sessions: usize) -> BTreeMap<usize, &'static str> {
    let mut homes = BTreeMap::new();
    for session in 0..sessions {
        let before = rig.seen("mixed");
        let line = format!("x-session-id: s{session}");
        assert!(rig.ask(2, &[&line]).await.iter().all(|reply| reply.status == 200));
        let grown = rig.seen("mixed").into_iter().find(|(name, n)| *n > before[name]).unwrap();
        assert_eq!(grown.1 - before[grown.0], 2, "both requests of a session go to one cohort");
        homes.insert(session, grown.0);
    }
    homes
}

#[tokio::test(start_paused = true)]
async fn sessions_stay_and_move_only_as_they_must() {
    let all = [Is("mixed", "r1", ""), Is("mixed", "r2", "")];
    let split = Some(vec![revision("r1", 80), revision("r2", 20)]);
    let rig = Rig::start(EngineKind::Plain, &all, split, sticky).await;
    let first = homes(&rig, 60).await;
    assert_eq!(homes(&rig, 60).await, first);
    rig.put(vec![revision("r1", 80), revision("r2", 60)], None).await;
    let grown = homes(&rig, 60).await;
    assert!(
        first.iter().all(|(s, home)| grown[s] == *home || grown[s] == "r2"),
        "towards what grew, and no other way"
    );
    assert!(grown != first);
    // Without coverage they go elsewhere, and come back.
    rig.mark(1, false).await;
    assert!(homes(&rig, 60).await.values().all(|home| *home == "r1"));
    assert!(rig.share("r2").passed_on["no_endpoint"] > 0);
    rig.mark(1, true).await;
    assert_eq!(homes(&rig, 60).await, grown);
    // Zero weight counts more than any session.
    rig.put(vec![revision("r1", 0), revision("r2", 1)], None).await;
    assert!(homes(&rig, 60).await.values().all(|home| *home == "r2"));
    rig.end().await;
}

/// A further attempt is made in the cohort that was decided, and a failing canary is not hidden by it.
#[tokio::test(start_paused = true)]
async fn further_attempts_stay_in_the_cohort_while_it_can_take_them() {
    let all = [Is("mixed", "r1", ""), Is("mixed", "r2", ""), Is("mixed", "r2", "")];
    let split = Some(vec![revision("r1", 0), revision("r2", 1)]);
    let rig = Rig::start(EngineKind::Plain, &all, split, |_| {}).await;
    for (_, engine) in rig.engines.iter().filter(|(is, _)| is.1 == "r2") {
        engine.set_script(Script::always(error(500, "x")));
    }
    let reply = &rig.ask(1, &[]).await[0];
    assert_eq!(reply.status, 500, "both of them were tried, and the one at 0 was not");
    let seen = rig.seen("mixed");
    assert_eq!((seen["r1"], seen["r2"]), (0, 2));
    // With a weight it is asked once the cohort has nobody left.
    rig.put(vec![revision("r1", 1), revision("r2", 1_000_000)], None).await;
    for (_, engine) in rig.engines.iter().filter(|(is, _)| is.1 == "r2") {
        engine.set_script(Script::always(Step::Reset));
    }
    rig.ask(20, &[]).await;
    rig.end().await;
}
