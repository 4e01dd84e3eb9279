//! What the in-flight report says of a pair, from its decision to the end of its lease (`GET /observer/inflight`).

use tandem::config::EngineKind;
use tandem::registry::InFlight;
use tandem::testkit::engine::Step;
use tandem::testkit::engine::openai::{ChatStream, error};
use tandem::testkit::fixtures::post;
use tandem::testkit::memory::DialFault;

use super::rig::*;

const NOTHING: InFlight = InFlight { waiting: 0, reserved: 0, prefill: 0, decode: 0, handoff: 0 };

fn carries(rig: &Rig, name: &str) -> InFlight {
    rig.entry(name).in_flight
}

/// P answers at 1 s, D's first token comes a second later.
fn slow(kind: EngineKind) -> Rig {
    let d = after(secs(u64::from(kind == SGLANG)), ChatStream::new(3).gap(ms(500)));
    rig(kind, vec![chat(after(secs(1), prefilled(kind))); 2], vec![chat(d); 2])
}

#[tokio::test(start_paused = true)]
async fn a_pair_is_reported_stage_by_stage() {
    let rig = slow(NIXL);
    let mut client = rig.client().await;
    client.send(post(CHAT, &[], body(true))).await.unwrap();
    tokio::time::sleep(ms(500)).await;
    assert_eq!(carries(&rig, "p0"), InFlight { prefill: 1, ..NOTHING });
    assert_eq!(carries(&rig, "d0"), InFlight { waiting: 1, ..NOTHING }, "decided, and not begun");
    rig.drain("p0", true).await;
    let entry = rig.entry("p0");
    assert_eq!((entry.selectable, entry.volatile_drain, entry.quiesced_for_ms), (false, true, None));
    assert_eq!((entry.reason.as_deref(), entry.withdrawn_age_ms), (Some("admin_drain"), Some(0)));
    assert_eq!(entry.last_dispatch_age_ms, Some(500));
    tokio::time::sleep(secs(1)).await;
    assert_eq!(carries(&rig, "p0"), InFlight { handoff: 1, ..NOTHING }, "its leg is over, its KV is not");
    assert_eq!(carries(&rig, "d0"), InFlight { decode: 1, ..NOTHING });
    rig.drain("d0", true).await;
    tokio::time::sleep(secs(1)).await;
    let entry = rig.entry("p0");
    assert_eq!((entry.in_flight, entry.quiesced_for_ms), (NOTHING, Some(500)), "since the first token");
    assert_eq!(carries(&rig, "d0"), InFlight { decode: 1, ..NOTHING });
    client.read_response().await.unwrap();
    tokio::time::sleep(ms(250)).await;
    let entry = rig.entry("d0");
    assert_eq!((entry.in_flight, entry.quiesced_for_ms), (NOTHING, Some(250)));
    rig.drain("d0", false).await;
    let entry = rig.entry("d0");
    assert_eq!((entry.selectable, entry.reason, entry.quiesced_for_ms), (true, None, None));
    assert_eq!((entry.volatile_drain, entry.withdrawn_age_ms), (false, None));
    client.close();
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn an_sglang_prefill_is_held_until_it_answered_and_its_decode_has_a_token() {
    let rig = slow(SGLANG);
    let mut client = rig.client().await;
    client.send(post(CHAT, &[], body(true))).await.unwrap();
    tokio::time::sleep(ms(500)).await;
    assert_eq!(carries(&rig, "p0"), InFlight { prefill: 1, handoff: 1, ..NOTHING });
    assert_eq!(carries(&rig, "d0"), InFlight { decode: 1, ..NOTHING }, "both at once");
    tokio::time::sleep(secs(1)).await;
    assert_eq!(carries(&rig, "p0"), InFlight { handoff: 1, ..NOTHING });
    tokio::time::sleep(secs(1)).await;
    assert_eq!(carries(&rig, "p0"), NOTHING);
    client.read_response().await.unwrap();
    client.close();
    rig.done().await;
}

/// dynamo#7933: a prefill that goes while a decode may still read takes that decode with it.
#[tokio::test(start_paused = true)]
async fn a_prefill_is_held_until_the_lease_is_over_when_its_decode_is_lost() {
    for proto in [H1, H2] {
        let rig = rig(NIXL, vec![good_p(NIXL)], vec![chat(Step::Reset)]);
        rig.ask(proto, true).await;
        rig.drain("p0", true).await;
        rig.drain("d0", true).await;
        assert_eq!(carries(&rig, "p0"), InFlight { handoff: 1, ..NOTHING }, "who was lost may still read");
        tokio::time::sleep(secs(29)).await;
        assert_eq!((carries(&rig, "p0").handoff, rig.entry("p0").quiesced_for_ms), (1, None));
        assert!(rig.entry("d0").quiesced_for_ms >= Some(29_000), "the decode itself carries nothing");
        tokio::time::sleep(secs(2)).await;
        let quiet = rig.entry("p0").quiesced_for_ms.unwrap();
        assert!((900..1100).contains(&quiet), "{quiet} ms after the end of the lease");
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b29_a_client_that_left_between_the_legs_is_reported_as_a_hand_off_until_the_lease_is_over() {
    for proto in [H1, H2] {
        let rig = rig(NIXL, vec![good_p(NIXL)], vec![chat(Step::Stall)]);
        rig.net.set_fault("d0", DialFault::Delay(ms(200)));
        rig.leave_after(proto, true, ms(100)).await;
        rig.drain("p0", true).await;
        tokio::time::sleep(ms(100)).await;
        assert_eq!((carries(&rig, "p0"), carries(&rig, "d0")), (InFlight { handoff: 1, ..NOTHING }, NOTHING));
        tokio::time::sleep(secs(30)).await;
        assert!(rig.entry("p0").quiesced_for_ms.is_some());
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b30_a_prefill_whose_decode_failed_is_reported_free() {
    for proto in [H1, H2] {
        let failing = chat(after(ms(100), error(500, "x")));
        let rig = rig(SGLANG, vec![chat(Step::Stall)], vec![failing]);
        assert_eq!(rig.ask(proto, true).await.status, 500);
        rig.drain("p0", true).await;
        tokio::time::sleep(secs(1)).await;
        assert_eq!((carries(&rig, "p0"), carries(&rig, "d0")), (NOTHING, NOTHING));
        assert!(rig.entry("p0").quiesced_for_ms.is_some());
        rig.done().await;
    }
}

/// B106: nothing is counted that no engine has, and nothing is missing while one has it.
#[tokio::test(start_paused = true)]
async fn b106_the_report_is_what_the_engines_have_wherever_clients_leave() {
    for kind in KINDS {
        let d = chat(after(ms(40), ChatStream::new(10).gap(ms(10))));
        let rig = rig_with(kind, vec![good_p(kind)], vec![d], |c| c.services[0].upstream.kv_lease = secs(1));
        for at in 0..crate::replay::scale(60, 1000) {
            rig.leave_after(if at % 2 == 0 { H1 } else { H2 }, true, ms(at * 7 % 250)).await;
            tokio::time::sleep(ms(10)).await;
            let open = |engine: &tandem::testkit::engine::EngineHandle| {
                engine
                    .log
                    .requests_to(CHAT)
                    .iter()
                    .filter(|r| r.response.done_at.is_none() && r.peer_left.is_none())
                    .count() as u64
            };
            let (p, d) = (carries(&rig, "p0"), carries(&rig, "d0"));
            assert_eq!((p.prefill, d.decode), (open(&rig.p[0]), open(&rig.d[0])), "{kind:?} {at}");
        }
        rig.done().await;
    }
}
