//! Asks SGLang decodes for their version, off the request path: from 0.5.23 on the engine itself keeps a cancelled decode's
//! pages back while its prefill may still write, and `cancel_decode_grace: auto` is 0 (docs/pd.md).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Method;
use serde::Deserialize;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::config::EngineKind;
use crate::drain::Tracker;
use crate::proxy::context::Shared;
use crate::registry::{Endpoint, Reason, Service};
use crate::types::clock;
use crate::upstream::{self, Conn, Decoder, Frame, Limits, Outbound};

/// Between two questions to an engine that has not answered, and to one that has.
const UNKNOWN: Duration = Duration::from_secs(5);
const KNOWN: Duration = Duration::from_mins(1);
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

    /// Starts those that the newest snapshot asks for. One whose endpoint was removed ends by itself.
    pub(super) fn follow(&mut self) {
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
        if endpoint.reason() == Reason::Removed {
            return;
        }
        let version = timeout(LIMIT, version(&shared, &endpoint)).await.ok().flatten();
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
    let io = shared.dial.dial(&endpoint.host, endpoint.port).await.ok()?;
    let mut conn = Conn::new(io, usize::MAX);
    let head =
        format!("GET /server_info HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", endpoint.authority);
    let out = Outbound { method: Method::GET, segments: vec![Bytes::from(head)] };
    let limits =
        Limits { first_byte: Some(LIMIT), write_stall: Some(LIMIT), deadline: Some(clock::now() + LIMIT) };
    let answer = upstream::exchange(&mut conn, &out, limits, None).await.ok()?;
    let (mut decoder, mut body) = (Decoder::new(answer.head.framing), BytesMut::new());
    loop {
        match decoder.step(conn.buffer()).ok()? {
            Frame::Data(data) if body.len() + data.len() <= MOST => body.extend_from_slice(&data),
            Frame::Data(_) => return None,
            Frame::End => break,
            Frame::NeedMore if conn.fill().await.ok()? == 0 => break,
            Frame::NeedMore => {}
        }
    }
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
