//! One request inside the engine, from the queue to its last token. The HTTP side only listens to it, as in the real
//! engines: a peer that left ends it later, through [`Job::left`].

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::core::{Core, InStage, Stage};
use super::json::Json;
use super::log::Entry;
use super::request::Request;
use super::script::Fault;
use super::text::Kv;
use super::{sglang, vllm};
use crate::types::clock::{Instant, now};

/// Why a choice ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    Length,
    Stop,
    Abort,
}

impl Finish {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Stop => "stop",
            Self::Abort => "abort",
        }
    }
}

/// What a job tells its HTTP side.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// The parameters that a vLLM prefill returns; before the first choice's end.
    Params(Json),
    Token {
        choice: usize,
        id: u32,
        text: String,
        finish: Option<Finish>,
    },
    /// The end of the whole request.
    Failed(Failure),
}

/// An engine's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) message: String,
    pub(super) param: Option<&'static str>,
}

impl Failure {
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self { status: 400, kind: "BadRequestError", message: message.into(), param: None }
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self { status: 500, kind: "InternalServerError", message: message.into(), param: None }
    }
}

/// The handle of a running request.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) rid: String,
    /// An abort before this is lost.
    pub(super) registered_at: Instant,
    /// The peer of its connection left.
    pub(super) left: CancellationToken,
    abort: CancellationToken,
    pub(super) fault: Fault,
    pub(super) entry: Entry,
    /// Choices that have not ended.
    open: Mutex<usize>,
}

impl Job {
    pub(super) fn abort(&self) {
        self.abort.cancel();
    }
}

/// How a job is ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Abort,
    PeerLeft,
    Shutdown,
    Died,
}

impl Stop {
    fn as_str(self) -> &'static str {
        match self {
            Self::Abort => "abort_request",
            Self::PeerLeft => "peer_left",
            Self::Shutdown => "shutdown",
            Self::Died => "died",
        }
    }
}

/// KV that is ready to decode from, with what must be kept meanwhile.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) kv: Kv,
    pub(super) params: Option<Json>,
    pub(super) hold: Option<sglang::PageHold>,
}

impl Ready {
    pub(super) fn local(content: u64) -> Self {
        Self { kv: Kv::clean(content), params: None, hold: None }
    }
}

/// The right to compute, while held.
#[derive(Debug)]
pub(super) struct Turn {
    // The semaphore is never closed; without a permit there would be no limit, which harms nobody.
    _permit: Option<OwnedSemaphorePermit>,
    _stage: InStage,
}

pub(super) type Events = UnboundedSender<Event>;

/// Starts a request; its rid must be free.
pub(super) fn start(
    core: &Arc<Core>,
    request: &Arc<Request>,
    fault: Fault,
    entry: Entry,
    events: &Events,
) -> Result<Arc<Job>, Failure> {
    let job = Arc::new(Job {
        rid: request.rid.clone(),
        registered_at: now() + core.config.waits.register,
        left: CancellationToken::new(),
        abort: CancellationToken::new(),
        fault,
        entry,
        open: Mutex::new(request.prompts.len()),
    });
    if !core.register(&job) {
        return Err(Failure::bad(format!("Duplicate request ID: {}", job.rid)));
    }
    for prompt in 0..request.prompts.len() {
        let one = Sequence {
            core: Arc::clone(core),
            request: Arc::clone(request),
            job: Arc::clone(&job),
            events: events.clone(),
            prompt,
        };
        core.tasks.spawn_light(Box::pin(one.run()));
    }
    Ok(job)
}

/// One prompt of a request and its samples.
pub(super) struct Sequence {
    pub(super) core: Arc<Core>,
    pub(super) request: Arc<Request>,
    pub(super) job: Arc<Job>,
    events: Events,
    pub(super) prompt: usize,
}

impl Sequence {
    async fn run(self) {
        let mut made = vec![0; self.request.samples as usize];
        let stop = tokio::select! {
            biased;
            stop = self.stopped() => Some(stop),
            () = self.work(&mut made) => None,
        };
        if let Some(stop) = stop {
            self.stop(stop, &made);
        }
    }

    async fn work(&self, made: &mut [u32]) {
        let result = if self.job.fault.fail {
            Err(Failure::internal("Internal server error"))
        } else {
            self.obtain().await
        };
        match result {
            Ok(ready) => self.generate(ready, made).await,
            Err(failure) => {
                self.core.counts.finished_error.add(1);
                self.say(Event::Failed(failure));
            }
        }
    }

    async fn obtain(&self) -> Result<Ready, Failure> {
        match self.core.config.wire {
            super::Wire::Sglang => Box::pin(sglang::obtain(self)).await,
            super::Wire::Vllm => Box::pin(vllm::obtain(self)).await,
        }
    }

    /// Waits for its turn to compute.
    pub(super) async fn turn(&self) -> Turn {
        let queued = self.core.stages.enter(Stage::Queued);
        let permit = Arc::clone(&self.core.running).acquire_owned().await.ok();
        drop(queued);
        Turn { _permit: permit, _stage: self.core.stages.enter(Stage::Running) }
    }

    /// How long its prompt takes.
    pub(super) fn prefill_time(&self) -> Duration {
        let timing = &self.core.config.timing;
        self.job.fault.ttft.unwrap_or(timing.ttft) + timing.prefill_token * self.tokens()
    }

    /// Computes the prompt here: its turn, then its time.
    pub(super) async fn compute(&self) -> Ready {
        let _turn = self.turn().await;
        pause(self.prefill_time()).await;
        self.core.counts.prompt_tokens.add(self.tokens().into());
        Ready::local(self.content())
    }

    async fn generate(&self, ready: Ready, made: &mut [u32]) {
        let _hold = ready.hold;
        let _running = self.core.stages.enter(Stage::Running);
        if ready.kv.corrupted {
            self.core.counts.corrupted.add(1);
        }
        if ready.kv.content != self.content() {
            self.core.counts.mismatched.add(1);
        }
        if let Some(params) = ready.params {
            self.say(Event::Params(params));
        }
        let (limit, finish) = self.request.limit(&self.core.config);
        let gap = self.job.fault.token.unwrap_or(self.core.config.timing.token);
        for at in 0..limit {
            if at > 0 {
                pause(gap).await;
            }
            let finish = (at + 1 == limit).then_some(finish);
            for sample in 0..self.request.samples {
                let (id, text) = ready.kv.token(sample, at);
                self.core.counts.generation_tokens.add(1);
                made[sample as usize] = at + 1;
                self.say(Event::Token { choice: self.choice(sample), id, text, finish });
            }
        }
        match finish {
            Finish::Stop => self.core.counts.finished_stop.add(1),
            _ => self.core.counts.finished_length.add(1),
        }
    }

    /// Ended from outside: what the client of a request hears that could still hear it.
    fn stop(&self, stop: Stop, made: &[u32]) {
        self.job.entry.stopped(stop.as_str());
        if stop == Stop::Died {
            return;
        }
        self.core.counts.finished_abort.add(1);
        if stop == Stop::PeerLeft {
            self.core.counts.disconnects.add(1);
        }
        if made.iter().all(|&made| made == 0)
            && let Some(failure) = self.aborted_before_kv()
        {
            return self.say(Event::Failed(failure));
        }
        for sample in 0..self.request.samples {
            let choice = self.choice(sample);
            self.say(Event::Token { choice, id: 0, text: String::new(), finish: Some(Finish::Abort) });
        }
    }

    /// SGLang fails a request of a pair that was aborted before its KV was there; everything else ends with "abort".
    fn aborted_before_kv(&self) -> Option<Failure> {
        let pair =
            self.core.config.wire == super::Wire::Sglang && self.core.config.role != super::Role::Plain;
        pair.then(|| sglang::failed(self, "handshake", "Aborted by AbortReq."))
    }

    async fn stopped(&self) -> Stop {
        let left = async {
            self.job.left.cancelled().await;
            pause(self.core.config.waits.disconnect).await;
        };
        tokio::select! {
            biased;
            () = self.core.dead.cancelled() => Stop::Died,
            () = self.job.abort.cancelled() => Stop::Abort,
            () = left => Stop::PeerLeft,
            () = self.core.stopping.cancelled(), if self.core.config.wire == super::Wire::Vllm => Stop::Shutdown,
        }
    }

    pub(super) fn say(&self, event: Event) {
        // Nobody may be listening any more.
        let _ = self.events.send(event);
    }

    pub(super) fn content(&self) -> u64 {
        self.request.prompts[self.prompt].content
    }

    pub(super) fn tokens(&self) -> u32 {
        self.request.prompts[self.prompt].tokens
    }

    fn choice(&self, sample: u32) -> usize {
        self.prompt * self.request.samples as usize + sample as usize
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let mut open = self.job.open.lock();
        *open -= 1;
        if *open == 0 {
            self.core.unregister(&self.job.rid);
        }
    }
}

/// A sleep that costs nothing when there is nothing to wait for.
pub(super) async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
