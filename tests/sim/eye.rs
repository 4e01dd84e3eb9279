//! What the router shows, and what must hold of that at any time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tandem::registry::{Endpoint, View};
use tandem::types::clock::now;

use super::pods::{Key, Keys};

/// Looks at the registry's newest snapshot.
pub(super) struct Eye {
    view: View,
    version: u64,
    /// Every endpoint that was ever seen, with the UID it had at first.
    pub(super) seen: BTreeMap<u64, (Arc<Endpoint>, String)>,
    /// Endpoints that an operator withdrew.
    pub(super) drained: HashSet<u64>,
}

/// One look: selectable endpoints by UID, and those that an operator withdrew.
#[derive(Debug, Default)]
pub(super) struct Sight {
    pub(super) selectable: BTreeMap<String, Keys>,
    drained: HashSet<(String, Key)>,
    /// Services that have something selectable.
    pub(super) serves: [bool; 2],
}

impl Sight {
    pub(super) fn is_drained(&self, uid: &str, key: &Key) -> bool {
        self.drained.contains(&(uid.to_owned(), key.clone()))
    }
}

impl Eye {
    pub(super) fn new(view: View) -> Self {
        Self { view, version: 0, seen: BTreeMap::new(), drained: HashSet::new() }
    }

    /// # Errors
    /// What must never be.
    pub(super) fn look(&mut self) -> Result<Sight, String> {
        let snapshot = self.view.load_full();
        if snapshot.version < self.version {
            return Err(format!("snapshot {} after {}", snapshot.version, self.version));
        }
        self.version = snapshot.version;
        let mut sight = Sight::default();
        let mut owners: HashMap<String, String> = HashMap::new();
        for service in &snapshot.services {
            for endpoint in service.all() {
                let uid = endpoint.pod.as_ref().map_or("", |pod| pod.uid.as_str()).to_owned();
                self.is_the_same(endpoint, &uid)?;
                let key = key(service.index, endpoint);
                let drained = self.drained.contains(&endpoint.id);
                if !endpoint.is_selectable() {
                    if drained {
                        sight.drained.insert((uid, key));
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
                sight.serves[service.index] = true;
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
            let (holds, reserved) = (endpoint.holds(), endpoint.reserved.count());
            let handoffs = endpoint.handoffs.count();
            (holds + reserved + handoffs > 0).then(|| {
                format!("{} of {uid}: {holds} holds, {reserved} reserved, {handoffs} hand-offs", endpoint.url)
            })
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

/// Whether an engine at this address may get a leg's first byte now: a leg that started may be 50 ms under way.
pub(super) fn may_be_sent(view: &View, at: &str) -> Result<(), String> {
    let snapshot = view.load();
    let listed = snapshot.services.iter().flat_map(|service| service.all());
    let gone = snapshot.departed.iter().map(|gone| &gone.endpoint);
    let mut story = Vec::new();
    for endpoint in listed.chain(gone).filter(|endpoint| endpoint.authority == at) {
        let age = now().saturating_duration_since(endpoint.last_change());
        if endpoint.is_selectable() || age <= super::history::AT_ONCE {
            return Ok(());
        }
        story.push(format!("{} {:?} for {age:?}", endpoint.id, endpoint.reason()));
    }
    Err(format!("{at} was sent a request; its endpoints: {story:?}"))
}
