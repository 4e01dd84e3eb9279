//! What a drain protocol reads before it deletes anything: who takes new requests, and what each endpoint still carries for
//! this router. `docs/drain.md` says what it proves; `docs/schemas/inflight.schema.json` is its form.
//!
//! A report is one leg of the evidence. Anything above zero holds a deletion up; what is missing is unknown and not zero (I10).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::endpoint::{Endpoint, Load};
use super::in_flight::InFlight;
use super::snapshot::{Service, Snapshot, View};
use crate::types::boot::Boot;
use crate::types::clock::{self, Instant};

/// Grows only when a reader of an earlier form could be misled; fields may be added without.
pub const SCHEMA: u32 = 1;

/// `GET /observer/inflight`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    pub router: Router,
    /// Version of the snapshot that requests are decided on.
    pub registry_version: u64,
    /// By URL. One that left stays until it carries nothing, and 15 s more.
    pub endpoints: Vec<Entry>,
    /// Pods that this router knows and never gave a request: they have no endpoint.
    pub pods: Vec<Bare>,
}

/// Who says it, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Router {
    /// UID of its Pod, else random.
    pub instance: String,
    /// Wall clock at its start, milliseconds: another one means that its counts began anew.
    pub boot_generation: u64,
    /// Grows with every answer of one boot.
    pub seq: u64,
    /// Its wall clock, milliseconds. For people: freshness is judged on the reader's own clock.
    pub now_ms: u64,
}

/// One endpoint. Ages are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Of its Pod; `None`: listed in the configuration.
    pub uid: Option<String>,
    pub namespace: Option<String>,
    pub pod: Option<String>,
    pub service: String,
    pub url: String,
    /// `prefill`, `decode` or `mixed`.
    pub role: String,
    pub revision: Option<String>,
    pub pairing_token: Option<String>,
    /// May be given a new request now.
    pub selectable: bool,
    /// Why not, when it is not.
    pub reason: Option<String>,
    /// An operator drained it at this router alone; a restart forgets that.
    pub volatile_drain: bool,
    /// Until a drain's deadline; negative once that is past. `None`: no drain has one.
    #[serde(default)]
    pub deadline_in_ms: Option<i64>,
    /// What is open at that deadline is cut.
    #[serde(default)]
    pub force: bool,
    /// `None`: it takes new requests.
    pub withdrawn_age_ms: Option<u64>,
    /// Since the last leg began on it. `None`: none did.
    pub last_dispatch_age_ms: Option<u64>,
    pub in_flight: InFlight,
    /// Requests that were cut on it because a drain's deadline asked for that, since it was registered.
    pub forced: u64,
    /// For so long it takes no new requests and carries nothing. `None`: that is not so, or an earlier endpoint of
    /// its URL still carries something.
    pub quiesced_for_ms: Option<u64>,
}

/// A Pod without an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bare {
    pub uid: String,
    pub namespace: String,
    pub pod: String,
    pub service: String,
    pub reason: String,
    pub known_for_ms: u64,
}

/// Which part is asked for: every value that is there has to be the entry's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub uid: Option<String>,
    pub namespace: Option<String>,
    pub pod: Option<String>,
    pub service: Option<String>,
    pub url: Option<String>,
}

/// Answers, one for each process.
#[derive(Debug)]
pub struct Reporter {
    view: View,
    boot: Boot,
    seq: AtomicU64,
}

impl Reporter {
    pub fn new(view: View, boot: Boot) -> Self {
        Self { view, boot, seq: AtomicU64::new(0) }
    }

    /// The report. Changes nothing but `seq`.
    pub fn report(&self, filter: &Filter) -> Report {
        let snapshot = self.view.load_full();
        let busy = Busy::of(&snapshot);
        let one = |(service, endpoint): (&Service, &Arc<Endpoint>)| {
            let mut entry = entry(service, endpoint);
            entry.quiesced_for_ms = entry.quiesced_for_ms.filter(|_| busy.is_at_rest(endpoint));
            entry
        };
        let mut endpoints: Vec<Entry> = matching(&snapshot, filter).map(one).collect();
        endpoints.sort_by(|a, b| (&a.url, &a.role, &a.uid).cmp(&(&b.url, &b.role, &b.uid)));
        let pods = bare(&snapshot, filter);
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let Boot { instance, generation } = self.boot.clone();
        Report {
            schema: SCHEMA,
            router: Router { instance, boot_generation: generation, seq, now_ms: clock::wall_ms() },
            registry_version: snapshot.version,
            endpoints,
            pods,
        }
    }

    /// Something is asked for, and none of it takes new requests or carries any.
    pub fn is_quiesced(&self, filter: &Filter) -> bool {
        let snapshot = self.view.load();
        let mut endpoints = matching(&snapshot, filter).peekable();
        let known = endpoints.peek().is_some() || !bare(&snapshot, filter).is_empty();
        let busy = Busy::of(&snapshot);
        known && endpoints.all(|(_, e)| e.load().quiesced.is_some() && busy.is_at_rest(e))
    }
}

/// What is carried at each URL, by the id of the first endpoint there that carries something. Before a router hears that
/// another Pod has an address, it counts what it sends there for the Pod that had it: the later one is not at rest before
/// that is over.
struct Busy<'a>(HashMap<&'a str, u64>);

impl<'a> Busy<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let mut first = HashMap::new();
        for (_, endpoint) in snapshot.known().filter(|(_, endpoint)| endpoint.in_flight().total() > 0) {
            let id = first.entry(endpoint.url.as_str()).or_insert(endpoint.id);
            *id = endpoint.id.min(*id);
        }
        Self(first)
    }

    fn is_at_rest(&self, endpoint: &Endpoint) -> bool {
        self.0.get(endpoint.url.as_str()).is_none_or(|first| *first >= endpoint.id)
    }
}

fn matching<'a>(
    snapshot: &'a Snapshot,
    filter: &'a Filter,
) -> impl Iterator<Item = (&'a Service, &'a Arc<Endpoint>)> {
    snapshot.known().filter(|(service, endpoint)| {
        let pod = endpoint.pod.as_deref();
        fits(filter.service.as_ref(), Some(&service.config.name))
            && fits(filter.url.as_ref(), Some(&endpoint.url))
            && fits(filter.uid.as_ref(), pod.map(|pod| &pod.uid))
            && fits(filter.namespace.as_ref(), pod.map(|pod| &pod.namespace))
            && fits(filter.pod.as_ref(), pod.map(|pod| &pod.name))
    })
}

fn fits(wanted: Option<&String>, found: Option<&String>) -> bool {
    wanted.is_none() || wanted == found
}

fn bare(snapshot: &Snapshot, filter: &Filter) -> Vec<Bare> {
    let name = |index: usize| snapshot.services.get(index).map_or("", |service| service.config.name.as_str());
    let all = snapshot.notes.iter().filter(|note| {
        filter.url.is_none()
            && filter.service.as_ref().is_none_or(|wanted| wanted == name(note.service))
            && fits(filter.uid.as_ref(), Some(&note.pod.uid))
            && fits(filter.namespace.as_ref(), Some(&note.pod.namespace))
            && fits(filter.pod.as_ref(), Some(&note.pod.name))
    });
    let row = |note: &Arc<super::PodNote>| Bare {
        uid: note.pod.uid.clone(),
        namespace: note.pod.namespace.clone(),
        pod: note.pod.name.clone(),
        service: name(note.service).to_owned(),
        reason: note.reason.as_str().to_owned(),
        known_for_ms: age(note.since, clock::now()),
    };
    all.map(row).collect()
}

fn entry(service: &Service, endpoint: &Endpoint) -> Entry {
    let Load { withdrawn, in_flight, quiesced } = endpoint.load();
    // One moment for the whole row, after everything that it is about: ages of it can be compared.
    let now = clock::now();
    let named = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let pod = endpoint.pod.as_deref();
    let deadline = endpoint.deadline();
    Entry {
        uid: pod.map(|pod| pod.uid.clone()),
        namespace: pod.map(|pod| pod.namespace.clone()),
        pod: pod.map(|pod| pod.name.clone()),
        service: service.config.name.clone(),
        url: endpoint.url.clone(),
        role: endpoint.role.as_str().to_owned(),
        revision: named(&endpoint.revision),
        pairing_token: named(&endpoint.token),
        selectable: withdrawn.is_none(),
        reason: withdrawn.map(|_| endpoint.reason().as_str().to_owned()),
        volatile_drain: endpoint.is_drained(),
        deadline_in_ms: deadline.map(|deadline| deadline.due.left_ms()),
        force: deadline.is_some_and(|deadline| deadline.force),
        withdrawn_age_ms: withdrawn.map(|at| age(at, now)),
        last_dispatch_age_ms: endpoint.last_dispatch().map(|at| age(at, now)),
        in_flight,
        forced: endpoint.forced(),
        quiesced_for_ms: quiesced.map(|at| age(at, now)),
    }
}

fn age(since: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(u64::MAX)
}
