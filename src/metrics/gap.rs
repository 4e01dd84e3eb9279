//! Times between the events of one stream, gathered without atomics.
//!
//! A token stream has hundreds of events a second: observing a histogram for each would cost more than relaying it.
//! The relay keeps one of these per stream (plain fields), and flushes it into its service's counters at most once a
//! second and at the end of the stream.

use std::time::Duration;

use super::ServiceMetrics;
use crate::types::clock::Instant;

/// Shortest time between two flushes of one stream.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// What is not flushed yet, and the facts of the whole stream that the access line shows.
#[derive(Debug, Default, Clone)]
pub struct GapStats {
    /// Events of the whole stream.
    pub events: u64,
    /// Longest gap of the whole stream.
    pub longest: Duration,
    pending_events: u64,
    pending_gaps: u64,
    pending_sum: Duration,
    last_event: Option<Instant>,
    last_flush: Option<Instant>,
}

impl GapStats {
    /// `count` events arrived together at `now`. Those of one read count as one arrival: one gap before the first.
    #[inline]
    pub fn arrived(&mut self, count: u64, now: Instant, to: &ServiceMetrics) {
        if count == 0 {
            return;
        }
        self.events += count;
        self.pending_events += count;
        if let Some(last) = self.last_event {
            let gap = now.saturating_duration_since(last);
            self.longest = self.longest.max(gap);
            self.pending_sum += gap;
            self.pending_gaps += count;
        } else {
            self.pending_gaps += count - 1;
        }
        self.last_event = Some(now);
        let since = *self.last_flush.get_or_insert(now);
        if now.saturating_duration_since(since) >= FLUSH_EVERY {
            self.last_flush = Some(now);
            self.flush(to);
        }
    }

    /// At the end of the stream.
    pub fn flush(&mut self, to: &ServiceMetrics) {
        if self.pending_events == 0 {
            return;
        }
        to.stream_events.inc_by(self.pending_events);
        to.stream_gaps.inc_by(self.pending_gaps);
        to.stream_gap_seconds.inc_by(self.pending_sum.as_secs_f64());
        (self.pending_events, self.pending_gaps, self.pending_sum) = (0, 0, Duration::ZERO);
    }
}
