//! vLLM 0.32's shapes.

use super::{Choice, Piece, Shape, finish, made};
use crate::engine::job::Failure;
use crate::engine::json::{Json, ordered};
use crate::engine::request::Api;

const FINGERPRINT: &str = "vllm-0.32.0-b184805d";

pub(super) fn role(shape: &Shape, index: usize) -> Json {
    let delta = ordered! { "role": "assistant", "content": "" };
    let choice = ordered! { "index": index, "delta": delta, "logprobs": (), "finish_reason": () };
    let mut chunk = chunk(shape, vec![choice]);
    chunk.push(("prompt_token_ids", Json::Null));
    chunk.push(("prompt_text", Json::Null));
    Json::Map(chunk)
}

pub(super) fn token(shape: &Shape, piece: Piece<'_>) -> Json {
    let choice = match (shape.api, piece.finish) {
        (Api::Completions, _) => ordered! {
            "index": piece.index, "text": piece.text, "logprobs": (), "finish_reason": finish(piece.finish),
            "stop_reason": (), "prompt_token_ids": (), "token_ids": (),
        },
        (_, None) => ordered! {
            "index": piece.index, "delta": ordered! { "content": piece.text }, "logprobs": (), "finish_reason": (),
            "token_ids": (),
        },
        (_, Some(_)) => ordered! {
            "index": piece.index, "delta": ordered! { "content": piece.text }, "logprobs": (),
            "finish_reason": finish(piece.finish), "stop_reason": (), "token_ids": (),
        },
    };
    let mut chunk = chunk(shape, vec![choice]);
    if piece.last && !shape.include_usage {
        chunk.push(("system_fingerprint", FINGERPRINT.into()));
    }
    Json::Map(chunk)
}

pub(super) fn usage_chunk(shape: &Shape, made: u64) -> Json {
    let mut chunk = chunk(shape, Vec::new());
    let usage = ordered! {
        "prompt_tokens": shape.prompt_tokens, "total_tokens": shape.prompt_tokens + made, "completion_tokens": made,
    };
    chunk.push(("usage", usage));
    chunk.push(("system_fingerprint", FINGERPRINT.into()));
    Json::Map(chunk)
}

fn chunk(shape: &Shape, choices: Vec<Json>) -> Vec<(&'static str, Json)> {
    let object = if shape.api == Api::Chat { "chat.completion.chunk" } else { "text_completion" };
    vec![
        ("id", shape.id.as_str().into()),
        ("object", object.into()),
        ("created", shape.created.into()),
        ("model", shape.model.as_str().into()),
        ("choices", choices.into()),
    ]
}

pub(super) fn whole(shape: &Shape, choices: &[Choice], params: Option<Json>) -> Json {
    let made = made(choices);
    let usage = ordered! {
        "prompt_tokens": shape.prompt_tokens, "total_tokens": shape.prompt_tokens + made, "completion_tokens": made,
        "prompt_tokens_details": (), "completion_tokens_details": (),
    };
    let chat = shape.api == Api::Chat;
    let one = if chat { chat_choice } else { text_choice };
    let choices: Vec<Json> = choices.iter().enumerate().map(|(index, choice)| one(index, choice)).collect();
    let head = ordered! {
        "id": shape.id.as_str(), "object": if chat { "chat.completion" } else { "text_completion" },
        "created": shape.created, "model": shape.model.as_str(), "choices": choices, "service_tier": (),
        "system_fingerprint": FINGERPRINT, "usage": usage,
    };
    let prompt = if chat {
        ordered! { "prompt_logprobs": (), "prompt_token_ids": (), "prompt_text": () }
    } else {
        ordered! {}
    };
    let tail = ordered! { "kv_transfer_params": params, "ec_transfer_params": (), "metrics": () };
    join([head, prompt, tail])
}

fn join(parts: [Json; 3]) -> Json {
    let entries = |part: Json| if let Json::Map(entries) = part { entries } else { Vec::new() };
    Json::Map(parts.into_iter().flat_map(entries).collect())
}

fn chat_choice(index: usize, choice: &Choice) -> Json {
    let message = ordered! {
        "role": "assistant", "content": choice.text.as_str(), "refusal": (), "annotations": (), "audio": (),
        "function_call": (), "reasoning": (),
    };
    ordered! {
        "index": index, "message": message, "logprobs": (), "finish_reason": finish(choice.finish), "stop_reason": (),
        "token_ids": (), "routed_experts": (),
    }
}

fn text_choice(index: usize, choice: &Choice) -> Json {
    ordered! {
        "index": index, "text": choice.text.as_str(), "logprobs": (), "finish_reason": finish(choice.finish),
        "stop_reason": (), "token_ids": (), "prompt_logprobs": (), "prompt_token_ids": (), "routed_experts": (),
    }
}

pub(super) fn error(failure: &Failure) -> Json {
    let error = ordered! {
        "message": failure.message.as_str(), "type": failure.kind, "param": failure.param, "code": failure.status,
    };
    ordered! { "error": error }
}
