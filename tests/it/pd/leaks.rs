//! B107: nothing is left after any way to fail.

use tandem::testkit::engine::openai::{chat_json, error};
use tandem::testkit::engine::{IntoSteps, Response, Step};
use tandem::testkit::fixtures::post;
use tandem::testkit::memory::DialFault;

use super::rig::*;

#[tokio::test(start_paused = true)]
async fn b107_after_every_kind_of_failure_nothing_is_left() {
    let faults = [
        vec![Step::Reset],
        vec![Step::Close],
        error(500, "x").into_steps(),
        vec![Step::write("HTTP/9 what\r\n\r\n")],
        vec![Step::Stall],
        error(418, "x").into_steps(),
        error(503, "x").into_steps(),
        vec![Step::write("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"), Step::Reset],
        Response::json(200, "{\"kv_transfer_params\":[[[").into_steps(),
        Response::text(500, "no JSON at all").into_steps(),
    ];
    for kind in KINDS {
        let mut scripts = faults.iter().cycle().take(20).cloned().collect::<Vec<_>>();
        scripts.push(prefilled(kind));
        let rig = rig_with(kind, vec![chats(scripts.clone()); 2], vec![chats(scripts)], |c| {
            c.timeouts.first_byte = Some(secs(1));
            c.services[0].upstream.kv_lease = secs(1);
        });
        for n in 0..crate::replay::scale(40, 10_000) {
            rig.ask(if n % 2 == 0 { H1 } else { H2 }, n % 3 == 0).await;
        }
        tokio::time::sleep(secs(2)).await;
        assert_eq!((rig.holds(), rig.handoffs()), (vec![0, 0, 0], 0));
        let prefills: Vec<_> = rig.p.iter().chain(&rig.d).collect();
        assert_pair_invariants(&rig, &prefills, &[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b107_after_every_kind_of_failed_dial_nothing_is_left() {
    let faults = [
        DialFault::Refuse,
        DialFault::BlackHole,
        DialFault::Os(113), // EHOSTUNREACH
        DialFault::Os(2),   // ENOENT: as from a resolver
        DialFault::Os(24),  // EMFILE
    ];
    for kind in KINDS {
        let rig = rig_with(kind, vec![good_p(kind); 2], vec![good_d(); 2], |c| {
            c.timeouts.connect = Some(ms(100));
            c.services[0].upstream.kv_lease = secs(1);
            c.services[0].upstream.idle = ms(1);
        });
        for n in 0..crate::replay::scale(60, 10_000) {
            let fault = faults[n % faults.len()];
            for (at, name) in ["p0", "p1", "d0", "d1"].into_iter().enumerate() {
                let hit = (n / faults.len() + 1) & (1 << at) != 0;
                rig.net.set_fault(name, if hit { fault } else { DialFault::None });
            }
            rig.ask(if n % 2 == 0 { H1 } else { H2 }, n % 3 == 0).await;
            tokio::time::sleep(ms(5)).await;
        }
        tokio::time::sleep(secs(2)).await;
        assert_eq!((rig.holds(), rig.handoffs()), (vec![0; 4], 0));
        assert!(rig.legs("prefill", "connect_failed") > 0.0 && rig.legs("decode", "connect_failed") > 0.0);
        let all: Vec<_> = rig.p.iter().chain(&rig.d).collect();
        assert_pair_invariants(&rig, &all, &[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b107_a_prefills_answer_that_is_too_large_leaves_nothing() {
    for kind in KINDS {
        for status in [200, 500] {
            let large = Response::text(status, "x".repeat((8 << 20) + 1));
            let rig = rig(kind, vec![chat(large)], vec![chat(after(secs(20), chat_json("late")))]);
            for n in 0..crate::replay::scale(2, 20) {
                let reply = rig.ask(if n % 2 == 0 { H1 } else { H2 }, n % 3 == 0).await;
                assert!(reply.status >= 500 || kind == SGLANG, "{kind:?} {status} {}", reply.status);
            }
            tokio::time::sleep(secs(2)).await;
            assert_eq!((rig.holds(), rig.handoffs()), (vec![0, 0], 0), "{kind:?} {status}");
            rig.done().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b107_a_request_whose_task_panics_leaves_nothing_and_its_thread_serves_on() {
    for kind in KINDS {
        for name in ["p0", "d0"] {
            let rig = rig(kind, vec![good_p(kind)], vec![good_d()]);
            rig.net.set_fault(name, DialFault::Panic);
            let mut client = rig.client().await;
            client.send(post(CHAT, &[], body(true))).await.unwrap();
            assert!(client.read_response().await.is_err(), "the connection ends with its task");
            // KV that vLLM's prefill handed over is kept to the end of its lease.
            tokio::time::sleep(secs(31)).await;
            assert_eq!((rig.holds(), rig.handoffs()), (vec![0, 0], 0), "{kind:?} {name}");
            assert_eq!((rig.router.shared.in_flight.used(), rig.router.shared.buffered.used()), (0, 0));
            assert_eq!(rig.scrape().sum("tandem_requests_total", &[("outcome", "internal")]), 1.0);
            assert_eq!(rig.scrape().sum("tandem_requests_in_flight", &[]), 0.0);
            assert_eq!(rig.router.access_lines()[0]["error"], "internal_error");
            rig.net.set_fault(name, DialFault::None);
            assert_eq!(rig.ask(H1, true).await.status, 200);
        }
    }
}
