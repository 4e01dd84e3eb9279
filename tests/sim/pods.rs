//! Pods as the driver means them, and what follows for a router. Written from the rules of `docs/discovery.md`, with none of
//! the product's code: what both get wrong alike is not found here.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// What the router is configured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Two services of whole engines, by model `a` or `b`; Pods without a model are of both.
    Plain,
    /// The same, and engines have to list their models before their first request, which they do not do all the time.
    Probed,
    /// Two services of prefill/decode pairs, and whole engines among them.
    Pairs,
}

impl Kind {
    /// Roles that Pods have, as often as they are here; none: no label.
    pub(super) fn roles(self) -> &'static [Option<&'static str>] {
        match self {
            Self::Plain | Self::Probed => &[None, None, Some("mixed"), Some("prefill")],
            Self::Pairs => &[
                Some("prefill"),
                Some("decode"),
                Some("prefill"),
                Some("decode"),
                Some("prefill"),
                Some("decode"),
                Some("mixed"),
                None,
            ],
        }
    }
}

pub(super) const SELECTABLE: &str = "selectable";

/// The port of Pods that name none.
pub(super) const PORT: u16 = 8000;

/// One endpoint that follows from a Pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) service: usize,
    pub(super) role: &'static str,
    /// `host:port`.
    pub(super) at: String,
    pub(super) revision: String,
    pub(super) token: String,
}

pub(super) type Keys = BTreeSet<Key>;

/// A Pod that exists.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    /// Seconds after the first one.
    pub(super) created: u64,
    /// It carries the service's selector.
    pub(super) member: bool,
    pub(super) eligible: bool,
    pub(super) role: Option<&'static str>,
    pub(super) model: Option<&'static str>,
    pub(super) revision: Option<&'static str>,
    pub(super) token: Option<&'static str>,
    pub(super) drain: bool,
    pub(super) deleting: bool,
    pub(super) phase: &'static str,
    pub(super) ready: Option<&'static str>,
    pub(super) ip: Option<u8>,
    pub(super) ports: Vec<u16>,
    pub(super) restarts: u32,
}

impl Pod {
    /// Running, ready, eligible.
    pub(super) fn new(name: &str, ip: u8, created: u64) -> Self {
        Self {
            name: name.to_owned(),
            uid: String::new(),
            created,
            member: true,
            eligible: true,
            role: None,
            model: None,
            revision: None,
            token: None,
            drain: false,
            deleting: false,
            phase: "Running",
            ready: Some("True"),
            ip: Some(ip),
            ports: vec![PORT],
            restarts: 0,
        }
    }

    /// The endpoints that may be given requests, as far as this Pod decides.
    pub(super) fn implied(&self, kind: Kind) -> Keys {
        let (Some(ip), Some(role)) = (self.ip, self.role_in(kind)) else { return Keys::new() };
        let services = (0..2).filter(|n| self.why(kind, *n) == SELECTABLE);
        let key = |service, port| Key {
            service,
            role,
            at: format!("{}:{port}", address(ip)),
            revision: self.revision.unwrap_or_default().to_owned(),
            token: self.token.unwrap_or_default().to_owned(),
        };
        services.flat_map(|service| self.ports.iter().map(move |port| key(service, *port))).collect()
    }

    /// Why it gives a service no such endpoint: the first of these that holds.
    pub(super) fn why(&self, kind: Kind, service: usize) -> &'static str {
        match () {
            () if self.deleting => "terminating",
            () if !self.member => "deleted",
            () if self.role_in(kind).is_none() => "wrong_role",
            () if self.model.is_some_and(|model| model != MODELS[service]) => "wrong_model",
            () if self.phase != "Running" => "not_running",
            () if self.ip.is_none() => "no_address",
            () if self.ready == Some("Unknown") => "ready_unknown",
            () if self.ready != Some("True") => "not_ready",
            () if !self.eligible => "not_eligible",
            () if self.drain => "drain_annotation",
            () => SELECTABLE,
        }
    }

    fn role_in(&self, kind: Kind) -> Option<&'static str> {
        match (kind, self.role) {
            (Kind::Pairs, role) => role,
            (Kind::Plain | Kind::Probed, None) => Some("mixed"),
            (Kind::Plain | Kind::Probed, Some(role)) => (role == "mixed").then_some(role),
        }
    }

    /// Writes it into an object of the API.
    pub(super) fn write(&self, object: &mut Value) {
        let mut labels = json!({ "app": if self.member { "llm" } else { "other" } });
        let mut annotations = json!({ "example.com/noise": "x" });
        if self.eligible {
            labels["tandem.dev/endpoint-eligible"] = "true".into();
        }
        for (key, value) in [("role", self.role), ("model", self.model), ("pairing-token", self.token)] {
            if let Some(value) = value {
                labels[format!("tandem.dev/{key}")] = value.into();
            }
        }
        if let Some(revision) = self.revision {
            annotations["tandem.dev/revision"] = revision.into();
        }
        if self.drain {
            annotations["tandem.dev/drain"] = "".into();
        }
        if self.ports != [PORT] {
            let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
            annotations["tandem.dev/ports"] = ports.join(",").into();
        }
        object["metadata"]["labels"] = labels;
        object["metadata"]["annotations"] = annotations;
        if self.deleting {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T09:00:00Z".into();
        }
        object["spec"] = json!({ "nodeName": "node-1", "containers": [
            { "name": "engine", "ports": [{ "name": "http", "containerPort": PORT, "protocol": "TCP" }] },
        ] });
        object["status"] = self.status();
    }

    fn status(&self) -> Value {
        let mut status = json!({
            "phase": self.phase,
            "conditions": [],
            "containerStatuses": [{ "name": "engine", "restartCount": self.restarts }],
        });
        if let Some(ready) = self.ready {
            status["conditions"] =
                json!([{ "type": "Initialized", "status": "True" }, { "type": "Ready", "status": ready }]);
        }
        if let Some(ip) = self.ip {
            status["podIP"] = address(ip).into();
            status["podIPs"] = json!([{ "ip": address(ip) }]);
        }
        status
    }

    /// As it is created.
    pub(super) fn object(&self) -> Value {
        let at = format!(
            "2026-01-01T{:02}:{:02}:{:02}Z",
            self.created / 3600,
            self.created / 60 % 60,
            self.created % 60
        );
        let mut object = json!({ "metadata": { "name": self.name, "creationTimestamp": at } });
        self.write(&mut object);
        object
    }
}

pub(super) const MODELS: [&str; 2] = ["a", "b"];

pub(super) fn address(ip: u8) -> String {
    format!("192.0.2.{ip}")
}
