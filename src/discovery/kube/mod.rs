//! Pods from the Kubernetes API server. `kube` and its types stay in here.

mod annotate;
mod ask;
mod backoff;
mod client;
mod failure;
mod list;
mod rollout;
mod run;
mod suspects;
mod watch;

/// What is asked of Pods, as the Role in `deploy/router/rbac.yaml` has it: these verbs and no other. Tests hold both to it: what
/// the Role grants, and what a router really asks.
pub const VERBS: &[&str] = &["list", "watch"];

/// What `tandem drain` asks of Pods where it may, as the Role in `deploy/drain/rbac.yaml` has it. No router does.
pub const DRAIN_VERBS: &[&str] = &["get", "patch"];

pub use annotate::{Annotator, Found, Trouble, own_namespace};
pub use client::{Connect, Connecting, KubeConnect};
pub use list::{Decoded, Scope, decode_list};
pub use rollout::RolloutStream;
pub use run::Stream;
pub use watch::is_event;
