//! One stream of Pods, and the services it serves: news in, registry updates out. Pure but for the time it is told.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::judge::{Context, Verdict, is_marked, judge, order};
use super::latch::{Latches, Seen};
use super::pod::{Identity, Pod, Ready, decode};
use super::rules::Rules;
use super::track::{Known, Listed, News, Tracker};
use crate::metrics::DiscoveryMetrics;
use crate::registry::{PodBatch, PodUpdate, PodVerdict, Reason};
use crate::types::clock::Instant;
use crate::types::role::Role;

/// Withdrawals through Ready *Unknown* within this time are one incident.
const INCIDENT: Duration = Duration::from_mins(1);
/// Warnings about Pods kept, so that each is given once.
const MOST_WARNED: usize = 16_384;

/// What is known of the Pods of one (namespace, selector).
#[derive(Debug)]
pub struct Source {
    tracker: Tracker,
    services: Vec<Served>,
    /// Annotations that some service reads.
    wanted: Vec<String>,
    /// By service and UID; by none and name for objects that cannot be read.
    warned: HashMap<(Option<usize>, String), Reason>,
    /// A complete list was applied.
    synced: bool,
    /// The rules changed.
    judge_again: bool,
}

/// One service's view of them.
#[derive(Debug)]
struct Served {
    rules: Rules,
    metrics: DiscoveryMetrics,
    latches: Latches,
    /// By UID: what was said last, with the role.
    said: HashMap<String, Said>,
    /// By role: an incident is on.
    alarmed: [bool; 3],
}

#[derive(Debug, Clone, Copy)]
struct Said {
    role: Option<Role>,
    registered: bool,
    /// Withdrawn from a role by Ready *Unknown*, and when.
    unknown: Option<Instant>,
}

/// What a list came to.
#[derive(Debug)]
pub enum Reconciled {
    Discarded,
    /// UIDs that changed, with the version of the change; the watch should have told.
    Applied(PodBatch, Vec<(String, u64)>),
}

impl Source {
    pub fn new(services: Vec<(Rules, DiscoveryMetrics)>) -> Self {
        let mut wanted: Vec<String> =
            services.iter().flat_map(|(rules, _)| rules.annotations().cloned()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let services = services.into_iter().map(|(rules, metrics)| Served::new(rules, metrics)).collect();
        Self {
            tracker: Tracker::default(),
            services,
            wanted,
            warned: HashMap::new(),
            synced: false,
            judge_again: false,
        }
    }

    /// Annotations that some service reads.
    pub fn wanted(&self) -> &[String] {
        &self.wanted
    }

    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Version of the newest applied list.
    pub fn listed(&self) -> u64 {
        self.tracker.listed()
    }

    pub fn services(&self) -> impl Iterator<Item = (usize, &DiscoveryMetrics)> {
        self.services.iter().map(|served| (served.rules.service, &served.metrics))
    }

    /// From the state file: roles of a service that need the mark.
    pub fn restore_latch(&mut self, service: &str, role: Role) {
        for served in self.services.iter_mut().filter(|s| s.rules.name == service) {
            served.latches.restore(role);
            served.metrics.latched(role.as_str());
        }
    }

    /// Every latch that is on, by service.
    pub fn latches(&self) -> BTreeMap<String, Vec<Role>> {
        let on = |served: &Served| {
            let on = served.latches.on();
            let roles: Vec<Role> = Role::ALL.into_iter().filter(|role| on[*role as usize]).collect();
            (!roles.is_empty()).then(|| (served.rules.name.clone(), roles))
        };
        self.services.iter().filter_map(on).collect()
    }

    /// An object of an ADDED or MODIFIED event. Also: which UID, at which version.
    pub fn changed(&mut self, json: &str, now: Instant) -> (PodBatch, Identity) {
        match decode(json, &self.wanted) {
            Ok(pod) => {
                let identity = Identity::of(&pod);
                let news = self.tracker.apply(Arc::new(pod));
                (self.batch(news, now), identity)
            }
            Err((identity, why)) => {
                self.skip(&identity, &why);
                (PodBatch::default(), identity)
            }
        }
    }

    /// A DELETED event: the UID left at this version.
    pub fn deleted(&mut self, identity: &Identity, now: Instant) -> PodBatch {
        let (Some(uid), Some(version)) = (&identity.uid, identity.version) else {
            self.skip(identity, "a deletion without UID or version");
            return PodBatch::default();
        };
        let news = self.tracker.delete(uid, version);
        self.batch(news, now)
    }

    /// A complete list. Its Pods were decoded elsewhere; `bad`: those that could not be.
    pub fn list(
        &mut self,
        version: u64,
        pods: Vec<Arc<Pod>>,
        bad: &[(Identity, String)],
        now: Instant,
    ) -> Reconciled {
        for (identity, why) in bad {
            self.skip(identity, why);
        }
        let unreadable: Vec<String> = bad.iter().filter_map(|(identity, _)| identity.uid.clone()).collect();
        let news = match self.tracker.list(version, pods, &unreadable) {
            Listed::Discarded => return Reconciled::Discarded,
            Listed::Applied(news) => news,
        };
        let first = !std::mem::replace(&mut self.synced, true);
        let changed = if first { Vec::new() } else { news.iter().map(|n| uid_of(n, version)).collect() };
        let mut batch = PodBatch::default();
        let mut others = Vec::new();
        for news in news {
            match news {
                News::Gone(..) => self.say(news, now, &mut batch),
                News::Changed(known) => others.push(known),
            }
        }
        // What is newly required, or asked for, counts for every Pod.
        let again = self.look(true) | std::mem::take(&mut self.judge_again);
        if again {
            self.say_all(now, &mut batch);
        } else {
            for known in others {
                self.say(News::Changed(known), now, &mut batch);
            }
        }
        batch.listed = self.services.iter().map(|served| served.rules.service).collect();
        self.raise_alarms(now);
        Reconciled::Applied(batch, changed)
    }

    fn batch(&mut self, news: Option<News>, now: Instant) -> PodBatch {
        let mut batch = PodBatch::default();
        let Some(news) = news else { return batch };
        self.say(news, now, &mut batch);
        if self.synced && self.look(false) {
            self.say_all(now, &mut batch);
        }
        self.raise_alarms(now);
        batch
    }

    fn say_all(&mut self, now: Instant, batch: &mut PodBatch) {
        let all: Vec<Known> = self.tracker.pods().cloned().collect();
        for known in all {
            self.say(News::Changed(known), now, batch);
        }
    }

    /// The models of a service as the configuration has them now. Pods are judged by them from the next list on.
    pub fn set_models(&mut self, service: usize, models: &[String]) {
        for served in self.services.iter_mut().filter(|s| s.rules.service == service) {
            if served.rules.models != models {
                served.rules.models = models.to_vec();
                self.judge_again = true;
            }
        }
    }

    fn say(&mut self, news: News, now: Instant, batch: &mut PodBatch) {
        match news {
            News::Gone(pod, reason) => {
                for served in &mut self.services {
                    self.warned.remove(&(Some(served.rules.service), pod.uid.clone()));
                    if served.said.remove(&pod.uid).is_some() {
                        let born = crate::registry::Born::default();
                        let (service, verdict) = (served.rules.service, PodVerdict::Gone(reason));
                        batch.updates.push(PodUpdate { service, pod: Arc::clone(&pod), born, verdict });
                    }
                }
            }
            News::Changed(known) => {
                for index in 0..self.services.len() {
                    if let Some(update) = self.update(index, &known, now) {
                        batch.updates.push(update);
                    }
                }
            }
        }
    }

    fn update(&mut self, index: usize, known: &Known, now: Instant) -> Option<PodUpdate> {
        let served = self.services.get_mut(index)?;
        let pod = &known.pod;
        let before = served.said.get(&pod.id.uid).copied();
        let registered = before.is_some_and(|said| said.registered);
        let context = Context { latched: served.latches.on(), registered };
        let (role, verdict) = judge(pod, &served.rules, context);
        let unknown = match &verdict {
            Verdict::Withdraw(Reason::ReadyUnknown, _) => {
                before.and_then(|said| said.unknown).or(registered.then_some(now))
            }
            _ => None,
        };
        let said = Said { role, registered: matches!(verdict, Verdict::Register(_)), unknown };
        served.said.insert(pod.id.uid.clone(), said);
        let service = served.rules.service;
        let verdict = match verdict {
            Verdict::Register(listeners) => PodVerdict::Register { listeners, epoch: pod.restarts },
            Verdict::Withdraw(reason, detail) => {
                let at_fault = matches!(reason, Reason::NoPort)
                    || (matches!(reason, Reason::NoAddress | Reason::WrongRole) && pod.ready == Ready::True);
                if at_fault && !pod.deleting {
                    warn_once(&mut self.warned, served, pod, reason, detail.as_deref());
                }
                PodVerdict::Withdraw { reason, detail, order: order(pod, &served.rules) }
            }
        };
        Some(PodUpdate { service, pod: Arc::clone(&pod.id), born: known.born, verdict })
    }

    fn skip(&mut self, identity: &Identity, why: &str) {
        let key = (None, format!("{}/{}", identity.namespace, identity.name));
        if self.warned.contains_key(&key) || self.warned.len() >= MOST_WARNED {
            return;
        }
        self.warned.insert(key, Reason::NotSelected);
        for served in &self.services {
            served.metrics.skipped("bad_object");
        }
        let Identity { namespace, name, .. } = identity;
        warn!(namespace, pod = %name, why, "an object that cannot be read is skipped");
    }

    /// Whether a role latched just now.
    fn look(&mut self, relist: bool) -> bool {
        let mut any = false;
        for served in &mut self.services {
            let Served { rules, metrics, latches, said, .. } = served;
            for role in rules.observed().collect::<Vec<_>>() {
                let of_role = |known: &&Known| {
                    let known_role = said.get(&known.pod.id.uid).and_then(|said| said.role);
                    let role_now = known_role.or_else(|| judge(&known.pod, rules, Context::default()).0);
                    known.pod.ready == Ready::True && !known.pod.deleting && role_now == Some(role)
                };
                let seen = self
                    .tracker
                    .pods()
                    .filter(of_role)
                    .map(|known| Seen { uid: &known.pod.id.uid, marked: is_marked(&known.pod, rules) });
                if latches.look(role, seen, relist) {
                    any = true;
                    metrics.latched(role.as_str());
                    info!(service = %rules.name, role = role.as_str(), "every Pod of this role now needs the endpoint-eligible label");
                }
            }
        }
        any
    }

    /// Warns once when more than half of a role was withdrawn through Ready *Unknown* within a minute.
    fn raise_alarms(&mut self, now: Instant) {
        for served in &mut self.services {
            for role in Role::ALL {
                let of_role = served.said.values().filter(|said| said.role == Some(role));
                let (mut all, mut lost) = (0, 0);
                for said in of_role {
                    all += 1;
                    let recent = |at: Instant| now.saturating_duration_since(at) <= INCIDENT;
                    lost += usize::from(said.unknown.is_some_and(recent));
                }
                let over = lost * 2 > all;
                let alarmed = std::mem::replace(&mut served.alarmed[role as usize], over);
                if over && !alarmed {
                    served.metrics.mass_withdrawal(role.as_str());
                    warn!(
                        service = %served.rules.name, role = role.as_str(), withdrawn = lost, of = all,
                        "more than half of a role was withdrawn within a minute because its nodes are out of reach; \
                         eligibility.fail_static keeps such Pods"
                    );
                }
            }
        }
    }
}

impl Served {
    fn new(rules: Rules, metrics: DiscoveryMetrics) -> Self {
        let (latches, said) = (Latches::default(), HashMap::new());
        Self { rules, metrics, latches, said, alarmed: [false; 3] }
    }
}

/// A Pod that cannot be used is one warning for each reason.
fn warn_once(
    warned: &mut HashMap<(Option<usize>, String), Reason>,
    served: &Served,
    pod: &Pod,
    reason: Reason,
    detail: Option<&str>,
) {
    let key = (Some(served.rules.service), pod.id.uid.clone());
    if warned.get(&key) == Some(&reason) || warned.len() >= MOST_WARNED {
        return;
    }
    warned.insert(key, reason);
    served.metrics.skipped(reason.as_str());
    let (namespace, name, uid) = (&pod.id.namespace, &pod.id.name, &pod.id.uid);
    warn!(
        service = %served.rules.name, namespace, pod = %name, uid, reason = reason.as_str(),
        why = detail.unwrap_or_default(), "this Pod cannot be used"
    );
}

fn uid_of(news: &News, listed: u64) -> (String, u64) {
    match news {
        News::Changed(known) => (known.pod.id.uid.clone(), known.pod.version),
        News::Gone(pod, _) => (pod.uid.clone(), listed),
    }
}

#[cfg(test)]
#[path = "tests/source.rs"]
mod tests;
