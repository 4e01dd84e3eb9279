//! Taking a drain back: the annotation away, or each router told, and a wait until every router has seen it.

use std::collections::BTreeMap;

use http::Method;
use tokio::time::sleep;

use super::super::admin::ask;
use super::super::exit::{Exit, say};
use super::annotate::{Annotation, Step};
use super::proof::{Answer, Judged, Round, State, Verdict};
use super::replicas::Work;
use super::show::Ended;
use super::target::Target;
use super::{PAUSE, Session};
use crate::config::Kubernetes;
use crate::registry::Reason;
use crate::types::clock;

/// What a router says of a drain that is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Back {
    /// It has nothing to take back.
    NotKnown,
    Selectable,
    /// Something else than a drain keeps requests away.
    Withdrawn(String),
    /// The drain still stands there.
    Held,
    Unknown(String),
}

impl Session<'_> {
    /// `starts`: an engine asks that has just started, and must not stay down because of routers that are not there.
    pub(super) async fn abort(mut self, kubernetes: Kubernetes, starts: bool) -> Exit {
        if let Some(exit) = self.unannotated(kubernetes).await {
            return exit;
        }
        loop {
            let round = match self.replicas.round(&self.target, &Work::Restore).await {
                Ok(round) => round,
                Err(why) => return denied(&why),
            };
            let backs = backs(&self.target, &round, starts);
            if let Err(exit) = self.progress.line(line(&self.target, &backs), round.at) {
                return exit;
            }
            let any = |wanted: fn(&Back) -> bool| backs.values().any(wanted);
            let unknown = any(|back| matches!(back, Back::Unknown(_))) || backs.is_empty() && !starts;
            let held = any(|back| *back == Back::Held);
            if !unknown && !held {
                if !starts && matches!(self.target, Target::Listed(_)) && !any(|back| *back != Back::NotKnown)
                {
                    return self.nobody();
                }
                return self.ended(Ended::Aborted, &round, &judged(&backs));
            }
            if clock::now() >= self.end {
                let ended = if unknown { Ended::Unknown } else { Ended::Open };
                return self.ended(ended, &round, &judged(&backs));
            }
            sleep(PAUSE).await;
        }
    }

    /// Takes the annotation of a Pod away.
    async fn unannotated(&mut self, kubernetes: Kubernetes) -> Option<Exit> {
        let Target::Pod(pod) = &mut self.target else { return None };
        let mut annotation = Annotation::new(kubernetes, &self.args.annotation, None, false);
        loop {
            let why = match annotation.step(pod).await {
                Step::Done { uid, .. } => {
                    pod.uid = Some(uid);
                    return None;
                }
                Step::Wrong(why) => why,
                Step::Never(why) => format!("{}/{}: not taken back: {why}", pod.namespace, pod.name),
                Step::Later(why, pause) if clock::now() + pause > self.end => {
                    say(&format!("{}/{}: not known to be taken back: {why}", pod.namespace, pod.name));
                    return Some(Exit::Unreachable);
                }
                Step::Later(_, pause) => {
                    sleep(pause).await;
                    continue;
                }
            };
            say(&why);
            return Some(Exit::Failure);
        }
    }
}

pub(super) fn denied(why: &str) -> Exit {
    say(&format!("{why}; name the file of the routers' admin token by --token-file"));
    Exit::Failure
}

fn backs(target: &Target, round: &Round, starts: bool) -> BTreeMap<String, Back> {
    let mut backs: BTreeMap<String, Back> =
        round.answers.iter().map(|(at, answer)| (at.clone(), back(target, answer))).collect();
    for (name, why) in &round.nameless {
        // No router is there, so none that has a drain: one that starts knows of none.
        let back = if starts && is_no_name(why) { Back::NotKnown } else { Back::Unknown(why.clone()) };
        backs.insert(name.clone(), back);
    }
    backs
}

fn back(target: &Target, answer: &Answer) -> Back {
    let report = match answer {
        Ok(report) => report,
        Err(why) => return Back::Unknown(why.clone()),
    };
    let annotated = Reason::DrainAnnotation.as_str();
    let entries = || report.endpoints.iter().filter(|entry| target.is(entry));
    let mut bare = report.pods.iter().filter(|bare| target.is_bare(bare));
    if entries().any(|e| e.volatile_drain || e.reason.as_deref() == Some(annotated))
        || bare.any(|bare| bare.reason == annotated)
    {
        return Back::Held;
    }
    let mut withdrawn = entries().filter(|entry| !entry.selectable);
    match (withdrawn.next(), entries().next()) {
        (Some(entry), _) => Back::Withdrawn(entry.reason.clone().unwrap_or_default()),
        (None, Some(_)) => Back::Selectable,
        (None, None) => Back::NotKnown,
    }
}

fn line(target: &Target, backs: &BTreeMap<String, Back>) -> String {
    let one = |(at, back): (&String, &Back)| match back {
        Back::NotKnown => format!("{at} has nothing to take back"),
        Back::Selectable => format!("{at} selectable"),
        Back::Withdrawn(reason) => format!("{at} has taken it back; withdrawn by {reason}"),
        Back::Held => format!("{at} still drains it"),
        Back::Unknown(why) => format!("{at} unknown: {why}"),
    };
    let all: Vec<String> = backs.iter().map(one).collect();
    format!("{target}: {}", if all.is_empty() { "no router found".to_owned() } else { all.join("; ") })
}

/// In the form of the document.
fn judged(backs: &BTreeMap<String, Back>) -> Judged {
    let state = |back: &Back| match back {
        Back::NotKnown | Back::Withdrawn(_) => State::Quiet,
        Back::Selectable => State::Selectable(crate::registry::InFlight::default()),
        Back::Held => State::Open(crate::registry::InFlight::default()),
        Back::Unknown(why) => State::Unknown(why.clone()),
    };
    let states = backs.iter().map(|(at, back)| (at.clone(), state(back))).collect();
    Judged { verdict: Verdict::Open, states }
}

/// Whether there is no such name, or it is not known: the C library tells it by its words alone (of musl, and of glibc).
fn is_no_name(why: &str) -> bool {
    let none = ["Name does not resolve", "no usable address", "service not known", "No address associated"];
    none.iter().any(|words| why.contains(words))
}

/// # Errors
/// What it answered instead.
pub(super) async fn healthy(at: &str, path: &str) -> Result<(), String> {
    match ask(at, &Method::GET, path, None).await {
        Ok((status, _)) if status.is_success() => Ok(()),
        Ok((status, _)) => Err(format!("answered with {status}")),
        Err(error) => Err(format!("{:#}", error.error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_there_holds_up_no_start() {
        let backs = |why: &str, starts: bool| {
            let nameless = BTreeMap::from([("r:9090".to_owned(), why.to_owned())]);
            let round = Round { at: clock::now(), answers: BTreeMap::new(), nameless };
            backs(&Target::Listed("http://e:1".to_owned()), &round, starts).remove("r:9090")
        };
        for why in [
            "failed to lookup address information: Name does not resolve",
            "failed to lookup address information: Name or service not known",
        ] {
            assert_eq!(backs(why, true), Some(Back::NotKnown), "{why}");
            assert_eq!(backs(why, false), Some(Back::Unknown(why.to_owned())), "{why}");
        }
        // No DNS just now: there may be routers that have the drain.
        let unsure = "failed to lookup address information: Temporary failure in name resolution";
        assert_eq!(backs(unsure, true), Some(Back::Unknown(unsure.to_owned())));
    }
}
