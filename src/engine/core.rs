//! What all connections and jobs of one engine share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::config::EngineConfig;
use super::job::Job;
use super::log::Log;
use super::moves::Moves;
use super::script::{Fault, Rule};
use super::sglang::Disaggregation;
use super::socket::Dialer;
use super::vllm::Connected;
use crate::drain::Tracker;
use crate::types::clock::now;

/// One engine.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: EngineConfig,
    pub(super) log: Log,
    pub(super) moves: Moves,
    pub(super) tasks: Tracker,
    pub(super) dialer: Dialer,
    /// The process is gone: nothing of it answers any more.
    pub(super) dead: CancellationToken,
    /// It was asked to leave.
    pub(super) stopping: CancellationToken,
    pub(super) stages: Arc<Stages>,
    pub(super) counts: Counts,
    /// Requests that may compute.
    pub(super) running: Arc<Semaphore>,
    pub(super) sglang: Disaggregation,
    pub(super) vllm: Connected,
    /// Where others reach the side port.
    pub(super) side_port: OnceLock<u16>,
    jobs: Mutex<HashMap<String, Arc<Job>>>,
    rules: Mutex<Vec<Rule>>,
    random: Mutex<fastrand::Rng>,
}

impl Core {
    pub(super) fn new(config: EngineConfig, dialer: Dialer) -> Self {
        let random = Mutex::new(fastrand::Rng::new());
        let hex = |random: &Mutex<fastrand::Rng>| {
            uuid::Builder::from_random_bytes(random.lock().u128(..).to_be_bytes())
        };
        let engine_id = hex(&random).into_uuid().to_string();
        Self {
            log: Log::new(config.log),
            moves: Moves::new(config.log),
            tasks: Tracker::default(),
            dialer,
            dead: CancellationToken::new(),
            stopping: CancellationToken::new(),
            stages: Arc::default(),
            counts: Counts::default(),
            running: Arc::new(Semaphore::new(config.max_running)),
            sglang: Disaggregation::new(config.pages),
            vllm: Connected::new(config.pages, engine_id),
            side_port: OnceLock::new(),
            jobs: Mutex::default(),
            rules: Mutex::new(config.script.clone()),
            random,
            config,
        }
    }

    /// `digits` random hexadecimal digits, at most 32.
    pub(super) fn hex(&self, digits: usize) -> String {
        let mut text = format!("{:032x}", self.random.lock().u128(..));
        text.truncate(digits);
        text
    }

    /// The process ends after this long, as a real one does that met something it cannot stand.
    pub(super) fn die_in(&self, wait: Duration) {
        let dead = self.dead.clone();
        self.tasks.spawn_light(async move {
            sleep(wait).await;
            dead.cancel();
        });
    }

    /// The next rule's fault, if any is left.
    pub(super) fn next_fault(&self) -> Option<Fault> {
        let mut rules = self.rules.lock();
        let rule = rules.first_mut()?;
        let fault = rule.fault.clone();
        if rule.times != u32::MAX {
            rule.times -= 1;
        }
        rules.retain(|rule| rule.times > 0);
        Some(fault)
    }

    pub(super) fn set_rules(&self, rules: Vec<Rule>) {
        *self.rules.lock() = rules.into_iter().filter(|rule| rule.times > 0).collect();
    }

    pub(super) fn add_rule(&self, rule: Rule) {
        if rule.times > 0 {
            self.rules.lock().push(rule);
        }
    }

    /// Registers a job under its id; `false` when a live one has it.
    pub(super) fn register(&self, job: &Arc<Job>) -> bool {
        let mut jobs = self.jobs.lock();
        let free = !jobs.contains_key(&job.rid);
        if free {
            jobs.insert(job.rid.clone(), Arc::clone(job));
        }
        free
    }

    pub(super) fn unregister(&self, rid: &str) {
        self.jobs.lock().remove(rid);
    }

    pub(super) fn live_jobs(&self) -> usize {
        self.jobs.lock().len()
    }

    /// `POST /abort_request`: ends every registered request whose rid begins so. Of those whose registration is not
    /// over yet the abort is lost.
    pub(super) fn abort(&self, prefix: &str, all: bool) {
        if prefix.is_empty() && !all {
            return;
        }
        let jobs: Vec<Arc<Job>> = self.jobs.lock().values().cloned().collect();
        let mut found = false;
        for job in jobs.iter().filter(|job| all || job.rid.starts_with(prefix)) {
            if job.registered_at <= now() {
                found = true;
                self.counts.aborts.add(1);
                job.abort();
            }
        }
        if !found {
            self.counts.aborts_lost.add(1);
        }
    }
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened, ever.
        #[derive(Debug, Default)]
        pub(super) struct Counts {
            $($(#[$doc])* pub(super) $name: Count,)*
        }

        impl Counts {
            /// All of them by name.
            pub(super) fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

counts! {
    /// Requests answered from pages or blocks that somebody else may have written into.
    corrupted,
    /// Requests answered from the KV of another prompt.
    mismatched,
    /// Pages given back while a prefill could still write into them.
    dirtied,
    /// Pulls of blocks that were no longer kept.
    stale_pulls,
    /// KV received from another engine, requests.
    transfers,
    failed_transfers,
    bootstrap_failed,
    duplicate_rooms,
    aborts,
    /// Aborts that named no registered request.
    aborts_lost,
    /// Requests whose peer left first.
    disconnects,
    fatal_params,
    prompt_tokens,
    generation_tokens,
    external_queries,
    external_hits,
    finished_stop,
    finished_length,
    finished_abort,
    finished_error,
}

/// Where a request is; the engines' gauges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// For its turn to compute.
    Queued,
    Running,
    /// SGLang prefill without its decode.
    Bootstrap,
    /// SGLang prefill that sends.
    Inflight,
    /// SGLang decode without its prefill's address or its pages.
    Prealloc,
    /// SGLang decode that receives; vLLM decode that pulls.
    Transfer,
}

const STAGES: usize = 6;

#[derive(Debug, Default)]
pub(super) struct Stages([AtomicUsize; STAGES]);

impl Stages {
    pub(super) fn get(&self, stage: Stage) -> usize {
        self.0[stage as usize].load(Ordering::Relaxed)
    }

    /// In any of them.
    pub(super) fn sum(&self) -> usize {
        self.0.iter().map(|stage| stage.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn enter(self: &Arc<Self>, stage: Stage) -> InStage {
        self.0[stage as usize].fetch_add(1, Ordering::Relaxed);
        InStage { stages: Arc::clone(self), stage }
    }
}

/// Counts in its stage until dropped.
#[derive(Debug)]
pub(super) struct InStage {
    stages: Arc<Stages>,
    stage: Stage,
}

impl Drop for InStage {
    fn drop(&mut self) {
        self.stages.0[self.stage as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
