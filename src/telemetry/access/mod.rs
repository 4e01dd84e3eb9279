//! The access log: one line per request, written when the request is over.
//!
//! No prompt, no secret, no query string: the record has no field for them. A slow, full or broken sink costs lines,
//! never time:
//!
//! ```text
//! traffic thread: AccessLog::log -> own buffer --full (32 KiB) or old (200 ms)--> bounded queue --> writer thread -> sink
//!                                                          queue full: lines dropped and counted
//! ```
//!
//! [`AccessSink`] is the process's one writer; [`AccessSink::handle`] gives each traffic thread its [`AccessLog`]. The
//! buffer's lock is there so that a handle may be held by futures that must be `Send`; as only one thread uses a handle
//! (and `close` at the very end) it is never waited for.

mod line;
mod time;
mod writer;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::config;
use crate::metrics::AccessLogMetrics;
use crate::types::clock::{self, Instant};
use crate::types::outcome::Outcome;
use time::Stamp;
pub use writer::AccessSink;
use writer::{Batch, Queue};

/// A buffer this full is handed over, bytes.
const FULL: usize = 32 * 1024;
/// Room for the line that crosses [`FULL`], bytes.
const SPARE: usize = 4 * 1024;
/// A buffer whose first line is this old is handed over by [`AccessLog::flush_if_due`].
const OLD: Duration = Duration::from_millis(200);

/// What one line says. Texts from outside may be anything: they are cut and escaped.
#[derive(Debug, Clone, Copy)]
pub struct AccessRecord<'a> {
    pub request_id: &'a str,
    /// Address of the connection's peer.
    pub peer: IpAddr,
    /// `h1` or `h2`.
    pub protocol: &'static str,
    pub method: &'a str,
    /// The route's word, never the path.
    pub route: &'static str,
    /// As the client wrote it; cut to 128 bytes.
    pub model: Option<&'a str>,
    pub service: &'a str,
    /// Origin of the last endpoint tried, without user information.
    pub endpoint: Option<&'a str>,
    /// Where a request has two legs.
    pub pair: Option<AccessPair<'a>>,
    /// That was decided for the last attempt, where there is more than one.
    pub cohort: Option<&'a str>,
    /// Of the split that it was decided under.
    pub split_version: Option<u64>,
    /// Whether the answer was an event stream.
    pub stream: bool,
    /// Status sent; 0 when the client left before one was.
    pub status: u16,
    pub outcome: Outcome,
    /// Code of the error table, where the router made the error.
    pub error: Option<&'static str>,
    /// Attempts on engines, the first included.
    pub attempts: u32,
    /// Role of the engine that failed, and how, for each further attempt.
    pub retried: &'a [(&'static str, &'static str)],
    /// A further attempt was refused by the retry budget.
    pub budget_exhausted: bool,
    /// Request body bytes received.
    pub bytes_in: u64,
    /// Response body bytes handed to the client's connection.
    pub bytes_out: u64,
    /// From the request head read to the first response body byte, microseconds.
    pub ttfb_us: Option<u64>,
    /// From the request head read to the end, microseconds.
    pub duration_us: u64,
    /// Stream events relayed; shown for streams only.
    pub events: u64,
    /// Longest time between two events, microseconds; shown for streams only.
    pub longest_gap_us: Option<u64>,
}

/// The last attempt's two legs.
#[derive(Debug, Clone, Copy)]
pub struct AccessPair<'a> {
    /// Origin of the prefill, without user information.
    pub prefill: &'a str,
    /// How long its leg took, microseconds, if it was over.
    pub prefill_us: Option<u64>,
    /// From the decode's request sent to its first token (no stream: its head), microseconds.
    pub decode_us: Option<u64>,
    /// Age of the KV parameters when the decode was sent them, microseconds.
    pub handoff_us: Option<u64>,
    /// Trace id, the prefill's span id, the decode's: where the client sent a trace.
    pub spans: Option<[&'a str; 3]>,
}

/// One traffic thread's end of the access log. Clones share the buffer.
#[derive(Debug, Clone)]
pub struct AccessLog(Option<Arc<Local>>);

/// The buffer of one traffic thread.
#[derive(Debug)]
pub(super) struct Local {
    format: config::LogFormat,
    sample: f64,
    metrics: AccessLogMetrics,
    pending: Mutex<Pending>,
}

#[derive(Debug)]
struct Pending {
    batch: Batch,
    since: Option<Instant>,
    stamp: Stamp,
    queue: Queue,
}

impl AccessLog {
    /// A handle that writes nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// Appends the line of one request that is over. Never blocks, never fails.
    pub fn log(&self, record: &AccessRecord<'_>) {
        let Some(local) = &self.0 else { return };
        if record.outcome == Outcome::Ok && local.sample < 1.0 && fastrand::f64() >= local.sample {
            return;
        }
        let ms = clock::wall_ms();
        let mut pending = local.pending.lock();
        let Pending { batch, since, stamp, .. } = &mut *pending;
        line::write(&mut batch.bytes, local.format, stamp, ms, record);
        batch.lines += 1;
        if batch.bytes.len() >= FULL {
            local.hand_over(&mut pending);
        } else if since.is_none() {
            *since = Some(clock::now());
        }
    }

    /// Hands the buffer over when its first line is 200 ms old. For the traffic thread's ticker.
    pub fn flush_if_due(&self, now: Instant) {
        let Some(local) = &self.0 else { return };
        let mut pending = local.pending.lock();
        if pending.since.is_some_and(|since| now.saturating_duration_since(since) >= OLD) {
            local.hand_over(&mut pending);
        }
    }

    /// Hands the buffer over now. Lines are lost (and counted) if the queue is full.
    pub fn flush(&self) {
        if let Some(local) = &self.0 {
            local.hand_over(&mut local.pending.lock());
        }
    }
}

impl Local {
    fn new(format: config::LogFormat, sample: f64, metrics: AccessLogMetrics, queue: Queue) -> Arc<Self> {
        let pending = Pending { batch: queue.empty(), since: None, stamp: Stamp::default(), queue };
        Arc::new(Self { format, sample, metrics, pending: Mutex::new(pending) })
    }

    fn hand_over(&self, pending: &mut Pending) {
        pending.since = None;
        if pending.batch.lines == 0 {
            return;
        }
        let next = pending.queue.empty();
        let full = std::mem::replace(&mut pending.batch, next);
        if let Err(refused) = pending.queue.offer(full) {
            self.metrics.dropped_lines.inc_by(refused.lines);
            pending.batch = refused.cleared();
        }
    }

    /// For `close`: takes what is pending and leaves an empty buffer.
    fn take(&self) -> Batch {
        let mut pending = self.pending.lock();
        pending.since = None;
        std::mem::take(&mut pending.batch)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let mut pending = self.pending.lock();
        self.hand_over(&mut pending);
    }
}

#[cfg(test)]
mod tests;
