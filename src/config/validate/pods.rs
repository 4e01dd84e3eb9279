//! Services whose endpoints are Pods: which labels they may be found by, and what has to tell their roles.

use super::Check;
use crate::config::discovery::{Keys, Labels, PodDiscovery, Port};
use crate::config::node::{Entry, Value};
use crate::config::router::{EngineKind, Service};
use crate::config::{labels, words};

impl Check<'_> {
    pub(super) fn pods(&mut self, i: usize, service: &Service) {
        let Some(pods) = &service.pods else { return self.marks_of_no_pods(i, service) };
        let at = format!("services[{i}].discovery.kubernetes");
        self.selector(&at, pods);
        self.ports(&at, &pods.ports);
        self.role_labels(&at, pods);
        self.role_values(&at, pods);
        if self.kind_is_readable(i) {
            self.pod_bootstrap(&at, service.engine, pods);
            if service.engine == EngineKind::Plain {
                self.no_pairs(&at, pods);
            } else {
                self.both_sides(&at, pods);
            }
        }
        self.marks(i, service, pods);
    }

    /// A label of this mapping, shown and placed as one: it may have dots in it.
    fn label(&mut self, at: &str, label: &str, message: impl Into<String>) {
        let entries = match self.root.written(at).map(|node| &node.value) {
            Some(Value::Map(entries)) => entries.as_slice(),
            _ => &[],
        };
        let place = entries.iter().find(|entry| entry.key == label).map(|Entry { place, .. }| place.clone());
        let place = place.unwrap_or_else(|| self.root.place(at));
        self.problem_at(place, &format!("{at}[{label}]"), message);
    }

    fn selector(&mut self, at: &str, pods: &PodDiscovery) {
        let at = format!("{at}.selector");
        if self.root.written(&at).is_some() && !self.has_labels(&at) {
            let message =
                "at least one label is needed, or every Pod of the namespace would be one of the service";
            self.problem(&at, message);
        }
        let mark = pods.keys.eligible.as_ref().filter(|mark| pods.selector.contains_key(&mark.key));
        if let Some(mark) = mark {
            let message = "is the eligibility mark (`keys.eligible`): a Pod that lost it would be gone from the watch \
                           instead of changed, as if deleted; leave it out here, `eligibility` looks at it";
            self.label(&at, &mark.key, message);
        }
    }

    fn ports(&mut self, at: &str, ports: &[Port]) {
        let at = format!("{at}.ports");
        if !(1..=64).contains(&ports.len()) {
            self.problem(&at, format!("{} ports; a Pod has 1 to 64", ports.len()));
        }
        for (n, port) in ports.iter().enumerate().filter(|(_, port)| **port != Port::Number(0)) {
            if let Some(first) = ports[..n].iter().position(|other| other == port) {
                self.problem(&format!("{at}[{n}]"), format!("the same port as ports[{first}]"));
            }
        }
    }

    /// No Pod has two roles, and some Pod can have each.
    fn role_labels(&mut self, at: &str, pods: &PodDiscovery) {
        let roles = role_labels(pods);
        for (n, (role, labels)) in roles.iter().enumerate() {
            for (label, value) in *labels {
                if let Some(other) = pods.selector.get(label).filter(|other| *other != value) {
                    let message = format!("`{value}` is `{other}` in `selector`: no Pod has both");
                    self.label(&format!("{at}.{role}"), label, message);
                }
            }
            let same = roles[..n].iter().find(|(_, other)| within(other, labels) || within(labels, other));
            if let Some((other, _)) = same {
                let message = format!(
                    "a Pod with these labels and those of `{other}` would have two roles: one set is part of the other"
                );
                self.problem(&format!("{at}.{role}"), message);
            }
        }
    }

    fn role_values(&mut self, at: &str, pods: &PodDiscovery) {
        let values = &pods.keys.role_values;
        let mut seen: Vec<(&str, String)> = Vec::new();
        for (role, list) in
            [("prefill", &values.prefill), ("decode", &values.decode), ("mixed", &values.mixed)]
        {
            for (n, value) in list.iter().enumerate().filter(|(_, value)| !value.is_empty()) {
                let key = format!("keys.{role}_values[{n}]");
                if let Some((_, first)) = seen.iter().find(|(other, _)| other == value) {
                    self.problem(
                        &format!("{at}.{key}"),
                        format!("`{value}` is also {first}; it means one role"),
                    );
                } else {
                    seen.push((value, key));
                }
            }
        }
    }

    fn pod_bootstrap(&mut self, at: &str, engine: EngineKind, pods: &PodDiscovery) {
        if pods.bootstrap_port.is_some() && engine != EngineKind::Sglang {
            let message = "only prefills of `engine.kind` sglang have a bootstrap server";
            self.problem(&format!("{at}.bootstrap_port"), message);
        }
    }

    fn no_pairs(&mut self, at: &str, pods: &PodDiscovery) {
        for (role, _) in role_labels(pods).into_iter().filter(|(role, _)| *role != "mixed") {
            let message = "`engine.kind` is plain, which has no such Pods; set it to sglang or vllm";
            self.problem(&format!("{at}.{role}"), message);
        }
    }

    /// Prefills and decodes can be told apart, or there are neither on purpose.
    fn both_sides(&mut self, at: &str, pods: &PodDiscovery) {
        let given = ["prefill", "decode", "mixed"].map(|role| self.has_labels(&format!("{at}.{role}")));
        if given != [false; 3] {
            self.lonely(at, ["prefill", "decode"], [given[0], given[1]]);
        } else if pods.keys.role.is_some() {
            let values = &pods.keys.role_values;
            let has = [!values.prefill.is_empty(), !values.decode.is_empty()];
            self.lonely(at, ["keys.prefill_values", "keys.decode_values"], has);
        } else if pods.keys.worker_info.is_none() {
            self.no_roles(at, pods);
        }
    }

    /// As written: labels that are none were reported, and stand there all the same.
    fn has_labels(&self, key: &str) -> bool {
        let nothing = |value: &Value| matches!(value, Value::Null) || *value == Value::Map(Vec::new());
        self.root.written(key).is_some_and(|node| !nothing(&node.value))
    }

    fn lonely(&mut self, at: &str, keys: [&str; 2], given: [bool; 2]) {
        let (missing, given) = match given {
            [true, false] => (keys[1], keys[0]),
            [false, true] => (keys[0], keys[1]),
            _ => return,
        };
        self.problem(
            &format!("{at}.{missing}"),
            format!("is empty and `{given}` is not: there would be no pairs"),
        );
    }

    fn no_roles(&mut self, at: &str, pods: &PodDiscovery) {
        let key = format!("{at}.keys.role");
        if !self.dialect_is_readable(at) || !self.is_readable(&key, labels::or_preset(None, labels::key)) {
            return;
        }
        let preset = match Keys::of(pods.dialect).role {
            Some(_) => String::new(),
            None => format!(" (of the dialect {})", words::word(words::DIALECT, &pods.dialect)),
        };
        let message = format!(
            "is off{preset}, so that nothing tells prefills from decodes; name the label with the role here, or give \
             `{at}.prefill` and `{at}.decode` labels of their own"
        );
        self.problem(&key, message);
    }

    pub(super) fn dialect_is_readable(&self, at: &str) -> bool {
        self.is_readable(&format!("{at}.dialect"), words::choice(words::DIALECT))
    }
}

/// Roles that have labels of their own.
fn role_labels(pods: &PodDiscovery) -> Vec<(&'static str, &Labels)> {
    let roles = &pods.role_selectors;
    let all = [("prefill", &roles.prefill), ("decode", &roles.decode), ("mixed", &roles.mixed)];
    all.into_iter().filter(|(_, labels)| !labels.is_empty()).collect()
}

fn within(part: &Labels, all: &Labels) -> bool {
    part.iter().all(|(label, value)| all.get(label) == Some(value))
}
