//! What stays with a cohort: sessions, and further attempts of a request.

use std::collections::BTreeMap;
use std::time::Duration;

use tandem::config::EngineKind;
use tandem::testkit::engine::openai::{error, kv_answer};
use tandem::testkit::engine::{IntoSteps, Response, Script, Step};
use tokio::time::sleep;

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

/// A request whose prefill takes a second, of the first release; these decodes are withdrawn meanwhile, and back afterwards.
async fn withdrawn_meanwhile(rig: &Rig, decodes: &[usize]) -> Reply {
    let slow = [Step::Sleep(Duration::from_secs(1))].into_iter();
    let slow = slow.chain(Response::json(200, kv_answer("r1").to_string()).into_steps()).collect::<Vec<_>>();
    rig.engines[0].1.set_script(Script::always(slow));
    let withdraw = async {
        sleep(Duration::from_millis(300)).await;
        for n in decodes {
            rig.mark(*n, false).await;
        }
    };
    let (mut replies, ()) = tokio::join!(rig.ask(1, &[]), withdraw);
    for n in decodes {
        rig.mark(*n, true).await;
    }
    replies.pop().unwrap()
}

/// Whose KV each decode was sent, by the decode's revision.
fn pulled(rig: &Rig) -> Vec<(&'static str, String)> {
    let decodes = rig.engines.iter().filter(|(is, _)| is.0 == "decode");
    let all = decodes.flat_map(|(is, engine)| {
        let requests = engine.log.requests_to(CHAT).into_iter();
        requests.map(move |r| (is.1, r.json()["kv_transfer_params"]["remote_engine_id"].to_string()))
    });
    all.collect()
}

/// A decode that goes while the prefill works is replaced by one of the cohort; when it has no other the request is decided
/// anew, with another prefill too, and that costs no retry.
#[tokio::test(start_paused = true)]
async fn a_decode_is_replaced_in_its_cohort_and_never_across_cohorts() {
    let of = |revision| [Is("prefill", revision, ""), Is("decode", revision, "")];
    let all = [of("r1"), of("r2")].concat();
    let all = [&all[..], &[Is("decode", "r1", "")]].concat();
    let split = |r2| vec![revision("r1", 1_000_000), revision("r2", r2)];
    for r2 in [1, 0] {
        let rig = Rig::start(NIXL, &all, Some(split(r2)), |service| service.retries.max = 0).await;
        for leaving in [1, 4] {
            assert_eq!(withdrawn_meanwhile(&rig, &[leaving]).await.status, 200);
        }
        let own = ("r1", "\"r1\"".to_owned());
        assert_eq!(pulled(&rig), [own.clone(), own.clone()], "one of them was replaced");
        let reply = withdrawn_meanwhile(&rig, &[1, 4]).await;
        let mut expected = vec![own.clone(), own];
        if r2 > 0 {
            assert_eq!(reply.status, 200);
            expected.insert(0, ("r2", "\"r2\"".to_owned()));
        } else {
            assert_eq!(reply.status, 503);
        }
        let mut pulled = pulled(&rig);
        pulled.sort_unstable();
        expected.sort_unstable();
        assert_eq!(pulled, expected, "{}", reply.code);
        rig.end().await;
    }
}
