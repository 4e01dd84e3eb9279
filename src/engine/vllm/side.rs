//! The side port: where other engines pull blocks, free them, and look into the store.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;

use super::leases::Pull;
use crate::engine::body::{Body, Response};
use crate::engine::core::Core;
use crate::engine::job::pause;
use crate::types::clock::now;

/// Answers one request of the side port.
pub(in crate::engine) async fn handle(
    core: &Arc<Core>,
    method: &Method,
    path: &str,
    body: &[u8],
) -> Response {
    match (method.as_str(), path) {
        ("GET", "/health") => Body::text(StatusCode::OK, "OK"),
        ("POST", "/mock/kv/pull") => pull(core, body).await,
        ("POST", "/mock/kv/release") => {
            core.vllm.leases.lock().release(&String::from_utf8_lossy(body));
            Body::text(StatusCode::OK, "OK")
        }
        ("GET", _) => match path.strip_prefix("/mock/kv/store/").map(|key| u64::from_str_radix(key, 16)) {
            Some(Ok(key)) if core.vllm.store.lock().prompts.contains(&key) => {
                Body::text(StatusCode::OK, "OK")
            }
            _ => Body::not_found(),
        },
        _ => Body::not_found(),
    }
}

async fn pull(core: &Arc<Core>, body: &[u8]) -> Response {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    if asked["engine"].as_str() != Some(core.vllm.engine_id.as_str()) {
        return Body::text(StatusCode::NOT_FOUND, "another engine");
    }
    let total = core.vllm.leases.lock().total();
    let known = |block: &Value| block.as_u64().is_some_and(|block| block <= u64::from(total));
    if !asked["blocks"].as_array().is_some_and(|blocks| blocks.iter().all(known)) {
        return Body::text(StatusCode::RANGE_NOT_SATISFIABLE, "no such blocks");
    }
    let request = asked["request"].as_str().unwrap_or_default();
    let time = Duration::from_micros(asked["micros"].as_u64().unwrap_or(0));
    let got = core.vllm.leases.lock().pull(request, now());
    let (content, corrupted) = match got {
        Pull::Fresh(content) => {
            let reading = Reading { core, request, done: false };
            let _moving = core.moves.begin(request.to_owned(), true);
            pause(time).await;
            reading.done();
            (content, false)
        }
        // Nothing guards blocks that are no longer kept: it reads what is there.
        Pull::Stale(content, _) => {
            core.counts.stale_pulls.add(1);
            let _moving = core.moves.begin(request.to_owned(), false);
            pause(time).await;
            (content, true)
        }
        Pull::Unknown => {
            core.counts.stale_pulls.add(1);
            (0, true)
        }
    };
    Body::text(StatusCode::OK, &format!("{content:016x} {corrupted}"))
}

/// A pull that runs. Dropped before its end, because the decode is gone, it breaks off.
struct Reading<'a> {
    core: &'a Core,
    request: &'a str,
    done: bool,
}

impl Reading<'_> {
    fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut leases = self.core.vllm.leases.lock();
        if self.done { leases.pulled(self.request) } else { leases.broke_off(self.request) }
    }
}
