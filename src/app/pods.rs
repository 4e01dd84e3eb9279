//! Discovery of Pods, on a thread of its own: decoding thousands of them must hold up neither traffic nor the registry's writer.

use std::sync::Arc;
use std::thread;

use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::config::RouterConfig;
use crate::discovery::Discovery;
use crate::discovery::kube::Connect;
use crate::drain::Tracker;
use crate::proxy::context::Shared;
use crate::registry::Handle;

/// Whether some service needs the API server.
pub(super) fn are_asked_for(config: &RouterConfig) -> bool {
    config.services.iter().any(|service| service.pods.is_some() || service.rollout.is_some())
}

/// Starts the streams on the current runtime.
///
/// # Errors
/// When metrics of a service cannot be made.
pub fn discover(
    shared: &Shared,
    changes: &Handle,
    connect: Arc<dyn Connect>,
    tasks: &Tracker,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let (metrics, sources) = (shared.metrics.discovery.clone(), &shared.metrics.sources);
    let (changes, view) = (changes.clone(), Arc::clone(&shared.view));
    Discovery { sources, connect, changes, view, metrics }.start(&shared.config, tasks, stop)
}

/// The same on a thread of their own, until `stop`.
pub(super) fn thread(
    shared: Arc<Shared>,
    changes: Handle,
    connect: Arc<dyn Connect>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    shared.metrics.tasks.watch("discovery", runtime.handle());
    thread::Builder::new().name("discovery".to_owned()).spawn(move || {
        runtime.block_on(async {
            let tasks = Tracker::default();
            if let Err(error) = discover(&shared, &changes, connect, &tasks, &stop) {
                error!(%error, "Pod discovery cannot start");
            }
            stop.cancelled().await;
        });
        // Not waiting for credentials on a file system that hangs.
        runtime.shutdown_background();
    })?;
    Ok(())
}
