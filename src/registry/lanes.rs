//! What an engine has to answer before its first request is asked in lanes, beside the writer: it never waits for an engine.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::endpoint::Endpoint;
use super::facts::EngineFacts;
use crate::config::EngineKind;

/// What is to be asked of an engine, again and again until it has answered as it should.
#[derive(Debug, Clone)]
pub struct Job {
    pub endpoint: Arc<Endpoint>,
    /// Told back with every verdict.
    pub number: u64,
    /// Its bootstrap server has to list every rank (SGLang prefills).
    pub bootstrap: bool,
    /// `GET /v1/models` has to answer, with one of these if there are any.
    pub models: Option<Vec<String>>,
    /// What it says of itself is wanted too. No answer to that is no failure.
    pub facts: bool,
    pub engine: EngineKind,
    /// Its endpoint was withdrawn meanwhile: what it would find out is of no use.
    pub cancel: CancellationToken,
}

/// What was learnt of an engine that answered as it has to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub bootstrap_port: Option<u16>,
    /// Where that was wanted.
    pub engine: Option<EngineFacts>,
}

/// A verdict on one job.
#[derive(Debug)]
pub struct Probed {
    /// Of the endpoint.
    pub id: u64,
    pub job: u64,
    /// Why not, in words for an operator; the lane goes on asking.
    pub result: Result<Facts, String>,
}

/// How busy the lane of one URL is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneState {
    /// A job is being worked on.
    pub busy: bool,
    /// Jobs behind it.
    pub waiting: usize,
}

/// One lane for each URL: its jobs in order, no URL waits for another.
pub trait Lanes: Send + Sync + fmt::Debug {
    /// Never waits.
    fn submit(&self, job: Job);

    fn state(&self, url: &str) -> LaneState;
}
