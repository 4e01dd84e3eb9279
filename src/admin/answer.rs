//! Errors of the admin listener, in the shape of the front door's (I13). Nothing of the request is repeated in them.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use serde_json::json;

pub(super) fn error(status: StatusCode, kind: &str, code: &str, message: &str) -> Response {
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
    (status, Json(body)).into_response()
}

/// What was asked cannot be understood.
pub(super) fn bad(code: &str, why: &str) -> Response {
    error(StatusCode::BAD_REQUEST, "invalid_request_error", code, why)
}

/// Not now: worth asking again in a second.
pub(super) fn later(code: &str, why: &str) -> Response {
    let error = error(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", code, why);
    ([(RETRY_AFTER, "1")], error).into_response()
}

/// Whoever owns what was to be changed is gone.
pub(super) fn ending() -> Response {
    let message = "the process is ending and takes no changes";
    error(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", "shutting_down", message)
}

pub(super) fn internal(message: &str) -> Response {
    error(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "internal", message)
}

pub(super) async fn unknown_path() -> Response {
    error(StatusCode::NOT_FOUND, "not_found_error", "unknown_admin_path", "no such admin path")
}

/// The router adds `Allow`.
pub(super) async fn wrong_method() -> Response {
    let message = "this admin path does not take this method";
    error(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", "method_not_allowed", message)
}
