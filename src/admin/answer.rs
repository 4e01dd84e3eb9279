//! Errors of the admin listener, in the shape of the front door's (I13). Nothing of the request is repeated in them.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

pub(super) fn error(status: StatusCode, kind: &str, code: &str, message: &str) -> Response {
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
    (status, Json(body)).into_response()
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
