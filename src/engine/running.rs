//! A started engine, as its process or its test holds it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::{sleep_until, timeout};

use super::config::{EngineConfig, Wire};
use super::core::Core;
use super::front::has_side;
use super::log::Log;
use super::moves::Moves;
use super::script::Rule;
use super::server::{Door, accept, serve};
use super::socket::{Dialer, Socket};
use crate::types::clock::{Instant, now};

/// How often a leaving engine looks whether its requests are over.
const LOOK: Duration = Duration::from_millis(2);

/// One engine. Dropping it is `kill -9`.
#[derive(Debug)]
pub struct Running {
    /// Front door; port 0 for an engine that listens nowhere.
    pub addr: SocketAddr,
    /// SGLang prefill: its bootstrap server. vLLM: where blocks are pulled from.
    pub side_addr: Option<SocketAddr>,
    pub log: Log,
    pub moves: Moves,
    core: Arc<Core>,
}

/// Counts and holds at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Requests that the engine works on.
    pub live: usize,
    /// What its gauges count, all together.
    pub staged: usize,
    /// Rooms in which a prefill request sits; all rooms.
    pub rooms_held: usize,
    pub rooms: usize,
    pub pages_used: usize,
    pub pages_dirty: usize,
    pub pages_deferred: usize,
    /// Requests whose blocks are kept for a pull; the blocks; leases that nobody came for, ever.
    pub leases: usize,
    pub blocks_held: usize,
    pub leases_expired: u64,
    counts: Vec<(&'static str, u64)>,
}

impl State {
    /// A counter by its name in `/mock/log`; 0 for an unknown one.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }

    /// Nothing is being worked on or kept for anybody.
    pub fn is_idle(&self) -> bool {
        self.live == 0 && self.staged == 0 && self.rooms == 0 && self.pages_used == 0 && self.leases == 0
    }
}

/// Binds the configured ports and serves on the current runtime.
pub async fn start(config: EngineConfig) -> io::Result<Running> {
    let side = has_side(config.wire, config.role);
    let front = TcpListener::bind(config.listen).await?;
    let side = if side { Some(TcpListener::bind(config.side_listen).await?) } else { None };
    let core = Arc::new(Core::new(config, Dialer::tcp()));
    let addr = front.local_addr()?;
    core.tasks.spawn("engine-accept", accept(Arc::clone(&core), front, Door::Front));
    let mut side_addr = None;
    if let Some(side) = side {
        let at = side.local_addr()?;
        side_addr = Some(at);
        let _ = core.side_port.set(at.port()); // set once: here
        core.tasks.spawn("engine-side", accept(Arc::clone(&core), side, Door::Side));
    }
    Ok(Running { addr, side_addr, log: core.log.clone(), moves: core.moves.clone(), core })
}

/// An engine without listeners, for connections that the caller makes: [`Running::serve`], [`Running::serve_side`]. It
/// reaches other engines through `dialer`, and tells them `side_port` as its own.
pub fn unbound(config: EngineConfig, dialer: Dialer, side_port: u16) -> Running {
    let addr = SocketAddr::new(config.listen.ip(), 0);
    let core = Arc::new(Core::new(config, dialer));
    let _ = core.side_port.set(side_port); // set once: here
    Running { addr, side_addr: None, log: core.log.clone(), moves: core.moves.clone(), core }
}

impl Running {
    /// Serves one connection to the front door, to its end.
    pub fn serve(&self, socket: Box<dyn Socket>) -> impl Future<Output = ()> + Send + 'static {
        serve(Arc::clone(&self.core), socket, Door::Front)
    }

    /// Serves one connection to the side port.
    pub fn serve_side(&self, socket: Box<dyn Socket>) -> impl Future<Output = ()> + Send + 'static {
        serve(Arc::clone(&self.core), socket, Door::Side)
    }

    /// What is held and what was counted.
    pub fn state(&self) -> State {
        let (held, kept) = (self.core.sglang.held(), self.core.vllm.kept());
        State {
            live: self.core.live_jobs(),
            staged: self.core.stages.sum(),
            rooms_held: held.prefills,
            rooms: held.rooms.len(),
            pages_used: held.pages_used,
            pages_dirty: held.pages_dirty,
            pages_deferred: held.pages_deferred,
            leases: kept.requests,
            blocks_held: kept.blocks,
            leases_expired: kept.expired,
            counts: self.core.counts.list(),
        }
    }

    /// Waits for a state; the last one as the error when `limit` passed first.
    pub async fn wait(&self, limit: Duration, reached: impl Fn(&State) -> bool) -> Result<State, State> {
        let until = now() + limit;
        loop {
            let state = self.state();
            if reached(&state) {
                return Ok(state);
            }
            if now() >= until {
                return Err(state);
            }
            sleep_until(Instant::min(until, now() + LOOK)).await;
        }
    }

    /// A fault for requests to come, after those that are waiting for some already.
    pub fn script(&self, rule: Rule) {
        self.core.add_rule(rule);
    }

    /// Forgets every rule.
    pub fn unscript(&self) {
        self.core.set_rules(Vec::new());
    }

    /// `kill -9`: every connection and listener is gone at once.
    pub fn kill(&self) {
        self.core.dead.cancel();
    }

    /// SIGTERM: no new connection; vLLM ends running requests with "abort", SGLang lets them finish within its limit.
    pub async fn stop(&self) {
        self.core.stopping.cancel();
        let idle = async {
            while self.core.live_jobs() > 0 {
                tokio::time::sleep(LOOK).await;
            }
        };
        // Whoever is not done by then is cut off.
        let _ = timeout(self.core.config.waits.stop, idle).await;
        // The last answers' way out.
        let flush = if self.core.config.wire == Wire::Vllm { LOOK * 10 } else { LOOK * 5 };
        tokio::time::sleep(flush).await;
        self.core.dead.cancel();
    }

    pub fn is_dead(&self) -> bool {
        self.core.dead.is_cancelled()
    }

    /// Completes when it is dead.
    pub async fn died(&self) {
        self.core.dead.cancelled().await;
    }

    /// Waits for the end of all its tasks; of use after its death.
    pub async fn ended(&self) {
        self.core.tasks.wait().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.core.dead.cancel();
    }
}
