//! What an engine saw: requests and connections, readable and awaitable while it runs.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::request::RecordedRequest;
use crate::testkit::wire::PeerEnd;
use crate::types::clock::{Instant, now};

/// One connection.
#[derive(Debug, Clone)]
pub struct ConnRecord {
    /// Its number, from 0.
    pub id: usize,
    pub opened_at: Instant,
    /// How many requests had a complete head.
    pub requests: usize,
    /// The first end of the peer that was seen: its FIN, or a reset.
    pub peer_left: Option<(PeerEnd, Instant)>,
    /// When a reset was seen, also after a FIN.
    pub reset_at: Option<Instant>,
    /// When the engine let go of it, for whatever reason.
    pub closed_at: Option<Instant>,
    /// Bytes received that belong to no request: half a head, or what followed a malformed one.
    pub stray: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<RecordedRequest>,
    conns: Vec<ConnRecord>,
}

/// Shared by an engine's connections and its test; clones are the same log.
#[derive(Debug, Clone, Default)]
pub struct Log {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl Log {
    pub fn new() -> Self {
        Self::default()
    }

    /// Every request whose head was complete, in order of arrival.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.lock().requests.clone()
    }

    /// Requests to this path, query ignored.
    pub fn requests_to(&self, path: &str) -> Vec<RecordedRequest> {
        self.requests().into_iter().filter(|request| request.path() == path).collect()
    }

    /// How many requests had a complete head; cheaper than [`Self::requests`].
    pub fn request_count(&self) -> usize {
        self.state.lock().requests.len()
    }

    pub fn conns(&self) -> Vec<ConnRecord> {
        self.state.lock().conns.clone()
    }

    /// Connections that neither side has ended.
    pub fn open_connections(&self) -> usize {
        self.state.lock().conns.iter().filter(|conn| conn.closed_at.is_none()).count()
    }

    /// Waits until `n` requests were received in full, and returns all of them.
    pub async fn wait_for(&self, n: usize, timeout: Duration) -> Vec<RecordedRequest> {
        let what = format!("{n} complete requests");
        self.wait_until(timeout, &what, |requests, _| {
            requests.iter().filter(|request| request.is_complete()).count() >= n
        })
        .await;
        self.requests()
    }

    /// Waits until the heads of `n` requests were received.
    pub async fn wait_for_heads(&self, n: usize, timeout: Duration) -> Vec<RecordedRequest> {
        self.wait_until(timeout, &format!("{n} request heads"), |requests, _| requests.len() >= n).await;
        self.requests()
    }

    /// Waits until the peer of this connection left; how, and when that was seen.
    pub async fn wait_peer_left(&self, conn: usize, timeout: Duration) -> (PeerEnd, Instant) {
        let what = format!("the peer of connection {conn} to leave");
        self.wait_until(timeout, &what, |_, conns| conns.get(conn).is_some_and(|c| c.peer_left.is_some()))
            .await;
        self.state.lock().conns[conn].peer_left.unwrap()
    }

    /// Waits until no connection is open.
    pub async fn wait_all_closed(&self, timeout: Duration) {
        self.wait_until(timeout, "all connections to close", |_, conns| {
            conns.iter().all(|conn| conn.closed_at.is_some())
        })
        .await;
    }

    /// Waits for a state of the log; panics with the log's summary when `timeout` passes first.
    pub async fn wait_until(
        &self,
        timeout: Duration,
        what: &str,
        reached: impl Fn(&[RecordedRequest], &[ConnRecord]) -> bool,
    ) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                let reached_now = {
                    let state = self.state.lock();
                    reached(&state.requests, &state.conns)
                };
                if reached_now {
                    return;
                }
                changed.await;
            }
        };
        let in_time = tokio::time::timeout(timeout, wait).await.is_ok();
        assert!(in_time, "waited {timeout:?} for {what}; the engine saw {}", self.summary());
    }

    /// One line per request and connection, for messages.
    pub fn summary(&self) -> String {
        use std::fmt::Write as _;
        let state = self.state.lock();
        let mut text = format!("{} requests, {} connections", state.requests.len(), state.conns.len());
        for r in &state.requests {
            let (body, left) = (r.body.len(), r.peer_left.map(|(end, _)| end));
            let _ = write!(text, "\n  #{}.{} {} {} body {body} ", r.conn, r.ordinal, r.method, r.target);
            let _ = write!(text, "{:?} malformed {:?} peer {left:?}", r.body_state, r.malformed);
        }
        for c in &state.conns {
            let (left, stray) = (c.peer_left.map(|(end, _)| end), String::from_utf8_lossy(&c.stray));
            let _ = write!(text, "\n  conn {} requests {} peer {left:?} ", c.id, c.requests);
            let _ = write!(text, "open {} stray {stray:?}", c.closed_at.is_none());
        }
        text
    }

    pub(super) fn open(&self) -> usize {
        let mut state = self.state.lock();
        let id = state.conns.len();
        state.conns.push(ConnRecord {
            id,
            opened_at: now(),
            requests: 0,
            peer_left: None,
            reset_at: None,
            closed_at: None,
            stray: Vec::new(),
        });
        self.changed.notify_waiters();
        id
    }

    /// Adds a request and returns its index.
    pub(super) fn push(&self, request: RecordedRequest) -> usize {
        let mut state = self.state.lock();
        let conn = request.conn;
        state.conns[conn].requests += 1;
        state.requests.push(request);
        self.changed.notify_waiters();
        state.requests.len() - 1
    }

    pub(super) fn request<T>(&self, index: usize, change: impl FnOnce(&mut RecordedRequest) -> T) -> T {
        let result = change(&mut self.state.lock().requests[index]);
        self.changed.notify_waiters();
        result
    }

    pub(super) fn conn(&self, id: usize, change: impl FnOnce(&mut ConnRecord)) {
        change(&mut self.state.lock().conns[id]);
        self.changed.notify_waiters();
    }

    pub(super) fn get(&self, index: usize) -> RecordedRequest {
        self.state.lock().requests[index].clone()
    }
}
