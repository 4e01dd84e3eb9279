//! The keys of a service whose endpoints are Pods.

use std::time::Duration;

use crate::config::discovery::{Dialect, Eligibility, Keys, Labels, PodDiscovery, Port, RoleSelectors};
use crate::config::node::Value;
use crate::config::reader::{Reader, Section};
use crate::config::{labels, units, words};

/// `s` is `discovery`. Nothing below `kubernetes`, as when all its keys are commented out: no Pods.
pub(super) fn pods(r: &mut Reader, s: &Section<'_>) -> Option<PodDiscovery> {
    s.node("kubernetes").filter(|node| node.value != Value::Null)?;
    let s = &s.section("kubernetes");
    let mut dialect = Dialect::Tandem;
    r.set(s, "dialect", words::choice(words::DIALECT), &mut dialect);
    let mut c = PodDiscovery::of(dialect, Labels::new());
    r.set(s, "namespace", words::auto(labels::namespace), &mut c.namespace);
    r.require(s, "selector");
    c.selector = r.labels(s, "selector");
    c.role_selectors = RoleSelectors {
        prefill: r.labels(s, "prefill"),
        decode: r.labels(s, "decode"),
        mixed: r.labels(s, "mixed"),
    };
    let relist = units::between(Duration::from_secs(1), Duration::from_mins(10));
    r.set(s, "relist", relist, &mut c.relist);
    r.set(s, "relist_read", words::choice(words::RELIST_READ), &mut c.relist_read);
    r.set(s, "ip_family", words::choice(words::IP_FAMILY), &mut c.ip_family);
    ports(r, s, &mut c.ports);
    r.set(s, "bootstrap_port", words::auto(words::count(1, u16::MAX.into())), &mut c.bootstrap_port);
    r.set(s, "probe", words::choice(words::PROBE), &mut c.probe);
    keys(r, &s.section("keys"), &mut c.keys);
    Some(c)
}

/// A port that is bad keeps its place in the list, with number 0, so that positions stay true.
fn ports(r: &mut Reader, s: &Section<'_>, c: &mut Vec<Port>) {
    let mut ports = c.drain(..).map(Some).collect();
    r.set_list(s, "ports", labels::port, &mut ports);
    c.extend(ports.into_iter().map(|port| port.unwrap_or(Port::Number(0))));
}

fn keys(r: &mut Reader, s: &Section<'_>, c: &mut Keys) {
    r.set(s, "eligible", labels::or_preset(c.eligible.clone(), labels::eligible), &mut c.eligible);
    key(r, s, "role", &mut c.role);
    values(r, s, "prefill_values", &mut c.role_values.prefill);
    values(r, s, "decode_values", &mut c.role_values.decode);
    values(r, s, "mixed_values", &mut c.role_values.mixed);
    key(r, s, "model", &mut c.model);
    key(r, s, "revision", &mut c.revision);
    key(r, s, "token", &mut c.token);
    key(r, s, "ports", &mut c.ports);
    key(r, s, "bootstrap_port", &mut c.bootstrap_port);
    key(r, s, "drain", &mut c.drain);
    key(r, s, "worker_info", &mut c.worker_info);
}

fn key(r: &mut Reader, s: &Section<'_>, name: &str, c: &mut Option<String>) {
    r.set(s, name, labels::or_preset(c.clone(), labels::key), c);
}

/// `auto`, or a list. A value that is bad is empty and keeps its place.
fn values(r: &mut Reader, s: &Section<'_>, name: &str, c: &mut Vec<String>) {
    if matches!(s.node(name).map(|node| &node.value), Some(Value::Scalar(text)) if text == "auto") {
        return;
    }
    let mut values = c.drain(..).map(Some).collect();
    r.set_list(s, name, labels::word, &mut values);
    c.extend(values.into_iter().map(Option::unwrap_or_default));
}

pub(super) fn eligibility(r: &mut Reader, s: &Section<'_>, c: &mut Eligibility) {
    let mode = || words::auto(words::choice(words::MODE));
    r.set(s, "mode", mode(), &mut c.mode);
    r.set(s, "prefill", mode(), &mut c.prefill);
    r.set(s, "decode", mode(), &mut c.decode);
    r.set(s, "mixed", mode(), &mut c.mixed);
    r.set(s, "fail_static", words::boolean, &mut c.fail_static);
}
