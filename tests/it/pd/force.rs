//! What a drain that forces does to a pair, by side and by how far it is.

use tandem::admin::DrainChange;
use tandem::testkit::engine::Step;
use tandem::testkit::engine::openai::{ChatStream, sse_head};
use tandem::testkit::fixtures::post;
use tandem::testkit::memory::DialFault;
use tandem::testkit::wire::chunked::chunk;
use tandem::types::clock::now;

use super::rig::*;
use crate::force::order;

impl Rig {
    /// Cuts what is open on this engine now.
    async fn force(&self, name: &str) {
        let url = format!("http://{name}:80");
        let endpoint = self.router.endpoints().iter().find(|e| e.url == url).unwrap();
        let order = order(0, true);
        let changed = self.router.admin.endpoints.order(&endpoint.id.to_string(), Some(order)).await;
        assert_eq!(changed, DrainChange::Changed);
    }

    /// Legs that were cut on prefills, and on decodes.
    fn forced(&self) -> (u64, u64) {
        let of = |engines: &str| {
            let all = self.router.endpoints().iter().filter(|e| e.role.as_str() == engines);
            all.map(|e| e.forced()).sum()
        };
        (of("prefill"), of("decode"))
    }

    fn blames_nobody(&self) {
        for outcome in ["error", "timeout", "connect_failed"] {
            assert_eq!(self.legs("prefill", outcome) + self.legs("decode", outcome), 0.0, "{outcome}");
        }
        assert_eq!(self.scrape().sum("tandem_endpoint_ejections_total", &[]), 0.0);
    }

    fn outcome(&self, outcome: &str) -> f64 {
        self.scrape().sum("tandem_requests_total", &[("outcome", outcome)])
    }
}

/// The first token, and then nothing more.
fn begun() -> Vec<Step> {
    use tandem::testkit::engine::IntoSteps;
    ChatStream::new(1).then(Step::Stall).into_steps()
}

#[tokio::test(start_paused = true)]
async fn a_decode_cut_after_its_first_token_ends_its_stream_with_one_error() {
    for kind in KINDS {
        for proto in [H1, H2] {
            let rig = rig(kind, vec![good_p(kind)], vec![chat(after(ms(40), begun())), good_d()]);
            let asked = rig.ask(proto, true);
            let forced = async {
                tokio::time::sleep(secs(5)).await;
                rig.force("d0").await;
                let at = now();
                assert!(between(at, rig.wait_left(&rig.d[0]).await) < 1000);
                assert_eq!(rig.holds().iter().sum::<u64>(), 0);
            };
            let (reply, ()) = tokio::join!(asked, forced);
            assert!(reply.status == 200 && !reply.complete, "{kind:?} {proto:?}");
            let text = reply.text();
            assert!(text.matches("drain_forced").count() == 1 && !text.contains("[DONE]"), "{text}");
            assert_eq!((rig.forced(), rig.legs("decode", "cancelled")), ((0, 1), 1.0));
            assert_eq!((rig.outcome("forced"), rig.counts().1), (1.0, vec![1, 0]), "nothing is repeated");
            if kind == SGLANG {
                tokio::time::sleep(ms(300)).await;
                assert!(!rig.d[0].log.requests_to("/abort_request").is_empty());
            }
            rig.blames_nobody();
            rig.done().await;
        }
    }
}

/// It read the request: nothing is executed twice.
#[tokio::test(start_paused = true)]
async fn a_decode_cut_before_its_first_token_is_an_error_of_its_own_and_no_retry() {
    for (kind, proto, stream) in WAYS {
        let rig = rig(kind, vec![good_p(kind)], vec![chat(Step::Stall), good_d()]);
        let forced = async {
            tokio::time::sleep(secs(5)).await;
            rig.force("d0").await;
            let at = now();
            assert!(between(at, rig.wait_left(&rig.d[0]).await) < 1000);
        };
        let (reply, ()) = tokio::join!(rig.ask(proto, stream), forced);
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (503, "drain_forced"),
            "{kind:?} {proto:?} {stream}"
        );
        assert!(reply.told_not_to_retry() && reply.took < secs(6));
        assert_eq!((rig.forced(), rig.outcome("forced")), ((0, 1), 1.0));
        assert_eq!(rig.counts(), (vec![1], vec![1, 0]), "nothing is repeated");
        if kind == NIXL {
            assert_eq!(
                rig.handoffs(),
                1,
                "a cut decode may still be reading: the hand-off ends with its lease"
            );
        }
        tokio::time::sleep(secs(1)).await;
        assert_eq!(rig.legs("decode", "cancelled"), 1.0);
        rig.blames_nobody();
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_prefill_cut_before_the_first_token_is_repeated_on_another_pair() {
    for (kind, proto, stream) in WAYS {
        let rig = rig(kind, vec![chat(Step::Stall), good_p(kind)], vec![chat(Step::Stall), good_d()]);
        let forced = async {
            tokio::time::sleep(secs(5)).await;
            rig.force("p0").await;
            assert!(between(now(), rig.wait_left(&rig.p[0]).await) < 1000);
        };
        let (reply, ()) = tokio::join!(rig.ask(proto, stream), forced);
        assert!(reply.status == 200 && reply.complete && reply.took < secs(6), "{kind:?} {proto:?} {stream}");
        assert_eq!((rig.forced(), rig.retries("lost")), ((1, 0), 1.0));
        tokio::time::sleep(secs(1)).await;
        assert_eq!((rig.legs("prefill", "cancelled"), rig.legs("decode", "cancelled")), (1.0, 1.0));
        rig.blames_nobody();
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_no_other_prefill_it_is_an_error_of_its_own() {
    for kind in KINDS {
        let rig = rig(kind, vec![chat(Step::Stall)], vec![chat(Step::Stall)]);
        let forced = async {
            tokio::time::sleep(secs(5)).await;
            rig.force("p0").await;
        };
        let (reply, ()) = tokio::join!(rig.ask(H1, true), forced);
        assert_eq!((reply.status, reply.code().as_str()), (503, "drain_forced"), "{kind:?}");
        assert!(reply.told_not_to_retry());
        tokio::time::sleep(secs(1)).await;
        assert_eq!((rig.forced(), rig.outcome("forced")), ((1, 0), 1.0));
        assert_eq!(rig.holds(), [0, 0]);
        rig.blames_nobody();
        rig.done().await;
    }
}

/// SGLang: a prefill's answer may still be on its way when the decode has its KV.
#[tokio::test(start_paused = true)]
async fn a_prefill_cut_after_the_first_token_is_closed_and_the_client_notices_nothing() {
    for proto in [H1, H2] {
        let decode = chat(after(ms(40), ChatStream::new(100).gap(ms(100))));
        let rig = rig(SGLANG, vec![chat(Step::Stall)], vec![decode]);
        let forced = async {
            tokio::time::sleep(secs(2)).await;
            assert_eq!(rig.holds(), [1, 1]);
            rig.force("p0").await;
            let at = now();
            assert!(between(at, rig.wait_left(&rig.p[0]).await) < 1000);
            assert_eq!((rig.holds(), rig.forced()), (vec![0, 1], (1, 0)));
        };
        let (reply, ()) = tokio::join!(rig.ask(proto, true), forced);
        assert!(reply.status == 200 && reply.complete && reply.text().contains("[DONE]"), "{proto:?}");
        assert_eq!((rig.legs("prefill", "cancelled"), rig.legs("decode", "ok")), (1.0, 1.0));
        assert_eq!((rig.outcome("ok"), rig.handoffs()), (1.0, 0));
        rig.blames_nobody();
        rig.done().await;
    }
}

/// The engine without a guard may not lose its decode while its prefill writes: the client is answered at once, the legs are
/// not ended before the grace.
#[tokio::test(start_paused = true)]
async fn a_cut_keeps_to_the_grace_of_an_sglang_pair() {
    for name in ["p0", "d0"] {
        let rig = rig_with(SGLANG, vec![chat(Step::Stall)], vec![chat(Step::Stall)], |config| {
            config.services[0].upstream.cancel_decode_grace = Some(secs(5));
        });
        let forced = async {
            tokio::time::sleep(secs(2)).await;
            rig.force(name).await;
            now()
        };
        let (reply, at) = tokio::join!(rig.ask(H1, true), forced);
        assert_eq!((reply.status, reply.code().as_str()), (503, "drain_forced"), "{name}");
        assert!(reply.took < ms(2100), "the client does not wait for the grace: {:?}", reply.took);
        assert_eq!((rig.holds(), rig.forced().0 + rig.forced().1), (vec![1, 1], 1));
        tokio::time::sleep(ms(4800)).await;
        assert_eq!(rig.holds(), [1, 1], "{name}");
        let left = rig.wait_left(&rig.d[0]).await;
        assert!((4900..5500).contains(&between(at, left)), "{}", between(at, left));
        rig.blames_nobody();
        rig.done().await;
    }
}

/// What its prefill comes to in the grace is not that engine's doing either.
#[tokio::test(start_paused = true)]
async fn nobody_is_blamed_for_what_happens_in_the_grace() {
    let prefill = chat(after(secs(3), Step::Reset));
    let rig = rig_with(SGLANG, vec![prefill], vec![chat(Step::Stall)], |config| {
        config.services[0].upstream.cancel_decode_grace = Some(secs(5));
    });
    let forced = async {
        tokio::time::sleep(secs(2)).await;
        rig.force("p0").await;
    };
    let (reply, ()) = tokio::join!(rig.ask(H1, true), forced);
    assert_eq!(reply.code(), "drain_forced");
    tokio::time::sleep(secs(7)).await;
    assert_eq!((rig.legs("prefill", "cancelled"), rig.legs("decode", "cancelled")), (1.0, 1.0));
    rig.blames_nobody();
    rig.done().await;
}

/// The head is here, and nothing yet that proves anything.
#[tokio::test(start_paused = true)]
async fn a_vllm_leg_whose_answer_has_only_begun_is_cut_too() {
    let half = chat(vec![Step::write("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"), Step::Stall]);
    let role = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    let silent = vec![Step::write(sse_head()), Step::write(chunk(role.as_bytes())), Step::Stall];
    for (name, p, d) in [
        ("p0", vec![half, good_p(NIXL)], vec![good_d(), good_d()]),
        ("d0", vec![good_p(NIXL)], vec![chat(silent), good_d()]),
    ] {
        let rig = rig(NIXL, p, d);
        let forced = async {
            tokio::time::sleep(secs(2)).await;
            rig.force(name).await;
        };
        let (reply, ()) = tokio::join!(rig.ask(H1, true), forced);
        assert!(reply.took < ms(2500), "{name}: {:?}", reply.took);
        if name == "p0" {
            assert_eq!((reply.status, rig.forced(), rig.retries("lost")), (200, (1, 0), 1.0));
        } else {
            assert_eq!((reply.code().as_str(), rig.forced()), ("drain_forced", (0, 1)));
        }
        rig.blames_nobody();
        rig.done().await;
    }
}

/// A pair that is not connected on both sides was not sent: it is decided again, and no retry is spent.
#[tokio::test(start_paused = true)]
async fn a_pair_that_is_still_connecting_is_decided_again() {
    for kind in KINDS {
        for name in ["p0", "d0"] {
            let two = || vec![good_p(kind), good_p(kind)];
            let rig = rig_with(kind, two(), vec![good_d(), good_d()], |config| {
                config.timeouts.connect = None;
                config.services[0].retries.max = 0;
            });
            rig.net.set_fault(name, DialFault::BlackHole);
            let forced = async {
                tokio::time::sleep(secs(2)).await;
                rig.force(name).await;
            };
            let (reply, ()) = tokio::join!(rig.ask(H1, true), forced);
            assert!(reply.status == 200 && reply.complete, "{kind:?} {name}: {}", reply.text());
            assert_eq!(rig.forced(), (0, 0));
            rig.done().await;
        }
    }
}

/// The decode may have run the request, whatever became of its prefill.
#[tokio::test(start_paused = true)]
async fn with_both_sides_cut_the_decode_decides() {
    let rig = rig(SGLANG, vec![chat(Step::Stall), good_p(SGLANG)], vec![chat(Step::Stall), good_d()]);
    let forced = async {
        tokio::time::sleep(secs(2)).await;
        tokio::join!(rig.force("p0"), rig.force("d0"));
    };
    let (reply, ()) = tokio::join!(rig.ask(H1, true), forced);
    assert_eq!((reply.code().as_str(), rig.forced()), ("drain_forced", (1, 1)));
    assert_eq!(rig.counts(), (vec![1, 0], vec![1, 0]));
    tokio::time::sleep(secs(1)).await;
    rig.blames_nobody();
    rig.done().await;
}

/// A decode that only waits for its prefill is let go at the withdrawal: nothing of it is cut.
#[tokio::test(start_paused = true)]
async fn a_waiting_decode_is_replaced_and_not_cut() {
    let rig = rig(NIXL, vec![chat(after(secs(5), prefilled(NIXL)))], vec![good_d(), good_d()]);
    let mut client = rig.client().await;
    client.send(post(CHAT, &[], body(true))).await.unwrap();
    tokio::time::sleep(secs(2)).await;
    rig.force("d0").await;
    let reply = client.read_response().await.unwrap();
    assert!(reply.status() == 200 && reply.is_complete());
    assert_eq!((rig.forced(), rig.counts()), ((0, 0), (vec![1], vec![0, 1])));
    client.close();
    rig.done().await;
}
