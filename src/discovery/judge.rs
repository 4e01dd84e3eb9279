//! One Pod, one service: may it be given requests, and as what? Pure.
//!
//! The order is that of requirements §2.2.7 (GPU-22, 23, 81): a terminating Pod can still be Ready, so deletion comes first;
//! what makes it another service's Pod comes before its health.

use std::net::IpAddr;

use super::listeners::{Worker, listeners, worker_info};
use super::pod::{Phase, Pod, Ready};
use super::rules::Rules;
use crate::config::{IpFamily, Mode};
use crate::registry::{Listener, Reason};
use crate::types::drain_order::DrainOrder;
use crate::types::role::Role;

/// What is known besides the Pod itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context {
    /// By the order of [`Role::ALL`]: the mark was seen on the fleet (mode `observed`).
    pub latched: [bool; 3],
    /// It is registered now.
    pub registered: bool,
}

/// A verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Register(Vec<Listener>),
    Withdraw(Reason, Option<String>),
}

/// Judges. The role is told where there is one, whatever the verdict.
pub fn judge(pod: &Pod, rules: &Rules, context: Context) -> (Option<Role>, Verdict) {
    let worker = match worker_info(pod, rules) {
        Ok(worker) => worker,
        Err(_) if pod.deleting => return (None, Verdict::Withdraw(Reason::Terminating, None)),
        Err(why) => return (None, Verdict::Withdraw(Reason::NoPort, Some(why))),
    };
    let role = role(pod, rules, worker.as_ref());
    let verdict = match refuse(pod, rules, context, role, worker.as_ref()) {
        Some((reason, detail)) => Verdict::Withdraw(reason, detail),
        None => match (role, address(pod, rules.pods.ip_family)) {
            (Some(role), Some(address)) => match listeners(pod, rules, role, address, worker.as_ref()) {
                Ok(listeners) => Verdict::Register(listeners),
                Err(why) => Verdict::Withdraw(Reason::NoPort, Some(why)),
            },
            (None, _) => Verdict::Withdraw(Reason::WrongRole, None),
            (_, None) => Verdict::Withdraw(Reason::NoAddress, None),
        },
    };
    (role, verdict)
}

fn refuse(
    pod: &Pod,
    rules: &Rules,
    context: Context,
    role: Option<Role>,
    worker: Option<&Worker>,
) -> Option<(Reason, Option<String>)> {
    if pod.deleting {
        return Some((Reason::Terminating, None));
    }
    if !pod.carries(&rules.pods.selector) {
        return Some((Reason::NotSelected, None));
    }
    let Some(role) = role else { return Some((Reason::WrongRole, wrong_role(pod, rules))) };
    let model = worker.and_then(|w| w.model.as_deref()).or_else(|| value(pod, rules.keys().model.as_ref()));
    if let Some(model) = model
        && !rules.models.is_empty()
        && !rules.models.iter().any(|known| known == model)
    {
        return Some((Reason::WrongModel, Some(format!("it serves {model:?}"))));
    }
    match pod.phase {
        Phase::Running => {}
        Phase::Waiting => return Some((Reason::NotRunning, None)),
        Phase::Ended => return Some((Reason::NotRunning, Some("its phase is final".to_owned()))),
    }
    if address(pod, rules.pods.ip_family).is_none() {
        return Some((Reason::NoAddress, no_address(pod, rules.pods.ip_family)));
    }
    match pod.ready {
        Ready::True => {}
        Ready::Unknown if rules.fail_static && context.registered => {}
        Ready::Unknown => return Some((Reason::ReadyUnknown, None)),
        Ready::False => return Some((Reason::NotReady, None)),
    }
    let required = match rules.mode(role) {
        Mode::Required => true,
        Mode::Observed => context.latched[role as usize],
        Mode::Off => false,
    };
    if required && !is_marked(pod, rules) {
        return Some((Reason::NotEligible, None));
    }
    order(pod, rules).map(|order| (Reason::DrainAnnotation, Some(order.to_string())))
}

/// What its drain annotation says. It counts whatever else withdraws the Pod: a deadline that forces does so on one that is
/// being deleted, too.
pub fn order(pod: &Pod, rules: &Rules) -> Option<DrainOrder> {
    let key = rules.keys().drain.as_ref().filter(|key| present(pod, key))?;
    Some(DrainOrder::parse(pod.get(key).unwrap_or_default()))
}

/// Carries the endpoint-eligible mark.
pub fn is_marked(pod: &Pod, rules: &Rules) -> bool {
    let Some(eligible) = &rules.keys().eligible else { return false };
    let found = pod.get(&eligible.key);
    found.is_some_and(|found| eligible.value.as_ref().is_none_or(|value| value == found))
}

/// Also with an empty value.
fn present(pod: &Pod, key: &str) -> bool {
    pod.labels.contains_key(key) || pod.annotations.contains_key(key)
}

fn value<'a>(pod: &'a Pod, key: Option<&String>) -> Option<&'a str> {
    key.and_then(|key| pod.get(key))
}

/// By the service's role selectors if it has some, else by the worker's own word, else by the label. Without a label a whole
/// engine where the service has no pairs, else none.
fn role(pod: &Pod, rules: &Rules, worker: Option<&Worker>) -> Option<Role> {
    let by_labels = &rules.pods.role_selectors;
    let terms = [
        (Role::Prefill, &by_labels.prefill),
        (Role::Decode, &by_labels.decode),
        (Role::Mixed, &by_labels.mixed),
    ];
    if terms.iter().any(|(_, labels)| !labels.is_empty()) {
        let found = terms.iter().find(|(_, labels)| !labels.is_empty() && pod.carries(labels));
        return found.map(|(role, _)| *role);
    }
    if rules.keys().worker_info.is_some() {
        return worker.and_then(|worker| rules.role_of_value(&worker.mode));
    }
    match value(pod, rules.keys().role.as_ref()) {
        Some(value) => rules.role_of_value(value),
        None if rules.engine == crate::config::EngineKind::Plain => Some(Role::Mixed),
        None => None,
    }
}

fn wrong_role(pod: &Pod, rules: &Rules) -> Option<String> {
    let key = rules.keys().role.as_ref()?;
    Some(match pod.get(key) {
        Some(value) => format!("{key} is {:?}", shortened(value)),
        None => format!("it has no {key}"),
    })
}

/// The address that is dialled: of a dual-stack Pod the first one of the family.
pub fn address(pod: &Pod, family: IpFamily) -> Option<IpAddr> {
    let fits = |ip: &&IpAddr| match family {
        IpFamily::Primary => true,
        IpFamily::V4 => ip.is_ipv4(),
        IpFamily::V6 => ip.is_ipv6(),
    };
    pod.addresses.iter().find(fits).copied()
}

fn no_address(pod: &Pod, family: IpFamily) -> Option<String> {
    let others: Vec<String> =
        pod.addresses.iter().map(IpAddr::to_string).chain(pod.unusable.iter().cloned()).collect();
    if others.is_empty() {
        return None;
    }
    let wanted = match family {
        IpFamily::Primary => "usable address",
        IpFamily::V4 => "IPv4 address",
        IpFamily::V6 => "IPv6 address",
    };
    Some(shortened(&format!("no {wanted} among {}", others.join(", "))).to_owned())
}

/// Text from a Pod, fit for a log line.
pub fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(200).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
#[path = "tests/judge.rs"]
mod tests;
