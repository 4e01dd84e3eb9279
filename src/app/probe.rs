//! Asks SGLang decodes for their version, off the request path: from 0.5.23 on the engine itself keeps a cancelled decode's
//! pages back while its prefill may still write, and `cancel_decode_grace: auto` is 0 (docs/pd.md).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::config::EngineKind;
use crate::drain::Tracker;
use crate::proxy::context::Shared;
use crate::registry::{Endpoint, Service};
use crate::upstream::{self, Question};

/// Between two questions to an engine that has not answered, and to one that has.
const UNKNOWN: Duration = Duration::from_secs(5);
const KNOWN: Duration = Duration::from_mins(1);
/// Between two looks at which decodes there are.
const PACE: Duration = Duration::from_millis(200);
/// Longest time for one question, and the largest answer, bytes: it lists every argument of the server.
const LIMIT: Duration = Duration::from_secs(5);
const MOST: usize = 1 << 20;
/// The first version with the guard on by default.
const GUARDED: [u64; 3] = [0, 5, 23];

/// One for each decode whose grace depends on it.
#[derive(Debug)]
pub(super) struct Probes {
    tasks: Tracker,
    shared: Arc<Shared>,
    stop: CancellationToken,
    /// Ids of those that have one.
    started: HashSet<u64>,
}

impl Probes {
    pub(super) fn new(tasks: &Tracker, shared: &Arc<Shared>, stop: &CancellationToken) -> Self {
        let (tasks, shared, stop) = (tasks.clone(), Arc::clone(shared), stop.clone());
        Self { tasks, shared, stop, started: HashSet::new() }
    }

    /// Follows the snapshots, until the writer ends or the process stops.
    pub(super) async fn run(mut self, mut versions: watch::Receiver<u64>) {
        let stop = self.stop.clone();
        loop {
            self.follow();
            match stop.run_until_cancelled(versions.changed()).await {
                Some(Ok(())) => {}
                _ => return,
            }
            // A burst of changes is one look.
            let _ = stop.run_until_cancelled(sleep(PACE)).await;
        }
    }

    /// Starts those that the newest snapshot asks for. One whose endpoint was removed ends by itself.
    fn follow(&mut self) {
        let now = self.shared.view.load();
        let asked = |service: &&Arc<Service>| {
            let auto = service.config.upstream.cancel_decode_grace.is_none();
            auto && service.config.engine == EngineKind::Sglang
        };
        let decodes: Vec<_> = now.services.iter().filter(asked).flat_map(|s| &s.decodes).collect();
        self.started.retain(|id| decodes.iter().any(|decode| decode.id == *id));
        for decode in decodes {
            if self.started.insert(decode.id) {
                let watch = watch(Arc::clone(&self.shared), Arc::clone(decode), self.stop.clone());
                self.tasks.spawn("engine-version", watch);
            }
        }
    }
}

async fn watch(shared: Arc<Shared>, endpoint: Arc<Endpoint>, stop: CancellationToken) {
    let mut pause = Duration::ZERO;
    while stop.run_until_cancelled(sleep(pause)).await.is_some() {
        if endpoint.reason().is_final() {
            return;
        }
        let version = version(&shared, &endpoint).await;
        pause = if version.is_some() { KNOWN } else { UNKNOWN };
        let Some(version) = version else {
            debug!(endpoint = %endpoint.url, "the engine's version is not known yet");
            continue;
        };
        let guarded = is_guarded(&version);
        if endpoint.kv_guard.swap(guarded, Ordering::Relaxed) != guarded {
            info!(endpoint = %endpoint.url, version, guarded, "SGLang's guard against late KV writes");
        }
    }
}

async fn version(shared: &Shared, endpoint: &Endpoint) -> Option<String> {
    #[derive(Deserialize)]
    struct Info {
        version: String,
    }
    let (host, port) = (endpoint.host.as_str(), endpoint.port);
    let question = Question { host, port, path: "/server_info", limit: LIMIT, most: MOST };
    let (_, body) = upstream::get(&*shared.dial, question).await.ok()?;
    serde_json::from_slice::<Info>(&body).ok().map(|info| info.version)
}

/// `0.5.23`, `0.5.23.post1`, `v0.6.0rc1`: numbers as far as there are some.
fn is_guarded(version: &str) -> bool {
    let digits =
        |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().ok();
    let numbers: Vec<u64> = version.trim_start_matches('v').split('.').map_while(digits).collect();
    numbers.as_slice() >= &GUARDED[..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_is_known_by_its_version() {
        for (version, guarded) in [
            ("0.5.22", false),
            ("0.5.23", true),
            ("0.5.23.post1", true),
            ("v0.6.0rc1", true),
            ("0.5.3", false),
            ("1.0", true),
            ("0.5", false),
            ("unknown", false),
            ("", false),
        ] {
            assert_eq!(is_guarded(version), guarded, "{version}");
        }
    }
}
