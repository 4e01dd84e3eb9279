//! One piece of an engine's work, and whether a report contradicts it.

use std::time::Duration;

use super::told::{Reports, Spell, Told};
use crate::types::clock::Instant;

/// A request that an engine served for a router, or KV that it sent to a decode for one.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    pub router: usize,
    /// Of the Pod whose engine did it, and where that listens.
    pub uid: &'a str,
    pub url: &'a str,
    /// The request's head was read; the first byte of KV left.
    pub began: Instant,
    /// Answered, closed, reset, aborted; KV: sent, or wanted by no one any more. `None`: it goes on.
    pub ended: Option<Instant>,
    /// It is KV, of a request that began before.
    pub kv: bool,
}

/// What the reports say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No report contradicts it.
    Sound,
    /// The same, by the rows of an earlier Pod at the address: the router had not been told of this one.
    Namesake,
    /// It began between the last report without the Pod and the first with it: it cannot be said which one the router meant.
    Between,
}

impl Reports {
    /// Call it once a report was read from every router after the work's end. `late`: how late the machine was.
    ///
    /// # Errors
    /// The contradiction.
    pub fn judge(&self, work: &Work<'_>, late: Duration) -> Result<Verdict, String> {
        let own = self.told(work.router, work.uid);
        let (told, verdict) = match own {
            Some(told) if work.began >= told.first => (told, Verdict::Sound),
            Some(told) if told.absent.is_none_or(|absent| work.began + self.limits.slack + late > absent) => {
                return Ok(Verdict::Between);
            }
            _ => match self.namesake(work) {
                Some(told) => (told, Verdict::Namesake),
                None => return Err(format!("no report ever had an endpoint there: {work:?}")),
            },
        };
        let slack = self.limits.slack + late;
        match told.spells.iter().find_map(|spell| spell.contradicts(work, slack)) {
            Some(why) => Err(format!("{why} ({verdict:?}): {work:?}, spells {:?}", told.spells)),
            None => Ok(verdict),
        }
    }

    /// The Pod that the router knew at the address.
    fn namesake<'a>(&'a self, work: &'a Work<'_>) -> Option<&'a Told> {
        let known = self.at(work.router, work.url).filter(|(uid, _)| *uid != work.uid);
        let known = known.map(|(_, told)| told).filter(|told| told.first <= work.began + self.limits.slack);
        known.max_by_key(|told| told.first)
    }
}

impl Spell {
    fn contradicts(&self, work: &Work<'_>, slack: Duration) -> Option<&'static str> {
        let from = if work.kv { self.quiet?.0 } else { self.withdrawn };
        if work.began > from + slack && work.began < self.until {
            return Some("it began after a report that nothing will");
        }
        let (from, to) = self.quiet?;
        let met = from.max(work.began);
        let outlives = work.ended.is_none_or(|ended| ended > met + slack);
        (met < to && outlives).then_some("it runs while a report says that nothing does")
    }
}
