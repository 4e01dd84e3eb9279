//! The version rule (I8): what is known of each UID, and which news are news.
//!
//! Events and lists arrive late, twice, out of order, or from a server that lags. Every fact carries its resourceVersion and
//! counts only if that is newer than what is known of its UID. Absence from a list counts only for UIDs whose last version is
//! not newer than the list. A UID that is not known is either new, or was gone from a list that is newer than the fact: then
//! the fact is old. Pure: no clock, no I/O.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::pod::Pod;
use crate::registry::{Born, PodId, Reason};

/// Tombstones kept. Each applied list clears those it covers; only a server that lists nothing for days fills this.
const MOST_TOMBSTONES: usize = 65_536;

/// What is known of one UID.
#[derive(Debug, Clone)]
pub struct Known {
    pub pod: Arc<Pod>,
    pub born: Born,
}

/// A UID whose state changed.
#[derive(Debug, Clone)]
pub enum News {
    Changed(Known),
    Gone(Arc<PodId>, Reason),
}

/// What a list came to.
#[derive(Debug)]
pub enum Listed {
    /// Older than one that was applied before.
    Discarded,
    /// UIDs whose state is different now, with the version of that; the watch should have said so.
    Applied(Vec<News>),
}

#[derive(Debug, Default)]
pub struct Tracker {
    pods: HashMap<String, Known>,
    /// By UID: the version at which it left.
    tombstones: HashMap<String, u64>,
    /// The same by version, to find the oldest.
    ages: BTreeMap<u64, String>,
    /// Everything that is not known and not newer than this is gone: the newest applied list was complete at it.
    floor: u64,
}

impl Tracker {
    pub fn pods(&self) -> impl Iterator<Item = &Known> {
        self.pods.values()
    }

    pub fn get(&self, uid: &str) -> Option<&Known> {
        self.pods.get(uid)
    }

    /// Version of the newest applied list, 0 for none.
    pub fn listed(&self) -> u64 {
        self.floor
    }

    pub fn tombstones(&self) -> usize {
        self.tombstones.len()
    }

    /// An ADDED or MODIFIED event. `None`: old news.
    pub fn apply(&mut self, pod: Arc<Pod>) -> Option<News> {
        let before_floor = pod.version <= self.floor;
        if self.is_old(&pod, before_floor) { None } else { Some(self.set(pod)) }
    }

    /// Whether this says nothing new of its UID; `unknown`: where the UID is not known.
    fn is_old(&self, pod: &Pod, unknown: bool) -> bool {
        let uid = pod.id.uid.as_str();
        match (self.pods.get(uid), self.tombstones.get(uid)) {
            (Some(known), _) => pod.version <= known.pod.version,
            (None, Some(left)) => pod.version <= *left,
            (None, None) => unknown,
        }
    }

    /// A DELETED event. The object in it is as it was before; only its UID and version count. `None`: old news.
    pub fn delete(&mut self, uid: &str, version: u64) -> Option<News> {
        match self.pods.get(uid) {
            // The same version twice: it was seen as an object, and is now said to have left with it.
            Some(known) if version < known.pod.version => return None,
            Some(_) => {}
            None => {
                let left = self.tombstones.get(uid).copied().unwrap_or(self.floor);
                if version > left {
                    self.bury(uid.to_owned(), version);
                }
                return None;
            }
        }
        let known = self.pods.remove(uid)?;
        self.bury(uid.to_owned(), version);
        Some(News::Gone(Arc::clone(&known.pod.id), Reason::Deleted))
    }

    /// A complete list as of `version`. `unreadable`: UIDs that are in it with an object that says nothing.
    pub fn list(&mut self, version: u64, pods: Vec<Arc<Pod>>, unreadable: &[String]) -> Listed {
        if version < self.floor {
            return Listed::Discarded;
        }
        let mut news = Vec::new();
        let mut listed: HashSet<String> = unreadable.iter().cloned().collect();
        for pod in pods {
            listed.insert(pod.id.uid.clone());
            if !self.is_old(&pod, false) {
                news.push(self.set(pod));
            }
        }
        let absent = |(uid, known): (&String, &Known)| {
            (!listed.contains(uid) && known.pod.version <= version).then(|| uid.clone())
        };
        let gone: Vec<String> = self.pods.iter().filter_map(absent).collect();
        for uid in gone {
            if let Some(known) = self.pods.remove(&uid) {
                news.push(News::Gone(Arc::clone(&known.pod.id), Reason::NotListed));
            }
        }
        self.floor = version;
        // What left before the list is covered by it.
        let newer = self.ages.split_off(&(version + 1));
        for uid in std::mem::replace(&mut self.ages, newer).into_values() {
            self.tombstones.remove(&uid);
        }
        Listed::Applied(news)
    }

    fn set(&mut self, pod: Arc<Pod>) -> News {
        let uid = pod.id.uid.clone();
        if let Some(left) = self.tombstones.remove(&uid) {
            self.ages.remove(&left);
        }
        let born = self.pods.get(&uid).map_or_else(|| pod.born(pod.version), |known| known.born);
        let known = Known { pod, born };
        self.pods.insert(uid, known.clone());
        News::Changed(known)
    }

    fn bury(&mut self, uid: String, version: u64) {
        if let Some(before) = self.tombstones.insert(uid.clone(), version) {
            self.ages.remove(&before);
        }
        self.ages.insert(version, uid);
        if self.tombstones.len() > MOST_TOMBSTONES
            && let Some((oldest, uid)) = self.ages.pop_first()
        {
            // What it protected from is protected by the floor.
            self.tombstones.remove(&uid);
            self.floor = self.floor.max(oldest);
        }
    }
}

#[cfg(test)]
#[path = "tests/track.rs"]
mod tests;
