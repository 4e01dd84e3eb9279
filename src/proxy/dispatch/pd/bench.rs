//! What the legs of a pair are sent, for `benches/counts`: the functions the attempts call, and nothing added.

use bytes::Bytes;

use super::bodies::{self, Bootstrap, Rids};
use crate::config::VllmConnector;
use crate::proxy::dispatch::run::EngineId;
use crate::proxy::request::id::RequestId;
use crate::proxy::request::peek::Peek;
use crate::proxy::request::route::Route;
use crate::proxy::request::splice::Segments;

/// The body for both SGLang legs.
pub fn sglang(body: &Bytes, peek: &Peek, id: &RequestId) -> Segments {
    let rids = Rids { id: EngineId::new(id), prompts: bodies::prompts(body, peek) };
    bodies::sglang(body, peek, &rids, Bootstrap { host: "10.0.0.1", port: 8998 }, bodies::room)
}

/// The bodies for a vLLM prefill and, from what that answered, for its decode; `None`: it handed over nothing.
pub fn vllm(body: &Bytes, peek: &Peek, answer: &Bytes) -> Option<(Segments, Segments)> {
    let prefill = bodies::vllm_prefill(body, peek, Route::ChatCompletions, VllmConnector::Nixl);
    let params = bodies::params_of(answer)?;
    Some((prefill, bodies::vllm_decode(body, peek, params)))
}
