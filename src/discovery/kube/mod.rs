//! Pods from the Kubernetes API server. `kube` and its types stay in here.

mod ask;
mod backoff;
mod client;
mod failure;
mod list;
mod run;
mod watch;

pub use client::{Connect, Connecting, KubeConnect};
pub use list::{Decoded, Scope, decode_list};
pub use run::Stream;
pub use watch::is_event;
