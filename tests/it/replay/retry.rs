//! The retry table of plain endpoints, a row each; the reuse race is in `reuse`.

use std::time::Duration;

use tandem::testkit::client::RawResponse;
use tandem::testkit::engine::openai::{ChatStream, error};
use tandem::testkit::engine::{Engine, IntoSteps, Script, Step};
use tandem::testkit::fixtures::{big_chat_body, post_chat};
use tandem::testkit::memory::DialFault;
use tandem::testkit::router::{TestRouter, config};
use tandem::types::clock::now;

use super::relay_rig::{Memory, Seen, count, last_line, legs, memory, ms, plain, secs, streamed};

pub(super) fn good() -> Script {
    Script::openai("m")
}

/// Engine 0 is tried first: the policy is round robin and the turn is at its start.
pub(super) fn rig<const N: usize>(scripts: [Script; N], max: u32) -> Memory<N> {
    memory(scripts, |config| {
        config.services[0].policy.mixed = tandem::config::Policy::RoundRobin;
        config.services[0].retries.max = max;
        config.timeouts.first_byte = Some(secs(6));
        config.timeouts.idle = Some(secs(5));
    })
}

pub(super) fn retries(router: &TestRouter, reason: &str) -> u64 {
    count(router, "tandem_retries_total", &[("reason", reason)])
}

pub(super) fn seen<const N: usize>(rig: &Memory<N>) -> [usize; N] {
    std::array::from_fn(|n| rig.engines[n].log.request_count())
}

/// One request, the client closed, the invariants checked.
async fn once<const N: usize>(rig: &Memory<N>) -> RawResponse {
    let mut client = rig.h1().await;
    let answer = client.request(plain()).await.unwrap();
    client.close();
    rig.settle().await;
    answer
}

fn code(answer: &RawResponse) -> String {
    answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_refused_or_unanswered_dial_goes_to_another_endpoint() {
    for fault in [DialFault::Refuse, DialFault::BlackHole] {
        let rig = rig([good(), good()], 2);
        rig.net.set_fault("e0", fault);
        let started = now();
        assert_eq!(once(&rig).await.status(), 200);
        let took = if fault == DialFault::Refuse { Duration::ZERO } else { secs(1) };
        assert!(now() - started >= took, "{fault:?}");
        assert_eq!((seen(&rig), retries(&rig.router, "connect")), ([0, 1], 1));
        assert_eq!((legs(&rig.router, "connect_failed"), legs(&rig.router, "ok")), (1, 1));
    }
    // Nowhere else to go.
    for (fault, status, expected) in [
        (DialFault::Refuse, 502, "upstream_connect_failed"),
        (DialFault::BlackHole, 504, "upstream_connect_timeout"),
    ] {
        let rig = rig([good()], 2);
        rig.net.set_fault("e0", fault);
        let answer = once(&rig).await;
        assert_eq!((answer.status(), code(&answer).as_str()), (status, expected));
        assert_eq!(answer.header("x-should-retry"), None, "nothing was generated: the client may try again");
        assert_eq!(rig.net.dials("e0"), 1, "the same endpoint is not hammered");
    }
}

/// What was not sent is no attempt.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_withdrawn_before_the_first_byte_costs_no_attempt() {
    let rig = rig([good(), good()], 0);
    rig.net.set_fault("e0", DialFault::Delay(secs(1)));
    let mut client = rig.h1().await;
    client.send(plain()).await.unwrap();
    tokio::time::sleep(ms(500)).await;
    let id = rig.router.endpoints()[0].id.to_string();
    rig.router.admin.endpoints.set_drain(&id, true).await;
    assert_eq!(client.read_response().await.unwrap().status(), 200);
    client.close();
    assert_eq!(seen(&rig), [0, 1]);
    assert_eq!(rig.router.access_lines()[0]["attempts"], 1);
    rig.settle().await;
}

/// `errno` of Linux.
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EADDRNOTAVAIL: i32 = 99;
const ENOBUFS: i32 = 105;

#[tokio::test(start_paused = true)]
async fn our_own_shortage_is_neither_blamed_on_an_engine_nor_answered_with_more_attempts() {
    for errno in [ENOMEM, ENFILE, EMFILE, ENOBUFS] {
        let rig = rig([good(), good()], 2);
        rig.net.set_fault("e0", DialFault::Os(errno));
        let answer = once(&rig).await;
        assert_eq!((answer.status(), code(&answer).as_str()), (503, "router_exhausted"));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("x-should-retry"), None);
        assert_eq!(last_line(&rig.router), ("overload".to_owned(), "router_exhausted".to_owned()));
        assert_eq!((rig.net.dials("e0"), rig.net.dials("e1")), (1, 0));
        assert_eq!((legs(&rig.router, "cancelled"), legs(&rig.router, "connect_failed")), (1, 0));
        assert!(!rig.router.endpoints()[0].ejection.is_ejected());
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_we_have_no_local_port_for_is_not_blamed_and_another_one_serves() {
    let rig = rig([good(), good()], 2);
    rig.net.set_fault("e0", DialFault::Os(EADDRNOTAVAIL));
    assert_eq!(once(&rig).await.status(), 200);
    assert_eq!((seen(&rig), retries(&rig.router, "connect")), ([0, 1], 1));
    assert_eq!((legs(&rig.router, "cancelled"), legs(&rig.router, "connect_failed")), (1, 0));
    assert!(!rig.router.endpoints()[0].ejection.is_ejected());
    rig.net.set_fault("e1", DialFault::Os(EADDRNOTAVAIL));
    rig.router.endpoints()[1].pool.close();
    assert_eq!(code(&once(&rig).await), "router_exhausted");
}

#[tokio::test(start_paused = true)]
async fn our_own_shortage_does_not_take_the_place_of_an_answer_that_an_engine_gave() {
    let rig = rig([Script::always(error(500, "broken")), good()], 2);
    rig.net.set_fault("e1", DialFault::Os(EMFILE));
    let answer = once(&rig).await;
    assert_eq!(answer.status(), 500);
    assert!(answer.text().contains("broken"), "{}", answer.text());
}

#[tokio::test(start_paused = true)]
async fn a_busy_answer_is_tried_once_elsewhere_and_is_no_fault() {
    for status in [408, 409, 429, 503] {
        let busy = || Script::always(error(status, "busy").header("retry-after", "7"));
        let with_room = rig([busy(), good()], 2);
        assert_eq!(once(&with_room).await.status(), 200);
        assert_eq!((seen(&with_room), retries(&with_room.router, "busy")), ([1, 1], 1));
        assert_eq!((legs(&with_room.router, "busy"), legs(&with_room.router, "error")), (1, 0));

        let all_busy = rig([busy(), busy(), busy()], 2);
        let answer = once(&all_busy).await;
        assert_eq!((answer.status(), answer.header("retry-after")), (status, Some("7")));
        assert_eq!(answer.body, error(status, "busy").wire_body(), "verbatim");
        let mut asked = seen(&all_busy);
        asked.sort_unstable();
        assert_eq!(asked, [0, 1, 1], "once, not once each");
        assert_eq!(last_line(&all_busy.router).0, "upstream_busy");

        let alone = rig([busy()], 2);
        let answer = once(&alone).await;
        assert_eq!((answer.status(), answer.header("retry-after")), (status, Some("7")));
        assert_eq!((seen(&alone), retries(&alone.router, "busy")), ([1], 0));
        assert_eq!(count(&alone.router, "tandem_endpoint_ejections_total", &[]), 0);
        assert_eq!(answer.header("x-should-retry"), None);
    }
}

/// A second endpoint that cannot be reached says nothing about the request: the first one's answer does.
#[tokio::test(start_paused = true)]
async fn an_engines_answer_is_not_lost_to_an_endpoint_that_is_down() {
    for (first, outcome) in [(429, "upstream_busy"), (503, "upstream_busy"), (500, "upstream_error")] {
        for fault in [DialFault::Refuse, DialFault::BlackHole] {
            let rig = rig([Script::always(error(first, "mine").header("retry-after", "9")), good()], 2);
            rig.net.set_fault("e1", fault);
            let answer = once(&rig).await;
            assert_eq!((answer.status(), answer.header("retry-after")), (first, Some("9")), "{fault:?}");
            assert_eq!(answer.body, error(first, "mine").wire_body());
            assert_eq!(last_line(&rig.router).0, outcome);
        }
    }
    // But one that may have run the request does: the client must not repeat it.
    let lost = Script::always(vec![Step::Close]);
    let rig = rig([Script::always(error(429, "mine")), lost], 2);
    let answer = once(&rig).await;
    assert_eq!((answer.status(), answer.header("x-should-retry")), (502, Some("false")));
}

#[tokio::test(start_paused = true)]
async fn any_other_4xx_is_final_and_verbatim() {
    for status in [400, 401, 403, 404, 405, 410, 413, 422, 499] {
        let rig = rig([Script::always(error(status, "no")), good()], 2);
        let answer = once(&rig).await;
        assert_eq!(
            (answer.status(), answer.body.as_slice()),
            (status, error(status, "no").wire_body().as_ref())
        );
        assert_eq!(seen(&rig), [1, 0]);
        assert_eq!(last_line(&rig.router).0, "upstream_rejected");
        assert_eq!((legs(&rig.router, "rejected"), legs(&rig.router, "error")), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_complete_5xx_is_repeated_elsewhere_and_a_truncated_one_is_not() {
    for status in [500, 501, 502, 504, 507, 599] {
        let rig = rig([Script::always(error(status, "x")), good()], 2);
        assert_eq!(once(&rig).await.status(), 200);
        assert_eq!((seen(&rig), retries(&rig.router, "server_error")), ([1, 1], 1));
        assert_eq!((legs(&rig.router, "error"), legs(&rig.router, "ok")), (1, 1));
    }
    let truncated = [
        "HTTP/1.1 500 x\r\ncontent-length: 50\r\n\r\n{\"error\"",
        "HTTP/1.1 500 x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc",
        "HTTP/1.1 503 x\r\ncontent-length: 50\r\n\r\nbusy",
        "HTTP/1.1 500 x\r\ncontent-le",
    ];
    for cut in truncated {
        for (step, status, expected) in [
            (Step::Close, 502, "upstream_lost"),
            (Step::Reset, 502, "upstream_lost"),
            (Step::Stall, 504, "upstream_timeout"),
        ] {
            let rig = rig([Script::always(vec![Step::write(cut), step]), good()], 2);
            let answer = once(&rig).await;
            assert_eq!((answer.status(), code(&answer).as_str()), (status, expected), "{cut:?}");
            assert_eq!(answer.header("x-should-retry"), Some("false"));
            assert_eq!(seen(&rig), [1, 0], "an answer that began is not repeated");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_engine_failing_gives_the_last_answer_and_counts_each_attempt() {
    for (max, attempts) in [(0, 1), (1, 2), (2, 3), (3, 4), (9, 4)] {
        let statuses = [500, 501, 502, 504];
        let rig = rig(statuses.map(|status| Script::always(error(status, "x"))), max);
        let answer = once(&rig).await;
        let last = rig.router.access_lines()[0]["endpoint"].as_str().map(str::to_owned).unwrap();
        let asked_last = (0..statuses.len()).find(|n| last.contains(&format!("//e{n}:"))).unwrap();
        assert_eq!(answer.status(), statuses[asked_last], "max {max}");
        assert_eq!(seen(&rig).iter().sum::<usize>(), attempts);
        assert!(seen(&rig).iter().all(|n| *n <= 1), "what failed is excluded");
        assert_eq!(retries(&rig.router, "server_error"), attempts as u64 - 1);
        assert_eq!(rig.router.access_lines()[0]["attempts"], attempts);
        assert_eq!(last_line(&rig.router).0, "upstream_error");
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_after_the_request_was_written_is_never_repeated() {
    let cases = [
        (vec![Step::Close], 502, "upstream_lost", "error"),
        (vec![Step::Reset], 502, "upstream_lost", "error"),
        (vec![Step::Stall], 504, "upstream_timeout", "timeout"),
        (vec![Step::write("HTTP/1.1 100 Continue\r\n\r\n"), Step::Close], 502, "upstream_lost", "error"),
        (vec![Step::write("garbage\r\n\r\n")], 502, "upstream_malformed", "error"),
    ];
    for (steps, status, expected, leg) in cases {
        let rig = rig([Script::always(steps), good()], 3);
        let answer = once(&rig).await;
        assert_eq!((answer.status(), code(&answer).as_str()), (status, expected));
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        assert_eq!((seen(&rig), legs(&rig.router, leg)), ([1, 0], 1));
        assert_eq!(count(&rig.router, "tandem_retries_total", &[]), 0);
    }
}

/// An engine that took only part of the request cannot have run it.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_written_in_part_goes_elsewhere() {
    let stop = vec![Step::ReadNoBody { keep_reading: false }, Step::StopReading, Step::Sleep(secs(1))];
    for last in [Step::Close, Step::Reset] {
        let partial = Script::always([stop.clone(), vec![last]].concat());
        let rig = rig([partial, good()], 2);
        let mut client = rig.h1().await;
        let body = big_chat_body("m", false, 1 << 20);
        let answer = client.request(post_chat(&body)).await.unwrap();
        assert_eq!((answer.status(), retries(&rig.router, "incomplete")), (200, 1));
        assert_eq!(rig.engines[1].log.requests()[0].body, body.as_bytes(), "whole, at the second engine");
        client.close();
        rig.settle().await;
    }
}

/// Unless it began to answer: then it acts on what it has.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_written_in_part_and_answered_in_part_is_not_repeated() {
    let begun = Step::write("HTTP/1.1 200 OK\r\ncontent-le");
    let steps = vec![
        Step::ReadNoBody { keep_reading: false },
        Step::StopReading,
        begun,
        Step::Sleep(secs(1)),
        Step::Close,
    ];
    let rig = rig([Script::always(steps), good()], 2);
    let mut client = rig.h1().await;
    let answer = client.request(post_chat(big_chat_body("m", false, 1 << 20))).await.unwrap();
    assert_eq!((answer.status(), code(&answer).as_str()), (502, "upstream_lost"));
    client.close();
    rig.settle().await;
    assert_eq!(seen(&rig), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn b37_nothing_is_repeated_after_the_first_byte() {
    let script = Script::always(ChatStream::new(3).then(vec![Step::Sleep(ms(1)), Step::Reset]).into_steps());
    let rig = rig([script, good()], 3);
    let mut client = rig.h1().await;
    let answer = Seen::h1(&client.request(streamed()).await.unwrap());
    answer.assert_failed("upstream_lost");
    assert_eq!(answer.events().len(), 5, "role, three events, the error");
    client.close();
    rig.settle().await;
    assert_eq!(seen(&rig), [1, 0]);
    assert_eq!(rig.router.endpoints()[0].pool.len(), 0, "a broken connection is not kept");
    assert_eq!(count(&rig.router, "tandem_retries_total", &[]), 0);
}

/// 20 % of the requests of ten seconds, or three per second: with every engine failing the rest is relayed at once.
#[tokio::test(start_paused = true)]
async fn retries_stop_at_their_budget_and_that_is_counted() {
    let failing = || Script::always(error(500, "x"));
    let rig = rig([failing(), failing(), failing()], 2);
    let mut client = rig.h1().await;
    for _ in 0..200 {
        assert_eq!(client.request(plain()).await.unwrap().status(), 500);
    }
    client.close();
    rig.settle().await;
    let total: usize = seen(&rig).iter().sum();
    // The floor gives 30 in ten seconds; 20 % of 200 is 40.
    assert_eq!((total, retries(&rig.router, "server_error")), (240, 40));
    assert!(count(&rig.router, "tandem_retry_budget_exhausted_total", &[]) > 0);
    tokio::time::sleep(secs(11)).await;
    let mut client = rig.h1().await;
    client.request(plain()).await.unwrap();
    client.close();
    assert_eq!(retries(&rig.router, "server_error"), 42, "an old second no longer counts");
}

#[tokio::test(start_paused = true)]
async fn ejection_puts_an_endpoint_last_but_never_out() {
    let rig = rig([good(), good()], 2);
    rig.net.set_fault("e0", DialFault::Refuse);
    let mut client = rig.h1().await;
    for _ in 0..20 {
        assert_eq!(client.request(plain()).await.unwrap().status(), 200);
    }
    assert_eq!(rig.net.dials("e0"), 1, "asked once, then last");
    // The good one goes too: the ejected one is still asked, and is back at once when it answers.
    rig.net.set_fault("e0", DialFault::None);
    rig.net.set_fault("e1", DialFault::Refuse);
    rig.engines[1].close_connections();
    tokio::time::sleep(ms(10)).await;
    assert_eq!(client.request(plain()).await.unwrap().status(), 200);
    assert_eq!(seen(&rig), [1, 20]);
    client.close();
    rig.settle().await;
}

/// Both down: the client hears of it each time, and each time somebody was asked.
#[tokio::test(start_paused = true)]
async fn with_every_endpoint_ejected_requests_are_still_tried() {
    let rig = rig([good(), good()], 2);
    for name in ["e0", "e1"] {
        rig.net.set_fault(name, DialFault::Refuse);
    }
    let mut client = rig.h1().await;
    for _ in 0..5 {
        assert_eq!(client.request(plain()).await.unwrap().status(), 502);
    }
    assert_eq!(rig.net.dials("e0") + rig.net.dials("e1"), 10);
    for name in ["e0", "e1"] {
        rig.net.set_fault(name, DialFault::None);
    }
    assert_eq!(client.request(plain()).await.unwrap().status(), 200, "no waiting for an ejection to pass");
    client.close();
    rig.settle().await;
}

/// A restart that fails many requests in one moment is one failure, not a streak of them.
#[tokio::test(start_paused = true)]
async fn many_failures_at_once_eject_for_a_second_not_for_thirty() {
    let rig = rig([good(), good()], 2);
    rig.net.set_fault("e0", DialFault::BlackHole);
    let mut clients = Vec::new();
    for _ in 0..40 {
        let mut client = rig.h1().await;
        client.send(plain()).await.unwrap();
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.read_response().await.unwrap().status(), 200);
    }
    rig.net.set_fault("e0", DialFault::None);
    tokio::time::sleep(ms(1100)).await;
    for client in &mut clients {
        assert_eq!(client.request(plain()).await.unwrap().status(), 200);
    }
    let [first, _] = seen(&rig);
    assert!(first >= 15, "back after its second, with its share: {first}");
    drop(clients);
    rig.settle().await;
}

/// The real thing that refuses and the real thing that never answers.
#[tokio::test]
async fn a_port_that_refuses_and_a_host_that_is_silent_are_passed_over() {
    let hole = Engine::black_hole().await;
    let mut gone = Engine::start_tcp(good()).await;
    gone.refuse().await;
    let engine = Engine::start_tcp(good()).await;
    let addrs = [hole.addr, gone.addr(), engine.addr()].map(|addr| addr.to_string());
    let mut config = config(&addrs);
    config.services[0].policy.mixed = tandem::config::Policy::RoundRobin;
    config.timeouts.connect = Some(ms(100));
    let router = TestRouter::start(config).await;
    let mut client = router.client().await;
    for _ in 0..3 {
        let answer: RawResponse = client.request(plain()).await.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    client.close();
    router.assert_invariants(&[&engine]).await;
    assert_eq!((legs(&router, "connect_failed"), legs(&router, "ok")), (2, 3));
}
