//! What the engine reads of a request's body, and what it refuses there.

use serde_json::Value;

use super::config::{EngineConfig, Role, Wire};
use super::job::{Failure, Finish};
use super::prompt::{self, Prompt};
use super::sglang::room::{self, Meeting};
use super::vllm;

/// The three ways to ask for text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Chat,
    Completions,
    /// SGLang's own.
    Generate,
}

/// One request, as the engine understood it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) api: Api,
    /// The answer's id.
    pub(super) id: String,
    /// The engine's own: vLLM adds a random end to the other, so that equal ids of clients do not meet.
    pub(super) rid: String,
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) prompts: Vec<Prompt>,
    /// Whether the prompts came as a list (`/generate` answers in kind).
    pub(super) listed: bool,
    pub(super) samples: u32,
    max_tokens: Option<u32>,
    /// Why it ends where it names no limit.
    otherwise: Finish,
    /// SGLang: where each prompt meets its other half. Empty on a plain engine.
    pub(super) meetings: Vec<Meeting>,
    /// vLLM.
    pub(super) params: Value,
}

impl Request {
    /// `hex` makes so many random digits: for an id where the request brings none.
    pub(super) fn read(
        config: &EngineConfig,
        api: Api,
        headers: &http::HeaderMap,
        body: &[u8],
        hex: impl Fn(usize) -> String,
    ) -> Result<Self, Failure> {
        if config.wire == Wire::Vllm && !is_json(headers) {
            return Err(invalid(config, "Unsupported Media Type: Only 'application/json' is allowed"));
        }
        let body: Value =
            serde_json::from_slice(body).map_err(|error| invalid(config, &error.to_string()))?;
        let missing =
            |key: &str| invalid(config, &format!("'loc': ('body', '{key}'), 'msg': 'Field required'"));
        let (found, key) = match api {
            Api::Chat => (prompt::chat(&body, config.seed), "messages"),
            Api::Completions => (prompt::plain(&body["prompt"], config.seed), "prompt"),
            Api::Generate => (prompt::any(&body, config.seed), "text"),
        };
        let prompts = found.filter(|prompts| !prompts.is_empty()).ok_or_else(|| missing(key))?;
        let sampling = if api == Api::Generate { &body["sampling_params"] } else { &body };
        let id = match config.wire {
            Wire::Sglang => sglang_rid(&body).unwrap_or_else(|| hex(32)),
            Wire::Vllm => vllm_id(api, headers).unwrap_or_else(|| format!("{}{}", prefix(api), hex(16))),
        };
        let rid = match (config.wire, api) {
            (Wire::Sglang, _) => id.clone(),
            (Wire::Vllm, Api::Completions) => format!("{id}-0-{}", hex(8)),
            (Wire::Vllm, _) => format!("{id}-{}", hex(8)),
        };
        let request = Self {
            api,
            model: body["model"].as_str().unwrap_or(&config.model).to_owned(),
            stream: body["stream"].as_bool().unwrap_or(false),
            include_usage: body["stream_options"]["include_usage"].as_bool().unwrap_or(false),
            listed: is_list(&body),
            samples: number(&sampling["n"]).unwrap_or(1).clamp(1, 128),
            max_tokens: max_tokens(api, &body),
            otherwise: if sampling["ignore_eos"] == true { Finish::Length } else { Finish::Stop },
            meetings: room::meetings(config, &body, &id, prompts.len())?,
            params: body["kv_transfer_params"].clone(),
            prompts,
            id,
            rid,
        };
        if config.wire == Wire::Vllm {
            vllm::check(config, &request, &body)?;
        }
        Ok(request)
    }

    /// How many tokens it makes, and why it ends there.
    pub(super) fn limit(&self, config: &EngineConfig) -> (u32, Finish) {
        // An SGLang prefill answers one token whatever it is asked for.
        if config.wire == Wire::Sglang && config.role == Role::Prefill {
            return (1, Finish::Length);
        }
        match self.max_tokens {
            Some(limit) => (limit.max(1), Finish::Length),
            None => (config.default_tokens.max(1), self.otherwise),
        }
    }

    pub(super) fn choices(&self) -> usize {
        self.prompts.len() * self.samples as usize
    }

    pub(super) fn prompt_tokens(&self) -> u64 {
        self.prompts.iter().map(|prompt| u64::from(prompt.tokens)).sum()
    }

    pub(super) fn max_tokens(&self) -> Option<u32> {
        self.max_tokens
    }
}

/// `max_completion_tokens` beats `max_tokens`, as measured.
fn max_tokens(api: Api, body: &Value) -> Option<u32> {
    match api {
        Api::Chat => number(&body["max_completion_tokens"]).or_else(|| number(&body["max_tokens"])),
        Api::Completions => number(&body["max_tokens"]),
        Api::Generate => number(&body["sampling_params"]["max_new_tokens"]),
    }
}

pub(super) fn number(value: &Value) -> Option<u32> {
    value.as_u64().map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}

/// The media type that vLLM's front end insists on.
fn is_json(headers: &http::HeaderMap) -> bool {
    let kind =
        headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn is_list(body: &Value) -> bool {
    let list =
        |key: &str| body[key].as_array().is_some_and(|items| !items.first().is_some_and(Value::is_u64));
    ["prompt", "text", "input_ids"].into_iter().any(list)
}

fn sglang_rid(body: &Value) -> Option<String> {
    let rid = if body["rid"].is_array() { &body["rid"][0] } else { &body["rid"] };
    rid.as_str().map(str::to_owned)
}

fn vllm_id(api: Api, headers: &http::HeaderMap) -> Option<String> {
    let id = headers.get("x-request-id")?.to_str().ok()?;
    Some(format!("{}{id}", prefix(api)))
}

/// What vLLM's ids begin with.
fn prefix(api: Api) -> &'static str {
    if api == Api::Completions { "cmpl-" } else { "chatcmpl-" }
}

fn invalid(config: &EngineConfig, what: &str) -> Failure {
    let mut failure = Failure::bad(format!("1 validation error:\n  {what}"));
    if config.wire == Wire::Vllm {
        failure.kind = "Bad Request";
    }
    failure
}
