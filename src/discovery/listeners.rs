//! A Pod's listeners: which ports, which bootstrap port, which revision and token.
//!
//! Ports come from the ports annotation (numbers, separated by commas), else from the service's `ports`, each a number or the
//! name of a container port. A number has to be declared by some container of the Pod, unless none declares any: a typing
//! mistake is then a reason that can be read, not an engine that refuses every connection.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;

use super::judge::shortened;
use super::pod::Pod;
use super::rules::Rules;
use crate::config::{EngineKind, Port};
use crate::registry::Listener;
use crate::types::role::Role;

/// Most listeners of one Pod.
const MOST: usize = 64;

/// What an Infera worker says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Worker {
    pub mode: String,
    pub model: Option<String>,
    pub port: Option<u16>,
    pub bootstrap_port: Option<u16>,
}

/// The worker's document, where the dialect has one and the Pod carries it.
///
/// # Errors
/// What is wrong with it.
pub(super) fn worker_info(pod: &Pod, rules: &Rules) -> Result<Option<Worker>, String> {
    #[derive(Deserialize)]
    struct Document {
        #[serde(default)]
        url: Option<String>,
        #[serde(default)]
        model_name: Option<String>,
        #[serde(default)]
        disagg_mode: Option<String>,
        #[serde(default)]
        disagg_meta: Option<Meta>,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(default)]
        bootstrap_port: Option<u16>,
        /// `host:port`.
        #[serde(default)]
        bootstrap_addr: Option<String>,
    }
    let Some(key) = &rules.keys().worker_info else { return Ok(None) };
    let Some(text) = pod.get(key) else { return Ok(None) };
    let document: Document = serde_json::from_str(text).map_err(|error| format!("{key}: {error}"))?;
    let meta = document.disagg_meta;
    let port_of = |address: &str| address.rsplit_once(':').and_then(|(_, port)| numbered(port));
    let port = match document.url.as_deref() {
        Some(url) => {
            let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
            let authority = authority.split('/').next().unwrap_or_default();
            Some(port_of(authority).ok_or_else(|| format!("{key}: no port in url {:?}", shortened(url)))?)
        }
        None => None,
    };
    let bootstrap_port = meta
        .and_then(|meta| meta.bootstrap_port.or_else(|| meta.bootstrap_addr.as_deref().and_then(port_of)));
    if bootstrap_port == Some(0) {
        return Err(format!("{key}: bootstrap_port 0 is no port"));
    }
    Ok(Some(Worker {
        mode: document.disagg_mode.unwrap_or_else(|| "mixed".to_owned()),
        model: document.model_name,
        port,
        bootstrap_port,
    }))
}

/// A port that can be dialled.
fn numbered(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

/// One listener for each port.
///
/// # Errors
/// Why there is none, in words for an operator.
pub(super) fn listeners(
    pod: &Pod,
    rules: &Rules,
    role: Role,
    address: IpAddr,
    worker: Option<&Worker>,
) -> Result<Vec<Listener>, String> {
    let ports = match worker.and_then(|worker| worker.port) {
        Some(port) => vec![port],
        None => ports(pod, rules)?,
    };
    let keys = rules.keys();
    let value = |key: &Option<String>| key.as_ref().and_then(|key| pod.get(key)).map(str::to_owned);
    let bootstrap_port = bootstrap(pod, rules, role, worker)?;
    let listener = |port| Listener {
        host: address.to_string(),
        port,
        role,
        bootstrap_port,
        model: worker.and_then(|worker| worker.model.clone()).or_else(|| value(&keys.model)),
        revision: value(&keys.revision).unwrap_or_default(),
        token: value(&keys.token).unwrap_or_default(),
        pod: Some(Arc::clone(&pod.id)),
    };
    Ok(ports.into_iter().map(listener).collect())
}

fn ports(pod: &Pod, rules: &Rules) -> Result<Vec<u16>, String> {
    if let Some(key) = &rules.keys().ports
        && let Some(text) = pod.get(key)
    {
        return annotated(key, text);
    }
    let mut found = Vec::new();
    for wanted in &rules.pods.ports {
        let port = match wanted {
            Port::Number(number) => {
                let declared = pod.ports.is_empty() || pod.ports.iter().any(|(_, port)| port == number);
                declared.then_some(*number)
            }
            Port::Name(name) => {
                pod.ports.iter().find(|(n, _)| n.as_deref() == Some(name)).map(|(_, port)| *port)
            }
        };
        let port = port.ok_or_else(|| undeclared(pod, wanted))?;
        if !found.contains(&port) {
            found.push(port);
        }
    }
    Ok(found)
}

fn annotated(key: &str, text: &str) -> Result<Vec<u16>, String> {
    let mut found = Vec::new();
    for part in text.split(',').map(str::trim) {
        let port = numbered(part).ok_or_else(|| format!("{key}: {:?} is no port", shortened(part)))?;
        if !found.contains(&port) {
            found.push(port);
        }
    }
    if found.len() > MOST {
        return Err(format!("{key}: {} ports; at most {MOST}", found.len()));
    }
    Ok(found)
}

fn undeclared(pod: &Pod, wanted: &Port) -> String {
    let declared: Vec<String> = pod
        .ports
        .iter()
        .map(|(name, port)| name.as_ref().map_or_else(|| port.to_string(), |name| format!("{name} ({port})")))
        .collect();
    let declared = if declared.is_empty() { "none".to_owned() } else { declared.join(", ") };
    let wanted = match wanted {
        Port::Number(number) => format!("port {number}"),
        Port::Name(name) => format!("port named {name:?}"),
    };
    shortened(&format!("no container declares {wanted}; declared: {declared}")).to_owned()
}

/// Only prefills of SGLang have one.
fn bootstrap(pod: &Pod, rules: &Rules, role: Role, worker: Option<&Worker>) -> Result<Option<u16>, String> {
    if rules.engine != EngineKind::Sglang || role != Role::Prefill {
        return Ok(None);
    }
    if let Some(key) = &rules.keys().bootstrap_port
        && let Some(text) = pod.get(key)
    {
        return numbered(text.trim())
            .map(Some)
            .ok_or_else(|| format!("{key}: {:?} is no port", shortened(text)));
    }
    Ok(worker.and_then(|worker| worker.bootstrap_port).or(rules.pods.bootstrap_port))
}

#[cfg(test)]
#[path = "tests/listeners.rs"]
mod tests;
