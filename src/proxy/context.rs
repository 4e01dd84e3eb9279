//! What the requests of one process share, and what the requests of one traffic thread share.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::admission::{ApiKeys, Bound};
use super::listener::Load;
use http::HeaderValue;

use crate::config::secret_file::Watched;
use crate::config::{Limits, RouterConfig, Timeouts};
use crate::drain::{Phases, Tracker};
use crate::metrics::{Metrics, ServiceMetrics};
use crate::registry::{Observer, View};
use crate::telemetry::access::AccessLog;
use crate::upstream::Dial;

/// One per process. Immutable, apart from what its parts guard themselves.
#[derive(Debug)]
pub struct Shared {
    /// As started; what a reload changes is in `limits`, the bounds and the snapshots.
    pub config: Arc<RouterConfig>,
    pub limits: ArcSwap<Limits>,
    pub timeouts: Arc<Timeouts>,
    pub view: View,
    pub dial: Arc<dyn Dial>,
    pub phases: Arc<Phases>,
    /// Front-door keys, where configured.
    pub keys: Option<Arc<ApiKeys>>,
    /// Engine credentials by service index (`upstream.authorization: from_secret`).
    pub secrets: Vec<Option<Arc<Watched<HeaderValue>>>>,
    pub in_flight: Arc<Bound>,
    pub buffered: Arc<Bound>,
    pub metrics: Arc<Metrics>,
    pub observer: Arc<Observer>,
    /// It also answers at the front door.
    pub observer_in_front: bool,
    /// By service index.
    pub services: Vec<Arc<ServiceMetrics>>,
    /// For requests that never got a service.
    pub no_service: Arc<ServiceMetrics>,
}

/// One per traffic thread.
#[derive(Debug)]
pub struct Worker {
    /// Index of the thread: its slot in every pool.
    pub index: usize,
    pub shared: Arc<Shared>,
    pub tracker: Tracker,
    /// Tasks that must not hold up the exit: KV leases.
    pub background: Tracker,
    pub access: AccessLog,
    pub load: Arc<Load>,
}
