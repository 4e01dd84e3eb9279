//! The configuration of Pod discovery: which Pods belong to a service, and which of their labels and annotations say what.
//! Plain values, already validated; `docs/discovery.md` has the rules they feed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::types::role::Role;

/// Key `kubernetes`: how the API server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kubernetes {
    /// Key `kubeconfig`. `None` (`auto`): `KUBECONFIG`, `~/.kube/config`, else the Pod's own service account.
    pub kubeconfig: Option<PathBuf>,
    /// Key `context` of that file; `None`: its current one.
    pub context: Option<String>,
}

/// Key `observer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observer {
    /// Key `on_front_door`: also answer `GET /observer/endpoints` where clients connect. `None` (`auto`): where a service
    /// uses the `gpustack` dialect, whose consumer reads it there.
    pub on_front_door: Option<bool>,
}

/// Equality terms on labels.
pub type Labels = BTreeMap<String, String>;

/// Key `services[].discovery.kubernetes`.
#[derive(Debug, Clone, PartialEq)]
pub struct PodDiscovery {
    /// `None` (`auto`): the namespace of the service account or of the kubeconfig's context.
    pub namespace: Option<String>,
    /// Labels of every Pod of the service; also the API server's selector. Never the eligibility label: its loss has to
    /// arrive as a change of a known Pod.
    pub selector: Labels,
    /// Further labels that give a Pod its role, instead of [`Keys::role`]: keys `prefill`, `decode`, `mixed`.
    pub role_selectors: RoleSelectors,
    pub dialect: Dialect,
    /// Between two full lists beside the watch.
    pub relist: Duration,
    pub relist_read: RelistRead,
    pub ip_family: IpFamily,
    /// Serving ports of a Pod that has no ports annotation; several: one endpoint each.
    pub ports: Vec<Port>,
    /// Bootstrap port of an SGLang prefill that has no annotation. `None` (`auto`): asked of the engine.
    pub bootstrap_port: Option<u16>,
    pub probe: Probe,
    pub keys: Keys,
}

/// Key `relist_read`: where the API server reads a periodic list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelistRead {
    /// The newest state.
    Consistent,
    /// Its cache, not older than what was seen; with a consistent list every five minutes and after a surprise.
    Cached,
}

/// Key `ip_family`: which address of a dual-stack Pod is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpFamily {
    /// The first one of `status.podIPs`.
    Primary,
    V4,
    V6,
}

/// One entry of `ports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Port {
    Number(u16),
    /// Name of a container port.
    Name(String),
}

/// Key `probe`: what an engine has to answer before its first request. SGLang prefills always have to list every rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Nothing more.
    Off,
    /// `GET /v1/models` has to answer, and to list one of `models` if there are any.
    Models,
}

/// Keys `prefill`, `decode` and `mixed` of `discovery.kubernetes`; empty: not used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoleSelectors {
    pub prefill: Labels,
    pub decode: Labels,
    pub mixed: Labels,
}

/// Key `dialect`: a preset of [`Keys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Tandem,
    Gpustack,
    Ome,
    Infera,
    LlmD,
    Sglang,
    Vllm,
}

/// Key `keys`: labels or annotations (a label wins) that carry a fact. `None`: nothing does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// `KEY=VALUE`, or `KEY` for "there and not empty".
    pub eligible: Option<EligibleKey>,
    pub role: Option<String>,
    /// Values of `role`: keys `prefill_values`, `decode_values`, `mixed_values`.
    pub role_values: RoleValues,
    pub model: Option<String>,
    pub revision: Option<String>,
    pub token: Option<String>,
    /// Comma-separated port numbers.
    pub ports: Option<String>,
    pub bootstrap_port: Option<String>,
    /// Its presence withdraws the Pod; the value is the reason.
    pub drain: Option<String>,
    /// JSON document of an Infera worker: URL, model and role in one.
    pub worker_info: Option<String>,
}

/// The endpoint-eligible mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EligibleKey {
    pub key: String,
    /// `None`: any value that is not empty.
    pub value: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoleValues {
    pub prefill: Vec<String>,
    pub decode: Vec<String>,
    pub mixed: Vec<String>,
}

/// Key `services[].eligibility`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Eligibility {
    /// Key `mode`, for roles without an own one. `None` (`auto`): by dialect and role.
    pub mode: Option<Mode>,
    /// Keys `prefill`, `decode`, `mixed`.
    pub prefill: Option<Mode>,
    pub decode: Option<Mode>,
    pub mixed: Option<Mode>,
    /// Key `fail_static`: a Pod whose readiness is *Unknown* (its node is out of reach) keeps its requests.
    pub fail_static: bool,
}

/// Whether a Pod needs the endpoint-eligible mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Required,
    Off,
    /// Required once the fleet carries it.
    Observed,
}

impl Eligibility {
    /// The mode of a role, `auto` resolved: `required` for `tandem`, `infera` (a worker that has not registered has no
    /// annotation) and mixed endpoints of `gpustack`, `observed` for prefill and decode of `gpustack` (its operator does
    /// not label them today), else `off`.
    pub fn mode_of(&self, role: Role, dialect: Dialect) -> Mode {
        let own = match role {
            Role::Prefill => self.prefill,
            Role::Decode => self.decode,
            Role::Mixed => self.mixed,
        };
        own.or(self.mode).unwrap_or(match (dialect, role) {
            (Dialect::Tandem | Dialect::Infera, _) | (Dialect::Gpustack, Role::Mixed) => Mode::Required,
            (Dialect::Gpustack, _) => Mode::Observed,
            _ => Mode::Off,
        })
    }
}

impl Keys {
    /// A dialect's keys.
    pub fn of(dialect: Dialect) -> Self {
        let some = |key: &str| Some(key.to_owned());
        let none = Self {
            eligible: None,
            role: None,
            role_values: RoleValues::plain(),
            model: None,
            revision: None,
            token: None,
            ports: None,
            bootstrap_port: None,
            drain: some("tandem.dev/drain"),
            worker_info: None,
        };
        match dialect {
            Dialect::Tandem => Self {
                eligible: Some(EligibleKey::is_true("tandem.dev/endpoint-eligible")),
                role: some("tandem.dev/role"),
                model: some("tandem.dev/model"),
                revision: some("tandem.dev/revision"),
                token: some("tandem.dev/pairing-token"),
                ports: some("tandem.dev/ports"),
                bootstrap_port: some("tandem.dev/bootstrap-port"),
                ..none
            },
            Dialect::Gpustack => Self {
                eligible: Some(EligibleKey::is_true("modeldeployment.gpustack.ai/endpoint-eligible")),
                role: some("modeldeployment.gpustack.ai/role-kind"),
                role_values: RoleValues { mixed: words(&["server"]), ..RoleValues::plain() },
                // Engines answer scrapes where they serve.
                ports: some("prometheus.io/port"),
                bootstrap_port: some("sglang.ai/bootstrap-port"),
                ..none
            },
            Dialect::Ome => Self {
                role: some("component"),
                role_values: RoleValues {
                    prefill: words(&["engine"]),
                    decode: words(&["decoder"]),
                    mixed: vec![],
                },
                revision: some("ome.io/revision-hash"),
                token: some("ome.io/pairing-protocol"),
                bootstrap_port: some("sglang.ai/bootstrap-port"),
                ..none
            },
            Dialect::Infera => Self {
                worker_info: some("infera.amd.com/worker-info"),
                eligible: Some(EligibleKey { key: "infera.amd.com/worker-info".to_owned(), value: None }),
                ..none
            },
            Dialect::LlmD => Self {
                role: some("llm-d.ai/role"),
                role_values: RoleValues {
                    mixed: words(&["both", "mixed", "prefill-decode", "decode-prefill"]),
                    ..RoleValues::plain()
                },
                model: some("llm-d.ai/model"),
                revision: some("disaggregatedset.x-k8s.io/revision"),
                ports: some("llm-d.ai/active-ports"),
                ..none
            },
            Dialect::Sglang => Self {
                bootstrap_port: some("sglang.ai/bootstrap-port"),
                ports: some("smg.ai/worker-ports"),
                ..none
            },
            Dialect::Vllm => Self { bootstrap_port: some("vllm.ai/bootstrap-port"), ..none },
        }
    }
}

impl EligibleKey {
    fn is_true(key: &str) -> Self {
        Self { key: key.to_owned(), value: Some("true".to_owned()) }
    }
}

impl RoleValues {
    fn plain() -> Self {
        Self { prefill: words(&["prefill"]), decode: words(&["decode"]), mixed: words(&["mixed"]) }
    }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

impl PodDiscovery {
    /// These Pods, everything else at the dialect's default.
    pub fn of(dialect: Dialect, selector: Labels) -> Self {
        Self {
            namespace: None,
            selector,
            role_selectors: RoleSelectors::default(),
            dialect,
            relist: Duration::from_secs(15),
            relist_read: RelistRead::Consistent,
            ip_family: IpFamily::Primary,
            ports: vec![Port::Number(if dialect == Dialect::Ome { 8080 } else { 8000 })],
            bootstrap_port: None,
            probe: Probe::Off,
            keys: Keys::of(dialect),
        }
    }
}
