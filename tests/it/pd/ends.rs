//! "What ends what".

use tandem::config::EngineKind;
use tandem::testkit::engine::openai::{ChatStream, content_event, error};
use tandem::testkit::engine::{Body, IntoSteps, Response, Step};
use tandem::testkit::fixtures::post;
use tandem::types::clock::now;

use super::rig::*;

async fn prefill_answers(status: u16, (kind, proto, stream): (EngineKind, Proto, bool)) {
    let rig = rig(kind, vec![chat(after(ms(20), error(status, "too long")))], vec![chat(Step::Stall)]);
    let started = now();
    let reply = rig.ask(proto, stream).await;
    assert_eq!((reply.status, reply.json()["error"]["message"].as_str()), (status, Some("too long")));
    assert!(reply.took < ms(500) && reply.complete, "{kind:?} {proto:?}");
    if kind == SGLANG {
        assert!(between(started, rig.wait_left(&rig.d[0]).await) < 1000);
        tokio::time::sleep(ms(300)).await;
        assert_eq!(rig.legs("decode", "cancelled"), 1.0);
        let rid = &rig.d[0].log.requests_to(CHAT)[0].json()["rid"];
        assert_eq!(&rig.d[0].log.requests_to("/abort_request")[0].json()["rid"], rid);
    } else {
        assert_eq!(rig.d[0].log.request_count(), 0);
    }
    assert_eq!(rig.legs("prefill", if status == 500 { "error" } else { "rejected" }), 1.0);
    assert_eq!(rig.counts().0, vec![1]);
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn b41_a_prefills_4xx_or_5xx_ends_the_decode_and_reaches_the_client() {
    for way in WAYS {
        prefill_answers(400, way).await;
    }
    for status in [401, 403, 404, 413, 418, 422, 500] {
        for kind in KINDS {
            prefill_answers(status, (kind, H1, true)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_prefill_lost_before_the_first_token_is_repeated_on_another() {
    for (kind, proto, stream) in WAYS {
        let rig = rig(
            kind,
            vec![chat(after(ms(20), Step::Reset)), good_p(kind)],
            vec![chat(Step::Stall), good_d()],
        );
        let reply = rig.ask(proto, stream).await;
        assert!(reply.status == 200 && reply.complete && reply.took < ms(200));
        assert_eq!((rig.retries("lost"), rig.legs("prefill", "error")), (1.0, 1.0));
        tokio::time::sleep(secs(1)).await;
        assert_eq!(rig.legs("decode", "cancelled"), 1.0);
        assert_eq!(rig.counts(), (vec![1, 1], vec![usize::from(kind == SGLANG), 1]));
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b43_a_prefill_that_is_lost_for_good_is_an_error_of_its_own() {
    for (kind, proto, stream) in WAYS {
        let cases = [
            (after(ms(20), Step::Reset), 502, "prefill_lost"),
            (vec![Step::Stall], 504, "prefill_timeout"),
            (
                vec![Step::write("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"), Step::Reset],
                502,
                "prefill_lost",
            ),
        ];
        for (steps, status, code) in cases {
            let rig = rig_with(kind, vec![chat(steps)], vec![chat(Step::Stall)], |c| {
                c.timeouts.first_byte = Some(secs(2));
            });
            let reply = rig.ask(proto, stream).await;
            assert_eq!((reply.status, reply.code().as_str()), (status, code), "{kind:?}");
            assert!(reply.took < secs(3));
            // Only where a decode was asked can anything have been generated.
            assert_eq!(reply.told_not_to_retry(), kind == SGLANG);
            assert_eq!(rig.scrape().sum("tandem_request_errors_total", &[("code", code)]), 1.0);
            tokio::time::sleep(secs(1)).await;
            assert_eq!(rig.legs("prefill", if status == 504 { "timeout" } else { "error" }), 1.0);
            assert_eq!(rig.legs("decode", "error") + rig.legs("decode", "timeout"), 0.0);
            rig.done().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_prefill_lost_after_the_first_token_does_not_touch_the_client() {
    for proto in [H1, H2] {
        let d = chat(after(ms(40), ChatStream::new(5).gap(ms(50))));
        let rig = rig(SGLANG, vec![chat(after(ms(200), Step::Reset))], vec![d]);
        let reply = rig.ask(proto, true).await;
        assert!(reply.complete && reply.text().ends_with("data: [DONE]\n\n"));
        assert_eq!((rig.legs("prefill", "error"), rig.legs("decode", "ok")), (1.0, 1.0));
        assert_eq!(rig.scrape().sum("tandem_requests_total", &[("outcome", "ok")]), 1.0);
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b30_b42_a_decode_that_fails_ends_the_prefill() {
    for (steps, status) in
        [(error(500, "x").into_steps(), 500), (vec![Step::Reset], 502), (error(418, "x").into_steps(), 418)]
    {
        for proto in [H1, H2] {
            let rig = rig(SGLANG, vec![chat(Step::Stall)], vec![chat(after(ms(100), steps.clone()))]);
            let started = now();
            let reply = rig.ask(proto, true).await;
            assert_eq!((reply.status, reply.told_not_to_retry()), (status, status == 502));
            let left = rig.wait_left(&rig.p[0]).await;
            assert!(between(started, left) < 1000);
            assert!(!rig.p[0].log.requests_to("/abort_request").is_empty());
            assert_eq!(rig.legs("prefill", "cancelled"), 1.0, "neither success nor failure");
            rig.done().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_in_a_silent_prefill_is_noticed_at_once() {
    for (kind, proto, stream) in WAYS {
        for grace in [0, 5] {
            let rig = rig_with(kind, vec![chat(Step::Stall)], vec![chat(Step::Stall)], |c| {
                c.services[0].upstream.cancel_decode_grace = Some(secs(grace));
            });
            let at = rig.leave_after(proto, stream, secs(1)).await;
            tokio::time::sleep(ms(99)).await;
            assert!(rig.released(), "{kind:?} {proto:?}");
            assert_eq!(rig.scrape().sum("tandem_requests_total", &[("outcome", "client_cancelled")]), 1.0);
            let left = between(at, rig.wait_left(&rig.p[0]).await);
            match (kind == SGLANG, grace) {
                (false, _) => assert!(left <= 100),
                (true, 0) => assert!(left < 1000, "{left}"),
                (true, _) => assert!((5000..6000).contains(&left), "{left}"),
            }
            assert_eq!(rig.legs("prefill", "cancelled"), 1.0);
            rig.done().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b30_a_client_that_leaves_in_the_stream_ends_the_decode() {
    for (kind, proto, _) in WAYS {
        let rig = rig(kind, vec![good_p(kind)], vec![chat(ChatStream::new(500).gap(ms(50)))]);
        let at = rig.leave_after(proto, true, secs(1)).await;
        let left = rig.wait_left(&rig.d[0]).await;
        assert!(between(at, left) <= 100, "{}", between(at, left));
        if kind == SGLANG {
            tokio::time::sleep(ms(300)).await;
            assert_eq!(rig.d[0].log.requests_to("/abort_request").len(), 2);
        }
        assert_eq!((rig.legs("decode", "cancelled"), rig.legs("prefill", "ok")), (1.0, 1.0));
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b58_a_prefill_that_goes_on_after_its_decode_is_drained_for_four_seconds() {
    let slow = |pieces: usize| {
        let mut steps =
            vec![Step::write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", pieces * 1000))];
        for _ in 0..pieces {
            steps.extend([Step::Sleep(ms(500)), Step::write("x".repeat(1000))]);
        }
        chat(steps)
    };
    for (pieces, outcome, closed) in [(6, "ok", false), (60, "cancelled", true)] {
        let rig = rig(SGLANG, vec![slow(pieces)], vec![good_d()]);
        let reply = rig.ask(H1, true).await;
        assert!(reply.complete && reply.took < secs(1));
        let done = now();
        tokio::time::sleep(ms(3900)).await;
        assert_eq!(rig.legs("prefill", "cancelled"), 0.0);
        tokio::time::sleep(ms(200)).await;
        assert_eq!(rig.legs("prefill", outcome), 1.0, "{pieces}");
        assert_eq!(rig.p[0].log.conns()[0].closed_at.is_some(), closed);
        if closed {
            assert!((3950..4100).contains(&between(done, rig.wait_left(&rig.p[0]).await)));
        }
        rig.done().await;
    }
}

fn in_stream(events: &[&str]) -> Vec<Step> {
    let events = events.iter().map(|e| (*e).to_owned().into()).collect();
    Response::new(200, Body::Chunked(events)).header("content-type", "text/event-stream").into_steps()
}

const ERROR: &str = "data: {\"error\":{\"message\":\"Internal server error\",\"code\":500}}\n\n";
const ROLE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

#[tokio::test(start_paused = true)]
async fn an_error_event_before_the_first_token_is_a_complete_5xx() {
    for (kind, proto, _) in WAYS {
        let failing = || chat(after(ms(40), in_stream(&[ROLE, ERROR, DONE])));
        let alone = rig(kind, vec![good_p(kind)], vec![failing()]);
        let reply = alone.ask(proto, true).await;
        assert_eq!(
            (reply.status, reply.json()["error"]["message"].as_str()),
            (500, Some("Internal server error"))
        );
        assert_eq!(alone.legs("decode", "error"), 1.0);
        alone.done().await;
        let two = rig(kind, vec![good_p(kind)], vec![failing(), good_d()]);
        let reply = two.ask(proto, true).await;
        assert_eq!((reply.status, reply.complete, two.retries("server_error")), (200, true, 1.0));
        assert_eq!(two.counts(), (vec![2], vec![1, 1]), "a new attempt, new parameters");
        // An answer that began and was an error all along is no execution.
        assert_pair_invariants(&two, &[&two.p[0], &two.d[0]], &[&two.d[1]]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_event_or_an_abort_after_the_first_token_passes_untouched() {
    let abort = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"abort\"}]}\n\n";
    for (kind, proto, _) in WAYS {
        for last in [ERROR, abort] {
            let events = [ROLE, &content_event("a"), last, DONE];
            let rig = rig(kind, vec![good_p(kind)], vec![chat(after(ms(40), in_stream(&events)))]);
            let reply = rig.ask(proto, true).await;
            assert_eq!((reply.status, reply.text()), (200, events.concat()));
            assert_eq!((rig.legs("decode", "error"), rig.legs("prefill", "ok")), (1.0, 1.0));
            assert_eq!(rig.scrape().sum("tandem_requests_total", &[("outcome", "upstream_error")]), 1.0);
            rig.done().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_prefills_error_in_its_stream_ends_the_decode_too() {
    let rig = rig(SGLANG, vec![chat(after(ms(20), in_stream(&[ERROR, DONE])))], vec![chat(Step::Stall)]);
    let reply = rig.ask(H1, true).await;
    assert_eq!((reply.status, reply.json()["error"]["code"].as_u64()), (500, Some(500)));
    assert_eq!((rig.legs("prefill", "error"), rig.legs("prefill", "ok")), (1.0, 0.0));
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn the_access_line_names_both_engines_and_the_prefills_time() {
    for kind in KINDS {
        let rig = rig(kind, vec![good_p(kind)], vec![good_d()]);
        let mut client = rig.client().await;
        client.request(post(CHAT, &[], body(true))).await.unwrap();
        client.close();
        tokio::time::sleep(ms(10)).await;
        let line = &rig.router.access_lines()[0];
        assert_eq!(
            (line["prefill"].as_str(), line["endpoint"].as_str()),
            (Some("http://p0:80"), Some("http://d0:80"))
        );
        assert!((20_000..30_000).contains(&line["prefill_us"].as_u64().unwrap()), "{line}");
        let scrape = rig.scrape();
        for role in ["prefill", "decode"] {
            assert_eq!(scrape.sum("tandem_leg_duration_seconds_count", &[("role", role)]), 1.0);
            assert_eq!(scrape.sum("tandem_leg_time_to_first_byte_seconds_count", &[("role", role)]), 1.0);
        }
        assert_eq!(scrape.sum("tandem_handoff_seconds_count", &[]), if kind == NIXL { 1.0 } else { 0.0 });
        rig.done().await;
    }
}
