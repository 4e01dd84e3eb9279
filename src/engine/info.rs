//! What an engine says of itself.

use super::config::{EngineConfig, Role, Wire};
use super::core::{Core, Stage};
use super::json::{Json, ordered};
use crate::types::clock::wall_ms;

pub(super) const VLLM_VERSION: &str = "0.32.0";
const SGLANG_VERSION: &str = "0.5.23";

pub(super) fn models(config: &EngineConfig) -> Json {
    let (model, created) = (config.model.as_str(), wall_ms() / 1000);
    let one = match config.wire {
        Wire::Sglang => ordered! {
            "id": model, "object": "model", "created": created, "owned_by": "sglang", "root": model, "parent": (),
            "max_model_len": 4096_u32,
        },
        Wire::Vllm => ordered! {
            "id": model, "object": "model", "created": created, "owned_by": "vllm", "root": model, "parent": (),
            "max_model_len": 4096_u32, "permission": Vec::<Json>::new(),
        },
    };
    ordered! { "object": "list", "data": vec![one] }
}

/// SGLang's `disaggregation_mode`.
pub(super) fn mode(config: &EngineConfig) -> &'static str {
    if config.role == Role::Plain { "null" } else { config.role.as_str() }
}

/// The part of SGLang's answer that routers read.
pub(super) fn server(core: &Core) -> Json {
    let config = &core.config;
    ordered! {
        "model_path": config.model.as_str(), "tokenizer_path": config.model.as_str(), "context_length": 4096_u32,
        "max_running_requests": config.max_running, "max_total_tokens": config.pages * config.page_size,
        "page_size": config.page_size, "kv_cache_dtype": "auto", "revision": (), "dp_size": 1_u32, "tp_size": 1_u32,
        "served_model_name": config.model.as_str(), "disaggregation_mode": mode(config),
        "disaggregation_transfer_backend": "mooncake", "disaggregation_bootstrap_port": core.side_port.get().copied(), "enable_http2": false,
        "kv_events_config": (), "status": "ready", "internal_states": vec![ordered! { "max_total_num_tokens":
            config.pages * config.page_size }], "version": SGLANG_VERSION,
    }
}

pub(super) fn model(core: &Core) -> Json {
    let model = core.config.model.as_str();
    ordered! {
        "model_path": model, "served_model_name": model, "tokenizer_path": model, "is_generation": true,
        "preferred_sampling_params": (), "weight_version": "default", "load_format": "auto", "reasoning_parser": (),
        "tool_call_parser": (), "disaggregation_mode": mode(&core.config),
    }
}

/// vLLM's count of requests in its server.
pub(super) fn load(core: &Core) -> Json {
    ordered! { "server_load": core.live_jobs() }
}

/// Waiting, in the words of SGLang's scheduler: whatever has no KV yet.
pub(super) fn waiting(core: &Core) -> usize {
    [Stage::Queued, Stage::Bootstrap, Stage::Prealloc].into_iter().map(|stage| core.stages.get(stage)).sum()
}

pub(super) fn loads(core: &Core) -> Json {
    let (config, held) = (&core.config, core.sglang.held());
    let now = wall_ms();
    let capacity = config.pages * config.page_size;
    let used = held.pages_used * config.page_size as usize;
    let usage = held.pages_used as f64 / held.pages_total.max(1) as f64;
    let disaggregation = ordered! {
        "mode": mode(config),
        "prefill_bootstrap_queue_reqs": core.stages.get(Stage::Bootstrap),
        "prefill_inflight_queue_reqs": core.stages.get(Stage::Inflight),
        "decode_prealloc_queue_reqs": core.stages.get(Stage::Prealloc),
        "decode_transfer_queue_reqs": core.stages.get(Stage::Transfer),
    };
    let one = ordered! {
        "timestamp": now as f64 / 1000.0, "dp_rank": 0_u32, "num_running_reqs": core.stages.get(Stage::Running),
        "num_waiting_reqs": waiting(core), "num_waiting_uncached_tokens": 0_u32, "num_used_tokens": used,
        "num_total_tokens": used, "num_active_tokens": used, "num_prealloc_ready_tokens": 0_u32,
        "max_total_num_tokens": capacity, "max_running_requests": config.max_running, "token_usage": usage,
        "gen_throughput": 0.0, "cache_hit_rate": 0.0, "utilization": -1.0, "total_prefill_uncached_tokens": 0_u32,
        "total_prefill_busy_us": 0_u32, "decode_moments": (),
        "memory": ordered! { "weight_gb": 0.0, "kv_cache_gb": 0.0, "graph_gb": 0.0, "token_capacity": capacity },
        "disaggregation": disaggregation,
    };
    ordered! {
        "timestamp": rfc3339(now), "version": SGLANG_VERSION, "accelerator": (), "num_accelerators": 1_u32,
        "loads": vec![one],
    }
}

/// UTC with microseconds, from milliseconds since the epoch.
fn rfc3339(ms: u64) -> String {
    let (days, in_day) = (ms / 86_400_000, ms % 86_400_000);
    // Days since 0000-03-01, in eras of 400 years.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let (date, month) = (of_year - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
    let year = year + era * 400 + u64::from(month <= 2);
    let (seconds, rest) = (in_day / 1000, in_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{rest:03}000+00:00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000+00:00");
        assert_eq!(rfc3339(1_795_973_109_928), "2026-11-29T17:25:09.928000+00:00");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000000+00:00");
    }
}
