//! Every request the server received.

use crate::types::clock::Instant;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    /// A LIST of Pods.
    List,
    /// A WATCH of Pods.
    Watch,
    /// Anything else.
    Other,
}

/// One request, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// When it arrived, on tokio's clock.
    pub at: Instant,
    /// What it is for.
    pub kind: RequestKind,
    /// `GET` and the like.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// As received, still encoded.
    pub query: String,
    /// The bearer token.
    pub token: Option<String>,
    /// Who took it.
    pub replica: usize,
    /// The status of the answer; none while there is none.
    pub status: Option<u16>,
}

impl Recorded {
    /// The decoded value of a query parameter; none when it is missing or empty.
    pub fn param(&self, name: &str) -> Option<String> {
        super::query::Query::parse(&self.query).get(name).map(str::to_owned)
    }
}
