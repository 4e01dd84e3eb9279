//! Families by service: what became of requests and of their legs.
//!
//! A [`ServiceMetrics`] is taken once per service and holds one slot per (route, outcome) and the like. A slot is filled
//! on first use, so a label set that never happens has no series, and every later use is an index and an atomic
//! addition.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::{Counter, CounterVec, Histogram, HistogramVec, IntCounter, IntCounterVec, Registry, Result};

use super::{Vocabulary, build, names, vocabulary};
use crate::types::outcome::{LegOutcome, Outcome};

/// The `service` label of a request that never got one: unknown model, malformed head.
pub const NO_SERVICE: &str = "none";

/// OpenTelemetry's request-duration edges and a tail for long generations, seconds.
const DURATION: &[f64] =
    &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 160.0, 640.0];
/// OpenTelemetry's time-to-first-token edges and a tail, seconds.
const FIRST_BYTE: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0,
];

/// Ages of KV parameters, seconds: microseconds unless a decode had to be replaced.
const HANDOFF: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0];
/// Roles whose legs are timed by service; a plain engine's leg is the request itself.
const PAIR: &[&str] = &["prefill", "decode"];
/// What an engine that failed was.
const ROLES: &[&str] = &["prefill", "decode", "mixed"];

/// The vecs. One per process.
#[derive(Debug)]
pub struct RequestFamilies {
    words: Vocabulary,
    requests: IntCounterVec,
    duration: HistogramVec,
    first_byte: HistogramVec,
    retries: IntCounterVec,
    budget: IntCounterVec,
    legs: IntCounterVec,
    leg_first_byte: HistogramVec,
    leg_duration: HistogramVec,
    handoff: HistogramVec,
    stream_events: IntCounterVec,
    stream_gaps: IntCounterVec,
    stream_gap_seconds: CounterVec,
    tokens: IntCounterVec,
    unreadable: IntCounterVec,
}

/// One ended request, as measured.
#[derive(Debug, Clone, Copy)]
pub struct Observed {
    /// Index in [`Vocabulary::routes`].
    pub route: usize,
    pub outcome: Outcome,
    /// Head read to last byte.
    pub duration: Duration,
    /// Head read to first response body byte, where there was one.
    pub first_byte: Option<Duration>,
}

impl RequestFamilies {
    pub(super) fn new(registry: &Registry, words: &Vocabulary) -> Result<Self> {
        Ok(Self {
            words: *words,
            requests: build::counter_vec(registry, &names::REQUESTS)?,
            duration: build::histogram_vec(registry, &names::REQUEST_DURATION, DURATION)?,
            first_byte: build::histogram_vec(registry, &names::TIME_TO_FIRST_BYTE, FIRST_BYTE)?,
            retries: build::counter_vec(registry, &names::RETRIES)?,
            budget: build::counter_vec(registry, &names::RETRY_BUDGET_EXHAUSTED)?,
            legs: build::counter_vec(registry, &names::UPSTREAM_LEGS)?,
            leg_first_byte: build::histogram_vec(registry, &names::LEG_TTFB, FIRST_BYTE)?,
            leg_duration: build::histogram_vec(registry, &names::LEG_DURATION, DURATION)?,
            handoff: build::histogram_vec(registry, &names::HANDOFF, HANDOFF)?,
            stream_events: build::counter_vec(registry, &names::STREAM_EVENTS)?,
            stream_gaps: build::counter_vec(registry, &names::STREAM_GAPS)?,
            stream_gap_seconds: build::seconds_vec(registry, &names::STREAM_GAP_SECONDS)?,
            tokens: build::counter_vec(registry, &names::TOKENS)?,
            unreadable: build::counter_vec(registry, &names::USAGE_UNREADABLE)?,
        })
    }

    /// Handles for one configured service, or for [`NO_SERVICE`]. Two calls with one name share their series.
    /// Fails for an empty name or one that starts with `_`.
    pub fn service(&self, name: &str) -> Result<Arc<ServiceMetrics>> {
        vocabulary::check_service(name)?;
        Ok(Arc::new(ServiceMetrics {
            name: name.into(),
            words: self.words,
            requests: Slots::new(self.words.routes.len() * Outcome::ALL.len()),
            durations: Slots::new(Outcome::ALL.len()),
            legs: Slots::new(LegOutcome::ALL.len()),
            retries: Slots::new(self.words.retry_reasons.len() * ROLES.len()),
            leg_first_bytes: Slots::new(PAIR.len()),
            leg_durations: Slots::new(PAIR.len()),
            handoffs: Slots::new(1),
            first_byte: self.first_byte.get_metric_with_label_values(&[name])?,
            budget: self.budget.get_metric_with_label_values(&[name])?,
            stream_events: self.stream_events.get_metric_with_label_values(&[name])?,
            stream_gaps: self.stream_gaps.get_metric_with_label_values(&[name])?,
            stream_gap_seconds: self.stream_gap_seconds.get_metric_with_label_values(&[name])?,
            prompt_tokens: self.tokens.get_metric_with_label_values(&["prompt", name])?,
            completion_tokens: self.tokens.get_metric_with_label_values(&["completion", name])?,
            unreadable: self.unreadable.get_metric_with_label_values(&[name])?,
            requests_vec: self.requests.clone(),
            durations_vec: self.duration.clone(),
            legs_vec: self.legs.clone(),
            retries_vec: self.retries.clone(),
            leg_first_byte_vec: self.leg_first_byte.clone(),
            leg_duration_vec: self.leg_duration.clone(),
            handoff_vec: self.handoff.clone(),
        }))
    }
}

/// Handles of one service, shared by all traffic threads.
#[derive(Debug)]
pub struct ServiceMetrics {
    name: Box<str>,
    words: Vocabulary,
    requests: Slots<IntCounter>,
    durations: Slots<Histogram>,
    legs: Slots<IntCounter>,
    retries: Slots<IntCounter>,
    leg_first_bytes: Slots<Histogram>,
    leg_durations: Slots<Histogram>,
    handoffs: Slots<Histogram>,
    first_byte: Histogram,
    budget: IntCounter,
    pub(super) stream_events: IntCounter,
    pub(super) stream_gaps: IntCounter,
    pub(super) stream_gap_seconds: Counter,
    prompt_tokens: IntCounter,
    completion_tokens: IntCounter,
    unreadable: IntCounter,
    requests_vec: IntCounterVec,
    durations_vec: HistogramVec,
    legs_vec: IntCounterVec,
    retries_vec: IntCounterVec,
    leg_first_byte_vec: HistogramVec,
    leg_duration_vec: HistogramVec,
    handoff_vec: HistogramVec,
}

impl ServiceMetrics {
    /// A request ended. Called exactly once per request (I7).
    pub fn ended(&self, seen: Observed) {
        let outcome = seen.outcome.as_str();
        let position = seen.outcome as usize;
        let index = seen.route * Outcome::ALL.len() + position;
        let requests = self.requests.get(index, || {
            let route = self.words.routes.get(seen.route)?;
            self.requests_vec.get_metric_with_label_values(&[*route, outcome, &self.name]).ok()
        });
        if let Some(counter) = requests {
            counter.inc();
        }
        let duration = self
            .durations
            .get(position, || self.durations_vec.get_metric_with_label_values(&[outcome, &self.name]).ok());
        if let Some(histogram) = duration {
            histogram.observe(seen.duration.as_secs_f64());
        }
        if let Some(first) = seen.first_byte {
            self.first_byte.observe(first.as_secs_f64());
        }
    }

    /// A leg ended. Called exactly once per leg (I7).
    pub fn leg(&self, outcome: LegOutcome) {
        let vec = &self.legs_vec;
        let labels = [outcome.as_str(), &self.name];
        if let Some(counter) =
            self.legs.get(outcome as usize, || vec.get_metric_with_label_values(&labels).ok())
        {
            counter.inc();
        }
    }

    /// The times of a leg of a prefill/decode pair; other roles are not counted.
    pub fn leg_time(&self, role: &'static str, duration: Duration, first_byte: Option<Duration>) {
        let Some(index) = PAIR.iter().position(|word| *word == role) else { return };
        let labels = [role, &self.name];
        let of = |slots: &Slots<Histogram>, vec: &HistogramVec, time: Duration| {
            if let Some(histogram) = slots.get(index, || vec.get_metric_with_label_values(&labels).ok()) {
                histogram.observe(time.as_secs_f64());
            }
        };
        of(&self.leg_durations, &self.leg_duration_vec, duration);
        if let Some(first) = first_byte {
            of(&self.leg_first_bytes, &self.leg_first_byte_vec, first);
        }
    }

    /// A decode was sent KV parameters of this age.
    pub fn handed_over(&self, age: Duration) {
        let vec = &self.handoff_vec;
        if let Some(histogram) = self.handoffs.get(0, || vec.get_metric_with_label_values(&[&self.name]).ok())
        {
            histogram.observe(age.as_secs_f64());
        }
    }

    /// A further attempt is made, after an engine of this role failed. `reason` is a word of
    /// [`Vocabulary::retry_reasons`]; others are not counted.
    pub fn retry(&self, role: &'static str, reason: &'static str) {
        let position = |words: &[&str], wanted| words.iter().position(|word| *word == wanted);
        let (Some(role_at), Some(reason_at)) =
            (position(ROLES, role), position(self.words.retry_reasons, reason))
        else {
            debug_assert!(false, "retry after {role} {reason} is not in the vocabulary");
            return;
        };
        let index = reason_at * ROLES.len() + role_at;
        let labels = [reason, role, &self.name];
        if let Some(counter) =
            self.retries.get(index, || self.retries_vec.get_metric_with_label_values(&labels).ok())
        {
            counter.inc();
        }
    }

    /// What an engine said it read and wrote for one request.
    pub fn tokens(&self, prompt: u64, completion: u64) {
        self.prompt_tokens.inc_by(prompt);
        self.completion_tokens.inc_by(completion);
    }

    /// An engine's `usage` could not be read.
    pub fn usage_unreadable(&self) {
        self.unreadable.inc();
    }

    /// The retry table allowed an attempt, the budget did not.
    pub fn budget_exhausted(&self) {
        self.budget.inc();
    }
}

/// Handles that are resolved on first use.
#[derive(Debug)]
struct Slots<T>(Box<[OnceLock<T>]>);

impl<T> Slots<T> {
    fn new(len: usize) -> Self {
        Self((0..len).map(|_| OnceLock::new()).collect())
    }

    /// `None` for an index beyond the vocabulary: a mistake of the caller must not end a request.
    #[inline]
    fn get(&self, index: usize, resolve: impl FnOnce() -> Option<T>) -> Option<&T> {
        let slot = self.0.get(index)?;
        if let Some(handle) = slot.get() {
            return Some(handle);
        }
        let handle = resolve()?;
        Some(slot.get_or_init(|| handle))
    }
}
