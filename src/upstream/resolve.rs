//! Engine names to addresses.
//!
//! The system's resolver blocks a thread and cannot be cancelled, so a resolver that hangs would gather a thread for
//! each dial, in the pool that large bodies are scanned in. Here a name has one look-up at a time, which outlives the
//! dial that began it; other dials wait for it within their own limits and share what it found. All names together have
//! [`AT_ONCE`]. What was found, failures too, is good for [`FRESH`].

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, Semaphore};

use crate::types::clock::{self, Instant};

/// For how long an answer is used again.
const FRESH: Duration = Duration::from_secs(1);
/// Look-ups under way, of all names: a small part of the 512 threads of a blocking pool.
const AT_ONCE: usize = 64;
/// Names kept before those that nobody asks for now are forgotten.
const KEPT: usize = 1024;

type Found = io::Result<Vec<SocketAddr>>;
type Lookup = dyn Fn(&str) -> Found + Send + Sync;
/// The last answer of one name, held while the next one is looked up.
type Name = Arc<Turn<Option<(Instant, Found)>>>;

/// A resolver of names with its short memory.
pub(super) struct Names {
    known: Mutex<HashMap<String, Name>>,
    places: Arc<Semaphore>,
    lookup: Arc<Lookup>,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::new(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }
}

impl Names {
    /// `lookup` may block.
    pub(super) fn new(lookup: impl Fn(&str) -> Found + Send + Sync + 'static) -> Self {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        Self { known: Mutex::default(), places, lookup: Arc::new(lookup) }
    }

    /// The addresses of `host`, with `port`.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> Found {
        let mut turn = self.name(host).lock_owned().await;
        if let Some((at, found)) = &*turn
            && clock::now().saturating_duration_since(*at) < FRESH
        {
            return with_port(found, port);
        }
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
        let (lookup, host) = (Arc::clone(&self.lookup), host.to_owned());
        // Turn and place go with the look-up, so that a dial that is given up makes room for no other one.
        let looking = tokio::task::spawn_blocking(move || {
            let found = lookup(&host);
            let answer = with_port(&found, port);
            *turn = Some((clock::now(), found));
            drop(place);
            answer
        });
        looking.await.map_err(io::Error::other)?
    }

    fn name(&self, host: &str) -> Name {
        let mut known = self.known.lock();
        if let Some(name) = known.get(host) {
            return Arc::clone(name);
        }
        if known.len() >= KEPT {
            known.retain(|_, name| Arc::strong_count(name) > 1);
        }
        Arc::clone(known.entry(host.to_owned()).or_default())
    }
}

fn with_port(found: &Found, port: u16) -> Found {
    match found {
        Ok(addresses) => Ok(addresses
            .iter()
            .map(|at| {
                let mut at = *at;
                at.set_port(port);
                at
            })
            .collect()),
        Err(error) => Err(error
            .raw_os_error()
            .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)),
    }
}

#[cfg(test)]
#[path = "tests/resolve.rs"]
mod tests;
