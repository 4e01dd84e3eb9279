//! Answers in the engines' shapes: keys and order as recorded. Each wire has its file; this one picks.

mod sglang;
mod vllm;

use super::config::Wire;
use super::job::{Failure, Finish};
use super::json::Json;
use super::request::{Api, Request};
use crate::types::clock::wall_ms;

/// What a shape needs to know of its request.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) wire: Wire,
    pub(super) api: Api,
    pub(super) id: String,
    pub(super) model: String,
    /// Seconds since the epoch.
    pub(super) created: u64,
    pub(super) prompt_tokens: u64,
    pub(super) include_usage: bool,
    pub(super) listed: bool,
}

/// One choice so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Choice {
    pub(super) text: String,
    pub(super) ids: Vec<u32>,
    pub(super) finish: Option<Finish>,
}

/// One token on its way into a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) index: usize,
    pub(super) text: &'a str,
    pub(super) finish: Option<Finish>,
    /// The choice so far, this token included.
    pub(super) choice: &'a Choice,
    /// Nothing but usage follows.
    pub(super) last: bool,
}

impl Shape {
    pub(super) fn new(wire: Wire, request: &Request) -> Self {
        Self {
            wire,
            api: request.api,
            id: request.id.clone(),
            model: request.model.clone(),
            created: wall_ms() / 1000,
            prompt_tokens: request.prompt_tokens(),
            include_usage: request.include_usage,
            listed: request.listed,
        }
    }

    /// The chunk that opens a choice, where there is one.
    pub(super) fn role(&self, index: usize) -> Option<Json> {
        (self.api == Api::Chat).then(|| match self.wire {
            Wire::Sglang => sglang::role(self, index),
            Wire::Vllm => vllm::role(self, index),
        })
    }

    /// The chunks of one token; a final one may take two.
    pub(super) fn token(&self, piece: Piece<'_>) -> Vec<Json> {
        match self.wire {
            Wire::Sglang => sglang::token(self, piece),
            Wire::Vllm => vec![vllm::token(self, piece)],
        }
    }

    /// The usage chunk, where it was asked for.
    pub(super) fn usage(&self, made: u64) -> Option<Json> {
        self.include_usage.then(|| match self.wire {
            Wire::Sglang => sglang::usage_chunk(self, made),
            Wire::Vllm => vllm::usage_chunk(self, made),
        })
    }

    /// A whole answer.
    pub(super) fn whole(&self, choices: &[Choice], params: Option<Json>) -> Json {
        match self.wire {
            Wire::Sglang => sglang::whole(self, choices),
            Wire::Vllm => vllm::whole(self, choices, params),
        }
    }
}

/// The body of a status that is not 200.
pub(super) fn error(wire: Wire, failure: &Failure) -> Json {
    match wire {
        Wire::Sglang => sglang::error(failure),
        Wire::Vllm => vllm::error(failure),
    }
}

/// The event of a failure inside a stream.
pub(super) fn error_event(wire: Wire, failure: &Failure) -> String {
    let error = match wire {
        Wire::Sglang => sglang::error_event(failure),
        Wire::Vllm => vllm::error(failure),
    };
    format!("data: {}\n\n", error.spaced())
}

fn made(choices: &[Choice]) -> u64 {
    choices.iter().map(|choice| choice.ids.len() as u64).sum()
}

fn finish(finish: Option<Finish>) -> Json {
    finish.map(Finish::as_str).into()
}
