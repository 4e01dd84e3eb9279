//! Defaults, file, environment and flags become one [`RouterConfig`], or the list of every mistake.
//!
//! One function per section, each a list of keys in the order of the documentation.

mod pods;

use super::discovery::{Kubernetes, Observer};
use super::node::{Node, Value};
use super::problem::{Place, Problem};
use super::reader::{Reader, Section};
use super::router::{
    AccessLog, Admin, Authorization, DEFAULT_BOOTSTRAP_PORT, EngineKind, Limits, Log, Policies, Retries,
    RouterConfig, Service, Shutdown, StaticEndpoint, Timeouts, Upstream, VllmConnector,
};
use super::source::{Source, environment_tree, file_tree, flags_tree};
use super::split::{HEAVIEST, InferenceService, SplitEntry};
use super::units::{self, Wrong};
use super::{labels, validate, words};

/// Reads and checks everything.
///
/// # Errors
/// Every mistake there is, in reading order. After a file that is no YAML only those of environment and flags.
pub fn load(source: &Source) -> Result<RouterConfig, Vec<Problem>> {
    let mut reader = Reader::default();
    let file = source.file.as_ref().map(|file| file_tree(file, &mut reader.problems));
    let unreadable = matches!(file, Some(None));
    let file = file.flatten();
    let environment = environment_tree(&source.environment, &mut reader.problems);
    let flags = flags_tree(&source.flags, &mut reader.problems);
    let layers: Vec<&Node> = file.iter().chain([&environment, &flags]).collect();
    let root = Section::root(layers);
    let config = router(&mut reader, &root);
    validate::flags(&source.flags, file.as_ref(), &mut reader.problems);
    if !unreadable {
        validate::config(&config, &root, &mut reader.problems);
    }
    finish(config, reader.problems)
}

/// Sorted by place, and each mistake once: an alias can bring the same mapping in twice, and a flag can set several keys.
fn finish(config: RouterConfig, mut problems: Vec<Problem>) -> Result<RouterConfig, Vec<Problem>> {
    if problems.is_empty() {
        return Ok(config);
    }
    problems.sort_by(|a, b| a.at.cmp(&b.at));
    let same_flag =
        |a: &Problem, b: &Problem| matches!(a.at, Place::Flag(_)) && (&a.at, &a.got) == (&b.at, &b.got);
    problems.dedup_by(|a, b| a == b || a.got.is_some() && a.message == b.message && same_flag(a, b));
    Err(problems)
}

fn router(r: &mut Reader, root: &Section<'_>) -> RouterConfig {
    let mut c = RouterConfig::defaults();
    r.set(root, "listen", words::address, &mut c.listen);
    r.set(root, "threads", words::auto(words::count(1, 256)), &mut c.threads);
    admin(r, &root.section("admin"), &mut c.admin);
    r.set_optional(root, "api_keys_file", words::path, &mut c.api_keys_file);
    r.set_optional(root, "state_file", words::path, &mut c.state_file);
    observer(r, &root.section("observer"), &mut c.observer);
    kubernetes(r, &root.section("kubernetes"), &mut c.kubernetes);
    limits(r, &root.section("limits"), &mut c.limits);
    timeouts(r, &root.section("timeouts"), &mut c.timeouts);
    shutdown(r, &root.section("shutdown"), &mut c.shutdown);
    access_log(r, &root.section("access_log"), &mut c.access_log);
    log(r, &root.section("log"), &mut c.log);
    c.services = root.entries("services").iter().map(|entry| service(r, entry)).collect();
    c
}

fn admin(r: &mut Reader, s: &Section<'_>, c: &mut Admin) {
    r.set(s, "listen", words::address, &mut c.listen);
    r.set_optional(s, "token_file", words::path, &mut c.token_file);
}

fn observer(r: &mut Reader, s: &Section<'_>, c: &mut Observer) {
    r.set(s, "on_front_door", words::auto(words::boolean), &mut c.on_front_door);
}

fn kubernetes(r: &mut Reader, s: &Section<'_>, c: &mut Kubernetes) {
    r.set(s, "kubeconfig", words::auto(words::path), &mut c.kubeconfig);
    r.set_optional(s, "context", words::plain, &mut c.context);
}

fn limits(r: &mut Reader, s: &Section<'_>, c: &mut Limits) {
    r.set(s, "body", at_least(1 << 10, u64::MAX), &mut c.body);
    r.set(s, "buffered_bytes", words::auto(at_least(1 << 10, u64::MAX)), &mut c.buffered_bytes);
    r.set(s, "headers", words::count(10, 1_000), &mut c.headers);
    // The downstream codec refuses a read buffer below 8 KiB.
    r.set(s, "header_bytes", small(8 << 10, 1 << 20), &mut c.header_bytes);
    // The URI type holds at most 65534 bytes.
    r.set(s, "url", small(256, 65_534), &mut c.url);
    r.set(s, "connections", words::auto(words::count(1, 10_000_000)), &mut c.connections);
    r.set(s, "in_flight", words::count(0, 10_000_000), &mut c.in_flight);
    r.set(s, "h2_streams", words::count(1, 10_000), &mut c.h2_streams);
}

fn timeouts(r: &mut Reader, s: &Section<'_>, c: &mut Timeouts) {
    r.set(s, "header_read", units::limit, &mut c.header_read);
    r.set(s, "body_progress", units::limit, &mut c.body_progress);
    r.set(s, "connect", units::limit, &mut c.connect);
    r.set(s, "first_byte", units::limit, &mut c.first_byte);
    r.set(s, "idle", units::limit, &mut c.idle);
    r.set(s, "write_stall", units::limit, &mut c.write_stall);
    r.set(s, "total", units::limit, &mut c.total);
    r.set(s, "downstream_idle", units::limit, &mut c.downstream_idle);
}

fn shutdown(r: &mut Reader, s: &Section<'_>, c: &mut Shutdown) {
    r.set(s, "delay", units::duration, &mut c.delay);
    r.set(s, "grace", units::duration, &mut c.grace);
}

fn access_log(r: &mut Reader, s: &Section<'_>, c: &mut AccessLog) {
    r.set(s, "sink", words::sink, &mut c.sink);
    r.set(s, "format", words::choice(words::LOG_FORMAT), &mut c.format);
    r.set(s, "sample", units::share, &mut c.sample);
}

fn log(r: &mut Reader, s: &Section<'_>, c: &mut Log) {
    r.set(s, "level", words::level, &mut c.level);
    r.set(s, "format", words::choice(words::LOG_FORMAT), &mut c.format);
}

fn service(r: &mut Reader, s: &Section<'_>) -> Service {
    let mut c = Service::plain("", Vec::new());
    r.require(s, "name");
    r.set(s, "name", words::service_name, &mut c.name);
    c.models = r.names(s, "models", words::model_name);
    r.set(s, "model_match", words::choice(words::MODEL_MATCH), &mut c.model_match);
    c.engine = engine(r, &s.section("engine"));
    c.pods = pods::pods(r, &s.section("discovery"));
    pods::eligibility(r, &s.section("eligibility"), &mut c.eligibility);
    let fixed = s.section("discovery").section("static");
    c.prefill = fixed.entries("prefill").iter().map(|entry| prefill(r, entry, c.engine)).collect();
    c.decode = fixed.entries("decode").iter().map(|entry| endpoint(r, entry)).collect();
    c.endpoints = fixed.entries("mixed").iter().map(|entry| endpoint(r, entry)).collect();
    policies(r, &s.section("policy"), &mut c.policy);
    retries(r, &s.section("retries"), &mut c.retries);
    upstream(r, &s.section("upstream"), &mut c.upstream);
    cohorts(r, &s.section("cohorts"), &mut c);
    c.split = split(r, &s.section("split"));
    c.rollout = rollout(r, &s.section("split"));
    let sticky = s.section("sticky");
    c.sticky.headers = r.names(&sticky, "headers", words::header);
    r.set_optional(&sticky, "body_field", words::label, &mut c.sticky.body_field);
    c
}

fn cohorts(r: &mut Reader, s: &Section<'_>, c: &mut Service) {
    r.set(s, "by", words::choice(words::COHORTS_BY), &mut c.cohorts_by);
    r.set(s, "headers", words::boolean, &mut c.cohort_headers);
    r.set(s, "guard", words::choice(words::COHORTS_GUARD), &mut c.cohorts_guard);
}

/// `s` is `split`. Without weights there is none: an empty list is a mistake, and told by the rules.
fn split(r: &mut Reader, s: &Section<'_>) -> Option<Vec<SplitEntry>> {
    s.node("weights").filter(|node| node.value != Value::Null)?;
    let entry = |s: &Section<'_>| {
        let mut entry = SplitEntry::default();
        let word = |text: &str| Ok(Some(text.to_owned()));
        r.set(s, "name", word, &mut entry.name);
        r.set(s, "revision", word, &mut entry.revision);
        entry.prefill = r.names(s, "prefill", |text| Ok(text.to_owned()));
        entry.decode = r.names(s, "decode", |text| Ok(text.to_owned()));
        r.set(s, "token", word, &mut entry.token);
        r.require(s, "weight");
        r.set(s, "weight", words::count(0, HEAVIEST), &mut entry.weight);
        entry
    };
    Some(s.entries("weights").iter().map(entry).collect())
}

/// `s` is `split`. Nothing below `inferenceservice`, as when all its keys are commented out: none.
fn rollout(r: &mut Reader, s: &Section<'_>) -> Option<InferenceService> {
    s.node("inferenceservice").filter(|node| node.value != Value::Null)?;
    let s = &s.section("inferenceservice");
    let mut c = InferenceService { namespace: None, name: String::new() };
    r.set(s, "namespace", words::auto(labels::namespace), &mut c.namespace);
    r.require(s, "name");
    r.set(s, "name", labels::object, &mut c.name);
    Some(c)
}

fn engine(r: &mut Reader, s: &Section<'_>) -> EngineKind {
    let (mut kind, mut connector) = (EngineKind::Plain, VllmConnector::Nixl);
    r.set(s, "kind", words::engine_kind, &mut kind);
    r.set(s, "connector", words::choice(words::CONNECTOR), &mut connector);
    if matches!(kind, EngineKind::Vllm(_)) { EngineKind::Vllm(connector) } else { kind }
}

/// An endpoint whose URL is bad keeps its place in the list, with an empty host, so that positions stay true.
fn endpoint(r: &mut Reader, s: &Section<'_>) -> StaticEndpoint {
    let (host, none) = (String::new(), String::new());
    let mut endpoint =
        StaticEndpoint { host, port: 0, bootstrap_port: None, revision: none.clone(), token: none };
    r.require(s, "url");
    r.set(s, "url", StaticEndpoint::parse, &mut endpoint);
    let (mut revision, mut token) = (None, None);
    r.set_optional(s, "revision", words::label, &mut revision);
    r.set_optional(s, "token", words::label, &mut token);
    endpoint.revision = revision.unwrap_or_default();
    endpoint.token = token.unwrap_or_default();
    endpoint
}

/// Only SGLang has a default for the bootstrap port; a port under another kind is there because someone wrote it.
fn prefill(r: &mut Reader, s: &Section<'_>, engine: EngineKind) -> StaticEndpoint {
    let mut endpoint = endpoint(r, s);
    let port = |text: &str| words::count(1, u16::MAX.into())(text).map(Some);
    r.set(s, "bootstrap_port", port, &mut endpoint.bootstrap_port);
    if engine == EngineKind::Sglang && s.node("bootstrap_port").is_none() {
        endpoint.bootstrap_port = Some(DEFAULT_BOOTSTRAP_PORT);
    }
    endpoint
}

fn policies(r: &mut Reader, s: &Section<'_>, c: &mut Policies) {
    r.set(s, "mixed", words::choice(words::POLICY), &mut c.mixed);
    r.set(s, "prefill", words::choice(words::POLICY), &mut c.prefill);
    r.set(s, "decode", words::choice(words::POLICY), &mut c.decode);
}

fn retries(r: &mut Reader, s: &Section<'_>, c: &mut Retries) {
    r.set(s, "max", words::attempts, &mut c.max);
    r.set(s, "budget", units::share, &mut c.budget);
    r.set(s, "floor", words::count(0, 10_000), &mut c.floor);
}

fn upstream(r: &mut Reader, s: &Section<'_>, c: &mut Upstream) {
    if matches!(s.node("authorization"), Some(Node { value: Value::Map(_), .. })) {
        let secret = s.section("authorization");
        r.require(&secret, "from_secret");
        let path = |text: &str| words::path(text).map(Authorization::FromSecret);
        r.set(&secret, "from_secret", path, &mut c.authorization);
    } else {
        r.set(s, "authorization", words::authorization, &mut c.authorization);
    }
    r.set(s, "idle", units::duration, &mut c.idle);
    r.set(s, "cookies", words::boolean, &mut c.cookies);
    r.set(s, "handoff_max_age", units::positive, &mut c.handoff_max_age);
    r.set(s, "kv_lease", units::positive, &mut c.kv_lease);
    r.set(s, "cancel_decode_grace", words::auto(units::duration), &mut c.cancel_decode_grace);
}

fn at_least(least: u64, most: u64) -> impl Fn(&str) -> Result<u64, Wrong> {
    move |text| {
        let bytes = units::size(text)?;
        if bytes < least {
            return Err(Wrong::new("too small", format!("at least {}", units::show_size(least))));
        }
        if bytes > most {
            return Err(Wrong::new("too large", format!("at most {}", units::show_size(most))));
        }
        Ok(bytes)
    }
}

/// Like [`at_least`] for sizes that fit a `usize` everywhere.
fn small(least: u32, most: u32) -> impl Fn(&str) -> Result<usize, Wrong> {
    move |text| at_least(least.into(), most.into())(text).map(|bytes| bytes as usize)
}
