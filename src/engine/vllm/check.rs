//! vLLM's front end: what it refuses before the engine sees the request, in the recorded words.

use std::sync::Arc;

use serde_json::Value;

use super::params::{self, Plan};
use crate::engine::client;
use crate::engine::config::EngineConfig;
use crate::engine::core::Core;
use crate::engine::job::Failure;
use crate::engine::request::{Request, number};

pub(in crate::engine) fn check(
    config: &EngineConfig,
    request: &Request,
    body: &Value,
) -> Result<(), Failure> {
    if request.model != config.model {
        let message =
            format!("The model `{}` does not exist. Valid aliases: {}.", request.model, config.model);
        return Err(Failure { status: 404, kind: "NotFoundError", message, param: Some("model") });
    }
    if let Err(message) = params::check(&request.params) {
        return Err(invalid(message, Some("body.kv_transfer_params")));
    }
    if body.get("stream_options").is_some_and(|options| !options.is_null()) && !request.stream {
        let message = "Stream options can only be defined when `stream=True`.";
        return Err(invalid(
            format!(
                "1 validation error:\n  {{'type': 'value_error', 'loc': ('body',), 'msg': 'Value error, {message}'}}"
            ),
            None,
        ));
    }
    if let (Some(least), Some(most)) = (number(&body["min_tokens"]), request.max_tokens())
        && least > most
    {
        return Err(Failure::bad(format!(
            "min_tokens must be less than or equal to max_tokens={most}, got {least}."
        )));
    }
    if request.max_tokens() == Some(0) {
        return Err(Failure::bad("max_tokens must be at least 1, got 0."));
    }
    let greedy = body["temperature"].as_f64() == Some(0.0);
    if greedy && request.samples > 1 {
        return Err(Failure::bad(format!(
            "n must be 1 when using greedy sampling, got {}.",
            request.samples
        )));
    }
    Ok(())
}

fn invalid(message: String, param: Option<&'static str>) -> Failure {
    Failure { status: 400, kind: "Bad Request", message, param }
}

/// A decode that refuses a request tells the prefill, which then frees the blocks at once.
pub(in crate::engine) fn refused(core: &Arc<Core>, body: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return };
    let Plan::Pull(remote) = params::plan(&body["kv_transfer_params"], 0) else { return };
    let core = Arc::clone(core);
    core.tasks.clone().spawn_light(async move {
        let path = "/mock/kv/release";
        // A prefill that is gone has nothing to free.
        let _ = client::post(&core, &remote.host, remote.port, path, remote.request.into_bytes()).await;
    });
}
