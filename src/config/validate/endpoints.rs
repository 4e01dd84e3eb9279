//! Which endpoints a service may have: roles that its kind of engine knows, pairs that are complete, each endpoint once.

use std::collections::HashMap;

use super::Check;
use crate::config::router::{EngineKind, Service, StaticEndpoint};
use crate::config::words;

impl Check<'_> {
    pub(super) fn endpoints(&mut self, i: usize, service: &Service) {
        let only_pods = service.pods.is_some() && lists(service).iter().all(|(_, list)| list.is_empty());
        if !only_pods {
            self.one_source(i, service);
            self.each_once(i, service);
        }
        if self.kind_is_readable(i) {
            self.connector(i, service);
            if !only_pods {
                self.roles(i, service);
                self.bootstrap(i, service);
            }
        }
    }

    pub(super) fn kind_is_readable(&self, i: usize) -> bool {
        self.is_readable(&format!("services[{i}].engine.kind"), words::engine_kind)
    }

    fn one_source(&mut self, i: usize, service: &Service) {
        if service.pods.is_some() {
            let message = "a service has listed endpoints (`static`) or Pods (`kubernetes`), not both";
            self.problem(&format!("services[{i}].discovery.kubernetes"), message);
        }
    }

    fn roles(&mut self, i: usize, service: &Service) {
        let at = format!("services[{i}].discovery.static");
        let kind = service.engine.as_str();
        let (prefill, decode) = (!service.prefill.is_empty(), !service.decode.is_empty());
        let mixed = !service.endpoints.is_empty();
        match (service.engine, prefill, decode) {
            (EngineKind::Plain, false, false) if !mixed => {
                let message = "at least one endpoint is needed, written `- url: http://HOST:PORT`, or the Pods \
                               of `discovery.kubernetes`";
                self.problem(&format!("{at}.mixed"), message);
            }
            (_, false, false) if !mixed => {
                let message = "at least one prefill and one decode are needed, or endpoints under `mixed` that \
                               serve alone, or the Pods of `discovery.kubernetes`";
                self.problem(&at, message);
            }
            (EngineKind::Plain, ..) => {
                let given = [("prefill", prefill), ("decode", decode)];
                for (role, _) in given.iter().filter(|(_, given)| *given) {
                    let message = "`engine.kind` is plain, which has no such endpoints; set it to sglang or vllm \
                                   (flag --engine), or list them under `mixed`";
                    self.problem(&format!("{at}.{role}"), message);
                }
            }
            (_, true, false) => {
                let message =
                    format!("at least one {kind} decode is needed to go with the prefill endpoints");
                self.problem(&format!("{at}.decode"), message);
            }
            (_, false, true) => {
                let message =
                    format!("at least one {kind} prefill is needed to go with the decode endpoints");
                self.problem(&format!("{at}.prefill"), message);
            }
            _ => {}
        }
    }

    /// One engine has one role, and counts once: a second entry would be given twice the load.
    fn each_once(&mut self, i: usize, service: &Service) {
        let mut seen = HashMap::new();
        for (role, list) in lists(service) {
            for (n, endpoint) in list.iter().enumerate().filter(|(_, e)| !e.host.is_empty()) {
                let key = format!("services[{i}].discovery.static.{role}[{n}].url");
                if let Some(first) = seen.get(&endpoint.to_string()) {
                    self.problem(&key, format!("the same endpoint as {first}: {endpoint}"));
                } else {
                    seen.insert(endpoint.to_string(), key);
                }
            }
        }
    }

    fn connector(&mut self, i: usize, service: &Service) {
        let key = format!("services[{i}].engine.connector");
        if !matches!(service.engine, EngineKind::Vllm(_)) && self.root.written(&key).is_some() {
            let message = format!("`engine.kind` is {}; only vllm has connectors", service.engine.as_str());
            self.problem(&key, message);
        }
    }

    /// Decodes find their prefill by its bootstrap address: two prefills at one address would be mixed up.
    fn bootstrap(&mut self, i: usize, service: &Service) {
        let mut seen = HashMap::new();
        for (n, endpoint) in service.prefill.iter().enumerate() {
            let Some(port) = endpoint.bootstrap_port else { continue };
            let key = format!("services[{i}].discovery.static.prefill[{n}]");
            match service.engine {
                EngineKind::Sglang if endpoint.host.is_empty() => {}
                EngineKind::Sglang => {
                    if let Some(first) = seen.insert((&endpoint.host, port), n) {
                        let message = format!(
                            "{}:{port} is also the bootstrap address of prefill[{first}]; each prefill has its own",
                            endpoint.host
                        );
                        self.problem(&format!("{key}.bootstrap_port"), message);
                    }
                }
                EngineKind::Vllm(_) => {
                    let message = "only prefills of `engine.kind` sglang have a bootstrap server";
                    self.problem(&format!("{key}.bootstrap_port"), message);
                }
                // That it has a prefill at all is reported.
                EngineKind::Plain => {}
            }
        }
    }
}

fn lists(service: &Service) -> [(&'static str, &[StaticEndpoint]); 3] {
    [("prefill", &service.prefill), ("decode", &service.decode), ("mixed", &service.endpoints)]
}
