//! "Ending an SGLang pair early".

use std::time::Duration;

use tandem::testkit::engine::openai::{ChatStream, chat_json, error};
use tandem::testkit::engine::{Script, Step};
use tandem::types::clock::now;

use super::rig::*;

fn graced(grace: Duration, p: Vec<Script>, d: Vec<Script>) -> Rig {
    rig_with(SGLANG, p, d, |c| c.services[0].upstream.cancel_decode_grace = Some(grace))
}

#[tokio::test(start_paused = true)]
async fn with_grace_both_legs_stay_until_the_prefill_has_answered() {
    for proto in [H1, H2] {
        let rig = graced(secs(5), vec![chat(after(secs(2), chat_json("p")))], vec![chat(Step::Stall)]);
        let at = rig.leave_after(proto, true, secs(1)).await;
        tokio::time::sleep(ms(900)).await;
        assert!(rig.released());
        assert_eq!((rig.holds(), rig.handoffs()), (vec![1, 1], 1), "holds and hand-off last");
        assert!(rig.d[0].log.requests_to("/abort_request").is_empty());
        let left = between(at, rig.wait_left(&rig.d[0]).await);
        assert!((1000..1400).contains(&left), "{left}");
        assert_eq!((rig.legs("prefill", "ok"), rig.legs("decode", "cancelled")), (1.0, 1.0));
        assert!(rig.p[0].log.requests_to("/abort_request").is_empty(), "it is over by itself");
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_grace_the_decodes_first_token_ends_the_wait() {
    let rig = graced(
        secs(5),
        vec![chat(Step::Stall)],
        vec![chat(after(secs(3), ChatStream::new(900).gap(secs(1))))],
    );
    let at = rig.leave_after(H1, true, secs(1)).await;
    // The first event is a role alone, at 4 s; the first token comes at 5 s.
    let left = between(at, rig.wait_left(&rig.d[0]).await);
    assert!((4000..4500).contains(&left), "{left}");
    assert!(between(at, rig.wait_left(&rig.p[0]).await) < 4500);
    assert_eq!(rig.d[0].log.requests_to("/abort_request").len(), 2);
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn with_grace_it_is_over_at_the_latest_when_the_grace_is() {
    let rig = graced(secs(5), vec![chat(Step::Stall)], vec![chat(Step::Stall)]);
    let at = rig.leave_after(H1, true, secs(1)).await;
    let left = between(at, rig.wait_left(&rig.d[0]).await);
    assert!((5000..5500).contains(&left), "{left}");
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_prefill_is_not_over_and_the_retry_does_not_wait() {
    let rig = graced(
        secs(5),
        vec![chat(after(ms(500), Step::Reset)), good_p(SGLANG)],
        vec![chat(Step::Stall), good_d()],
    );
    let started = now();
    let reply = rig.ask(H1, true).await;
    assert!(reply.complete && reply.took < ms(700), "{:?}", reply.took);
    assert!(rig.d[0].log.requests_to("/abort_request").is_empty());
    let left = between(started, rig.wait_left(&rig.d[0]).await);
    assert!((5500..6000).contains(&left), "{left}");
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn a_prefill_lost_while_the_pair_is_let_go_on_does_not_end_it_either() {
    let rig = graced(secs(5), vec![chat(after(secs(2), Step::Reset))], vec![chat(Step::Stall)]);
    let at = rig.leave_after(H1, true, secs(1)).await;
    let left = between(at, rig.wait_left(&rig.d[0]).await);
    assert!((5000..5500).contains(&left), "{left}");
    tokio::time::sleep(secs(1)).await;
    assert_eq!((rig.legs("prefill", "error"), rig.legs("decode", "cancelled")), (1.0, 1.0));
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn a_prefills_complete_error_is_over_at_once() {
    let rig = graced(secs(5), vec![chat(after(ms(500), error(400, "x")))], vec![chat(Step::Stall)]);
    let started = now();
    assert_eq!(rig.ask(H1, true).await.status, 400);
    let left = between(started, rig.wait_left(&rig.d[0]).await);
    assert!(left < 1000, "{left}");
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn a_decode_that_timed_out_is_kept_for_its_prefill_too() {
    for total in [false, true] {
        let rig =
            rig_with(SGLANG, vec![chat(after(secs(3), chat_json("p")))], vec![chat(Step::Stall)], |c| {
                c.services[0].upstream.cancel_decode_grace = Some(secs(5));
                c.timeouts.idle = Some(secs(1));
                if total {
                    c.timeouts.total = Some(secs(1));
                }
            });
        // It sends a head and a role, and is silent then.
        let head = tandem::testkit::engine::openai::sse_head();
        rig.d[0].set_script(chat(vec![Step::Write(head), Step::Stall]));
        let started = now();
        let reply = rig.ask(H1, true).await;
        assert_eq!((reply.status, reply.told_not_to_retry()), (504, true));
        assert!(reply.took < ms(1100));
        let left = between(started, rig.wait_left(&rig.d[0]).await);
        let expected = if total { 6000..6500 } else { 3000..3500 };
        assert!(expected.contains(&left), "{left}");
        assert_eq!(rig.legs("decode", "timeout"), if total { 0.0 } else { 1.0 });
        assert!(!rig.d[0].log.requests_to("/abort_request").is_empty());
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn ended_means_an_abort_another_after_200_ms_and_a_closed_socket() {
    let rig = graced(secs(0), vec![chat(Step::Stall)], vec![chat(Step::Stall)]);
    let at = rig.leave_after(H1, true, secs(1)).await;
    rig.wait_left(&rig.d[0]).await;
    for engine in [&rig.p[0], &rig.d[0]] {
        let aborts = engine.log.requests_to("/abort_request");
        let times: Vec<u128> = aborts.iter().map(|a| between(at, a.head_at)).collect();
        assert!(times.len() == 2 && times[0] < 50 && (200..250).contains(&times[1]), "{times:?}");
        let rid = &engine.log.requests_to(CHAT)[0].json()["rid"];
        assert!(aborts.iter().all(|a| &a.json()["rid"] == rid));
    }
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_that_worked_is_not_repeated_and_its_answer_blames_nobody() {
    // Both end by themselves 100 ms after the abort, as engines do.
    let ended = || chat(after(ms(1100), error(400, "aborted")));
    let rig = graced(secs(0), vec![ended()], vec![ended()]);
    rig.leave_after(H1, true, secs(1)).await;
    tokio::time::sleep(secs(1)).await;
    for (role, engine) in [("prefill", &rig.p[0]), ("decode", &rig.d[0])] {
        assert_eq!(engine.log.requests_to("/abort_request").len(), 1);
        assert_eq!((rig.legs(role, "cancelled"), rig.legs(role, "rejected")), (1.0, 0.0));
    }
    rig.done().await;
}
