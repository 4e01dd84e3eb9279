//! Rules between keys. Values that were wrong by themselves are reported already and are skipped here.

mod endpoints;
mod marks;
mod pods;

use std::collections::HashMap;

use super::node::{Node, Value};
use super::problem::{Place, Problem};
use super::reader::Section;
use super::router::{Authorization, ModelMatch, RouterConfig, Service};
use super::source::{Flags, of_service};
use super::split::mistakes;
use super::units::Wrong;

/// Flags that need or exclude others.
pub(super) fn flags(flags: &Flags, file: Option<&Node>, problems: &mut Vec<Problem>) {
    let at = |flag: &str| Place::Flag(flag.to_owned());
    let services = file.and_then(|root| root.get("services"));
    if let (Some(services), Some(flag)) = (services, flags.endpoint_flag()) {
        let message = format!("cannot be combined with `services` of the file, at {}", services.place);
        problems.push(Problem::new(at(flag), "services", message));
    }
    if flags.endpoint_flag().is_none() {
        let own = [("--model", !flags.models.is_empty()), ("--policy", flags.policy.is_some())];
        let own = own.into_iter().filter_map(|(flag, given)| given.then_some(flag));
        let keys =
            flags.values.iter().filter(|value| of_service(value.key).is_some()).map(|value| value.flag);
        for flag in own.chain(keys) {
            let message = "needs --worker, or --prefill and --decode; services of a file have it as a key";
            problems.push(Problem::new(at(flag), "", message));
        }
    }
}

/// Rules of the finished configuration. `root` says where things were written.
pub(super) fn config(config: &RouterConfig, root: &Section<'_>, problems: &mut Vec<Problem>) {
    let mut check = Check { root, problems };
    check.listeners(config);
    check.limits(config);
    check.some_service(config);
    for (i, service) in config.services.iter().enumerate() {
        check.endpoints(i, service);
        check.pods(i, service);
        check.model_match(i, service);
        check.handoff(i, service);
        check.authorization(i, service, config);
        check.split(i, service);
    }
    check.names(config);
    check.models(config);
    check.one_takes_the_rest(config);
}

struct Check<'a> {
    root: &'a Section<'a>,
    problems: &'a mut Vec<Problem>,
}

impl Check<'_> {
    fn problem(&mut self, key: &str, message: impl Into<String>) {
        self.problem_at(self.root.place(key), key, message);
    }

    fn problem_at(&mut self, place: Place, key: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(place, key, message));
    }

    /// A value that could not be read was reported; what follows from it is no second mistake.
    fn is_readable<T>(&self, key: &str, parse: impl Fn(&str) -> Result<T, Wrong>) -> bool {
        let node = self.root.written(key);
        node.is_none_or(|node| matches!(&node.value, Value::Scalar(text) if parse(text).is_ok()))
    }

    fn listeners(&mut self, c: &RouterConfig) {
        let (front, admin) = (c.listen, c.admin.listen);
        let overlap = front.ip() == admin.ip() || front.ip().is_unspecified() || admin.ip().is_unspecified();
        if front.port() != 0 && front.port() == admin.port() && overlap {
            self.problem("admin.listen", format!("the same port as `listen`, {front}"));
        }
    }

    fn limits(&mut self, c: &RouterConfig) {
        if c.limits.buffered_bytes.is_some_and(|all| all < c.limits.body) {
            self.problem(
                "limits.buffered_bytes",
                "less than `limits.body`: the largest body could never be taken",
            );
        }
        if c.limits.url > c.limits.header_bytes {
            self.problem("limits.url", "more than `limits.header_bytes`, which includes it");
        }
    }

    fn some_service(&mut self, c: &RouterConfig) {
        if c.services.is_empty() {
            self.problem(
                "services",
                "nothing to serve; give --worker URL, or a file with at least one service",
            );
        }
    }

    fn model_match(&mut self, i: usize, service: &Service) {
        if service.model_match == ModelMatch::Listed && service.models.is_empty() {
            self.problem(&format!("services[{i}].model_match"), "`listed` needs names in `models`");
        }
    }

    fn handoff(&mut self, i: usize, service: &Service) {
        if service.upstream.handoff_max_age >= service.upstream.kv_lease {
            let message =
                "not less than `kv_lease`: a decode could be sent to KV that is gone, and answer nonsense";
            self.problem(&format!("services[{i}].upstream.handoff_max_age"), message);
        }
    }

    fn split(&mut self, i: usize, service: &Service) {
        self.rollout(i, service);
        let Some(entries) = &service.split else { return };
        let list = format!("services[{i}].split.weights");
        if entries.is_empty() {
            self.problem(
                &list,
                "at least one entry is needed; a split that gives nothing to anybody has weight 0",
            );
        }
        for (n, key, what) in mistakes(entries) {
            let dot = if key.is_empty() { "" } else { "." };
            self.problem(&format!("{list}[{n}]{dot}{key}"), what);
        }
    }

    fn rollout(&mut self, i: usize, service: &Service) {
        if service.rollout.is_none() {
            return;
        }
        let key = format!("services[{i}].split.inferenceservice");
        if service.split.is_some() {
            self.problem(&key, "a split comes from `weights` or from an InferenceService, not from both");
        }
        if service.pods.as_ref().is_some_and(|pods| pods.keys.revision.is_none()) {
            let message = "its weights are by revision, and `discovery.kubernetes.keys.revision` is off";
            self.problem(&key, message);
        }
    }

    fn authorization(&mut self, i: usize, service: &Service, c: &RouterConfig) {
        if service.upstream.authorization == Authorization::Pass && c.api_keys_file.is_some() {
            let message = "`pass` would hand the client's key for this router to engines, because `api_keys_file` \
                           is set; use auto, strip or {from_secret: PATH}";
            self.problem(&format!("services[{i}].upstream.authorization"), message);
        }
    }

    fn names(&mut self, c: &RouterConfig) {
        let mut seen = HashMap::new();
        for (i, service) in c.services.iter().enumerate().filter(|(_, s)| !s.name.is_empty()) {
            if let Some(first) = seen.insert(&service.name, i) {
                let message = format!("`{}` is also the name of services[{first}]", service.name);
                self.problem(&format!("services[{i}].name"), message);
            }
        }
    }

    /// One model, one service: otherwise which service a request goes to would depend on their order.
    fn models(&mut self, c: &RouterConfig) {
        let mut seen: HashMap<&str, String> = HashMap::new();
        for (i, service) in c.services.iter().enumerate() {
            for (n, model) in service.models.iter().enumerate().filter(|(_, model)| !model.is_empty()) {
                let key = format!("services[{i}].models[{n}]");
                if let Some(first) = seen.get(model.as_str()) {
                    self.problem(&key, format!("`{model}` is also listed at {first}"));
                } else {
                    seen.insert(model, key);
                }
            }
        }
    }

    /// Listed names decide first; what nobody lists can only have one taker.
    fn one_takes_the_rest(&mut self, c: &RouterConfig) {
        let mut takers = c.services.iter().enumerate().filter(|(_, service)| service.takes_any_model());
        let Some((first, _)) = takers.next() else { return };
        for (i, _) in takers {
            let message = format!(
                "takes any model, as services[{first}] does: a request could go to either; list `models`, and \
                 leave at most one service that takes the rest"
            );
            self.problem(&format!("services[{i}].model_match"), message);
        }
    }
}
