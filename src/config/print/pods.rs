//! A service whose endpoints are Pods. Keys of its dialect are written out: what is printed says what is looked for.

use super::{Document, auto, duration, text};
use crate::config::discovery::{Eligibility, EligibleKey, Keys, Labels, Mode, PodDiscovery, Port};
use crate::config::words;

pub(super) fn pods(p: &PodDiscovery) -> Document {
    let ports = p.ports.iter().map(|port| match port {
        Port::Number(number) => Document::Count((*number).into()),
        Port::Name(name) => text(name),
    });
    let roles = &p.role_selectors;
    Document::Map(vec![
        ("namespace", p.namespace.as_ref().map_or(auto(), text)),
        ("selector", labels(&p.selector)),
        ("prefill", labels(&roles.prefill)),
        ("decode", labels(&roles.decode)),
        ("mixed", labels(&roles.mixed)),
        ("dialect", text(words::word(words::DIALECT, &p.dialect))),
        ("relist", duration(p.relist)),
        ("relist_read", text(words::word(words::RELIST_READ, &p.relist_read))),
        ("ip_family", text(words::word(words::IP_FAMILY, &p.ip_family))),
        ("ports", Document::List(ports.collect())),
        ("bootstrap_port", p.bootstrap_port.map_or(auto(), |port| Document::Count(port.into()))),
        ("probe", text(words::word(words::PROBE, &p.probe))),
        ("keys", keys(&p.keys)),
    ])
}

fn labels(labels: &Labels) -> Document {
    Document::Labels(labels.clone())
}

fn keys(k: &Keys) -> Document {
    let key = |key: &Option<String>| key.as_ref().map_or(off(), text);
    let values = |values: &[String]| Document::List(values.iter().map(text).collect());
    Document::Map(vec![
        ("eligible", k.eligible.as_ref().map_or(off(), eligible)),
        ("role", key(&k.role)),
        ("prefill_values", values(&k.role_values.prefill)),
        ("decode_values", values(&k.role_values.decode)),
        ("mixed_values", values(&k.role_values.mixed)),
        ("model", key(&k.model)),
        ("revision", key(&k.revision)),
        ("token", key(&k.token)),
        ("ports", key(&k.ports)),
        ("bootstrap_port", key(&k.bootstrap_port)),
        ("drain", key(&k.drain)),
        ("worker_info", key(&k.worker_info)),
    ])
}

fn eligible(EligibleKey { key, value }: &EligibleKey) -> Document {
    value.as_ref().map_or_else(|| text(key), |value| text(format_args!("{key}={value}")))
}

fn off() -> Document {
    text("off")
}

pub(super) fn eligibility(e: Eligibility) -> Document {
    let mode = |mode: Option<Mode>| mode.map_or(auto(), |mode| text(words::word(words::MODE, &mode)));
    Document::Map(vec![
        ("mode", mode(e.mode)),
        ("prefill", mode(e.prefill)),
        ("decode", mode(e.decode)),
        ("mixed", mode(e.mixed)),
        ("fail_static", Document::Bool(e.fail_static)),
    ])
}
