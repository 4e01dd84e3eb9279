//! `/metrics` with the real engines' names and labels: the gauges that routers read, the counters that prove a transfer.

use std::fmt::Write as _;

use http::{HeaderValue, StatusCode, header};

use super::body::{Body, Response};
use super::config::{Role, Wire};
use super::core::{Core, Stage};
use super::info;

pub(super) fn answer(core: &Core) -> Response {
    let text = match core.config.wire {
        Wire::Sglang => sglang(core),
        Wire::Vllm => vllm(core),
    };
    let mut response = Body::text(StatusCode::OK, &text);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[derive(Default)]
struct Page {
    text: String,
    typed: Vec<String>,
}

impl Page {
    fn line(&mut self, kind: &str, name: &str, labels: &str, value: f64) {
        if !self.typed.iter().any(|typed| typed == name) {
            let _ = writeln!(self.text, "# TYPE {name} {kind}");
            self.typed.push(name.to_owned());
        }
        let _ = writeln!(self.text, "{name}{{{labels}}} {value:?}");
    }

    fn gauge(&mut self, name: &str, labels: &str, value: f64) {
        self.line("gauge", name, labels, value);
    }

    fn counter(&mut self, name: &str, labels: &str, value: u64) {
        self.line("counter", name, labels, value as f64);
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn sglang(core: &Core) -> String {
    let (config, held, counts) = (&core.config, core.sglang.held(), &core.counts);
    let kind = if config.role == Role::Plain { "unified" } else { config.role.as_str() };
    let model = escaped(&config.model);
    let labels = format!(
        "engine_type=\"{kind}\",model_name=\"{model}\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\""
    );
    let stage = |stage| core.stages.get(stage) as f64;
    let mut page = Page::default();
    let gauges = [
        ("num_running_reqs", stage(Stage::Running)),
        ("num_queue_reqs", info::waiting(core) as f64),
        ("token_usage", held.pages_used as f64 / held.pages_total.max(1) as f64),
        ("num_used_tokens", (held.pages_used * config.page_size as usize) as f64),
        ("num_prefill_bootstrap_queue_reqs", stage(Stage::Bootstrap)),
        ("num_prefill_inflight_queue_reqs", stage(Stage::Inflight)),
        ("num_decode_prealloc_queue_reqs", stage(Stage::Prealloc)),
        ("num_decode_transfer_queue_reqs", stage(Stage::Transfer)),
        ("num_decode_deferred_kv_release_reqs", f64::from(u8::from(held.pages_deferred > 0))),
    ];
    for (name, value) in gauges {
        page.gauge(&format!("sglang:{name}"), &labels, value);
    }
    page.counter("sglang:num_bootstrap_failed_reqs_total", &labels, counts.bootstrap_failed.get());
    page.counter("sglang:num_transfer_failed_reqs_total", &labels, counts.failed_transfers.get());
    page.counter("sglang:prompt_tokens_total", &labels, counts.prompt_tokens.get());
    page.counter("sglang:generation_tokens_total", &labels, counts.generation_tokens.get());
    page.text
}

fn vllm(core: &Core) -> String {
    let (config, kept, counts) = (&core.config, core.vllm.kept(), &core.counts);
    let model = escaped(&config.model);
    let labels = format!("engine=\"0\",model_name=\"{model}\"");
    let with = |more: &str| format!("{labels},{more}");
    let (queued, pulling) = (core.stages.get(Stage::Queued) as f64, core.stages.get(Stage::Transfer) as f64);
    let mut page = Page::default();
    page.gauge("vllm:num_requests_running", &labels, core.stages.get(Stage::Running) as f64);
    page.gauge("vllm:num_requests_waiting", &labels, queued + pulling);
    page.gauge("vllm:num_requests_waiting_by_reason", &with("reason=\"capacity\""), queued);
    page.gauge("vllm:num_requests_waiting_by_reason", &with("reason=\"deferred\""), pulling);
    for (state, value) in [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)] {
        page.gauge("vllm:engine_sleep_state", &with(&format!("sleep_state=\"{state}\"")), value);
    }
    page.gauge("vllm:kv_cache_usage_perc", &labels, kept.blocks as f64 / f64::from(kept.total.max(1)));
    let cache = format!("block_size=\"{}\",cache_dtype=\"auto\",engine=\"0\"", config.page_size);
    page.gauge("vllm:cache_config_info", &cache, 1.0);
    page.counter("vllm:external_prefix_cache_queries_total", &labels, counts.external_queries.get());
    page.counter("vllm:external_prefix_cache_hits_total", &labels, counts.external_hits.get());
    page.counter(
        "vllm:prompt_tokens_total",
        &labels,
        counts.prompt_tokens.get() + counts.external_hits.get(),
    );
    let sources = [
        ("local_compute", counts.prompt_tokens.get()),
        ("local_cache_hit", 0),
        ("external_kv_transfer", counts.external_hits.get()),
    ];
    for (source, value) in sources {
        page.counter("vllm:prompt_tokens_by_source_total", &with(&format!("source=\"{source}\"")), value);
    }
    page.counter("vllm:generation_tokens_total", &labels, counts.generation_tokens.get());
    let finished = [
        ("stop", counts.finished_stop.get()),
        ("length", counts.finished_length.get()),
        ("abort", counts.finished_abort.get()),
        ("error", counts.finished_error.get()),
        ("repetition", 0),
    ];
    for (reason, value) in finished {
        let labels = format!("engine=\"0\",finished_reason=\"{reason}\",model_name=\"{model}\"");
        page.counter("vllm:request_success_total", &labels, value);
    }
    if config.role != Role::Plain {
        page.counter("vllm:nixl_num_failed_transfers_total", &labels, counts.failed_transfers.get());
        page.counter("vllm:nixl_num_failed_notifications_total", &labels, 0);
        page.counter("vllm:nixl_num_kv_expired_reqs_total", &labels, kept.expired);
        page.counter("vllm:nixl_num_notifications_after_expiry_total", &labels, counts.stale_pulls.get());
    }
    page.text
}
