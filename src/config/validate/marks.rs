//! Eligibility: a mode that asks for a mark needs one to look for.

use super::Check;
use crate::config::discovery::{Eligibility, Mode, PodDiscovery};
use crate::config::router::Service;
use crate::config::{labels, words};
use crate::types::role::Role;

impl Check<'_> {
    pub(super) fn marks(&mut self, i: usize, service: &Service, pods: &PodDiscovery) {
        let (at, e) = (format!("services[{i}].discovery.kubernetes"), service.eligibility);
        let key = format!("{at}.keys.eligible");
        let readable = self.dialect_is_readable(&at)
            && self.is_readable(&key, labels::or_preset(None, labels::eligible));
        if pods.keys.eligible.is_some() || !readable {
            return;
        }
        let mut reported = Vec::new();
        for role in service.roles() {
            let mode = e.mode_of(role, pods.dialect);
            let own = match role {
                Role::Prefill => e.prefill,
                Role::Decode => e.decode,
                Role::Mixed => e.mixed,
            };
            let (own, role) = (own.is_some(), role.as_str());
            let at = match (own, e.mode.is_some()) {
                (true, _) => format!("services[{i}].eligibility.{role}"),
                (false, true) => format!("services[{i}].eligibility.mode"),
                (false, false) => key.clone(),
            };
            if mode == Mode::Off || reported.contains(&at) {
                continue;
            }
            let mode = words::word(words::MODE, &mode);
            let message = if at == key {
                format!(
                    "is off, and so has to be `eligibility.mode`, which is {mode} for {role} in this dialect"
                )
            } else {
                format!("`{mode}` needs a mark to look for, and `keys.eligible` is off")
            };
            self.problem(&at, message);
            reported.push(at);
        }
    }

    pub(super) fn marks_of_no_pods(&mut self, i: usize, service: &Service) {
        let listed =
            [&service.prefill, &service.decode, &service.endpoints].iter().any(|list| !list.is_empty());
        if listed && service.eligibility != Eligibility::default() {
            let message =
                "only Pods (`discovery.kubernetes`) have marks; listed endpoints are always eligible";
            self.problem(&format!("services[{i}].eligibility"), message);
        }
    }
}
