//! What was true of each Pod, and by when the router has to agree.
//!
//! A router may be behind, and it may never go back: what it shows of a UID has to be explained by states of that UID in their
//! order. The moment it is told a version, by an event or in a list, every older state is over within [`AT_ONCE`]. What it was
//! not told is over when the next list is due, provided that lists are answered.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tandem::testkit::kube::Told;
use tandem::types::clock::{Instant, now};

use super::pods::{Key, Keys};
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
    what: &'static str,
}

/// One UID.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) name: String,
    pub(super) created: u64,
    states: Vec<State>,
    /// The oldest state that explains what the router showed last.
    at: usize,
}

/// Every UID that ever was.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) lives: BTreeMap<String, Life>,
    /// Left for good, as the router showed by not showing them.
    gone: HashMap<String, Life>,
    told: usize,
    /// Newest list that was told, and when the last one was that is not older.
    listed: (u64, Option<Instant>),
    first_list: Option<Instant>,
    /// By address: UIDs that may have qualified there at once with others, how old they are, and when that was last so.
    rivals: HashMap<String, HashMap<String, (u64, Instant)>>,
    now: Option<Instant>,
}

/// Since when lists are answered as they should.
pub(super) type Healthy = Option<Instant>;

impl History {
    /// A Pod's new state; `keys` empty: it has none of the service's marks, or is gone.
    pub(super) fn note(&mut self, made: &Made, keys: Keys) {
        let Made { pod, version, what, .. } = made;
        let life = self.lives.entry(pod.uid.clone()).or_insert_with(|| {
            let nothing =
                State { version: 0, made: now(), due: None, keys: Keys::new(), what: "not there yet" };
            Life { name: pod.name.clone(), created: pod.created, states: vec![nothing], at: 0 }
        });
        life.states.push(State { version: *version, made: now(), due: None, keys, what });
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
            if *version >= self.listed.0 {
                self.listed = (*version, Some(*at));
            }
        }
    }

    /// There was a list.
    pub(super) fn is_synced(&self) -> bool {
        self.first_list.is_some()
    }

    pub(super) fn told(&self) -> usize {
        self.told
    }

    /// Settles what is over by now, and which Pods are rivals for an address.
    pub(super) fn settle(&mut self, now: Instant, healthy: Healthy) {
        self.now = Some(now);
        // Until then a list may take longer.
        let healthy = healthy.zip(self.first_list).map(|(since, first)| since.max(first));
        for life in self.lives.values_mut() {
            life.settle(now, healthy);
        }
        let mut at: HashMap<&str, Vec<(&String, u64)>> = HashMap::new();
        for (uid, life) in &self.lives {
            for address in life.addresses() {
                at.entry(address).or_default().push((uid, life.created));
            }
        }
        for (address, uids) in at.into_iter().filter(|(_, uids)| uids.len() > 1) {
            let rivals = self.rivals.entry(address.to_owned()).or_default();
            rivals.extend(uids.into_iter().map(|(uid, created)| (uid.clone(), (created, now))));
        }
    }

    /// Another Pod that is not older may have had the address since the last list: the next one gives it back.
    fn is_rivalled(&self, uid: &str, created: u64, address: &str) -> bool {
        let Some(rivals) = self.rivals.get(address) else { return false };
        let acted = |listed: Instant| self.now.is_some_and(|now| listed + AT_ONCE < now);
        let over =
            |last: Instant| self.listed.1.is_some_and(|listed| last + AT_ONCE < listed && acted(listed));
        rivals.iter().any(|(other, (born, last))| other != uid && *born >= created && !over(*last))
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
        let may_miss = |key: &Key| excused(key) || self.is_rivalled(uid, life.created, &key.at);
        let fits =
            |state: &State| shown.is_subset(&state.keys) && state.keys.difference(shown).all(&may_miss);
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
        self.at = self.at.max(last.unwrap_or(0));
    }

    /// Where it may be selectable, as far as the router may be behind.
    fn addresses(&self) -> std::collections::BTreeSet<&str> {
        self.states[self.at..].iter().flat_map(|state| &state.keys).map(|key| key.at.as_str()).collect()
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
            let State { version, made, due, keys, what } = state;
            let _ = write!(text, "\n {mark} {version} at {made:?} due {due:?} {what}: {keys:?}");
        }
        text
    }
}
