//! `Status` bodies as a real server writes them.

use bytes::Bytes;
use http::{Response, header};
use serde_json::{Value, json};

use super::reply::Reply;

/// A refusal: HTTP status, reason, message.
#[derive(Debug, Clone)]
pub(super) struct Status {
    code: u16,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    metadata: Value,
    retry_after: Option<u32>,
}

impl Status {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let (details, metadata) = (None, json!({}));
        Self { code, reason, message: message.into(), details, metadata, retry_after: None }
    }

    fn about(mut self, kind: &str, name: &str) -> Self {
        self.details = Some(json!({ "name": name, "kind": kind }));
        self
    }

    /// What a server says with this code when it gives no better reason.
    pub(super) fn of_code(code: u16) -> Self {
        match code {
            401 => Self::new(401, "Unauthorized", "Unauthorized"),
            403 => Self::forbidden(),
            404 => Self::new(404, "NotFound", "the server could not find the requested resource"),
            410 => Self::expired("The resourceVersion for the provided watch is too old."),
            429 => Self::new(429, "TooManyRequests", "Too many requests, please try again later."),
            500 => Self::new(500, "InternalError", "Internal error occurred: etcdserver: request timed out"),
            503 => {
                Self::new(503, "ServiceUnavailable", "the server is currently unable to handle the request")
            }
            504 => Self::new(504, "Timeout", "Timeout: request did not complete within the allotted timeout"),
            other => Self::new(other, "", format!("an error on the server ({other})")),
        }
    }

    pub(super) fn retry_after(mut self, seconds: Option<u32>) -> Self {
        self.retry_after = seconds;
        if let Some(seconds) = seconds {
            self.details = Some(json!({ "retryAfterSeconds": seconds }));
        }
        self
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    fn forbidden() -> Self {
        let who = "User \"system:serviceaccount:default:default\"";
        let what = "cannot list resource \"pods\" in API group \"\" in the namespace \"default\"";
        let mut status = Self::new(403, "Forbidden", format!("pods is forbidden: {who} {what}"));
        status.details = Some(json!({ "kind": "pods" }));
        status
    }

    /// Contradictory options of a LIST or WATCH.
    pub(super) fn invalid_options(field: &str, why: &str) -> Self {
        let head = "ListOptions.meta.k8s.io \"\" is invalid";
        let mut status = Self::new(422, "Invalid", format!("{head}: {field}: Forbidden: {why}"));
        let cause = json!({ "reason": "FieldValueForbidden", "message": format!("Forbidden: {why}"), "field": field });
        status.details = Some(json!({ "group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause] }));
        status
    }

    pub(super) fn invalid(kind: &str, name: &str, why: &str) -> Self {
        Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {why}")).about(kind, name)
    }

    pub(super) fn not_found(kind: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{kind} \"{name}\" not found")).about(kind, name)
    }

    pub(super) fn exists(kind: &str, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{kind} \"{name}\" already exists")).about(kind, name)
    }

    pub(super) fn conflict(name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on pods \"{name}\": {why}");
        Self::new(409, "Conflict", message).about("pods", name)
    }

    pub(super) fn not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub(super) fn unsupported_media(what: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!("the body of the request was in an unknown format - {what}"),
        )
    }

    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A continue token that names a version nobody has any more; `fresh` goes on from the same place, inconsistently.
    pub(super) fn expired_continue(fresh: &str) -> Self {
        let mut status = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new \
             list without the continue parameter, or use the continue token in this response to retrieve the \
             remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
             that were created, modified, or deleted between the time the first chunk was returned and now may show \
             up in the list.",
        );
        status.metadata = json!({ "continue": fresh });
        status
    }

    pub(super) fn too_large_version(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
        let mut status = Self::new(504, "Timeout", message);
        status.details = Some(json!({ "causes": [cause], "retryAfterSeconds": 1 }));
        status.retry_after = Some(1);
        status
    }

    pub(super) fn no_watch_progress() -> Self {
        Self::new(500, "InternalError", "required storage feature RequestWatchProgress is disabled")
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> u16 {
        self.code
    }

    pub(super) fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if let Some(details) = &self.details {
            body["details"] = details.clone();
        }
        body
    }

    /// Priority and fairness answers 429 in plain text, before anything that knows `Status`.
    pub(super) fn response(&self) -> Response<Reply> {
        let (kind, body) = match self.code {
            429 => ("text/plain; charset=utf-8", format!("{}\n", self.message)),
            _ => ("application/json", format!("{}\n", self.body())),
        };
        let mut response = Response::builder().status(self.code).header(header::CONTENT_TYPE, kind);
        if let Some(seconds) = self.retry_after {
            response = response.header(header::RETRY_AFTER, seconds);
        }
        response.body(Reply::full(Bytes::from(body))).unwrap()
    }
}
