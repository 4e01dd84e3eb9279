//! What was true of each Pod, and by when the router has to agree.
//!
//! A router may be behind, and it may never go back: what it shows of a UID has to be explained by states of that UID in their
//! order. The moment it is told a version, by an event or in a list, every older state is over within [`AT_ONCE`]. What it was
//! not told is over when the next list is due, provided that lists are answered.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tandem::testkit::kube::Told;
use tandem::types::clock::{Instant, now};

use super::pods::{Key, Keys, SELECTABLE};
use super::steps::Made;
use super::{ms, secs};

/// From being told to acting.
pub(super) const AT_ONCE: Duration = ms(50);
/// Between two lists: shorter than by default, so that more of them meet trouble.
pub(super) const RELIST: Duration = secs(5);
/// From a change to the next list, where no list fails.
pub(super) const TICK: Duration = ms(5_100);
/// The same after lists that failed: one that hangs for five seconds, and the longest pause after it.
pub(super) const RECOVERY: Duration = ms(10_200);

/// A state of a Pod, from a version on.
#[derive(Debug)]
struct State {
    version: u64,
    made: Instant,
    /// From then on nothing older may show.
    due: Option<Instant>,
    keys: Keys,
    /// By service.
    why: [&'static str; 2],
    what: &'static str,
}

/// One UID.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) name: String,
    states: Vec<State>,
    /// The oldest state that explains what the router showed last.
    at: usize,
    /// The router has to know the last state.
    is_over: bool,
}

/// Every UID that ever was.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) lives: BTreeMap<String, Life>,
    /// Left for good, as the router showed by not showing them.
    gone: HashMap<String, Life>,
    told: usize,
    first_list: Option<Instant>,
}

/// Since when lists are answered as they should.
pub(super) type Healthy = Option<Instant>;

impl History {
    /// A Pod's new state.
    pub(super) fn note(&mut self, made: &Made, keys: Keys, why: [&'static str; 2]) {
        let Made { pod, version, what, .. } = made;
        let life = self.lives.entry(pod.uid.clone()).or_insert_with(|| {
            let (keys, what) = (Keys::new(), "not there yet");
            let nothing = State { version: 0, made: now(), due: None, keys, why: [what; 2], what };
            Life { name: pod.name.clone(), states: vec![nothing], at: 0, is_over: false }
        });
        life.is_over = false;
        life.states.push(State { version: *version, made: now(), due: None, keys, why, what });
    }

    /// Takes over what clients were told since the last time.
    pub(super) fn tell(&mut self, told: &[Told]) {
        self.told += told.len();
        for Told { at, version, uid } in told {
            let due = *at + AT_ONCE;
            if let Some(uid) = uid {
                if let Some(life) = self.lives.get_mut(uid) {
                    life.told(*version, due);
                }
                continue;
            }
            self.lives.values_mut().for_each(|life| life.told(*version, due));
            self.first_list.get_or_insert(*at);
        }
    }

    /// There was a list.
    pub(super) fn is_synced(&self) -> bool {
        self.first_list.is_some()
    }

    pub(super) fn told(&self) -> usize {
        self.told
    }

    /// Settles what is over by now.
    pub(super) fn settle(&mut self, now: Instant, healthy: Healthy) {
        // Until then a list may take longer.
        let healthy = healthy.zip(self.first_list).map(|(since, first)| since.max(first));
        for life in self.lives.values_mut() {
            life.settle(now, healthy);
        }
    }

    /// What the router shows of this UID, explained. `excused`: keys that may be missing for other reasons.
    ///
    /// # Errors
    /// The story of the Pod.
    pub(super) fn explain(
        &mut self,
        uid: &str,
        shown: &Keys,
        excused: &dyn Fn(&Key) -> bool,
    ) -> Result<(), String> {
        if let Some(life) = self.gone.get(uid) {
            return Err(format!("a Pod that was gone is back: {}", life.story(shown)));
        }
        let Some(life) = self.lives.get(uid) else { return Err(format!("no Pod ever had the UID {uid}")) };
        let fits = |state: &State| shown.is_subset(&state.keys) && state.keys.difference(shown).all(excused);
        let found = life.states[life.at..].iter().position(fits);
        let Some(life) = self.lives.get_mut(uid) else { return Ok(()) };
        match found {
            Some(steps) => {
                life.at += steps;
                Ok(())
            }
            None => Err(life.story(shown)),
        }
    }

    /// Whether a listed endpoint of this UID that is not selectable has the right word for it.
    ///
    /// # Errors
    /// The story of the Pod.
    pub(super) fn explain_reason(&self, uid: &str, key: &Key, reason: &str) -> Result<(), String> {
        let Some(life) = self.lives.get(uid) else {
            return Err(format!("{key:?} of {uid} is listed as {reason}, and that Pod is gone"));
        };
        let Some(state) = life.states.last().filter(|_| life.is_over) else { return Ok(()) };
        match state.why[key.service] {
            SELECTABLE if state.keys.contains(key) => Ok(()),
            why if why == reason => Ok(()),
            why => Err(format!("{key:?} is listed as {reason}, not {why}; {}", life.story(&Keys::new()))),
        }
    }

    /// Lives whose last state is reached and empty will not be heard of again.
    pub(super) fn bury(&mut self, exists: impl Fn(&str) -> bool) {
        let over = |uid: &String, life: &mut Life| {
            life.at + 1 == life.states.len() && !exists(uid) && life.is_empty()
        };
        self.gone.extend(self.lives.extract_if(.., over));
    }

    /// UIDs with something that is not yet due.
    pub(super) fn unsettled(&self) -> usize {
        self.lives.values().filter(|life| life.at + 1 < life.states.len()).count()
    }

    /// Everything is due at once.
    pub(super) fn all_due(&mut self, now: Instant) {
        for life in self.lives.values_mut() {
            life.told(u64::MAX, now);
        }
    }
}

impl Life {
    fn told(&mut self, version: u64, due: Instant) {
        for state in self.states.iter_mut().skip(self.at).filter(|state| state.version <= version) {
            state.due = Some(state.due.map_or(due, |before| before.min(due)));
        }
    }

    fn settle(&mut self, now: Instant, healthy: Healthy) {
        let listed = |made: Instant| healthy.is_some_and(|since| now >= (made + TICK).max(since + RECOVERY));
        let over = |state: &State| state.due.is_some_and(|due| now > due) || listed(state.made);
        let last = self.states.iter().rposition(over);
        self.is_over = last == Some(self.states.len() - 1);
        self.at = self.at.max(last.unwrap_or(0));
    }

    fn is_empty(&self) -> bool {
        self.states.last().is_none_or(|state| state.keys.is_empty())
    }

    fn story(&self, shown: &Keys) -> String {
        use std::fmt::Write as _;
        let mut text = format!("{} shows {shown:?}; states since:", self.name);
        let from = self.at.saturating_sub(3);
        for (n, state) in self.states.iter().enumerate().skip(from) {
            let mark = if n == self.at { "->" } else { "  " };
            let State { version, made, due, keys, why, what } = state;
            let _ = write!(text, "\n {mark} {version} at {made:?} due {due:?} {what}: {keys:?} {why:?}");
        }
        text
    }
}
