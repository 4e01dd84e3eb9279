//! What a pair leaves in the client's trace and in the access line.

use tandem::testkit::engine::EngineHandle;
use tandem::testkit::engine::openai::error;
use tandem::testkit::fixtures::post;

use super::rig::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn sent(engine: &EngineHandle) -> Vec<String> {
    let header =
        |name: &str, at: usize| engine.log.requests_to(CHAT)[at].headers.get(name).map(str::to_owned);
    (0..engine.log.requests_to(CHAT).len()).filter_map(|at| header("traceparent", at)).collect()
}

#[tokio::test(start_paused = true)]
async fn both_legs_of_every_attempt_are_child_spans_of_their_own() {
    for (kind, proto, stream) in WAYS {
        let rig = rig(kind, vec![chat(error(500, "x")), good_p(kind)], vec![good_d()]);
        let lines = [&*format!("traceparent: 00-{TRACE}-{PARENT}-01"), "tracestate: a=1"];
        let reply = rig.send(proto, CHAT, &lines, &body(stream)).await;
        assert_eq!(reply.status, 200);
        let all: Vec<String> = rig.p.iter().chain(&rig.d).flat_map(sent).collect();
        let legs = if kind == SGLANG { 4 } else { 3 };
        let mut spans: Vec<&str> = all
            .iter()
            .map(|value| {
                let span = value.strip_prefix(&format!("00-{TRACE}-")).and_then(|v| v.strip_suffix("-01"));
                span.unwrap_or_else(|| panic!("{value}"))
            })
            .collect();
        spans.push(PARENT);
        spans.sort_unstable();
        spans.dedup();
        assert_eq!(spans.len(), legs + 1, "{all:?}");
        let state = rig.d[0].log.requests_to(CHAT)[0].headers.get("tracestate").map(str::to_owned);
        assert_eq!(state.as_deref(), Some("a=1"));
        let line = rig.router.access_lines().remove(0);
        assert_eq!(line["trace_id"], TRACE);
        for (engine, field) in [(&rig.p[1], "prefill_span_id"), (&rig.d[0], "decode_span_id")] {
            let last = sent(engine).pop().unwrap();
            assert_eq!(line[field], last[36..52], "{field}");
        }
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_trace_that_is_none_passes_as_it_came() {
    for value in ["00-1", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"] {
        let rig = rig(SGLANG, vec![good_p(SGLANG)], vec![good_d()]);
        rig.send(H1, CHAT, &[&format!("traceparent: {value}")], &body(true)).await;
        assert_eq!((sent(&rig.p[0]), sent(&rig.d[0])), (vec![value.to_owned()], vec![value.to_owned()]));
        assert!(rig.router.access_lines()[0].get("trace_id").is_none());
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_access_line_has_the_times_of_both_legs_and_the_rows_of_the_retries() {
    for kind in KINDS {
        let rig = rig_with(
            kind,
            vec![chat(error(429, "x")), good_p(kind), chat(error(500, "x"))],
            vec![good_d()],
            |c| {
                c.services[0].retries.max = 2;
            },
        );
        let mut client = rig.client().await;
        assert_eq!(client.request(post(CHAT, &[], body(true))).await.unwrap().status(), 200);
        client.close();
        tokio::time::sleep(secs(1)).await;
        let line = rig.router.access_lines().remove(0);
        assert_eq!(line["retried"], "prefill_busy,prefill_server_error");
        assert!(line.get("budget_exhausted").is_none());
        assert_eq!(line["decode_us"].as_u64().map(|us| us / 1000), Some(40), "{line}");
        assert_eq!(line["prefill_us"].as_u64().map(|us| us / 1000), Some(20), "{line}");
        assert_eq!(line.get("handoff_us").is_some(), kind != SGLANG);
        let of = |role: &str| rig.scrape().sum("tandem_retries_total", &[("role", role)]);
        assert_eq!((of("prefill"), of("decode")), (2.0, 0.0));
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_access_line_says_that_the_budget_was_used_up() {
    let rig = rig_with(SGLANG, vec![chat(error(500, "x")); 2], vec![good_d()], |c| {
        c.services[0].retries.floor = 0;
        c.services[0].retries.budget = 0.0;
    });
    assert_eq!(rig.ask(H1, true).await.status, 500);
    let line = rig.router.access_lines().remove(0);
    assert_eq!((line["budget_exhausted"].as_bool(), line["attempts"].as_u64()), (Some(true), Some(1)));
    assert!(line.get("retried").is_none());
    rig.done().await;
}
