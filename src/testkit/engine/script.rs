//! What an engine does, as a function of the request, as a queue, or by path.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::openai;
use super::request::RecordedRequest;
use super::step::{IntoSteps, Step};

type Answer = Arc<dyn Fn(&RecordedRequest) -> Vec<Step> + Send + Sync>;

#[derive(Clone)]
enum Source {
    /// Asked when the body is complete.
    AtBody(Answer),
    /// Asked when the head is complete.
    AtHead(Answer),
    /// One answer per request, in order over all connections.
    Queue(Arc<Mutex<VecDeque<Vec<Step>>>>),
}

/// A script; cheap to clone, and clones share their queue.
#[derive(Clone)]
pub struct Script {
    source: Source,
    /// What a queue gives once it is empty.
    default: Option<Arc<Script>>,
    routes: Vec<(String, Script)>,
    pub(super) accept_delay: Duration,
    pub(super) keep_alive: Option<Duration>,
    pub(super) tolerate_fin: bool,
    pub(super) read_size: Option<usize>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes: Vec<&str> = self.routes.iter().map(|(path, _)| path.as_str()).collect();
        f.debug_struct("Script").field("routes", &routes).finish_non_exhaustive()
    }
}

impl Script {
    /// The function is asked once the request's body is complete.
    pub fn new(answer: impl Fn(&RecordedRequest) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::from_source(Source::AtBody(Arc::new(answer)))
    }

    /// The function is asked once the head is complete; the body is read while the steps are played.
    pub fn at_head(answer: impl Fn(&RecordedRequest) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::from_source(Source::AtHead(Arc::new(answer)))
    }

    /// The same answer to every request.
    pub fn always(steps: impl IntoSteps) -> Self {
        let steps = steps.into_steps();
        if starts_at_head(&steps) {
            Self::at_head(move |_| steps.clone())
        } else {
            Self::new(move |_| steps.clone())
        }
    }

    /// One answer per request, in order over all connections; then [`Self::or_else`], or 500.
    pub fn queue(answers: Vec<Vec<Step>>) -> Self {
        Self::from_source(Source::Queue(Arc::new(Mutex::new(answers.into()))))
    }

    /// An engine serving one model: chat streamed or not as asked, `/v1/models`, `/health`; 404 elsewhere.
    pub fn openai(model: &str) -> Self {
        let model = model.to_owned();
        Self::new(move |request| openai::answer(&model, request))
    }

    fn from_source(source: Source) -> Self {
        Self {
            source,
            default: None,
            routes: Vec::new(),
            accept_delay: Duration::ZERO,
            keep_alive: None,
            tolerate_fin: false,
            read_size: None,
        }
    }

    /// What answers once the queue is empty.
    #[must_use]
    pub fn or_else(mut self, script: Script) -> Self {
        self.default = Some(Arc::new(script));
        self
    }

    /// Requests for this path (query ignored) get this answer instead.
    #[must_use]
    pub fn on(self, path: &str, steps: impl IntoSteps) -> Self {
        let script = Script::always(steps);
        self.route(path, script)
    }

    /// Requests for this path (query ignored) go to this script instead.
    #[must_use]
    pub fn route(mut self, path: &str, script: Script) -> Self {
        self.routes.push((path.to_owned(), script));
        self
    }

    /// A connection is left unread for this long after it was accepted.
    #[must_use]
    pub fn accept_delay(mut self, delay: Duration) -> Self {
        self.accept_delay = delay;
        self
    }

    /// An idle connection is closed after this long; without it, never.
    #[must_use]
    pub fn keep_alive(mut self, idle: Duration) -> Self {
        self.keep_alive = Some(idle);
        self
    }

    /// A FIN from the peer does not end the script: it may only have closed its write side.
    #[must_use]
    pub fn tolerate_half_close(mut self) -> Self {
        self.tolerate_fin = true;
        self
    }

    /// Reads at most so many bytes at a time: a slow consumer of uploads.
    #[must_use]
    pub fn read_size(mut self, bytes: usize) -> Self {
        self.read_size = Some(bytes);
        self
    }

    /// The step to take before anything of the next request is read. A queue gives it up only when it is such.
    pub(super) fn before_reading(&self) -> Option<Step> {
        let Source::Queue(queue) = &self.source else { return None };
        let mut queue = queue.lock();
        let first = queue.front().and_then(|steps| steps.first());
        match first {
            Some(Step::CloseBeforeReading | Step::ResetOnFirstByte) => {
                queue.pop_front().and_then(|steps| steps.into_iter().next())
            }
            _ => None,
        }
    }

    /// The steps, when they start at the head.
    pub(super) fn steps_at_head(&self, request: &RecordedRequest) -> Option<Vec<Step>> {
        if let Some(script) = self.routed(request) {
            return script.steps_at_head(request);
        }
        match &self.source {
            Source::AtHead(answer) => Some(answer(request)),
            Source::AtBody(_) => None,
            Source::Queue(queue) => match self.emptied(queue) {
                Some(script) => script.steps_at_head(request),
                None => pop_if_at_head(&mut queue.lock()),
            },
        }
    }

    /// The steps, when they start after the body.
    pub(super) fn steps_at_body(&self, request: &RecordedRequest) -> Vec<Step> {
        if let Some(script) = self.routed(request) {
            return script.steps_at_body(request);
        }
        match &self.source {
            Source::AtHead(answer) | Source::AtBody(answer) => answer(request),
            Source::Queue(queue) => match self.emptied(queue) {
                Some(script) => script.steps_at_body(request),
                None => queue.lock().pop_front().unwrap_or_else(queue_is_empty),
            },
        }
    }

    fn routed(&self, request: &RecordedRequest) -> Option<&Script> {
        self.routes.iter().find(|(path, _)| path == request.path()).map(|(_, script)| script)
    }

    fn emptied(&self, queue: &Mutex<VecDeque<Vec<Step>>>) -> Option<&Script> {
        self.default.as_deref().filter(|_| queue.lock().is_empty())
    }
}

fn queue_is_empty() -> Vec<Step> {
    openai::error(500, "the script's queue is empty").into_steps()
}

fn pop_if_at_head(queue: &mut VecDeque<Vec<Step>>) -> Option<Vec<Step>> {
    let at_head = queue.front().is_some_and(|steps| starts_at_head(steps));
    if at_head { queue.pop_front() } else { None }
}

fn starts_at_head(steps: &[Step]) -> bool {
    matches!(steps.first(), Some(Step::ReadNoBody { .. }))
}

/// The script of a running engine: it can be replaced, from the next request on.
#[derive(Debug, Clone)]
pub struct ScriptCell(Arc<Mutex<Script>>);

impl ScriptCell {
    pub fn new(script: Script) -> Self {
        Self(Arc::new(Mutex::new(script)))
    }

    pub fn set(&self, script: Script) {
        *self.0.lock() = script;
    }

    pub fn get(&self) -> Script {
        self.0.lock().clone()
    }
}

impl From<Script> for ScriptCell {
    fn from(script: Script) -> Self {
        Self::new(script)
    }
}
