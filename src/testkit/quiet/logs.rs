//! What the engines did, read from their logs and held against what the reports said.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::told::Reports;
use super::work::{Verdict, Work};
use crate::engine::{Ended, Move, Role, Running, Seen, Wire};
use crate::types::clock::{Instant, now};

/// The header in which a client names the router that it asks, by its number.
pub const VIA: &str = "x-via";

const CHAT: &str = "/v1/chat/completions";
/// Attempts are remembered for so long, once there are this many.
const REMEMBERED: Duration = Duration::from_secs(30);
const MANY: usize = 50_000;

/// Whose log it is.
#[derive(Debug, Clone)]
pub struct Site {
    pub uid: String,
    pub url: String,
    pub wire: Wire,
    pub role: Role,
    /// How long vLLM keeps KV that nobody pulls.
    pub lease: Duration,
}

/// Work that is over, to be judged once every router's report was read after its end.
#[derive(Debug, Default)]
pub struct Logs {
    requests: Vec<(Arc<Site>, Seen)>,
    moves: Vec<(Arc<Site>, Move)>,
    /// Attempts of pairs, by the prefill's id of the request or the room.
    attempts: HashMap<String, Attempt>,
    /// Legs and moves of KV that were judged.
    pub legs: u64,
    pub moved: u64,
    /// Of these: by the rows of a Pod in which the router still believed; none, because they fell between two Pods.
    pub namesakes: u64,
    pub between: u64,
    /// KV that was no longer kept for anybody, or sent to a decode that was ended.
    pub unwanted: u64,
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    router: usize,
    /// The prefill's answer was out; the decode's leg ended.
    prefilled: Option<Instant>,
    decoded: Option<Instant>,
    last: Instant,
}

impl Logs {
    /// Takes what is over by now from these engines. All of them: a leg and its KV are in different logs.
    pub fn take<'a>(&mut self, engines: impl Iterator<Item = (&'a Arc<Site>, &'a Running)> + Clone) {
        // KV before requests: a decode's leg that ended before the KV was there is in its log by then.
        for (site, engine) in engines.clone() {
            self.moves.extend(engine.moves.take().into_iter().map(|moved| (Arc::clone(site), moved)));
        }
        for (site, engine) in engines {
            for seen in engine.log.take_ended().into_iter().filter(|seen| seen.path() == CHAT) {
                self.note(site, &seen);
                self.requests.push((Arc::clone(site), seen));
            }
        }
        if self.attempts.len() > MANY {
            self.attempts.retain(|_, attempt| attempt.last + REMEMBERED > now());
        }
    }

    fn note(&mut self, site: &Site, seen: &Seen) {
        let of = match (site.wire, site.role) {
            (_, Role::Plain) | (Wire::Vllm, Role::Decode) => return,
            (Wire::Vllm, Role::Prefill) => {
                seen.headers.get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned)
            }
            (Wire::Sglang, _) => seen.json()["bootstrap_room"].as_u64().map(|room| room.to_string()),
        };
        let (Some(of), Some((how, ended))) = (of, seen.ended) else { return };
        let fresh = Attempt { router: router(seen), prefilled: None, decoded: None, last: ended };
        let attempt = self.attempts.entry(of).or_insert(fresh);
        attempt.last = ended;
        match site.role {
            Role::Decode => attempt.decoded = Some(ended),
            _ if how == Ended::Answered => attempt.prefilled = Some(ended),
            _ => {}
        }
    }

    /// Judges what was taken. `late`: how late the machine was between two times.
    ///
    /// # Errors
    /// The contradiction.
    pub fn judge(
        &mut self,
        reports: &Reports,
        late: impl Fn(Instant, Instant) -> Duration,
    ) -> Result<(), String> {
        for (site, seen) in std::mem::take(&mut self.requests) {
            let ended = seen.ended.map_or(seen.head_at, |(_, at)| at);
            let work = (seen.head_at, ended, false);
            let verdict = judge(reports, &site, router(&seen), work, &late);
            self.count(verdict.map_err(|wrong| format!("{wrong}\n{site:?}\n{}", story(&seen)))?);
            self.legs += 1;
        }
        for (site, moved) in std::mem::take(&mut self.moves) {
            let of = match site.wire {
                // `chatcmpl-`, the id that it was given, and something of the engine's own.
                Wire::Vllm => moved.of["chatcmpl-".len()..].rsplit_once('-').map_or("", |(id, _)| id),
                Wire::Sglang => &moved.of,
            };
            let Some(attempt) = self.attempts.get(of).copied() else {
                // The prefill's request is not over: whose it is is not known yet.
                self.moves.push((site, moved));
                continue;
            };
            // What a decode reads after the lease is garbage, and what is written for a decode that was ended is for no one:
            // neither is kept for anybody (pd.md).
            let wanted = match site.wire {
                Wire::Vllm => attempt.prefilled.map(|at| at + site.lease),
                Wire::Sglang => attempt.decoded,
            };
            let ended = wanted.map_or(moved.ended, |until| until.min(moved.ended));
            if !moved.kept || ended <= moved.began {
                self.unwanted += 1;
                continue;
            }
            let work = (moved.began, ended, true);
            let verdict = judge(reports, &site, attempt.router, work, &late);
            self.count(verdict.map_err(|wrong| format!("{wrong}\n{site:?}\n{moved:?} of {attempt:?}"))?);
            self.moved += 1;
        }
        Ok(())
    }

    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Sound => {}
            Verdict::Namesake => self.namesakes += 1,
            Verdict::Between => self.between += 1,
        }
    }

    /// Nothing is left to be judged.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.moves.is_empty()
    }
}

/// Every request says which router sent it: that header has to come through.
fn router(seen: &Seen) -> usize {
    let via = seen.headers.get(VIA).and_then(|via| via.to_str().ok()?.parse().ok());
    via.unwrap_or_else(|| panic!("no router is named: {seen:?}"))
}

fn judge(
    reports: &Reports,
    site: &Site,
    router: usize,
    (began, ended, kv): (Instant, Instant, bool),
    late: &impl Fn(Instant, Instant) -> Duration,
) -> Result<Verdict, String> {
    let work = Work { router, uid: &site.uid, url: &site.url, began, ended: Some(ended), kv };
    reports.judge(&work, late(began, ended))
}

fn story(seen: &Seen) -> String {
    let header = |name| seen.headers.get(name);
    format!(
        "{:?} status {:?} first event {:?} ended {:?} stopped {:?} mock {:?} body {}",
        header("x-request-id"),
        seen.status,
        seen.first_event_at,
        seen.ended,
        seen.stopped,
        header("x-mock"),
        String::from_utf8_lossy(&seen.body),
    )
}
