//! The decode's side of a transfer. A pull that has begun goes on when its request is aborted, as the real one's does.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::oneshot;

use super::params::Remote;
use crate::engine::client;
use crate::engine::config::LoadFailure;
use crate::engine::core::{Core, Stage};
use crate::engine::job::{Failure, Ready, Sequence, pause};
use crate::engine::text::Kv;

/// Why nothing came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoKv {
    /// Nobody there, or another engine: seen only by a time-out.
    Dead,
    /// Blocks that the other side does not have: seen at once.
    OutOfRange,
}

pub(super) async fn run(sequence: &Sequence, remote: Remote) -> Result<Ready, Failure> {
    let core = &sequence.core;
    core.counts.external_queries.add(sequence.tokens().into());
    let transfer = core.stages.enter(Stage::Transfer);
    let time = sequence.job.fault.transfer.unwrap_or(core.config.timing.transfer);
    let (got, kv) = oneshot::channel();
    let task = Arc::clone(core);
    core.tasks.spawn_light(async move {
        tokio::select! {
            () = task.dead.cancelled() => {}
            result = pull(&task, &remote, time) => drop(got.send(result)),
        }
    });
    let pulled = kv.await.unwrap_or(Err(NoKv::Dead));
    if pulled == Err(NoKv::Dead) {
        pause(core.config.waits.dead_remote).await;
    }
    drop(transfer);
    if let Ok(kv) = pulled {
        core.counts.transfers.add(1);
        core.counts.external_hits.add(sequence.tokens().into());
        return Ok(Ready { kv, params: None, hold: None });
    }
    core.counts.failed_transfers.add(1);
    match core.config.load_failure {
        LoadFailure::Fail => Err(Failure::internal("Internal server error")),
        LoadFailure::Recompute => Ok(sequence.compute().await),
    }
}

async fn pull(core: &Arc<Core>, remote: &Remote, time: Duration) -> Result<Kv, NoKv> {
    let body = json!({
        "engine": remote.engine, "request": remote.request, "blocks": remote.blocks,
        "micros": u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
    });
    let answer =
        client::post(core, &remote.host, remote.port, "/mock/kv/pull", body.to_string().into_bytes());
    match answer.await {
        Ok(line) => read(&line).ok_or(NoKv::Dead),
        Err(client::Error::Status(416)) => Err(NoKv::OutOfRange),
        Err(_) => Err(NoKv::Dead),
    }
}

/// `CONTENT corrupted?`, as the side port writes it.
fn read(line: &[u8]) -> Option<Kv> {
    let (content, corrupted) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let kv = Kv::clean(u64::from_str_radix(content, 16).ok()?);
    Some(if corrupted == "true" { kv.corrupt() } else { kv })
}

/// Whether the store has the prompt.
pub(super) async fn stored(sequence: &Sequence) -> bool {
    let core = &sequence.core;
    let Some((host, port)) = core.config.store.as_deref().and_then(|store| store.rsplit_once(':')) else {
        return core.vllm.store.lock().prompts.contains(&sequence.content());
    };
    let Ok(port) = port.parse() else { return false };
    let path = format!("/mock/kv/store/{:016x}", sequence.content());
    let found = client::get(core, host, port, &path).await.is_ok();
    if found {
        pause(sequence.job.fault.transfer.unwrap_or(core.config.timing.transfer)).await;
    }
    found
}
