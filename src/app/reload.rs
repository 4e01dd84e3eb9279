//! Takes over changes of the configuration file while the router runs: when the file changes, and at SIGHUP.
//!
//! A file that has a mistake, or changes what cannot be changed, leaves everything as it is: all of the new configuration is
//! read and judged before anything of it is in force. Requests and connections notice nothing; endpoints that stay keep their
//! connections, holds and drains.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::limits;
use crate::config::secret_file::Fingerprint;
use crate::config::{self, Origin, Problem, RouterConfig, changes};
use crate::proxy::context::Shared;
use crate::registry::{Change, Handle};

/// How often the file is looked at. A change counts once the file looked the same twice: an editor may be half-way.
const POLL: Duration = Duration::from_secs(1);
/// Most mistakes that are written out.
const MOST_SHOWN: usize = 20;

/// The one who changes the configuration in force.
#[derive(Debug)]
pub(super) struct Reload {
    origin: Origin,
    shared: Arc<Shared>,
    changes: Handle,
    /// What is in force, as the admin routes show it.
    text: Arc<ArcSwap<String>>,
    current: RouterConfig,
    file: Watch,
}

/// What is known of the file.
#[derive(Debug, Default)]
struct Watch {
    /// As it was read last.
    read: Option<Fingerprint>,
    /// As it was seen last, if that was not read yet.
    seen: Option<Fingerprint>,
}

impl Reload {
    pub(super) fn new(
        origin: Origin,
        shared: Arc<Shared>,
        changes: Handle,
        text: Arc<ArcSwap<String>>,
    ) -> Self {
        let current = (*shared.config).clone();
        let read = origin.file.as_deref().and_then(|path| Fingerprint::of(path).ok());
        Self { origin, shared, changes, text, current, file: Watch { read, seen: None } }
    }

    /// From when this is called SIGHUP does not end the process any more.
    pub(super) fn signal() -> std::io::Result<Signal> {
        signal(SignalKind::hangup())
    }

    /// Until `stop`. For a runtime that serves no traffic.
    pub(super) async fn run(mut self, mut hangup: Signal, stop: CancellationToken) {
        loop {
            let asked = tokio::select! {
                () = stop.cancelled() => return,
                _ = hangup.recv() => true,
                () = sleep(POLL) => false,
            };
            if asked && self.origin.file.is_none() {
                info!("SIGHUP: there is no configuration file to read again");
            } else if asked || self.file_changed().await {
                self.reload().await;
            }
        }
    }

    async fn file_changed(&mut self) -> bool {
        let Some(path) = self.origin.file.clone() else { return false };
        let now = off_runtime(move || Fingerprint::of(&path).ok()).await.flatten();
        self.file.settled(now)
    }

    /// Reads the file and takes it over, or leaves everything as it is.
    async fn reload(&mut self) {
        let origin = self.origin.clone();
        let read = off_runtime(move || {
            // Before the content: what is written in between looks different at the next poll.
            let fingerprint = origin.file.as_deref().and_then(|path| Fingerprint::of(path).ok());
            (fingerprint, origin.load())
        });
        let Some((fingerprint, loaded)) = read.await else { return };
        self.file = Watch { read: fingerprint, seen: None };
        let result = match loaded {
            Ok(new) => self.take_over(new).await,
            Err(problems) => {
                tell(&problems);
                Err(())
            }
        };
        let metrics = &self.shared.metrics.router;
        metrics.config_reloaded(result.is_ok());
    }

    /// `Err`: nothing is different, and why was said.
    async fn take_over(&mut self, mut new: RouterConfig) -> Result<(), ()> {
        let changes = changes(&self.current, &new);
        if !changes.fixed.is_empty() {
            let keys = changes.fixed.join(", ");
            warn!(
                keys,
                "configuration not reloaded: these need a restart, and with them everything else in the file"
            );
            return Err(());
        }
        self.shared
            .metrics
            .router
            .restart_needed
            .set(i64::try_from(changes.restart.len()).unwrap_or(i64::MAX));
        if !changes.restart.is_empty() {
            let keys = changes.restart.join(", ");
            warn!(keys, "these keep their values until a restart; the rest of the file is taken over");
        }
        if changes.live.is_empty() {
            info!("configuration read again: nothing to take over");
            return Ok(());
        }
        let (done, replaced) = oneshot::channel();
        let services = Change::Services(new.services.clone(), done);
        let sent = self.changes.send(services).await.is_ok();
        let (true, Ok(replaced)) = (sent, replaced.await) else { return Err(()) };
        new.limits.connections = self.current.limits.connections;
        self.shared.in_flight.set_limit(new.limits.in_flight as u64);
        self.shared.buffered.set_limit(limits::budget(&new.limits));
        self.shared.limits.store(Arc::new(new.limits.clone()));
        self.current = RouterConfig { limits: new.limits, services: new.services, ..self.current.clone() };
        self.text.store(Arc::new(config::print(&self.current)));
        info!(
            keys = changes.live.join(", "),
            endpoints_added = replaced.added,
            endpoints_removed = replaced.removed,
            version = replaced.version,
            "configuration reloaded"
        );
        Ok(())
    }
}

impl Watch {
    /// Whether the file differs from what was read and has looked so twice. A missing one is waited for: a ConfigMap's
    /// files are away for a moment while they are replaced.
    fn settled(&mut self, now: Option<Fingerprint>) -> bool {
        if now.is_none() || now == self.read {
            self.seen = None;
            return false;
        }
        let settled = self.seen == now;
        self.seen = now;
        settled
    }
}

fn tell(problems: &[Problem]) {
    for problem in problems.iter().take(MOST_SHOWN) {
        warn!(%problem, "configuration not reloaded; the last good one stays in force");
    }
    if problems.len() > MOST_SHOWN {
        warn!(more = problems.len() - MOST_SHOWN, "further mistakes are left out; `tandem check` shows all");
    }
}

/// File systems can hang.
async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_as_changed_once_it_looked_the_same_twice() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).unwrap();
            Some(Fingerprint::of(&dir.path().join(name)).unwrap())
        };
        let (old, half, whole) = (at("a", "old"), at("b", "ha"), at("c", "whole"));
        let mut watch = Watch { read: old, seen: None };
        let again = |path: &str| Some(Fingerprint::of(&dir.path().join(path)).unwrap());
        assert!(!watch.settled(again("a")), "the one that was read");
        assert!(!watch.settled(half), "seen once");
        assert!(!watch.settled(whole), "another one");
        assert!(!watch.settled(None), "missing");
        assert!(!watch.settled(again("c")));
        assert!(watch.settled(again("c")));
    }
}
