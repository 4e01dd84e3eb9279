//! What strict consumers read (requirements §2.2.6).

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};

use super::{AdminState, answer};

pub(super) async fn endpoints(State(state): State<AdminState>) -> Response {
    match (state.observe)() {
        Ok(json) => ([(CONTENT_TYPE, "application/json")], json).into_response(),
        Err(why) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let error =
                answer::error(status, "service_unavailable", "observer_unavailable", &why.to_string());
            ([(RETRY_AFTER, "1")], error).into_response()
        }
    }
}
