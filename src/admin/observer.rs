//! What strict consumers read (requirements §2.2.6).

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::{AdminState, answer};

pub(super) async fn endpoints(State(state): State<AdminState>) -> Response {
    match (state.observe)() {
        Ok(json) => ([(CONTENT_TYPE, "application/json")], json).into_response(),
        Err(why) => answer::later("observer_unavailable", &why.to_string()),
    }
}
