//! `kv_transfer_params` as vLLM reads them. What it does not check kills it, and here too.

use serde_json::Value;

/// What a request's parameters ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing: the engine computes by itself.
    Local,
    /// Compute, keep the blocks, say where they are.
    Keep,
    /// Pull what another engine kept.
    Pull(Remote),
    /// The scheduler throws and takes the engine with it.
    Fatal,
}

/// Where blocks are, as the prefill said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) blocks: Vec<u32>,
    pub(super) engine: String,
    pub(super) request: String,
    pub(super) host: String,
    pub(super) port: u16,
}

/// Not an object and not null: the message of the engine's 400.
pub(super) fn check(params: &Value) -> Result<(), String> {
    if params.is_object() || params.is_null() {
        return Ok(());
    }
    let shown = match params {
        Value::String(text) => format!("'{text}'"),
        other => other.to_string(),
    };
    Err(format!(
        "1 validation error:\n  {{'type': 'dict_type', 'loc': 'body.kv_transfer_params', 'msg': 'Input should be a valid \
         dictionary', 'input': {shown}}}"
    ))
}

/// Reads parameters for a prompt that needs `needed` blocks.
pub(super) fn plan(params: &Value, needed: u32) -> Plan {
    let flag = |key: &str| params[key].as_bool().unwrap_or(false);
    if flag("do_remote_prefill") {
        return match remote(params) {
            // Fewer blocks than the prompt has: an assertion of the worker. More is not noticed at all.
            Some(remote) if remote.blocks.len() < needed as usize => Plan::Fatal,
            Some(remote) => Plan::Pull(remote),
            None => Plan::Fatal,
        };
    }
    if flag("do_remote_decode") { Plan::Keep } else { Plan::Local }
}

fn remote(params: &Value) -> Option<Remote> {
    let text = |key: &str| params[key].as_str().map(str::to_owned);
    let group = params["remote_block_ids"].as_array()?.first()?.as_array()?;
    let block = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
    Some(Remote {
        blocks: group.iter().map(block).collect::<Option<_>>()?,
        engine: text("remote_engine_id")?,
        request: text("remote_request_id")?,
        host: text("remote_host")?,
        port: params["remote_port"].as_u64().and_then(|port| u16::try_from(port).ok())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn full() -> Value {
        json!({"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [[1, 2]],
               "remote_engine_id": "e", "remote_request_id": "r", "remote_host": "h", "remote_port": 5})
    }

    #[test]
    fn harmless_parameters_are_ignored() {
        for params in [json!(null), json!({}), json!({"x": 1}), json!({"do_remote_prefill": false})] {
            assert_eq!((check(&params), plan(&params, 1)), (Ok(()), Plan::Local), "{params}");
        }
        assert_eq!(plan(&json!({"do_remote_decode": true}), 1), Plan::Keep);
    }

    #[test]
    fn a_missing_key_and_a_prompt_that_is_too_long_are_fatal() {
        assert!(matches!(plan(&full(), 2), Plan::Pull(_)));
        assert!(matches!(plan(&full(), 1), Plan::Pull(_)), "shorter is not noticed");
        assert_eq!(plan(&full(), 3), Plan::Fatal);
        for key in ["remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host", "remote_port"]
        {
            let mut params = full();
            params.as_object_mut().unwrap().remove(key);
            assert_eq!(plan(&params, 1), Plan::Fatal, "without {key}");
        }
    }

    #[test]
    fn a_string_is_refused_in_the_recorded_words() {
        assert!(check(&json!("x")).unwrap_err().ends_with("'input': 'x'}"));
    }
}
