//! What is said meanwhile, and at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::super::exit::{Exit, show};
use super::args::Form;
use super::proof::{Answer, Judged, Round, State};
use super::target::{Pod, Target};
use crate::registry::InFlight;
use crate::registry::report::{Bare, Entry};
use crate::types::clock::Instant;

/// Longest silence.
const EVERY: Duration = Duration::from_secs(10);

/// Lines of progress: where something changed, and now and then.
#[derive(Debug)]
pub(super) struct Progress {
    form: Form,
    last: Option<(String, Instant)>,
}

impl Progress {
    pub(super) fn new(form: Form) -> Self {
        Self { form, last: None }
    }

    /// # Errors
    /// Standard output takes nothing any more.
    pub(super) fn line(&mut self, line: String, now: Instant) -> Result<(), Exit> {
        let due = self.last.as_ref().is_none_or(|(last, at)| *last != line || now >= *at + EVERY);
        if due {
            match self.form {
                Form::Json => super::super::exit::say(&line),
                Form::Text => match show(&format!("{line}\n")) {
                    Exit::Ok => {}
                    failed => return Err(failed),
                },
            }
            self.last = Some((line, now));
        }
        Ok(())
    }
}

/// One line: every router, and what it has open.
pub(super) fn line(target: &Target, states: &BTreeMap<String, State>) -> String {
    let one = |(at, state): (&String, &State)| format!("{at} {}", words(state));
    let all: Vec<String> = states.iter().map(one).collect();
    format!("{target}: {}", if all.is_empty() { "no router found".to_owned() } else { all.join("; ") })
}

fn words(state: &State) -> String {
    match state {
        State::Quiet => "nothing open".to_owned(),
        State::Open(open) if open.total() == 0 => "nothing open, not yet at rest".to_owned(),
        State::Open(open) => kinds(open),
        State::Selectable(open) if open.total() == 0 => "selectable".to_owned(),
        State::Selectable(open) => format!("selectable, {}", kinds(open)),
        State::Unknown(why) => format!("unknown: {why}"),
    }
}

/// `2 decode, 1 hand-off`.
fn kinds(open: &InFlight) -> String {
    let some = open.by_kind().filter(|(_, count)| *count > 0);
    let word = |kind: &str| if kind == "handoff" { "hand-off".to_owned() } else { kind.to_owned() };
    some.map(|(kind, count)| format!("{count} {}", word(kind))).collect::<Vec<_>>().join(", ")
}

/// How it ended, in the words of the JSON document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    Drained,
    Open,
    Unknown,
    Aborted,
}

/// The document of `--output json`; docs/admin-api.md has its fields.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    verdict: Ended,
    target: Shown<'a>,
    /// Requests that were cut because a deadline asked for it.
    forced: u64,
    replicas: Vec<Replica<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    Listed { url: &'a str },
    Pod { namespace: &'a str, pod: &'a str, uid: Option<&'a str> },
}

#[derive(Debug, Serialize)]
struct Replica<'a> {
    address: &'a str,
    /// `quiet`, `open`, `selectable` or `unknown`.
    state: &'static str,
    /// Why it is unknown.
    why: Option<&'a str>,
    instance: Option<&'a str>,
    boot_generation: Option<u64>,
    seq: Option<u64>,
    entries: Vec<&'a Entry>,
    pods: Vec<&'a Bare>,
}

impl<'a> Document<'a> {
    pub(super) fn new(verdict: Ended, target: &'a Target, round: &'a Round, judged: &'a Judged) -> Self {
        let replicas = judged.states.iter().map(|(at, state)| {
            let report = round.answers.get(at).and_then(|answer| answer.as_ref().ok());
            let (word, why) = match state {
                State::Quiet => ("quiet", None),
                State::Open(_) => ("open", None),
                State::Selectable(_) => ("selectable", None),
                State::Unknown(why) => ("unknown", Some(why.as_str())),
            };
            Replica {
                address: at,
                state: word,
                why,
                instance: report.map(|report| report.router.instance.as_str()),
                boot_generation: report.map(|report| report.router.boot_generation),
                seq: report.map(|report| report.router.seq),
                entries: report
                    .map_or_else(Vec::new, |r| r.endpoints.iter().filter(|e| target.is(e)).collect()),
                pods: report.map_or_else(Vec::new, |r| r.pods.iter().filter(|b| target.is_bare(b)).collect()),
            }
        });
        let shown = match target {
            Target::Listed(url) => Shown::Listed { url },
            Target::Pod(Pod { namespace, name, uid }) => {
                Shown::Pod { namespace, pod: name, uid: uid.as_deref() }
            }
        };
        Self { verdict, target: shown, forced: forced(target, round), replicas: replicas.collect() }
    }
}

/// Requests that were cut on it, at every router.
pub(super) fn forced(target: &Target, round: &Round) -> u64 {
    let answered = round.answers.values().filter_map(|answer: &Answer| answer.as_ref().ok());
    answered
        .flat_map(|report| &report.endpoints)
        .filter(|entry| target.is(entry))
        .map(|entry| entry.forced)
        .sum()
}

/// `1 request was cut`.
pub(super) fn cut(forced: u64) -> String {
    if forced == 1 { "1 request was cut".to_owned() } else { format!("{forced} requests were cut") }
}
