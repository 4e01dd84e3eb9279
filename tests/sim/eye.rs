//! What the router shows, and what must hold of that at any time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tandem::registry::{Endpoint, Reason, View};
use tandem::types::clock::{Instant, now};

use super::history::AT_ONCE;
use super::pods::{Key, Keys};

/// Looks at the registry's newest snapshot.
pub(super) struct Eye {
    view: View,
    version: u64,
    looked: Instant,
    /// Every endpoint that was ever seen, with the UID it had at first.
    pub(super) seen: BTreeMap<u64, (Arc<Endpoint>, String)>,
    /// Endpoints that an operator withdrew.
    pub(super) drained: HashSet<u64>,
}

/// An endpoint as it is listed.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) uid: String,
    pub(super) key: Key,
    pub(super) reason: Reason,
}

impl Listed {
    /// Its engine may listen at its address, as far as the API says: the address is then of no older Pod.
    fn holds(&self, uid: &str, at: &str) -> bool {
        let free = matches!(self.reason, Reason::NotRunning | Reason::NoAddress | Reason::AddressTaken);
        self.key.at == at && self.uid != uid && !free
    }
}

/// One look.
#[derive(Debug, Default)]
pub(super) struct Sight {
    pub(super) listed: Vec<Listed>,
    /// Selectable endpoints by UID.
    pub(super) selectable: BTreeMap<String, Keys>,
    /// Those that an operator withdrew, or that have not answered what they were asked.
    excused: HashSet<(String, Key)>,
    /// By service: something changed since the last look, and may have been otherwise in between.
    stirred: [bool; 2],
}

impl Sight {
    pub(super) fn is_excused(&self, uid: &str, key: &Key) -> bool {
        self.excused.contains(&(uid.to_owned(), key.clone()))
    }

    /// Another Pod has this address and is later, or as late.
    pub(super) fn is_held(&self, uid: &str, at: &str, created: &HashMap<String, u64>) -> bool {
        let held = |other: &&Listed| other.holds(uid, at);
        self.listed.iter().filter(held).any(|other| created[&other.uid] >= created[uid])
    }

    /// No Pod is given requests at an address where a later one may listen.
    ///
    /// # Errors
    /// Who has whose.
    pub(super) fn judge_addresses(&self, created: &HashMap<String, u64>) -> Result<(), String> {
        for Listed { uid, key, .. } in self.listed.iter().filter(|l| l.reason == Reason::Selectable) {
            let mut others = self.listed.iter().filter(|other| other.holds(uid, &key.at));
            if let Some(later) = others.find(|other| created[&other.uid] > created[uid]) {
                return Err(format!("{key:?} of {uid} is selectable where {later:?} may listen"));
            }
        }
        Ok(())
    }

    /// Whether a service has a pair, and whether it has a whole engine.
    fn serves(&self, service: usize) -> [bool; 2] {
        let of = |role: &'static str| {
            let keys = self.selectable.values().flatten();
            keys.filter(move |key| key.service == service && key.role == role)
        };
        let pairs = |p: &Key, d: &Key| p.token == d.token || p.token.is_empty() || d.token.is_empty();
        [of("prefill").any(|p| of("decode").any(|d| pairs(p, d))), of("mixed").next().is_some()]
    }
}

/// When a service last had a pair and a whole engine, and when it last had none.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Coverage {
    present: [Option<Instant>; 2],
    absent: [Option<Instant>; 2],
}

impl Coverage {
    pub(super) fn note(&mut self, sight: &Sight, service: usize) {
        for (n, serves) in sight.serves(service).into_iter().enumerate() {
            if !serves || sight.stirred[service] {
                self.absent[n] = Some(now());
            }
            if serves {
                self.present[n] = Some(now());
            }
        }
    }

    /// Whether a request that began then may have been refused. A request that lost the last pair on its way is not given to
    /// a whole engine; one that began without a pair has to be.
    pub(super) fn may_refuse(&self, began: Instant) -> bool {
        let since = |at: Option<Instant>| at.is_some_and(|at| at + AT_ONCE + AT_ONCE >= began);
        since(self.absent[0]) && (since(self.absent[1]) || since(self.present[0]))
    }
}

impl Eye {
    pub(super) fn new(view: View) -> Self {
        Self { view, version: 0, looked: now(), seen: BTreeMap::new(), drained: HashSet::new() }
    }

    /// `cold`: whether the engine at an address may have failed to answer a short time ago.
    ///
    /// # Errors
    /// What must never be.
    pub(super) fn look(&mut self, cold: &dyn Fn(&str) -> bool) -> Result<Sight, String> {
        let snapshot = self.view.load_full();
        if snapshot.version < self.version {
            return Err(format!("snapshot {} after {}", snapshot.version, self.version));
        }
        self.version = snapshot.version;
        let before = std::mem::replace(&mut self.looked, now());
        let mut sight = Sight::default();
        let mut owners: HashMap<String, String> = HashMap::new();
        for service in &snapshot.services {
            for endpoint in service.all() {
                let uid = endpoint.pod.as_ref().map_or("", |pod| pod.uid.as_str()).to_owned();
                self.is_the_same(endpoint, &uid)?;
                sight.stirred[service.index] |= endpoint.last_change() >= before;
                let key = key(service.index, endpoint);
                sight.listed.push(Listed { uid: uid.clone(), key: key.clone(), reason: endpoint.reason() });
                let drained = self.drained.contains(&endpoint.id);
                if !endpoint.is_selectable() {
                    if drained || is_asked(endpoint, cold) {
                        sight.excused.insert((uid, key));
                    }
                    continue;
                }
                if drained {
                    return Err(format!("{key:?} is selectable though an operator withdrew it"));
                }
                if endpoint.reason().as_str() != "selectable" {
                    return Err(format!("{key:?} is selectable and says {:?}", endpoint.reason()));
                }
                let owner = owners.entry(key.at.clone()).or_insert_with(|| uid.clone());
                if *owner != uid {
                    return Err(format!("{} is selectable for {owner} and for {uid}", key.at));
                }
                if !sight.selectable.entry(uid.clone()).or_default().insert(key.clone()) {
                    return Err(format!("{uid} has {key:?} twice"));
                }
            }
        }
        Ok(sight)
    }

    /// An endpoint is of one Pod for ever, and a new one carries nothing.
    fn is_the_same(&mut self, endpoint: &Arc<Endpoint>, uid: &str) -> Result<(), String> {
        match self.seen.get(&endpoint.id) {
            Some((known, owner)) if Arc::ptr_eq(known, endpoint) && owner == uid => Ok(()),
            Some((_, owner)) => Err(format!("endpoint {} was of {owner} and is of {uid}", endpoint.id)),
            None => {
                self.seen.insert(endpoint.id, (Arc::clone(endpoint), uid.to_owned()));
                Ok(())
            }
        }
    }

    /// What is still held anywhere, on endpoints that left too.
    pub(super) fn held(&self) -> Vec<String> {
        let held = self.seen.values().filter_map(|(endpoint, uid)| {
            let in_flight = endpoint.in_flight();
            (in_flight.total() > 0).then(|| format!("{} of {uid}: {in_flight:?}", endpoint.url))
        });
        held.collect()
    }
}

pub(super) fn key(service: usize, endpoint: &Endpoint) -> Key {
    Key {
        service,
        role: endpoint.role.as_str(),
        at: endpoint.authority.clone(),
        revision: endpoint.revision.clone(),
        token: endpoint.token.clone(),
    }
}

/// It is asked what it has to answer, and that may take as long as it does.
fn is_asked(endpoint: &Endpoint, cold: &dyn Fn(&str) -> bool) -> bool {
    let age = now().saturating_duration_since(endpoint.last_change());
    endpoint.reason() == Reason::Probing
        && (age <= super::world::ANSWERS_IN + AT_ONCE || cold(&endpoint.host))
}

/// Whether an engine at this address may get a leg's first byte now, in this role: a leg that started may be 50 ms under way.
pub(super) fn may_be_sent(view: &View, at: &str, role: &str) -> Result<(), String> {
    let snapshot = view.load();
    let listed = snapshot.services.iter().flat_map(|service| service.all());
    let gone = snapshot.departed.iter().map(|gone| &gone.endpoint);
    let mut story = Vec::new();
    for endpoint in
        listed.chain(gone).filter(|endpoint| endpoint.authority == at && endpoint.role.as_str() == role)
    {
        let age = now().saturating_duration_since(endpoint.last_change());
        if endpoint.is_selectable() || age <= AT_ONCE {
            return Ok(());
        }
        story.push(format!("{} {:?} for {age:?}", endpoint.id, endpoint.reason()));
    }
    Err(format!("{at} was sent a request as a {role}; its endpoints: {story:?}"))
}
