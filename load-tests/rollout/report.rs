//! The figures of one run, as JSON and as a table.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tandem::types::clock::Instant;

use super::fleet::{Verdict, ms};
use super::load::Sample;
use super::roll::Rolled;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) engine: &'static str,
    pub(crate) rate: f64,
    pub(crate) requests: usize,
    pub(crate) client_errors: usize,
    /// What they were; at most ten kinds.
    pub(crate) errors: BTreeMap<String, usize>,
    pub(crate) before: Latency,
    pub(crate) during: Latency,
    /// TTFT at the 99th percentile, during the roll to before it.
    pub(crate) ttft_p99_ratio: Option<f64>,
    pub(crate) engines: Verdict,
    pub(crate) roll: Rolled,
    pub(crate) restart: Option<Restart>,
    /// Of this process' own timers in the run, the worst: it is in every latency.
    pub(crate) late_ms: f64,
}

/// One router of two, left and back.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Restart {
    /// From SIGTERM to the end of the process.
    pub(crate) left_ms: f64,
    /// Requests given to it before, and after its return.
    pub(crate) served_before: u64,
    pub(crate) served_after: u64,
}

/// Milliseconds from the intended arrival.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Latency {
    pub(crate) requests: usize,
    pub(crate) ttft_p50_ms: f64,
    pub(crate) ttft_p99_ms: f64,
    pub(crate) total_p50_ms: f64,
    pub(crate) total_p99_ms: f64,
}

impl Latency {
    /// Of requests that were due in this time and answered.
    pub(crate) fn of(samples: &[Sample], from: Instant, to: Instant) -> Self {
        let took: Vec<(Duration, Duration)> = samples
            .iter()
            .filter(|sample| (from..to).contains(&sample.due))
            .filter_map(|sample| sample.took.as_ref().ok().copied())
            .collect();
        let of = |pick: fn(&(Duration, Duration)) -> Duration, share: f64| {
            let mut times: Vec<Duration> = took.iter().map(pick).collect();
            times.sort_unstable();
            let at = (times.len() as f64 * share).ceil().max(1.0);
            #[expect(clippy::cast_sign_loss, reason = "at least 1")]
            times.get(at as usize - 1).map_or(0.0, |time| ms(*time))
        };
        Self {
            requests: took.len(),
            ttft_p50_ms: of(|took| took.0, 0.5),
            ttft_p99_ms: of(|took| took.0, 0.99),
            total_p50_ms: of(|took| took.1, 0.5),
            total_p99_ms: of(|took| took.1, 0.99),
        }
    }
}

/// Kinds of errors, by the beginning of what they say.
pub(crate) fn errors(samples: &[Sample]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for wrong in samples.iter().filter_map(|sample| sample.took.as_ref().err()) {
        let kind: String = wrong.chars().take(200).collect();
        let known = kinds.len() < 10 || kinds.contains_key(&kind);
        *kinds.entry(if known { kind } else { "other".to_owned() }).or_default() += 1;
    }
    kinds
}

impl Report {
    /// What has to be zero and is not.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let engines = &self.engines;
        [
            ("client errors", self.client_errors as u64),
            ("cross-cohort pairs", engines.crossed),
            ("decodes without a prefill", engines.unpaired),
            ("answers from wrong KV", engines.wrong_kv),
            ("connections to engines that were gone", engines.connections_after_the_end),
            ("requests at weight 0", self.roll.at_zero as u64),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{what}: {count}"))
        .collect()
    }

    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let (before, during, engines) = (&self.before, &self.during, &self.engines);
        let mut quiesce: Vec<(f64, &str)> =
            self.roll.quiesce_ms.iter().map(|(name, time)| (*time, name.as_str())).collect();
        quiesce.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let middle = quiesce.get(quiesce.len() / 2).map_or("-".to_owned(), |(time, _)| format!("{time:.0}"));
        let most = quiesce.last().map_or("-".to_owned(), |(time, name)| format!("{time:.0} ({name})"));
        let ratio = self.ttft_p99_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let mut rows = vec![
            ("requests", self.requests.to_string()),
            ("client errors", self.client_errors.to_string()),
            ("cross-cohort pairs", engines.crossed.to_string()),
            ("pairs of the old release, of the new", format!("{}, {}", engines.pairs_old, engines.pairs_new)),
            ("prefills that no decode was told of", engines.prefills_unused.to_string()),
            ("decodes without a prefill, wrong KV", format!("{}, {}", engines.unpaired, engines.wrong_kv)),
            (
                "begun 50 ms after the withdrawal was acknowledged",
                engines.begun_after_acknowledged.to_string(),
            ),
            ("last request after a Pod's change, ms", format!("{:.1}", engines.last_begun_after_change_ms)),
            ("connections after an engine's end", engines.connections_after_the_end.to_string()),
            ("requests at weight 0", self.roll.at_zero.to_string()),
            ("TTFT p50 before, during, ms", format!("{:.1}, {:.1}", before.ttft_p50_ms, during.ttft_p50_ms)),
            ("TTFT p99 before, during, ms", format!("{:.1}, {:.1}", before.ttft_p99_ms, during.ttft_p99_ms)),
            ("TTFT p99 ratio", ratio),
            ("time to quiesce, median, most, ms", format!("{middle}, {most}")),
            ("the roll, s", format!("{:.1}", self.roll.seconds)),
            (
                "engines cut busy, new ones without a request",
                format!("{}, {}", self.roll.cut, self.roll.unused),
            ),
            ("this machine's worst lateness, ms", format!("{:.0}", self.late_ms)),
        ];
        if let Some(restart) = &self.restart {
            rows.push(("router restarted: from SIGTERM to its end, ms", format!("{:.0}", restart.left_ms)));
            let served = format!("{}, {}", restart.served_before, restart.served_after);
            rows.push(("requests given to it before, after", served));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use tandem::types::clock::now;

    use super::*;

    #[test]
    fn latencies_are_of_what_was_due_in_the_time_and_answered() {
        let start = now();
        let second = Duration::from_secs(1);
        let one = |at: u64, took: Option<u64>| Sample {
            due: start + Duration::from_millis(at),
            took: took.map(|ms| (Duration::from_millis(ms), second)).ok_or_else(String::new),
        };
        let mut samples: Vec<Sample> = (1..=100).map(|n| one(n, Some(n))).collect();
        samples.extend([one(50, None), one(1000, Some(9999))]);
        let latency = Latency::of(&samples, start, start + second);
        assert_eq!((latency.requests, latency.ttft_p50_ms, latency.ttft_p99_ms), (100, 50.0, 99.0));
        assert!(Latency::of(&samples, start + 2 * second, start + 3 * second).ttft_p99_ms.abs() < 1e-9);
    }

    #[test]
    fn kinds_of_errors_are_bounded_and_none_is_lost() {
        let wrong = |n: usize| Sample { due: now(), took: Err(format!("error {n}")) };
        let kinds = errors(&(0..30).map(|n| wrong(n % 15)).collect::<Vec<_>>());
        assert_eq!((kinds.len(), kinds["other"], kinds.values().sum::<usize>()), (11, 10, 30));
    }
}
