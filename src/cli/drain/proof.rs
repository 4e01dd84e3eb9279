//! What proves that an engine carries nothing, from what the routers said, round by round. No I/O and no clock of its own.
//!
//! Two rounds, one after the other, in which the routers are the same processes, every one of them answered anew, knows the
//! engine, gives it nothing and has nothing there. What is missing is unknown and not zero (I10): a router that restarted, came
//! or went counts as unknown until the set stayed the same for as long as KV that an earlier process handed over may be pulled.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::target::Target;
use crate::registry::InFlight;
use crate::registry::report::{Report, SCHEMA};
use crate::types::clock::Instant;

/// What a router said, or why that is not known.
pub(super) type Answer = Result<Report, String>;

/// All that was asked at one time.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) at: Instant,
    /// By address.
    pub(super) answers: BTreeMap<String, Answer>,
    /// Names that led to no address, and why; the addresses of before are among the answers.
    pub(super) nameless: BTreeMap<String, String>,
}

/// One router in one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// It gives the engine nothing, and has nothing there.
    Quiet,
    /// It gives it nothing new, and has this there; nothing of it means that it is not at rest yet.
    Open(InFlight),
    /// It may still give it requests.
    Selectable(InFlight),
    Unknown(String),
}

/// What a round shows, with those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Proven,
    /// Once. Another such round is the proof.
    Quiet,
    Open,
    Unknown,
    /// Every router answered, and none has ever known it.
    Nobody,
}

#[derive(Debug)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) states: BTreeMap<String, State>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    instance: String,
    boot_generation: u64,
    seq: u64,
}

impl Process {
    fn is_same_as(&self, other: &Self) -> bool {
        (&self.instance, self.boot_generation) == (&other.instance, other.boot_generation)
    }
}

/// The rounds so far.
#[derive(Debug)]
pub(super) struct Proof {
    settle: Duration,
    /// By address. `None`: it has not answered yet.
    members: BTreeMap<String, Option<Process>>,
    begun: bool,
    /// What became of those that are not believed, until then.
    doubts: BTreeMap<String, &'static str>,
    settled_at: Option<Instant>,
    /// The last round was quiet.
    quiet: bool,
    /// Some router has known it.
    known: bool,
}

const RESTARTED: &str = "restarted: what it handed over before may still be pulled";
const APPEARED: &str = "new: which process was there before is not known";
const VANISHED: &str = "gone: what it handed over may still be pulled";

impl Proof {
    pub(super) fn new(settle: Duration) -> Self {
        let (members, doubts) = (BTreeMap::new(), BTreeMap::new());
        Self { settle, members, begun: false, doubts, settled_at: None, quiet: false, known: false }
    }

    /// It is about another engine from now on; what is known of the routers stays.
    pub(super) fn begin_anew(&mut self) {
        (self.quiet, self.known) = (false, false);
    }

    pub(super) fn add(&mut self, target: &Target, round: &Round) -> Judged {
        let mut states: BTreeMap<String, State> =
            round.answers.iter().map(|(at, answer)| (at.clone(), state(target, answer))).collect();
        self.compare(round, &mut states);
        if self.settled_at.is_some_and(|settled| round.at >= settled) {
            self.settled_at = None;
            self.doubts.clear();
        }
        for (at, why) in &self.doubts {
            let settling = State::Unknown((*why).to_owned());
            // Whoever does not answer now has a reason of its own.
            if !matches!(states.get(at), Some(State::Unknown(_))) {
                states.insert(at.clone(), settling);
            }
        }
        states.extend(round.nameless.iter().map(|(name, why)| (name.clone(), State::Unknown(why.clone()))));
        self.known |= round.answers.values().flatten().any(|report| knows(target, report));
        let verdict = self.verdict(round, &states);
        self.quiet = verdict == Verdict::Quiet;
        Judged { verdict, states }
    }

    fn verdict(&self, round: &Round, states: &BTreeMap<String, State>) -> Verdict {
        let all_answered = round.nameless.is_empty() && round.answers.values().all(Result::is_ok);
        if states.is_empty() {
            Verdict::Unknown
        } else if all_answered && !self.known && self.doubts.is_empty() {
            Verdict::Nobody
        } else if states.values().any(|state| matches!(state, State::Unknown(_))) {
            Verdict::Unknown
        } else if states.values().any(|state| *state != State::Quiet) {
            Verdict::Open
        } else if self.quiet {
            Verdict::Proven
        } else {
            Verdict::Quiet
        }
    }

    /// Who is there now, held against who was there.
    fn compare(&mut self, round: &Round, states: &mut BTreeMap<String, State>) {
        let mut changes: Vec<(String, &'static str)> = Vec::new();
        for (at, answer) in &round.answers {
            let now = answer.as_ref().ok().map(process);
            match (self.members.get(at), &now) {
                // Its silence is this round's; whether it is the same process will be seen.
                (Some(_), None) => continue,
                (None | Some(None), _) => changes.push((at.clone(), APPEARED)),
                (Some(Some(before)), Some(now)) if !now.is_same_as(before) => {
                    changes.push((at.clone(), RESTARTED));
                }
                (Some(Some(before)), Some(now)) if now.seq <= before.seq => {
                    let why = format!("an answer of before: number {} after {}", now.seq, before.seq);
                    states.insert(at.clone(), State::Unknown(why));
                    continue;
                }
                (Some(Some(_)), Some(_)) => {}
            }
            self.members.insert(at.clone(), now);
        }
        let left: Vec<String> =
            self.members.keys().filter(|at| !round.answers.contains_key(*at)).cloned().collect();
        for at in left {
            self.members.remove(&at);
            changes.push((at, VANISHED));
        }
        // Those of the first round are who there is.
        if self.begun && !changes.is_empty() {
            self.doubts.extend(changes);
            self.settled_at = Some(round.at + self.settle);
            self.quiet = false;
        }
        self.begun |= !round.answers.is_empty();
    }
}

fn process(report: &Report) -> Process {
    let router = &report.router;
    Process { instance: router.instance.clone(), boot_generation: router.boot_generation, seq: router.seq }
}

fn knows(target: &Target, report: &Report) -> bool {
    report.endpoints.iter().any(|entry| target.is(entry))
        || report.pods.iter().any(|bare| target.is_bare(bare))
}

fn state(target: &Target, answer: &Answer) -> State {
    let report = match answer {
        Ok(report) => report,
        Err(why) => return State::Unknown(why.clone()),
    };
    if !knows(target, report) {
        return State::Unknown("it does not know it".to_owned());
    }
    let mut open = InFlight::default();
    let (mut selectable, mut at_rest) = (false, true);
    for entry in report.endpoints.iter().filter(|entry| target.is(entry)) {
        selectable |= entry.selectable;
        at_rest &= entry.quiesced_for_ms.is_some();
        let InFlight { waiting, reserved, prefill, decode, handoff } = entry.in_flight;
        open.waiting += waiting;
        open.reserved += reserved;
        open.prefill += prefill;
        open.decode += decode;
        open.handoff += handoff;
    }
    match (selectable, at_rest && open.total() == 0) {
        (true, _) => State::Selectable(open),
        (false, false) => State::Open(open),
        (false, true) => State::Quiet,
    }
}

/// The body of a report. Its schema is looked at first: what follows may then be of another form.
pub(super) fn read(body: &[u8]) -> Answer {
    let document: Value = serde_json::from_slice(body)
        .map_err(|_| "its answer is no JSON; is this an admin listener?".to_owned())?;
    if document["schema"] != SCHEMA {
        return Err(format!("it speaks schema {}, not {SCHEMA}", document["schema"]));
    }
    serde_json::from_value(document).map_err(|error| format!("its report is not as expected: {error}"))
}
