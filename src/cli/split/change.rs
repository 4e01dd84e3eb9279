//! Other weights over the entries that the router has, whole, and only over the version that was read: what somebody else
//! changed meanwhile is not undone.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::admin::{encoded, said};
use super::super::exit::Exit;
use super::Trouble;
use crate::admin::ServiceSplit;
use crate::config::SplitEntry;

/// What the router is told.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<Value>,
    /// `r1 90, r2 10`; empty for a reset.
    weights: String,
}

/// What it answers.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Done {
    service: String,
    version: u64,
    pub(super) volatile: bool,
}

impl Order {
    pub(super) fn says(&self, done: &Done) -> String {
        let Done { service, version, .. } = done;
        let what = if self.weights.is_empty() { "the configured split again" } else { &self.weights };
        format!("{service}: version {version} is in force: {what}\n")
    }
}

/// The entries as they are, with the weights that are named.
pub(super) fn set(before: &ServiceSplit, wanted: &[(String, u64)]) -> Result<Order, Trouble> {
    let service = &before.service;
    let wrong = |exit, why: String| Err(Trouble::Said(exit, format!("{service}: {why}")));
    let mut entries: Vec<SplitEntry> = before.cohorts.iter().filter_map(|c| c.entry.clone()).collect();
    if entries.is_empty() {
        let why = "no split is in force, so no cohort has a weight of its own; the file or `PUT /split` can give \
                   it one";
        return wrong(Exit::Failure, why.to_owned());
    }
    for (n, (name, weight)) in wanted.iter().enumerate() {
        if wanted[..n].iter().any(|(before, _)| before == name) {
            return wrong(Exit::Usage, format!("--set names {name:?} twice"));
        }
        let names: Vec<String> = entries.iter().map(SplitEntry::name).collect();
        match entries.iter_mut().find(|entry| entry.name() == *name) {
            Some(entry) => entry.weight = *weight,
            None => {
                return wrong(
                    Exit::Usage,
                    format!("no cohort is named {name:?}; there are: {}", names.join(", ")),
                );
            }
        }
    }
    let weights: Vec<String> = entries.iter().map(|e| format!("{} {}", e.name(), e.weight)).collect();
    let body = json!({"service": service, "weights": entries, "expected_version": before.version});
    let weights = weights.join(", ");
    Ok(Order { method: Method::PUT, path: "/split".to_owned(), body: Some(body), weights })
}

pub(super) fn reset(before: &ServiceSplit) -> Order {
    let path = format!("/split?service={}", encoded(&before.service));
    Order { method: Method::DELETE, path, body: None, weights: String::new() }
}

pub(super) fn done(router: &str, service: &str, answer: &(StatusCode, Bytes)) -> Result<Done, Trouble> {
    let (status, body) = answer;
    let failed = |why: String| Err(Trouble::Said(Exit::Failure, format!("{router}: {service}: {why}")));
    match *status {
        StatusCode::OK => serde_json::from_slice(body).or_else(|error| {
            failed(format!("it may be in force, but the answer is not as expected: {error}"))
        }),
        StatusCode::CONFLICT => failed("another split was applied meanwhile; look and try again".to_owned()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => failed(format!(
            "answered with {status}{}; --token-file names the router's admin token",
            said(body)
        )),
        _ => failed(format!("answered with {status}{}", said(body))),
    }
}
