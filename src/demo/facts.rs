//! What the router knows of its requests: its own access lines, read from the pipe that they are written to, and what
//! they add up to.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe;

/// Streams of which the time to first token is remembered; lines that are shown.
const TTFTS: usize = 100;
const RECENT: usize = 6;

/// One access line; docs/access-log.md says what each field is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Line {
    pub(super) time: String,
    pub(super) request_id: String,
    pub(super) route: String,
    pub(super) endpoint: Option<String>,
    pub(super) prefill: Option<String>,
    pub(super) stream: bool,
    pub(super) status: u16,
    pub(super) outcome: String,
    pub(super) error: Option<String>,
    pub(super) attempts: u32,
    pub(super) retried: Option<String>,
    pub(super) ttfb_us: Option<u64>,
    pub(super) prefill_us: Option<u64>,
    pub(super) handoff_us: Option<u64>,
    pub(super) decode_us: Option<u64>,
    pub(super) duration_us: u64,
    pub(super) events: Option<u64>,
}

impl Line {
    pub(super) fn is_ok(&self) -> bool {
        self.outcome == "ok"
    }

    /// Of streams alone: the router holds their first bytes back until the first token is there, a plain answer comes whole.
    pub(super) fn ttft_us(&self) -> Option<u64> {
        self.ttfb_us.filter(|_| self.stream)
    }
}

/// The reading end of the access log.
#[derive(Debug)]
pub(super) struct Lines(tokio::io::Lines<BufReader<pipe::Receiver>>);

impl Lines {
    /// Both ends: what the router writes to, and its lines.
    pub(super) fn pipe() -> io::Result<(File, Self)> {
        let (read, write) = io::pipe()?;
        let read = pipe::Receiver::from_owned_fd(OwnedFd::from(read))?;
        Ok((File::from(OwnedFd::from(write)), Self(BufReader::new(read).lines())))
    }

    /// The next one; `None` when the router has closed its log.
    pub(super) async fn next(&mut self) -> Option<Line> {
        while let Some(text) = self.0.next_line().await.ok()? {
            if let Ok(line) = serde_json::from_str(&text) {
                return Some(line);
            }
        }
        None
    }
}

/// What the lines add up to. Bounded: endpoints are four, outcomes a list.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) outcomes: BTreeMap<String, u64>,
    /// Good answers by engine, and by pair: prefill, decode.
    pub(super) served: BTreeMap<String, u64>,
    pub(super) pairs: BTreeMap<(String, String), u64>,
    pub(super) retries: u64,
    /// The last ones, oldest first.
    pub(super) recent: VecDeque<Line>,
    ttfts: VecDeque<u64>,
}

impl Tally {
    pub(super) fn add(&mut self, line: Line) {
        *self.outcomes.entry(line.outcome.clone()).or_default() += 1;
        self.retries += u64::from(line.attempts.saturating_sub(1));
        if line.is_ok() {
            for url in [&line.prefill, &line.endpoint].into_iter().flatten() {
                *self.served.entry(url.clone()).or_default() += 1;
            }
            if let (Some(prefill), Some(decode)) = (&line.prefill, &line.endpoint) {
                *self.pairs.entry((prefill.clone(), decode.clone())).or_default() += 1;
            }
            self.ttfts.extend(line.ttft_us());
        }
        self.recent.push_back(line);
        self.ttfts.drain(..self.ttfts.len().saturating_sub(TTFTS));
        self.recent.drain(..self.recent.len().saturating_sub(RECENT));
    }

    /// All that are over.
    pub(super) fn requests(&self) -> u64 {
        self.outcomes.values().sum()
    }

    /// Median and highest of the last streams, microseconds, and of how many.
    pub(super) fn ttft(&self) -> Option<(u64, u64, usize)> {
        let mut sorted: Vec<u64> = self.ttfts.iter().copied().collect();
        sorted.sort_unstable();
        Some((*sorted.get(sorted.len() / 2)?, *sorted.last()?, sorted.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn lines_add_up_by_engine_pair_and_outcome() {
        let mut tally = Tally::default();
        let ok =
            r#"{"outcome":"ok","stream":true,"prefill":"p","endpoint":"d","attempts":2,"ttfb_us":7,"new":1}"#;
        tally.add(line(ok));
        tally.add(line(&ok.replace(":7", ":9").replace("\"p\"", "\"q\"")));
        tally.add(line(r#"{"outcome":"ok","endpoint":"d","attempts":1,"ttfb_us":1000}"#));
        tally.add(line(r#"{"outcome":"upstream_error","prefill":"p","endpoint":"d","attempts":1}"#));
        assert_eq!((tally.requests(), tally.outcomes["ok"], tally.retries), (4, 3, 2));
        assert_eq!((tally.served["p"], tally.served["q"], tally.served["d"]), (1, 1, 3));
        assert_eq!(tally.pairs.len(), 2);
        assert_eq!(tally.ttft(), Some((9, 9, 2)), "a plain answer has no first token");
        assert_eq!(tally.recent.len(), 4);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut tally = Tally::default();
        for at in 0..1000 {
            tally.add(line(&format!(r#"{{"outcome":"ok","stream":true,"ttfb_us":{at}}}"#)));
        }
        assert_eq!(tally.recent.len(), RECENT);
        assert_eq!(tally.ttft(), Some((950, 999, TTFTS)));
    }
}
