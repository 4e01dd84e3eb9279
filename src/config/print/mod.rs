//! The effective configuration as a document that loads back to the same values.
//!
//! Every key is written, defaults too, so that what is printed answers "what does it run with". Nothing is secret:
//! the configuration holds paths of secrets, never their content.

mod pods;

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::discovery::{Kubernetes, Labels};
use super::router::{
    Authorization, EngineKind, LogSink, Policies, RouterConfig, Service, StaticEndpoint, Upstream,
};
use super::split::{InferenceService, SplitEntry, Sticky};
use super::units::{show_duration, show_share, show_size};
use super::words;

/// Prints as YAML.
pub fn print(config: &RouterConfig) -> String {
    // Writing strings, numbers, lists and mappings with text keys into a string has no way to fail.
    serde_saphyr::to_string(&document(config)).unwrap_or_default()
}

/// The same document for other formats: anything that implements `Serialize` keys in order.
pub fn document(c: &RouterConfig) -> Document {
    let mut map = vec![
        ("listen", text(c.listen)),
        ("threads", c.threads.map_or(auto(), count)),
        (
            "admin",
            Document::Map(vec![
                ("listen", text(c.admin.listen)),
                ("token_file", path(c.admin.token_file.as_ref())),
            ]),
        ),
        ("api_keys_file", path(c.api_keys_file.as_ref())),
        ("state_file", path(c.state_file.as_ref())),
        ("observer", one("on_front_door", c.observer.on_front_door.map_or(auto(), Document::Bool))),
        ("kubernetes", kubernetes(&c.kubernetes)),
    ];
    map.extend(sections(c));
    map.push(("services", Document::List(c.services.iter().map(service).collect())));
    Document::Map(map)
}

/// A document of scalars, lists, ordered mappings, and labels: a mapping whose keys are values, not keys of ours.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    Null,
    Bool(bool),
    Count(u64),
    Text(String),
    List(Vec<Document>),
    Map(Vec<(&'static str, Document)>),
    Labels(Labels),
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Count(value) => serializer.serialize_u64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::List(items) => serializer.collect_seq(items),
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
            Self::Labels(labels) => serializer.collect_map(labels),
        }
    }
}

fn kubernetes(k: &Kubernetes) -> Document {
    Document::Map(vec![
        ("kubeconfig", k.kubeconfig.as_ref().map_or(auto(), |file| path(Some(file)))),
        ("context", k.context.as_ref().map_or(Document::Null, text)),
    ])
}

fn sections(c: &RouterConfig) -> Vec<(&'static str, Document)> {
    let sink = match &c.access_log.sink {
        LogSink::Off => text("off"),
        LogSink::Stdout => text("stdout"),
        LogSink::File(file) => path(Some(file)),
    };
    let access_log = vec![
        ("sink", sink),
        ("format", text(words::word(words::LOG_FORMAT, &c.access_log.format))),
        ("sample", text(show_share(c.access_log.sample))),
    ];
    let log =
        vec![("level", text(&c.log.level)), ("format", text(words::word(words::LOG_FORMAT, &c.log.format)))];
    let shutdown = vec![("delay", duration(c.shutdown.delay)), ("grace", duration(c.shutdown.grace))];
    vec![
        ("limits", limits(c)),
        ("timeouts", timeouts(c)),
        ("shutdown", Document::Map(shutdown)),
        ("access_log", Document::Map(access_log)),
        ("log", Document::Map(log)),
    ]
}

fn limits(c: &RouterConfig) -> Document {
    let l = &c.limits;
    Document::Map(vec![
        ("body", text(show_size(l.body))),
        ("buffered_bytes", l.buffered_bytes.map_or(auto(), |bytes| text(show_size(bytes)))),
        ("headers", count(l.headers)),
        ("header_bytes", text(show_size(l.header_bytes as u64))),
        ("url", text(show_size(l.url as u64))),
        ("connections", l.connections.map_or(auto(), count)),
        ("in_flight", count(l.in_flight)),
        ("h2_streams", Document::Count(l.h2_streams.into())),
    ])
}

fn timeouts(c: &RouterConfig) -> Document {
    let t = &c.timeouts;
    let limit = |limit: Option<Duration>| duration(limit.unwrap_or_default());
    Document::Map(vec![
        ("header_read", limit(t.header_read)),
        ("body_progress", limit(t.body_progress)),
        ("connect", limit(t.connect)),
        ("first_byte", limit(t.first_byte)),
        ("idle", limit(t.idle)),
        ("write_stall", limit(t.write_stall)),
        ("total", limit(t.total)),
        ("downstream_idle", limit(t.downstream_idle)),
    ])
}

fn service(s: &Service) -> Document {
    let retries = vec![
        ("max", Document::Count(s.retries.max.into())),
        ("budget", text(show_share(s.retries.budget))),
        ("floor", Document::Count(s.retries.floor.into())),
    ];
    Document::Map(vec![
        ("name", text(&s.name)),
        ("models", Document::List(s.models.iter().map(text).collect())),
        ("model_match", text(words::word(words::MODEL_MATCH, &s.model_match))),
        ("engine", engine(s.engine)),
        (
            "discovery",
            s.pods.as_ref().map_or_else(|| one("static", endpoints(s)), |p| one("kubernetes", pods::pods(p))),
        ),
        ("eligibility", pods::eligibility(s.eligibility)),
        ("policy", policies(s.policy)),
        ("retries", Document::Map(retries)),
        ("upstream", upstream(&s.upstream)),
        ("cohorts", cohorts(s)),
        (
            "split",
            Document::Map(vec![
                ("weights", s.split.as_deref().map_or(Document::Null, split)),
                ("inferenceservice", s.rollout.as_ref().map_or(Document::Null, rollout)),
            ]),
        ),
        ("sticky", sticky(&s.sticky)),
    ])
}

fn cohorts(s: &Service) -> Document {
    Document::Map(vec![
        ("by", text(words::word(words::COHORTS_BY, &s.cohorts_by))),
        ("headers", Document::Bool(s.cohort_headers)),
        ("guard", text(words::word(words::COHORTS_GUARD, &s.cohorts_guard))),
    ])
}

fn sticky(s: &Sticky) -> Document {
    Document::Map(vec![
        ("headers", Document::List(s.headers.iter().map(text).collect())),
        ("body_field", s.body_field.as_ref().map_or(Document::Null, text)),
    ])
}

fn rollout(at: &InferenceService) -> Document {
    let namespace = at.namespace.as_ref().map_or(auto(), text);
    Document::Map(vec![("namespace", namespace), ("name", text(&at.name))])
}

/// What is not set is left out.
fn split(entries: &[SplitEntry]) -> Document {
    let list = |words: &[String]| Document::List(words.iter().map(text).collect());
    let lists = |key, words: &Vec<String>| (!words.is_empty()).then(|| (key, list(words)));
    let word = |key, word: &Option<String>| word.as_ref().map(|word| (key, text(word)));
    let entry = |e: &SplitEntry| {
        let set = [
            word("name", &e.name),
            word("revision", &e.revision),
            lists("prefill", &e.prefill),
            lists("decode", &e.decode),
            word("token", &e.token),
            Some(("weight", Document::Count(e.weight))),
        ];
        Document::Map(set.into_iter().flatten().collect())
    };
    Document::List(entries.iter().map(entry).collect())
}

fn engine(kind: EngineKind) -> Document {
    let mut map = vec![("kind", text(kind.as_str()))];
    if let EngineKind::Vllm(connector) = kind {
        map.push(("connector", text(words::word(words::CONNECTOR, &connector))));
    }
    Document::Map(map)
}

/// Lists that are empty are left out: a kind without pairs does not take the keys of one that has them.
fn endpoints(s: &Service) -> Document {
    let entry = |at: &StaticEndpoint| {
        let bootstrap = at.bootstrap_port.map(|port| ("bootstrap_port", Document::Count(port.into())));
        let labels = [("revision", &at.revision), ("token", &at.token)];
        let labels = labels.into_iter().filter(|(_, word)| !word.is_empty());
        let labels = labels.map(|(key, word)| (key, text(word)));
        Document::Map([("url", text(at))].into_iter().chain(bootstrap).chain(labels).collect())
    };
    let lists = [("prefill", &s.prefill), ("decode", &s.decode), ("mixed", &s.endpoints)];
    let filled = lists.into_iter().filter(|(_, list)| !list.is_empty());
    Document::Map(
        filled.map(|(role, list)| (role, Document::List(list.iter().map(entry).collect()))).collect(),
    )
}

fn policies(p: Policies) -> Document {
    let word = |policy| text(words::word(words::POLICY, &policy));
    Document::Map(vec![("mixed", word(p.mixed)), ("prefill", word(p.prefill)), ("decode", word(p.decode))])
}

fn upstream(u: &Upstream) -> Document {
    let authorization = match &u.authorization {
        Authorization::FromSecret(file) => one("from_secret", path(Some(file))),
        word => text(words::word(words::AUTHORIZATION, word)),
    };
    Document::Map(vec![
        ("authorization", authorization),
        ("idle", duration(u.idle)),
        ("cookies", Document::Bool(u.cookies)),
        ("handoff_max_age", duration(u.handoff_max_age)),
        ("kv_lease", duration(u.kv_lease)),
        ("cancel_decode_grace", u.cancel_decode_grace.map_or(auto(), duration)),
    ])
}

fn one(key: &'static str, value: Document) -> Document {
    Document::Map(vec![(key, value)])
}

fn text(value: impl Display) -> Document {
    Document::Text(value.to_string())
}

fn auto() -> Document {
    text("auto")
}

fn count(value: usize) -> Document {
    Document::Count(value as u64)
}

fn duration(value: Duration) -> Document {
    let shown = show_duration(value);
    if shown == "0" { Document::Count(0) } else { Document::Text(shown) }
}

fn path(value: Option<&PathBuf>) -> Document {
    value.map_or(Document::Null, |path| text(path.display()))
}
