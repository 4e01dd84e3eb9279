//! vLLM's connectors: a prefill that keeps blocks under a lease and says where they are (NIXL, pull), or a store that both
//! sides know.
//!
//! * `params` — what `kv_transfer_params` asks for (pure).
//! * `leases` — the blocks that are kept (pure).
//! * `check` — what the front end refuses.
//! * `pull` — the decode's side of a pull.
//! * `side` — the port that blocks are pulled from.

mod check;
mod leases;
mod params;
mod pull;
mod side;

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;

use super::config::{Connector, Role};
use super::core::Core;
use super::job::{Failure, Ready, Sequence, pause};
use super::json::{Json, ordered};
use crate::types::clock::now;

pub(super) use check::{check, refused};
use leases::Leases;
use params::Plan;
pub(super) use side::handle;

/// Most prompts that a store remembers.
const STORED: usize = 65_536;
/// How often a prefill without free blocks looks for some.
const LOOK: Duration = Duration::from_millis(2);
/// From an engine's last answer until its process is gone.
const LAST_WORDS: Duration = Duration::from_millis(10);

/// What this engine keeps for others.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) engine_id: String,
    leases: Mutex<Leases>,
    store: Mutex<Store>,
}

#[derive(Debug, Default)]
struct Store {
    prompts: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Store {
    fn put(&mut self, content: u64) {
        if self.prompts.insert(content) {
            self.order.push_back(content);
        }
        if self.order.len() > STORED
            && let Some(oldest) = self.order.pop_front()
        {
            self.prompts.remove(&oldest);
        }
    }
}

/// What `/mock/log` and the gauges show.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) requests: usize,
    pub(super) blocks: usize,
    pub(super) total: u32,
    pub(super) expired: u64,
}

impl Connected {
    pub(super) fn new(blocks: u32, engine_id: String) -> Self {
        Self { engine_id, leases: Mutex::new(Leases::new(blocks)), store: Mutex::default() }
    }

    pub(super) fn kept(&self) -> Kept {
        let mut leases = self.leases.lock();
        let (requests, blocks) = leases.held(now());
        Kept { requests, blocks, total: leases.total(), expired: leases.expired() }
    }
}

/// The KV of a request, by what it asks for.
pub(super) async fn obtain(sequence: &Sequence) -> Result<Ready, Failure> {
    let core = &sequence.core;
    // Parameters are the first prompt's; an engine without a connector does not read them.
    if core.config.role == Role::Plain || sequence.prompt > 0 {
        return Ok(sequence.compute().await);
    }
    if core.config.connector == Connector::Store {
        return Ok(store(sequence).await);
    }
    match params::plan(&sequence.request.params, blocks(core, sequence.tokens())) {
        Plan::Local => Ok(sequence.compute().await),
        Plan::Keep => Ok(keep(sequence).await),
        Plan::Pull(remote) => pull::run(sequence, remote).await,
        Plan::Fatal => {
            core.counts.fatal_params.add(1);
            if core.config.fragile {
                core.die_in(LAST_WORDS);
            }
            let message = "EngineCore encountered an issue. See stack trace (above) for the root cause.";
            Err(Failure::internal(message))
        }
    }
}

fn blocks(core: &Core, tokens: u32) -> u32 {
    tokens.div_ceil(core.config.page_size.max(1))
}

/// Computes and keeps the blocks.
async fn keep(sequence: &Sequence) -> Ready {
    let core = &sequence.core;
    let mut ready = sequence.compute().await;
    if sequence.job.fault.no_kv {
        return ready;
    }
    let (made, _) = sequence.request.limit(&core.config);
    let tokens = sequence.tokens() + made - 1;
    let granted = grant(sequence, blocks(core, tokens).min(core.config.pages)).await;
    // A stream has no place for them: the blocks are kept and nobody learns of it.
    if !sequence.request.stream {
        ready.params = Some(returned(sequence, &granted, tokens, made));
    }
    ready
}

async fn grant(sequence: &Sequence, count: u32) -> Vec<u32> {
    let core = &sequence.core;
    loop {
        let (rid, lease) = (&sequence.job.rid, core.config.waits.lease);
        let granted = core.vllm.leases.lock().grant(rid, count, sequence.content(), now(), lease);
        match granted {
            Some(blocks) => return blocks,
            None => pause(LOOK).await,
        }
    }
}

/// The recorded form.
fn returned(sequence: &Sequence, blocks: &[u32], tokens: u32, made: u32) -> Json {
    let core = &sequence.core;
    let group = Json::List(blocks.iter().map(|&block| block.into()).collect());
    let mut params = ordered! {
        "do_remote_prefill": true,
        "do_remote_decode": false,
        "remote_block_ids": vec![group],
        "remote_engine_id": core.vllm.engine_id.as_str(),
        "remote_request_id": sequence.job.rid.as_str(),
        "remote_host": core.config.advertise.as_str(),
        "remote_port": core.side_port.get().copied(),
        "tp_size": 1_u32,
        "dcp_size": 1_u32,
        "pp_size": 1_u32,
        "remote_num_tokens": tokens,
        "remote_blocks_expiry_time": (),
        "transfer_mode": "pull",
    };
    if let (Json::Map(entries), 1) = (&mut params, made) {
        entries.push(("remote_prefill_cached_tokens", 0_u32.into()));
    }
    params
}

/// Prefill writes to the store, decode reads from it; what is not there is computed.
async fn store(sequence: &Sequence) -> Ready {
    let core = &sequence.core;
    if core.config.role == Role::Decode {
        core.counts.external_queries.add(sequence.tokens().into());
        if pull::stored(sequence).await {
            core.counts.external_hits.add(sequence.tokens().into());
            core.counts.transfers.add(1);
            return Ready::local(sequence.content());
        }
    }
    let ready = sequence.compute().await;
    core.vllm.store.lock().put(sequence.content());
    ready
}
