//! The drift guard: an engine whose own word contradicts its labels gets no request.

#![expect(clippy::float_cmp, reason = "whole numbers, written and read as such")]

use std::time::Duration;

use serde_json::json;
use tandem::admin::EndpointStatus;
use tandem::config::EngineKind;
use tandem::testkit::engine::openai::{chat_json, kv_answer};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, Response, Script, Step};
use tokio::time::sleep;

use super::rig::*;

const SGLANG: EngineKind = EngineKind::Sglang;
const MIXED: Is = Is("mixed", "", "kv");

/// SGLang's `/server_info`, the part that counts here.
fn sglang(mode: &str, page_size: u32) -> Response {
    let info = json!({"disaggregation_mode": mode, "page_size": page_size, "version": "0.5.23"});
    Response::json(200, info.to_string())
}

/// Serves, and answers `/server_info` like this.
fn informed(info: impl IntoSteps) -> Script {
    Script::always(chat_json("x")).on("/server_info", info)
}

/// A vLLM engine of any role with KV of this type.
fn vllm(dtype: &str) -> Script {
    let page =
        format!("vllm:cache_config_info{{block_size=\"16\",cache_dtype=\"{dtype}\",engine=\"0\"}} 1.0\n");
    let serve = Script::new(|request| {
        if request.json()["kv_transfer_params"]["do_remote_decode"] == true {
            Response::json(200, kv_answer("x").to_string()).into_steps()
        } else {
            chat_json("x").into_steps()
        }
    });
    serve
        .on("/metrics", Response::text(200, page))
        .on("/version", Response::json(404, r#"{"detail":"Not Found"}"#))
}

impl Rig {
    /// One more ready Pod `e{n}`.
    fn joins(&mut self, is: Is, script: Script) -> usize {
        let n = self.engines.len();
        let ip = format!("192.0.2.{}", n + 1);
        self.engines.push((is, Engine::in_memory(&self.net, &ip, script)));
        self.api.create(pod(n, is, &ip));
        n
    }

    /// Another process, which says this.
    fn restarts(&self, n: usize, times: u32, script: Script) {
        self.engines[n].1.set_script(script);
        self.api.update("default", &format!("e{n}"), |pod| {
            pod["status"]["containerStatuses"] = json!([{ "name": "engine", "restartCount": times }]);
        });
    }

    fn status(&self, n: usize) -> Option<EndpointStatus> {
        let url = format!("http://192.0.2.{}:8000", n + 1);
        self.router.admin.endpoints.list().endpoints.into_iter().find(|e| e.url == url && !e.gone)
    }

    async fn is(&self, n: usize, reason: Option<&str>) {
        let what = format!("e{n}: {reason:?}");
        let holds = || self.status(n).is_some_and(|e| e.reason.as_deref() == reason);
        self.until(&what, holds).await;
    }

    fn detail(&self, n: usize) -> String {
        self.status(n).and_then(|e| e.detail).unwrap_or_default()
    }

    fn engine(&self, n: usize) -> &EngineHandle {
        &self.engines[n].1
    }

    fn chats(&self, n: usize) -> usize {
        self.engine(n).log.requests_to(CHAT).len()
    }

    fn drifts(&self, fact: &str) -> f64 {
        self.router.scrape().get("tandem_engine_drift_total", &[("fact", fact), ("service", "chat")]).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_with_other_pages_gets_no_request_and_says_why() {
    let mut rig = Rig::start(SGLANG, &[], None, |_| {}).await;
    for _ in 0..2 {
        let n = rig.joins(MIXED, informed(sglang("null", 1)));
        rig.is(n, None).await;
    }
    let odd = rig.joins(MIXED, informed(sglang("null", 64)));
    rig.is(odd, Some("engine_drift")).await;
    rig.ask_well(20).await;
    assert_eq!((rig.chats(odd), rig.chats(0) + rig.chats(1)), (0, 20));
    assert_eq!(rig.detail(odd), "the engine reports page_size 64, others of pairing token kv report 1");
    let by_reason = [("reason", "engine_drift"), ("service", "chat")];
    rig.until("counted", || rig.router.scrape().get("tandem_endpoints", &by_reason) == Some(1.0)).await;
    sleep(Duration::from_mins(2)).await;
    let asked = rig.engine(odd).log.requests_to("/server_info").len();
    assert!(asked > 5, "asked again, beside everything: {asked}");
    assert_eq!(rig.drifts("page_size"), 1.0, "and counted once");
    assert_eq!(rig.engine(0).log.requests_to("/server_info").len(), 1, "those that agree are left alone");
    rig.end().await;
}

/// Prefill and decode alike, and the majority of both decides.
#[tokio::test(start_paused = true)]
async fn pairs_of_one_token_have_one_kv_format_and_the_majority_says_which() {
    let (p, d) = (Is("prefill", "p1", "kv"), Is("decode", "d1", "kv"));
    let mut rig = Rig::start(NIXL, &[], None, |_| {}).await;
    for is in [p, d] {
        let n = rig.joins(is, vllm("auto"));
        rig.is(n, None).await;
    }
    let odd = rig.joins(Is("decode", "d2", "kv"), vllm("fp8_e4m3"));
    rig.is(odd, Some("engine_drift")).await;
    // Another token is another format.
    let other = rig.joins(Is("decode", "d3", "kv8"), vllm("fp8_e4m3"));
    rig.is(other, None).await;
    rig.ask_well(10).await;
    assert_eq!((rig.chats(1), rig.chats(odd)), (10, 0));
    for is in [Is("prefill", "p2", "kv"), Is("decode", "d2", "kv")] {
        rig.joins(is, vllm("fp8_e4m3"));
    }
    rig.is(0, Some("engine_drift")).await;
    rig.is(1, Some("engine_drift")).await;
    rig.is(odd, None).await;
    rig.ask_well(10).await;
    assert_eq!((rig.chats(0), rig.chats(1)), (10, 10), "as before");
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn it_is_over_when_the_engine_restarts_or_says_something_else() {
    let mut rig = Rig::start(SGLANG, &[], None, |_| {}).await;
    let one = rig.joins(MIXED, informed(sglang("null", 1)));
    rig.is(one, None).await;
    let odd = rig.joins(MIXED, informed(sglang("null", 64)));
    rig.is(odd, Some("engine_drift")).await;
    rig.restarts(odd, 1, informed(sglang("null", 1)));
    rig.is(odd, None).await;
    rig.ask_well(10).await;
    assert!(rig.chats(odd) > 0);
    // What it said before its restart is no word of the new process.
    rig.restarts(odd, 2, informed(sglang("null", 64)));
    rig.is(odd, Some("engine_drift")).await;
    let before = rig.chats(odd);
    rig.ask_well(10).await;
    assert_eq!(rig.chats(odd), before);
    rig.engine(odd).set_script(informed(sglang("null", 1)));
    sleep(Duration::from_secs(17)).await;
    rig.is(odd, None).await;
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn with_the_guard_off_engines_are_not_asked() {
    let mut rig = Rig::start(SGLANG, &[], None, |service| service.cohorts_guard = false).await;
    // No version either: that question is of another kind.
    for (n, size) in [1, 64].into_iter().enumerate() {
        rig.joins(MIXED, informed(sglang("prefill", size)));
        rig.is(n, None).await;
    }
    rig.ask_well(10).await;
    assert!(rig.chats(0) > 0 && rig.chats(1) > 0);
    assert!(rig.engines.iter().all(|(_, engine)| engine.log.requests_to("/server_info").is_empty()));
    rig.end().await;
}

/// No answer, or none that can be read, contradicts nothing. One that hangs is waited for only a short time.
#[tokio::test(start_paused = true)]
async fn engines_that_do_not_say_are_taken_at_their_labels() {
    let mut rig = Rig::start(SGLANG, &[], None, |_| {}).await;
    let answers = [
        sglang("null", 1).into_steps(),
        Response::json(404, r#"{"detail":"Not Found"}"#).into_steps(),
        Response::text(200, "hello").into_steps(),
        Response::text(500, "no").into_steps(),
        Step::Reset.into_steps(),
        Step::Stall.into_steps(),
    ];
    for answer in answers {
        let n = rig.joins(MIXED, informed(answer));
        rig.is(n, None).await;
    }
    rig.ask_well(30).await;
    for n in 0..6 {
        assert!(rig.chats(n) > 0, "e{n}");
    }
    // It says later what it is.
    rig.engine(5).set_script(informed(sglang("null", 64)));
    sleep(Duration::from_secs(20)).await;
    rig.is(5, Some("engine_drift")).await;
    rig.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_of_another_role_than_its_label_gets_no_request() {
    let mut rig = Rig::start(SGLANG, &[], None, |_| {}).await;
    let good = rig.joins(Is("mixed", "", ""), informed(sglang("null", 1)));
    let bad = rig.joins(Is("mixed", "", ""), informed(sglang("prefill", 1)));
    rig.is(good, None).await;
    rig.is(bad, Some("engine_drift")).await;
    assert_eq!(rig.detail(bad), "the engine reports role prefill, its label says mixed");
    rig.ask_well(10).await;
    assert_eq!((rig.chats(good), rig.chats(bad)), (10, 0));
    assert_eq!(rig.drifts("role"), 1.0);
    rig.end().await;
}
