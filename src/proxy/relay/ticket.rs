//! One request's ticket: what is known of it, what it holds, and how it ended. Dropping it releases everything and
//! records exactly one outcome (I7), in the metrics and as one access line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};

use super::leg::Leg;
use super::observe::Usage;
use crate::metrics::{NO_SERVICE, Observed, RevisionMetrics};
use crate::proxy::admission::Permit;
use crate::proxy::context::Worker;
use crate::proxy::listener::{Downstream, OpenRequest, Protocol, STREAM};
use crate::proxy::request::id::RequestId;
use crate::proxy::request::route::Route;
use crate::proxy::request::trace::Spans;
use crate::proxy::rescue::Rescue;
use crate::proxy::route::Decision;
use crate::registry::{Cohort, Endpoint, Service};
use crate::telemetry::access::{AccessPair, AccessRecord};
use crate::types::clock::{self, Instant};
use crate::types::outcome::Outcome;

/// Exists from the moment a request head is complete until its response body ends.
#[derive(Debug)]
pub struct Ticket {
    pub worker: Arc<Worker>,
    open: OpenRequest,
    pub id: RequestId,
    pub protocol: Protocol,
    pub method: Method,
    /// `None`: no such route.
    pub route: Option<Route>,
    pub started: Instant,
    pub model: Option<Box<str>>,
    pub stream: bool,
    pub service: Option<Arc<Service>>,
    /// The cohort that was decided for the last attempt, and under which split (0: none).
    pub cohort: Option<Arc<Cohort>>,
    pub split_version: u64,
    /// The engine of the last attempt.
    pub endpoint: Option<Arc<Endpoint>>,
    /// The last attempt's, where there are two legs.
    pub pair: Option<Box<PairFacts>>,
    pub attempts: u32,
    /// The last attempt was not one that was given back.
    begun: bool,
    /// Role of the engine that failed, and how, for each further attempt; at most `retries.max`.
    pub retried: Vec<(&'static str, &'static str)>,
    /// A further attempt was refused by the budget.
    pub budget_exhausted: bool,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub events: u64,
    pub longest_gap: Option<Duration>,
    pub usage: Option<Usage>,
    pub first_byte: Option<Duration>,
    pub status: Option<StatusCode>,
    pub error: Option<&'static str>,
    outcome: Option<Outcome>,
    pub in_flight: Option<Permit>,
    pub buffered: Option<Permit>,
}

impl Ticket {
    pub fn new(
        worker: Arc<Worker>,
        down: &Arc<Downstream>,
        protocol: Protocol,
        method: Method,
        id: RequestId,
    ) -> Box<Self> {
        worker.shared.metrics.router.in_flight.inc();
        worker.load.streams.fetch_add(1, Ordering::Relaxed);
        Box::new(Self {
            worker,
            open: OpenRequest::new(down),
            id,
            protocol,
            method,
            route: None,
            started: clock::recent(),
            model: None,
            stream: false,
            service: None,
            cohort: None,
            split_version: 0,
            endpoint: None,
            pair: None,
            attempts: 0,
            begun: false,
            retried: Vec::new(),
            budget_exhausted: false,
            bytes_in: 0,
            bytes_out: 0,
            events: 0,
            longest_gap: None,
            usage: None,
            first_byte: None,
            status: None,
            error: None,
            outcome: None,
            in_flight: None,
            buffered: None,
        })
    }

    pub fn down(&self) -> &Arc<Downstream> {
        &self.open.0
    }

    /// The first cause counts: a stream that failed and is then given up by the client failed.
    pub fn end(&mut self, outcome: Outcome) {
        self.outcome.get_or_insert(outcome);
    }

    /// Ends with a failure of the table.
    pub fn rescued(&mut self, rescue: &Rescue) {
        self.error.get_or_insert(rescue.code);
        self.end(rescue.outcome);
        self.worker.shared.metrics.router.error(rescue.code);
    }

    /// A cohort was decided for the next attempt.
    pub fn decided(&mut self, service: &Service, decision: &Decision) {
        if self.attempts == 0 {
            decision.cohort.request();
        }
        if let Some((cohort, why)) = &decision.passed_on {
            cohort.counts.passed_on(*why);
        }
        // One cohort of no split is no news to anybody.
        if service.split.is_some() || service.cohorts.len() > 1 {
            self.cohort = Some(Arc::clone(&decision.cohort));
            self.split_version = decision.split_version;
        }
    }

    /// The cohort and the split's version of the last attempt, where clients and engines are told.
    pub fn told_cohort(&self) -> Option<(&str, u64)> {
        let told = self.service.as_ref().is_some_and(|service| service.config.cohort_headers);
        let cohort = self.cohort.as_ref().filter(|_| told)?;
        Some((&*cohort.name, self.split_version))
    }

    /// An attempt begins on `leg`'s engine.
    pub fn attempt(&mut self, leg: &Leg) {
        // The one before failed, whatever comes of this one.
        self.each_revision(RevisionMetrics::failed);
        self.attempts += 1;
        self.begun = true;
        self.endpoint = Some(Arc::clone(leg.endpoint()));
    }

    /// For the revisions of the attempt that has begun last.
    fn each_revision(&self, count: impl Fn(&RevisionMetrics)) {
        let prefill = self.pair.as_ref().map(|pair| &pair.prefill);
        let engines = self.endpoint.iter().chain(prefill).filter(|_| self.begun);
        engines.filter_map(|engine| engine.metrics.revision.as_ref()).for_each(count);
    }

    /// An attempt begins on two engines. The decode is the one that answers.
    pub fn pair_attempt(&mut self, prefill: &mut Leg, decode: &Leg, spans: Option<Spans>) {
        self.attempt(decode);
        let prefill_us = Arc::default();
        prefill.timed_in(Arc::clone(&prefill_us));
        let prefill = Arc::clone(prefill.endpoint());
        self.pair =
            Some(Box::new(PairFacts { prefill, prefill_us, sent: None, decode: None, handoff: None, spans }));
    }

    /// The decode is sent its request now, with KV parameters of this age where it gets any.
    pub fn decode_sent(&mut self, handoff: Option<Duration>) {
        if let Some(pair) = &mut self.pair {
            (pair.sent, pair.handoff) = (Some(clock::recent()), handoff);
        }
    }

    /// The decode has come to its first token (no stream: to its head).
    pub fn decode_began(&mut self) {
        if let Some(pair) = &mut self.pair {
            pair.decode = pair.sent.map(|sent| clock::recent().saturating_duration_since(sent));
        }
    }

    /// The attempt that had begun was not made: its endpoint was withdrawn first.
    pub fn withdrawn(&mut self) {
        self.attempts -= 1;
        self.begun = false;
    }

    fn record(&mut self) {
        let shared = &self.worker.shared;
        // Given up without a word: by the client, or by us because it did not even take the error of a forced end.
        let cut = match () {
            // Dropped by the unwinding of its own task.
            () if std::thread::panicking() => Outcome::Internal,
            () if self.down().is_forced() => Outcome::Forced,
            () => Outcome::ClientCancelled,
        };
        let outcome = self.outcome.unwrap_or(cut);
        if outcome == Outcome::Internal {
            self.error.get_or_insert("internal_error");
        }
        if outcome == Outcome::Forced {
            shared.metrics.router.forced_requests.inc();
        }
        if outcome == Outcome::ClientCancelled && self.error.is_none() {
            // Of an HTTP/2 stream either the whole connection was, or it alone; its task is what drops this.
            let stream_stalled = || STREAM.try_with(|stream| stream.is_stalled()).unwrap_or(false);
            self.error = Some(if self.down().is_stalled() || stream_stalled() {
                "client_stalled"
            } else {
                "client_left"
            });
        }
        let duration = clock::recent().saturating_duration_since(self.started);
        let metrics =
            self.service.as_ref().and_then(|s| shared.services.get(s.index)).unwrap_or(&shared.no_service);
        metrics.ended(Observed {
            route: Route::index(self.route),
            outcome,
            duration,
            first_byte: self.first_byte,
        });
        self.each_revision(|revision| revision.ended(outcome, self.first_byte));
        if let Some(usage) = self.usage {
            metrics.tokens(usage.prompt, usage.completion);
        }
        self.worker.access.log(&AccessRecord {
            request_id: self.id.as_str(),
            peer: self.down().peer.ip(),
            protocol: self.protocol.as_str(),
            method: self.method.as_str(),
            route: Route::word(self.route),
            model: self.model.as_deref(),
            service: self.service.as_ref().map_or(NO_SERVICE, |s| &s.config.name),
            endpoint: self.endpoint.as_ref().map(|e| e.url.as_str()),
            pair: self.pair.as_ref().map(|pair| pair.access()),
            cohort: self.cohort.as_ref().map(|cohort| &*cohort.name),
            split_version: Some(self.split_version).filter(|version| *version != 0),
            stream: self.stream,
            status: self.status.map_or(0, |s| s.as_u16()),
            outcome,
            error: self.error,
            attempts: self.attempts,
            retried: &self.retried,
            budget_exhausted: self.budget_exhausted,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            events: self.events,
            ttfb_us: self.first_byte.map(|d| d.as_micros() as u64),
            duration_us: duration.as_micros() as u64,
            longest_gap_us: self.longest_gap.map(|d| d.as_micros() as u64),
        });
    }
}

/// What an attempt with two legs leaves for the access line.
#[derive(Debug)]
pub struct PairFacts {
    prefill: Arc<Endpoint>,
    /// How long the prefill's leg took, microseconds; 0 while it is not over.
    prefill_us: Arc<AtomicU64>,
    /// When the decode was sent its request, and how long it took from there.
    sent: Option<Instant>,
    decode: Option<Duration>,
    handoff: Option<Duration>,
    pub spans: Option<Spans>,
}

impl PairFacts {
    fn access(&self) -> AccessPair<'_> {
        let micros = |time: Duration| time.as_micros() as u64;
        AccessPair {
            prefill: &self.prefill.url,
            prefill_us: Some(self.prefill_us.load(Ordering::Acquire)).filter(|us| *us != 0),
            decode_us: self.decode.map(micros),
            handoff_us: self.handoff.map(micros),
            spans: self.spans.as_ref().map(Spans::as_text),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.record();
        self.worker.shared.metrics.router.in_flight.dec();
        self.worker.load.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
