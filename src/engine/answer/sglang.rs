//! SGLang 0.5.23's shapes.

use super::{Choice, Piece, Shape, finish, made};
use crate::engine::job::{Failure, Finish};
use crate::engine::json::{Json, ordered};
use crate::engine::request::Api;
use crate::types::clock::wall_ms;

pub(super) fn role(shape: &Shape, index: usize) -> Json {
    chat_chunk(shape, index, ordered! { "reasoning_content": (), "role": "assistant", "content": "" }, None)
}

pub(super) fn token(shape: &Shape, piece: Piece<'_>) -> Vec<Json> {
    match shape.api {
        Api::Chat => {
            let mut chunks = Vec::with_capacity(2);
            if !piece.text.is_empty() {
                let delta = ordered! { "reasoning_content": (), "content": piece.text };
                chunks.push(chat_chunk(shape, piece.index, delta, None));
            }
            if piece.finish.is_some() {
                let delta = ordered! { "reasoning_content": () };
                chunks.push(chat_chunk(shape, piece.index, delta, piece.finish));
            }
            chunks
        }
        Api::Completions => {
            let choice = ordered! {
                "index": piece.index, "text": piece.text, "logprobs": (), "finish_reason": finish(piece.finish),
                "matched_stop": (),
            };
            vec![ordered! {
                "id": shape.id.as_str(), "object": "text_completion", "created": shape.created,
                "choices": vec![choice], "model": shape.model.as_str(), "usage": (),
            }]
        }
        // Text and ids so far, in every event.
        Api::Generate => vec![generated(shape, piece.choice, shape.listed.then_some(piece.index))],
    }
}

fn chat_chunk(shape: &Shape, index: usize, delta: Json, end: Option<Finish>) -> Json {
    let choice = ordered! {
        "index": index, "delta": delta, "logprobs": (), "finish_reason": finish(end), "matched_stop": (),
    };
    ordered! {
        "id": shape.id.as_str(), "object": "chat.completion.chunk", "created": shape.created,
        "model": shape.model.as_str(), "choices": vec![choice],
    }
}

pub(super) fn usage_chunk(shape: &Shape, made: u64) -> Json {
    let object = if shape.api == Api::Chat { "chat.completion.chunk" } else { "text_completion" };
    ordered! {
        "id": shape.id.as_str(), "object": object, "created": shape.created, "model": shape.model.as_str(),
        "choices": Vec::<Json>::new(), "usage": usage(shape.prompt_tokens, made),
    }
}

fn usage(prompt: u64, made: u64) -> Json {
    ordered! {
        "prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made,
        "prompt_tokens_details": (), "reasoning_tokens": 0_u32, "completion_tokens_details": (),
    }
}

pub(super) fn whole(shape: &Shape, choices: &[Choice]) -> Json {
    if shape.api == Api::Generate {
        let many = shape.listed || choices.len() > 1;
        let all: Vec<Json> = choices.iter().map(|choice| generated(shape, choice, None)).collect();
        return if many { Json::List(all) } else { all.into_iter().next().unwrap_or(Json::Null) };
    }
    let made = made(choices);
    let chat = shape.api == Api::Chat;
    let one = |(index, choice): (usize, &Choice)| {
        let text = choice.text.as_str();
        let message = ordered! { "role": "assistant", "content": text, "reasoning_content": () };
        let end = finish(choice.finish);
        if chat {
            ordered! { "index": index, "message": message, "logprobs": (), "finish_reason": end, "matched_stop": () }
        } else {
            ordered! { "index": index, "text": text, "logprobs": (), "finish_reason": end, "matched_stop": () }
        }
    };
    ordered! {
        "id": shape.id.as_str(), "object": if chat { "chat.completion" } else { "text_completion" },
        "created": shape.created, "model": shape.model.as_str(),
        "choices": choices.iter().enumerate().map(one).collect::<Vec<_>>(),
        "usage": usage(shape.prompt_tokens, made),
        "metadata": ordered! { "weight_version": "default", "weight_versions": versions(made) },
    }
}

fn versions(made: u64) -> Vec<Json> {
    vec![ordered! { "version": "default", "start": 0_u32, "end": made }]
}

/// `/generate`: `index` in streams of several.
fn generated(shape: &Shape, choice: &Choice, index: Option<usize>) -> Json {
    let made = choice.ids.len();
    let end = choice.finish.map(|end| match end {
        Finish::Length => ordered! { "type": "length", "length": made },
        Finish::Stop => ordered! { "type": "stop", "matched": () },
        Finish::Abort => ordered! { "type": "abort", "message": "Aborted by AbortReq." },
    });
    let now = wall_ms() as f64 / 1000.0;
    let meta = ordered! {
        "id": shape.id.as_str(), "finish_reason": end, "prompt_tokens": shape.prompt_tokens,
        "weight_version": "default", "num_retractions": 0_u32, "reasoning_tokens": 0_u32,
        "completion_tokens": made, "cached_tokens": 0_u32, "weight_versions": versions(made as u64),
        "cached_tokens_details": (), "dp_rank": (), "e2e_latency": (now - shape.created as f64).max(0.0),
        "response_sent_to_client_ts": now,
    };
    let ids: Vec<Json> = choice.ids.iter().map(|&id| id.into()).collect();
    let mut all =
        vec![("text", choice.text.as_str().into()), ("output_ids", ids.into()), ("meta_info", meta)];
    if let Some(index) = index {
        all.push(("index", index.into()));
    }
    Json::Map(all)
}

/// Not wrapped. A 500's type is its number.
pub(super) fn error(failure: &Failure) -> Json {
    let kind = if failure.status < 500 { failure.kind.to_owned() } else { failure.status.to_string() };
    ordered! {
        "object": "error", "message": failure.message.as_str(), "type": kind, "param": (), "code": failure.status,
    }
}

/// Wrapped, and with a type of its own.
pub(super) fn error_event(failure: &Failure) -> Json {
    let kind = if failure.status < 500 { failure.kind } else { "INTERNAL_SERVER_ERROR" };
    let error = ordered! {
        "object": "error", "message": failure.message.as_str(), "type": kind, "param": (), "code": failure.status,
    };
    ordered! { "error": error }
}
