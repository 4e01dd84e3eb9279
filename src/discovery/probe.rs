//! What is asked of an engine before its first request.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;

use super::facts::questions;
use crate::registry::{EngineFacts, Facts, Job};
use crate::types::clock;
use crate::upstream::{Dial, Question, get};

/// Longest time for one question, and its largest answer: `/server_info` lists every argument of the server.
const LIMIT: Duration = Duration::from_secs(5);
const MOST: usize = 1 << 20;
/// Longest time for all that an engine is asked of itself. Short: nothing is wrong with an engine that does not say, and a router
/// that starts among busy engines has to serve.
const PATIENCE: Duration = Duration::from_secs(2);
/// Asks a bootstrap server for all its ranks: 503 until each has registered (SGLang 0.5.23; the older names of the same
/// parameters go along).
const RANKS: &str = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1\
                     &engine_rank=-1&target_dp_group=-1";

/// Asks everything the job wants to know.
///
/// # Errors
/// Why the engine may not be given requests yet, in words for an operator.
pub(super) async fn probe(dial: &dyn Dial, job: &Job) -> Result<Facts, String> {
    let mut facts = Facts::default();
    if let Some(models) = &job.models {
        serves(dial, job, models).await?;
    }
    if job.bootstrap {
        let port = match job.endpoint.bootstrap_port() {
            Some(port) => port,
            None => bootstrap_port(dial, job).await?,
        };
        lists_every_rank(dial, job, port).await?;
        facts.bootstrap_port = Some(port);
    }
    if job.facts {
        facts.engine = Some(said(dial, job).await);
    }
    Ok(facts)
}

async fn ask(dial: &dyn Dial, job: &Job, port: u16, path: &str) -> Result<(StatusCode, Bytes), String> {
    let question = Question { host: &job.endpoint.host, port, path, limit: LIMIT, most: MOST };
    get(dial, question).await
}

/// What the engine says of itself. Whatever it answers is no failure, and no answer is one to come.
async fn said(dial: &dyn Dial, job: &Job) -> EngineFacts {
    let mut said = EngineFacts::default();
    let until = clock::now() + PATIENCE;
    for (path, read) in questions(job.engine) {
        let limit = until.saturating_duration_since(clock::now());
        let question =
            Question { host: &job.endpoint.host, port: job.endpoint.port, path, limit, most: MOST };
        match get(dial, question).await {
            Ok((StatusCode::OK, body)) => read(&body, &mut said),
            Ok((status, _)) if !status.is_server_error() => {}
            _ => said.incomplete = true,
        }
    }
    said
}

async fn serves(dial: &dyn Dial, job: &Job, models: &[String]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        id: String,
    }
    let about = |why: String| format!("GET /v1/models: {why}");
    let (status, body) = ask(dial, job, job.endpoint.port, "/v1/models").await.map_err(about)?;
    if status != StatusCode::OK {
        return Err(about(format!("status {}", status.as_u16())));
    }
    let list: List = serde_json::from_slice(&body).map_err(|_| about("no list of models".to_owned()))?;
    let listed = models.is_empty() || list.data.iter().any(|model| models.contains(&model.id));
    if listed {
        return Ok(());
    }
    let has: Vec<&str> = list.data.iter().map(|model| model.id.as_str()).take(5).collect();
    Err(about(format!("it serves {has:?}, none of the service's models")))
}

async fn bootstrap_port(dial: &dyn Dial, job: &Job) -> Result<u16, String> {
    #[derive(Deserialize)]
    struct Info {
        disaggregation_bootstrap_port: Option<u16>,
    }
    let about = |why: String| format!("GET /server_info: {why}");
    let (status, body) = ask(dial, job, job.endpoint.port, "/server_info").await.map_err(about)?;
    if status != StatusCode::OK {
        return Err(about(format!("status {}", status.as_u16())));
    }
    let info: Info =
        serde_json::from_slice(&body).map_err(|_| about("not what SGLang answers".to_owned()))?;
    info.disaggregation_bootstrap_port
        .filter(|port| *port != 0)
        .ok_or_else(|| about("no disaggregation_bootstrap_port; is it a prefill?".to_owned()))
}

async fn lists_every_rank(dial: &dyn Dial, job: &Job, port: u16) -> Result<(), String> {
    let about = |why: String| format!("bootstrap server, port {port}: {why}");
    let (status, _) = ask(dial, job, port, RANKS).await.map_err(about)?;
    match status {
        StatusCode::OK => Ok(()),
        StatusCode::SERVICE_UNAVAILABLE => Err(about("not every rank has registered".to_owned())),
        status => Err(about(format!("status {}", status.as_u16()))),
    }
}
