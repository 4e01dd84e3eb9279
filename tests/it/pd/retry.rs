//! The retry table.

use tandem::config::{Policies, Policy};
use tandem::testkit::engine::openai::{ChatStream, chat_json, error};
use tandem::testkit::engine::{Response, Script, Step};
use tandem::testkit::fixtures::post;
use tandem::testkit::memory::DialFault;

use super::rig::*;

#[tokio::test(start_paused = true)]
async fn a_refused_or_silent_dial_goes_elsewhere() {
    for (kind, proto, stream) in WAYS {
        for fault in [DialFault::Refuse, DialFault::BlackHole] {
            for name in ["p0", "d0"] {
                let rig = rig(kind, vec![good_p(kind); 2], vec![good_d(), good_d()]);
                rig.net.set_fault(name, fault);
                let reply = rig.ask(proto, stream).await;
                assert!(reply.complete && reply.status == 200, "{kind:?} {name} {fault:?}");
                let (p, d) = rig.counts();
                // vLLM's decode is replaced inside the attempt, with the same parameters.
                let replaced = kind == NIXL && name == "d0";
                assert_eq!(rig.retries("connect"), if replaced { 0.0 } else { 1.0 });
                assert_eq!(p.iter().sum::<usize>(), 1, "one prefill either way");
                assert_eq!(d.iter().sum::<usize>(), 1);
                let role = if name == "p0" { "prefill" } else { "decode" };
                assert_eq!(rig.legs(role, "connect_failed"), 1.0);
                rig.done().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_decode_that_replaced_another_is_the_one_that_is_left_out_next() {
    let d = chats(vec![after(ms(1), error(500, "x")), after(ms(1), chat_json("x"))]);
    let rig = rig(NIXL, vec![good_p(NIXL)], vec![d; 3]);
    rig.net.set_fault("d0", DialFault::Refuse);
    let reply = rig.ask(H1, false).await;
    assert!(reply.complete && reply.status == 200);
    assert_eq!(rig.counts(), (vec![2], vec![0, 1, 1]));
    assert_eq!(rig.net.dials("d0"), 1);
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_engine_is_tried_elsewhere_once_and_no_fault_is_counted() {
    let busy = |status| chat(after(ms(10), error(status, "busy").header("retry-after", "7")));
    for (kind, proto, stream) in WAYS {
        for status in [408, 409, 429, 503] {
            for prefill in [true, false] {
                let scripts = |bad: bool, n: usize, good: Script| {
                    let bad = if bad { vec![busy(status); n] } else { Vec::new() };
                    [bad, vec![good]].concat()
                };
                // One busy: elsewhere. Two busy and a good one: once only.
                let one = rig(kind, scripts(prefill, 1, good_p(kind)), scripts(!prefill, 1, good_d()));
                assert_eq!(one.ask(proto, stream).await.status, 200);
                assert_eq!(one.retries("busy"), 1.0);
                let role = if prefill { "prefill" } else { "decode" };
                assert_eq!((one.legs(role, "busy"), one.legs(role, "error")), (1.0, 0.0));
                one.done().await;
                if stream && status != 429 {
                    continue;
                }
                // One queue for all three: the first two asked are busy, whichever they are.
                let busy_steps = after(ms(10), error(status, "busy").header("retry-after", "7"));
                let twice =
                    |good: Vec<Step>| vec![chats(vec![busy_steps.clone(), busy_steps.clone(), good]); 3];
                let good = after(ms(40), chat_json("x"));
                let two = if prefill {
                    rig(kind, twice(prefilled(kind)), vec![good_d()])
                } else {
                    rig(kind, vec![good_p(kind)], twice(good))
                };
                let reply = two.ask(proto, stream).await;
                assert_eq!((reply.status, reply.header("retry-after")), (status, Some("7")));
                assert_eq!(two.scrape().sum("tandem_requests_total", &[("outcome", "upstream_busy")]), 1.0);
                two.done().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_prefills_5xx_loss_or_silence_goes_to_another_prefill() {
    for kind in KINDS {
        for (bad, reason) in [
            (after(ms(10), error(500, "x")), "server_error"),
            (vec![Step::Reset], "lost"),
            (vec![Step::Stall], "lost"),
        ] {
            let rig = rig_with(kind, vec![chat(bad), good_p(kind)], vec![chat(Step::Stall), good_d()], |c| {
                c.timeouts.first_byte = Some(secs(1));
            });
            if kind == NIXL {
                rig.d[0].set_script(good_d());
            }
            let reply = rig.ask(H1, true).await;
            assert!(reply.complete && reply.status == 200, "{kind:?} {reason}");
            assert_eq!(rig.retries(reason), 1.0);
            assert_eq!(rig.counts().0, vec![1, 1]);
            rig.done().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_prefill_without_usable_parameters_is_a_loud_502() {
    let null = Response::json(200, "{\"kv_transfer_params\":null}");
    let empty = Response::json(200, "{\"kv_transfer_params\":{}}");
    for answer in [chat_json("x"), null, empty, Response::text(200, "no json")] {
        for proto in [H1, H2] {
            let rig = rig(NIXL, vec![chat(answer.clone()), good_p(NIXL)], vec![good_d()]);
            let reply = rig.ask(proto, false).await;
            assert_eq!((reply.status, reply.code().as_str()), (502, "prefill_no_kv"));
            assert_eq!((rig.counts(), rig.legs("prefill", "error")), ((vec![1, 0], vec![0]), 1.0));
            rig.done().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_decodes_own_4xx_is_final() {
    for (kind, proto, stream) in WAYS {
        for status in [400, 404, 418, 422] {
            let rig = rig(kind, vec![good_p(kind)], vec![chat(after(ms(30), error(status, "no"))), good_d()]);
            let reply = rig.ask(proto, stream).await;
            assert_eq!((reply.status, reply.json()["error"]["message"].as_str()), (status, Some("no")));
            assert_eq!((rig.counts().1, rig.legs("decode", "rejected")), (vec![1, 0], 1.0));
            rig.done().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b34_a_decodes_complete_5xx_is_a_new_attempt_with_new_ids() {
    for (kind, proto, stream) in WAYS {
        let rig = rig(kind, vec![good_p(kind); 2], vec![chat(after(ms(30), error(500, "x"))), good_d()]);
        let reply = rig.ask(proto, stream).await;
        assert!(reply.complete && reply.status == 200);
        assert_eq!(rig.retries("server_error"), 1.0);
        let of = |n: usize| {
            let p = rig.p[n].log.requests_to(CHAT).remove(0);
            let d = rig.d[n].log.requests_to(CHAT).remove(0);
            assert_eq!(p.headers.get("x-request-id"), d.headers.get("x-request-id"));
            let (p, d) = (p.json(), d.json());
            assert_eq!((&p["rid"], &p["bootstrap_room"]), (&d["rid"], &d["bootstrap_room"]));
            assert_eq!(p["messages"], d["messages"]);
            (
                d["rid"].clone(),
                d["bootstrap_room"].clone(),
                rig.d[n].log.requests_to(CHAT)[0].headers.get("x-request-id").map(str::to_owned),
            )
        };
        let (one, two) = (of(0), of(1));
        assert_ne!(one.2, two.2);
        assert!(kind == NIXL || (one.0 != two.0 && one.1 != two.1));
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_decode_lost_after_its_request_is_never_repeated() {
    for (kind, proto, stream) in WAYS {
        for (steps, status) in [(vec![Step::Reset], 502), (vec![Step::Close], 502), (vec![Step::Stall], 504)]
        {
            let rig = rig_with(kind, vec![good_p(kind); 2], vec![chat(steps), good_d()], |c| {
                c.timeouts.first_byte = Some(secs(1));
            });
            let reply = rig.ask(proto, stream).await;
            assert_eq!((reply.status, reply.told_not_to_retry()), (status, true), "{kind:?}");
            assert_eq!(rig.counts().1, vec![1, 0]);
            tokio::time::sleep(secs(1)).await;
            assert_eq!(rig.legs("decode", if status == 504 { "timeout" } else { "error" }), 1.0);
            rig.done().await;
        }
    }
}

/// Serves two, and closes their waiting connections as soon as a byte of the next request comes.
fn races(good: &[Step]) -> Script {
    let reset = vec![Step::ResetOnFirstByte];
    let queue = vec![good.to_vec(), good.to_vec(), reset.clone(), reset];
    Script::queue(queue).or_else(Script::always(good.to_vec()))
}

#[tokio::test(start_paused = true)]
async fn a_waiting_connection_that_was_closed_is_one_new_attempt_on_new_connections() {
    for kind in KINDS {
        for prefill in [true, false] {
            let p = after(ms(5), prefilled(kind));
            let d = after(ms(10), ChatStream::new(2));
            let (p, d) = if prefill { (races(&p), chat(d)) } else { (chat(p), races(&d)) };
            let rig = rig(kind, vec![p], vec![d]);
            let (one, two) = tokio::join!(rig.ask(H1, true), rig.ask(H2, true));
            assert!(one.complete && two.complete);
            tokio::time::sleep(ms(500)).await;
            // Two connections wait, both as good as closed: a second try on the other would fail as well.
            let three = rig.ask(H1, true).await;
            assert!(three.complete && three.status == 200, "{kind:?} {prefill} {}", three.text());
            assert_eq!(rig.retries("reuse_race"), 1.0, "{kind:?} {prefill}");
            let rooms: Vec<_> =
                rig.d[0].log.requests_to(CHAT).iter().map(|r| r.json()["rid"].clone()).collect();
            assert!(kind == NIXL || rooms.windows(2).all(|pair| pair[0] != pair[1]));
            rig.done().await;
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Status(u16),
    Reset,
    Refused,
}

/// How many attempts the table allows on top, whatever `retries.max` says; `None`: as many as that.
fn allowed(kind: tandem::config::EngineKind, prefill: bool, fault: Fault) -> Option<usize> {
    match fault {
        Fault::Status(408 | 409 | 429 | 503) => Some(1),
        Fault::Status(s) if s >= 500 => None,
        Fault::Status(_) => Some(0),
        Fault::Reset => {
            if prefill {
                None
            } else {
                Some(0)
            }
        }
        Fault::Refused => {
            if kind == NIXL && !prefill {
                Some(usize::MAX)
            } else {
                None
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b39_the_retry_matrix() {
    let statuses = [400, 401, 404, 408, 409, 422, 429, 500, 502, 503, 504].map(Fault::Status);
    let faults = [statuses.as_slice(), &[Fault::Reset, Fault::Refused]].concat();
    for kind in KINDS {
        for fault in &faults {
            for prefill in [true, false] {
                // CI: the whole range of `retries.max` where it decides, one elsewhere.
                let decides = matches!(fault, Fault::Status(500 | 503 | 400) | Fault::Reset | Fault::Refused);
                let all: &[u32] = if crate::replay::scale(decides, true) { &[0, 1, 3] } else { &[1] };
                for &max in all {
                    b39_case(kind, *fault, prefill, max).await;
                }
            }
        }
    }
}

async fn b39_case(kind: tandem::config::EngineKind, fault: Fault, prefill: bool, max: u32) {
    let bad = match fault {
        Fault::Status(status) => chat(after(ms(5), error(status, "x"))),
        _ => chat(Step::Reset),
    };
    // Five that fail alike: the table alone bounds the attempts.
    let (p, d) = if prefill { (vec![bad; 5], vec![good_d()]) } else { (vec![good_p(kind)], vec![bad; 5]) };
    let rig = rig_with(kind, p, d, |c| c.services[0].retries.max = max);
    let role = if prefill { "p" } else { "d" };
    if matches!(fault, Fault::Refused) {
        (0..5).for_each(|n| rig.net.set_fault(&format!("{role}{n}"), DialFault::Refuse));
    }
    let reply = rig.ask(H1, true).await;
    let expected = match fault {
        Fault::Status(status) => status,
        _ => 502,
    };
    assert_eq!(reply.status, expected, "{kind:?} {fault:?}");
    let further = allowed(kind, prefill, fault)
        .map_or(max as usize, |n| if n == usize::MAX { 4 } else { n.min(max as usize) });
    let engines = if prefill { &rig.p } else { &rig.d };
    let asked: usize = match fault {
        Fault::Refused => (0..5).map(|n| rig.net.dials(&format!("{role}{n}")) as usize).sum(),
        _ => engines.iter().map(|e| e.log.requests_to(CHAT).len()).sum(),
    };
    // Aborts dial too, but not an engine that never had the request.
    assert_eq!(asked, 1 + further, "{kind:?} {fault:?} prefill {prefill} max {max}");
    tokio::time::sleep(secs(1)).await;
    assert_eq!(rig.holds().iter().sum::<u64>(), 0);
    rig.done().await;
}

/// Refused, unanswered, no route, a name that is not found, and no descriptors: on one side, on the other, and on both.
/// A prefill's answer beyond what is read of one.
#[tokio::test(start_paused = true)]
async fn with_every_engine_failing_the_budget_bounds_the_attempts() {
    for kind in KINDS {
        let rig = rig_with(kind, vec![chat(error(500, "x")); 4], vec![chat(Step::Stall)], |c| {
            c.services[0].retries.floor = 0;
        });
        for _ in 0..100 {
            assert_eq!(rig.ask(H1, false).await.status, 500);
        }
        let asked: usize = rig.counts().0.iter().sum();
        assert!((110..=120).contains(&asked), "{asked}");
        assert!(rig.scrape().sum("tandem_retry_budget_exhausted_total", &[]) > 0.0);
        rig.done().await;
    }
}

/// A decode that hangs keeps its prefill waiting too: which of them it was is not known, so both are left out and put last.
#[tokio::test(start_paused = true)]
async fn a_decode_that_hangs_with_its_prefill_is_not_asked_again() {
    for proto in [H1, H2] {
        let rig = rig_with(
            SGLANG,
            vec![good_p(SGLANG), chats(vec![vec![Step::Stall], prefilled(SGLANG)])],
            vec![chat(Step::Stall), good_d()],
            |c| {
                c.timeouts.first_byte = Some(secs(1));
                c.services[0].policy = Policies { decode: Policy::LeastInFlight, ..c.services[0].policy };
            },
        );
        // The good decode has more to do than the one that hangs.
        rig.drain("d0", true).await;
        rig.d[1].set_script(chat(after(ms(40), ChatStream::new(100).gap(secs(1)))));
        let mut busy = rig.client().await;
        busy.send(post(CHAT, &[], body(true))).await.unwrap();
        rig.d[1].log.wait_for(1, secs(5)).await;
        rig.d[1].set_script(good_d());
        rig.drain("d0", false).await;
        let reply = rig.ask(proto, true).await;
        assert!(reply.status == 200 && reply.complete, "{}", reply.text());
        assert_eq!(rig.d[0].log.requests_to(CHAT).len(), 1);
        busy.close();
        tokio::time::sleep(secs(1)).await;
        assert_eq!((rig.legs("prefill", "timeout"), rig.legs("decode", "timeout")), (1.0, 0.0));
        let ejected = |role| rig.scrape().sum("tandem_endpoint_ejections_total", &[("role", role)]);
        assert_eq!((ejected("prefill"), ejected("decode")), (1.0, 1.0));
        rig.done().await;
    }
}
