//! Counts and latencies, and their JSON form. All times are microseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::decode::Fault;

/// Three digits up to two minutes, in nanoseconds: about 150 KiB for each histogram.
const HIGHEST_NS: u64 = 120_000_000_000;

/// What happened to the requests.
#[derive(Debug, Default)]
pub struct Report {
    requests: usize,
    events: usize,
    answered: usize,
    faults: BTreeMap<Fault, usize>,
    wall: Duration,
    times: Option<Times>,
}

#[derive(Debug)]
struct Times {
    late: Histogram<u64>,
    first: Histogram<u64>,
    whole: Histogram<u64>,
}

impl Report {
    /// A report on `requests` requests.
    ///
    /// # Errors
    /// The histograms' bounds, which are constants.
    pub fn new(requests: usize) -> anyhow::Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, HIGHEST_NS, 3);
        let times = Times { late: histogram()?, first: histogram()?, whole: histogram()? };
        Ok(Self { requests, times: Some(times), ..Self::default() })
    }

    /// A right answer of `events` events: how late the start was, and the times from when it was due to the first byte and
    /// to the end.
    pub fn record(&mut self, late: Duration, first: Duration, whole: Duration, events: usize) {
        self.answered += 1;
        self.events += events;
        if let Some(times) = &mut self.times {
            for (histogram, time) in
                [(&mut times.late, late), (&mut times.first, first), (&mut times.whole, whole)]
            {
                histogram.saturating_record(time.as_nanos() as u64);
            }
        }
    }

    /// A request without a right answer.
    pub fn failed(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Closes the report; requests without any result count as unfinished.
    pub fn end(&mut self, wall: Duration) {
        self.wall = wall;
        let left = self.requests.saturating_sub(self.answered + self.errors());
        if left > 0 {
            *self.faults.entry(Fault::Unfinished).or_default() += left;
        }
    }

    /// Requests that were not answered right.
    pub fn errors(&self) -> usize {
        self.faults.values().sum()
    }

    /// The report as `compare.py` reads it.
    pub fn to_json(&self) -> Value {
        let faults: BTreeMap<String, usize> =
            self.faults.iter().map(|(fault, count)| (format!("{fault:?}"), *count)).collect();
        let wall = self.wall.as_secs_f64();
        let mut value = json!({
            "requests": self.answered,
            "events": self.events,
            "errors": self.errors(),
            "faults": faults,
            "wall_s": wall,
            "requests_per_s": if wall > 0.0 { self.answered as f64 / wall } else { 0.0 },
        });
        if let Some(times) = &self.times {
            value["latency_us"] = percentiles(&times.whole);
            value["ttft_us"] = percentiles(&times.first);
            value["start_late_us"] = percentiles(&times.late);
        }
        value
    }
}

fn percentiles(histogram: &Histogram<u64>) -> Value {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    json!({
        "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999),
        "max": histogram.max() as f64 / 1000.0, "mean": histogram.mean() / 1000.0,
    })
}
