//! "Holds and hand-offs".

use tandem::testkit::engine::openai::{ChatStream, chat_json, error, kv_answer};
use tandem::testkit::engine::{Script, Step};
use tandem::testkit::fixtures::post;
use tandem::testkit::memory::DialFault;
use tandem::types::clock::now;

use super::rig::*;

#[tokio::test(start_paused = true)]
async fn a_hold_lasts_as_long_as_its_leg_and_a_hand_off_from_answer_to_first_token() {
    for (kind, _, stream) in WAYS {
        // P answers at 1 s. D: head at 1 s (SGLang) or 2 s after it is asked, then three more seconds.
        let p = chat(after(secs(1), prefilled(kind)));
        let answer = if stream {
            after(ms(0), ChatStream::new(3).gap(ms(500)))
        } else {
            after(secs(1), chat_json("x"))
        };
        let rig = rig(kind, vec![p], vec![chat(after(secs(1), answer))]);
        let mut client = rig.client().await;
        client.send(post(CHAT, &[], body(stream))).await.unwrap();
        tokio::time::sleep(ms(500)).await;
        assert_eq!((rig.holds(), rig.handoffs()), (vec![1, 1], u64::from(kind == SGLANG)));
        tokio::time::sleep(ms(1000)).await;
        assert_eq!((rig.holds(), rig.handoffs()), (vec![0, 1], 1), "{kind:?} {stream}");
        // The first token, or the head of an answer that is no stream.
        tokio::time::sleep(if kind == SGLANG { ms(600) } else { ms(1600) }).await;
        assert_eq!((rig.handoffs(), rig.holds()), (0, vec![0, u64::from(stream)]));
        client.read_response().await.unwrap();
        tokio::time::sleep(ms(1)).await;
        assert_eq!(rig.holds(), vec![0, 0]);
        client.close();
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_decodes_own_rejection_ends_the_hand_off_and_its_loss_does_not() {
    for (steps, held) in [(vec![Step::Reset], true), (error_steps(400), false), (error_steps(500), false)] {
        for proto in [H1, H2] {
            let rig = rig(NIXL, vec![good_p(NIXL)], vec![chat(steps.clone())]);
            rig.ask(proto, true).await;
            assert_eq!(rig.handoffs(), u64::from(held));
            tokio::time::sleep(secs(29)).await;
            assert_eq!(rig.handoffs(), u64::from(held));
            tokio::time::sleep(secs(2)).await;
            assert_eq!(rig.handoffs(), 0);
            rig.done().await;
        }
    }
}

fn error_steps(status: u16) -> Vec<Step> {
    after(ms(10), error(status, "x"))
}

#[tokio::test(start_paused = true)]
async fn b29_a_client_that_leaves_between_the_legs_leaves_a_hand_off_to_lease_end() {
    for proto in [H1, H2] {
        let rig = rig(NIXL, vec![good_p(NIXL)], vec![chat(Step::Stall)]);
        rig.net.set_fault("d0", DialFault::Delay(ms(200)));
        rig.leave_after(proto, true, ms(100)).await;
        tokio::time::sleep(ms(100)).await;
        assert!(rig.released());
        assert_eq!((rig.handoffs(), rig.holds()), (1, vec![0, 0]));
        assert_eq!(rig.d[0].log.request_count(), 0);
        tokio::time::sleep(secs(30)).await;
        assert_eq!(rig.handoffs(), 0);
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_decode_withdrawn_while_it_waits_is_let_go_at_once_and_replaced() {
    for proto in [H1, H2] {
        let rig = rig(NIXL, vec![chat(after(secs(2), prefilled(NIXL)))], vec![good_d(), good_d()]);
        let ask = rig.ask(proto, true);
        let drain = async {
            tokio::time::sleep(secs(1)).await;
            assert_eq!(rig.holds(), vec![1, 1, 0]);
            rig.drain("d0", true).await;
            tokio::time::sleep(ms(5)).await;
            assert_eq!(rig.holds(), vec![1, 0, 1], "waiting is not carrying");
        };
        let (reply, ()) = tokio::join!(ask, drain);
        assert!(reply.complete && reply.status == 200);
        assert_eq!((rig.counts(), rig.retries("")), ((vec![1], vec![0, 1]), 0.0));
        assert_eq!(rig.scrape().sum("tandem_retries_total", &[]), 0.0);
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_withdrawn_while_it_is_dialled_gets_no_first_byte() {
    for (kind, proto, stream) in WAYS {
        for name in ["p0", "d0"] {
            let rig = rig(kind, vec![good_p(kind); 2], vec![good_d(), good_d()]);
            rig.net.set_fault(name, DialFault::Delay(ms(500)));
            let ask = rig.ask(proto, stream);
            let drain = async {
                tokio::time::sleep(ms(250)).await;
                rig.drain(name, true).await;
            };
            let (reply, ()) = tokio::join!(ask, drain);
            assert!(reply.complete && reply.status == 200);
            let (p, d) = rig.counts();
            assert_eq!(if name == "p0" { p } else { d }, vec![0, 1], "{kind:?} {name}");
            assert_eq!(rig.scrape().sum("tandem_retries_total", &[]), 0.0);
            rig.done().await;
        }
    }
}

/// The age counts when the leg is sent, not when it is begun: here a slow dial makes the parameters old.
#[tokio::test(start_paused = true)]
async fn parameters_that_are_too_old_are_never_sent() {
    for proto in [H1, H2] {
        let rig = rig_with(NIXL, vec![good_p(NIXL)], vec![good_d()], |c| c.timeouts.connect = Some(secs(60)));
        rig.net.set_fault("d0", DialFault::Delay(secs(16)));
        let ask = rig.ask(proto, true);
        let heal = async {
            tokio::time::sleep(secs(10)).await;
            rig.net.set_fault("d0", DialFault::None);
        };
        let (reply, ()) = tokio::join!(ask, heal);
        assert!(reply.complete && reply.status == 200);
        assert_eq!((rig.counts(), rig.retries("kv_too_old")), ((vec![2], vec![1]), 1.0));
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn parameters_go_to_one_decode_only() {
    let n = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let p = Script::new(move |_| {
        let n = n.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        tandem::testkit::engine::IntoSteps::into_steps(tandem::testkit::engine::Response::json(
            200,
            kv_answer(&format!("e{n}")).to_string(),
        ))
    });
    // One queue for all three: the first two asked fail, whichever they are.
    let d = chats(vec![error_steps(500), error_steps(429), after(ms(1), chat_json("x"))]);
    let rig = rig(NIXL, vec![p], vec![d; 3]);
    let reply = rig.ask(H1, false).await;
    assert!(reply.complete && reply.status == 200);
    let engine = |r: tandem::testkit::engine::RecordedRequest| {
        r.json()["kv_transfer_params"]["remote_engine_id"].as_str().unwrap().to_owned()
    };
    let mut used: Vec<String> = rig.d.iter().flat_map(|d| d.log.requests()).map(engine).collect();
    used.sort_unstable();
    assert_eq!(used, ["e0", "e1", "e2"]);
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn b106_holds_are_zero_after_clients_left_at_every_point() {
    for kind in KINDS {
        let rig = rig_with(
            kind,
            vec![good_p(kind)],
            vec![chat(after(ms(40), ChatStream::new(10).gap(ms(10))))],
            |c| {
                c.services[0].upstream.kv_lease = secs(1);
            },
        );
        let started = now();
        for at in 0..crate::replay::scale(60, 1000) {
            rig.leave_after(if at % 2 == 0 { H1 } else { H2 }, true, ms(at * 7 % 250)).await;
        }
        tokio::time::sleep(secs(2)).await;
        assert_eq!((rig.handoffs(), rig.holds()), (0, vec![0, 0]), "{:?}", now() - started);
        rig.done().await;
    }
}
