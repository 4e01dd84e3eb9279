//! The front door: which path is what, per wire.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;

use super::body::{Body, Response};
use super::config::{Role, Wire};
use super::control;
use super::core::Core;
use super::generate;
use super::info;
use super::json::ordered;
use super::metrics;
use super::request::Api;
use super::stream::Ticket;

/// Answers one request whose body was read.
pub(super) async fn handle(ticket: Ticket, parts: &Parts, body: &Bytes) -> Response {
    let core = Arc::clone(&ticket.core);
    let path = parts.uri.path();
    if let Some(api) = api(core.config.wire, path) {
        if parts.method != http::Method::POST {
            return done(ticket, not_allowed());
        }
        return generate::handle(ticket, api, &parts.headers, body).await;
    }
    let response = match path.strip_prefix("/mock/") {
        Some(rest) => control::handle(&core, &parts.method, rest, body),
        None => plain(&core, parts, body),
    };
    done(ticket, response)
}

fn done(mut ticket: Ticket, response: Response) -> Response {
    ticket.done();
    response
}

fn api(wire: Wire, path: &str) -> Option<Api> {
    match (path, wire) {
        ("/v1/chat/completions", _) => Some(Api::Chat),
        ("/v1/completions", _) => Some(Api::Completions),
        ("/generate", Wire::Sglang) => Some(Api::Generate),
        _ => None,
    }
}

fn plain(core: &Arc<Core>, parts: &Parts, body: &Bytes) -> Response {
    let (method, path) = (parts.method.as_str(), parts.uri.path());
    let found = match (path, core.config.wire) {
        ("/health", _) | ("/ping" | "/health_generate" | "/ready", Wire::Sglang) | ("/ping", Wire::Vllm) => {
            health(core)
        }
        ("/v1/models", _) => Body::json(StatusCode::OK, &info::models(&core.config)),
        ("/metrics", _) => metrics::answer(core),
        ("/version", Wire::Vllm) => Body::json(StatusCode::OK, &ordered! { "version": info::VLLM_VERSION }),
        ("/load", Wire::Vllm) => Body::json(StatusCode::OK, &info::load(core)),
        ("/server_info" | "/get_server_info", Wire::Sglang) => {
            Body::json(StatusCode::OK, &info::server(core))
        }
        ("/model_info" | "/get_model_info", Wire::Sglang) => Body::json(StatusCode::OK, &info::model(core)),
        ("/v1/loads", Wire::Sglang) => Body::json(StatusCode::OK, &info::loads(core)),
        ("/abort_request", Wire::Sglang) => {
            if method != "POST" {
                return not_allowed();
            }
            return abort(core, body);
        }
        ("/flush_cache", Wire::Sglang) => return Body::text(StatusCode::OK, "Cache flushed.\n"),
        _ => return Body::not_found(),
    };
    if method == "GET" { found } else { not_allowed() }
}

fn health(core: &Core) -> Response {
    let leaving = core.stopping.is_cancelled() && core.config.wire == Wire::Sglang;
    if leaving { Body::text(StatusCode::SERVICE_UNAVAILABLE, "") } else { Body::empty() }
}

fn abort(core: &Core, body: &Bytes) -> Response {
    let asked: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    core.abort(asked["rid"].as_str().unwrap_or_default(), asked["abort_all"].as_bool().unwrap_or(false));
    Body::empty()
}

fn not_allowed() -> Response {
    Body::json(StatusCode::METHOD_NOT_ALLOWED, &ordered! { "detail": "Method Not Allowed" })
}

/// Whether this engine has a side port at all.
pub(super) fn has_side(wire: Wire, role: Role) -> bool {
    match wire {
        Wire::Sglang => role == Role::Prefill,
        Wire::Vllm => role != Role::Plain,
    }
}
