//! The defaults as typed values. `keys.rs` has them as text for people; a test holds the two together.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::discovery::{Eligibility, Kubernetes, Observer};
use super::router::{
    AccessLog, Admin, Authorization, DEFAULT_BOOTSTRAP_PORT, EngineKind, Limits, Log, LogFormat, LogSink,
    ModelMatch, Policies, Policy, Retries, RouterConfig, Service, Shutdown, StaticEndpoint, Timeouts,
    Upstream,
};
use super::split::{CohortsBy, InferenceService, Sticky};
use crate::types::role::Role;

const fn every_address(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
}

impl RouterConfig {
    /// Everything at its default. Serves nothing yet: `services` is empty, which `load` would refuse.
    pub fn defaults() -> Self {
        Self {
            listen: every_address(8080),
            threads: None,
            admin: Admin { listen: every_address(9090), token_file: None },
            api_keys_file: None,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            shutdown: Shutdown { delay: Duration::from_secs(5), grace: Duration::from_mins(10) },
            access_log: AccessLog { sink: LogSink::Stdout, format: LogFormat::Json, sample: 1.0 },
            log: Log { level: "info".to_owned(), format: LogFormat::Text },
            state_file: None,
            observer: Observer::default(),
            kubernetes: Kubernetes::default(),
            services: Vec::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 64 << 20,
            buffered_bytes: None,
            headers: 100,
            header_bytes: 64 << 10,
            url: 8 << 10,
            connections: None,
            in_flight: 0,
            h2_streams: 100,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = |s| Some(Duration::from_secs(s));
        Self {
            header_read: seconds(10),
            body_progress: seconds(30),
            connect: seconds(1),
            first_byte: seconds(600),
            idle: seconds(120),
            write_stall: seconds(30),
            total: None,
            downstream_idle: seconds(75),
        }
    }
}

impl Service {
    /// A plain service with these endpoints that answers to any model, everything else at its default.
    pub fn plain(name: &str, endpoints: Vec<StaticEndpoint>) -> Self {
        Self {
            name: name.to_owned(),
            models: Vec::new(),
            model_match: ModelMatch::Auto,
            engine: EngineKind::Plain,
            endpoints,
            prefill: Vec::new(),
            decode: Vec::new(),
            pods: None,
            eligibility: Eligibility::default(),
            policy: Policies::all(Policy::LeastInFlight),
            retries: Retries { max: 2, budget: 0.2, floor: 3 },
            upstream: Upstream {
                authorization: Authorization::Auto,
                idle: Duration::from_secs(4),
                cookies: false,
                handoff_max_age: Duration::from_secs(15),
                kv_lease: Duration::from_secs(30),
                cancel_decode_grace: None,
            },
            cohorts_by: CohortsBy::Token,
            cohort_headers: false,
            cohorts_guard: true,
            split: None,
            rollout: None,
            sticky: Sticky::default(),
        }
    }

    /// A service of prefill/decode pairs that answers to any model, everything else at its default.
    pub fn pairs(
        name: &str,
        engine: EngineKind,
        prefill: Vec<StaticEndpoint>,
        decode: Vec<StaticEndpoint>,
    ) -> Self {
        let mut service = Self { engine, prefill, decode, ..Self::plain(name, Vec::new()) };
        if engine == EngineKind::Sglang {
            service
                .prefill
                .iter_mut()
                .for_each(|at| _ = at.bootstrap_port.get_or_insert(DEFAULT_BOOTSTRAP_PORT));
        }
        service
    }

    /// The rollout object that its split comes from. Without a namespace of its own it is in that of the Pods.
    pub fn rollout_at(&self) -> Option<InferenceService> {
        let at = self.rollout.as_ref()?;
        let of_pods = || self.pods.as_ref().and_then(|pods| pods.namespace.clone());
        Some(InferenceService { namespace: at.namespace.clone().or_else(of_pods), name: at.name.clone() })
    }

    /// What its revisions belong to, as metrics call it: the InferenceService, else the service.
    pub fn inferenceservice(&self) -> &str {
        let of_pods = || self.pods.as_ref().and_then(|pods| pods.selector.get("ome.io/inferenceservice"));
        self.rollout.as_ref().map(|at| &at.name).or_else(of_pods).unwrap_or(&self.name)
    }

    /// Requests may be split into a prefill and a decode leg.
    pub fn has_pairs(&self) -> bool {
        !self.prefill.is_empty() && !self.decode.is_empty()
    }

    /// Roles that its kind of engine knows.
    pub(super) fn roles(&self) -> impl Iterator<Item = Role> + use<> {
        let plain = self.engine == EngineKind::Plain;
        Role::ALL.into_iter().filter(move |role| !plain || *role == Role::Mixed)
    }

    /// Whether it answers to models that no service lists: [`ModelMatch::Auto`] resolved.
    pub fn takes_any_model(&self) -> bool {
        match self.model_match {
            ModelMatch::Any => true,
            ModelMatch::Listed => false,
            ModelMatch::Auto => self.models.is_empty(),
        }
    }
}
