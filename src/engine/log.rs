//! What the engine saw: every request to its front door byte by byte, every connection, when each peer left.
//!
//! Readable while it runs, in process and as JSON (`GET /mock/log`). Bounded: the oldest records go first and are counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::json::{Json, ordered};
use crate::types::clock::{Instant, now};

/// How a peer's end looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Fin,
    Reset,
}

/// How a request ended, as the engine sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its answer was handed to the transport in full, whatever it said.
    Answered,
    /// The peer left before.
    PeerLeft,
    /// A script cut it.
    Cut,
    /// The engine died.
    Died,
}

impl Ended {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::PeerLeft => "peer_left",
            Self::Cut => "cut",
            Self::Died => "died",
        }
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its number, from 0.
    pub id: u64,
    /// Its connection's number.
    pub conn: u64,
    /// Which request of its connection, from 0.
    pub ordinal: u64,
    pub method: String,
    /// As sent, with its query.
    pub target: String,
    pub headers: http::HeaderMap,
    /// Exact bytes, head and body framing included. Empty until the body was received in full.
    pub raw: Bytes,
    /// The body's payload.
    pub body: Bytes,
    pub head_at: Instant,
    pub body_at: Option<Instant>,
    /// Status of the answer, and when its head was made.
    pub status: Option<(u16, Instant)>,
    /// When the first event of a stream was made.
    pub first_event_at: Option<Instant>,
    pub ended: Option<(Ended, Instant)>,
    /// Why the engine ended it early: an abort request, a peer that left, a shutdown.
    pub stopped: Option<&'static str>,
}

impl Seen {
    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// One connection.
#[derive(Debug, Clone)]
pub struct Conn {
    /// Its number, from 0.
    pub id: u64,
    pub opened_at: Instant,
    pub requests: u64,
    /// The first end of the peer that was seen.
    pub left: Option<(Left, Instant)>,
    /// When the engine let go of it.
    pub closed_at: Option<Instant>,
    /// Received and of no request yet.
    pending: Vec<u8>,
}

/// Everything kept, at one moment.
#[derive(Debug, Clone, Default)]
pub struct Records {
    pub requests: VecDeque<Seen>,
    pub conns: VecDeque<Conn>,
    /// Records that gave way to newer ones.
    pub dropped: u64,
    next_request: u64,
    next_conn: u64,
}

impl Records {
    /// Requests to this path, query ignored.
    pub fn to<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Seen> + 'a {
        self.requests.iter().filter(move |seen| seen.path() == path)
    }

    pub fn open_connections(&self) -> usize {
        self.conns.iter().filter(|conn| conn.closed_at.is_none()).count()
    }

    fn conn(&mut self, id: u64) -> Option<&mut Conn> {
        self.conns.iter_mut().rev().find(|conn| conn.id == id)
    }

    fn request(&mut self, id: u64) -> Option<&mut Seen> {
        self.requests.iter_mut().rev().find(|seen| seen.id == id)
    }
}

/// Shared by an engine and its reader; clones are the same log.
#[derive(Debug, Clone)]
pub struct Log {
    records: Arc<Mutex<Records>>,
    changed: Arc<Notify>,
    limit: usize,
    start: Instant,
}

impl Log {
    pub(super) fn new(limit: usize) -> Self {
        Self { records: Arc::default(), changed: Arc::default(), limit, start: now() }
    }

    /// A copy of everything.
    pub fn records(&self) -> Records {
        self.records.lock().clone()
    }

    /// A look without a copy.
    pub fn read<T>(&self, look: impl FnOnce(&Records) -> T) -> T {
        look(&self.records.lock())
    }

    /// Waits for a state of the log; `false` when `limit` passed first.
    pub async fn wait(&self, limit: Duration, reached: impl Fn(&Records) -> bool) -> bool {
        let until = async {
            loop {
                let changed = self.changed.notified();
                if self.read(&reached) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(limit, until).await.is_ok()
    }

    /// Forgets all requests and the closed connections.
    pub fn clear(&self) {
        let mut records = self.records.lock();
        records.requests.clear();
        records.conns.retain(|conn| conn.closed_at.is_none());
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Records) -> T) -> T {
        let result = change(&mut self.records.lock());
        self.changed.notify_waiters();
        result
    }

    pub(super) fn opened(&self) -> u64 {
        self.change(|records| {
            let id = records.next_conn;
            records.next_conn += 1;
            if self.limit > 0 {
                let fresh = Conn {
                    id,
                    opened_at: now(),
                    requests: 0,
                    left: None,
                    closed_at: None,
                    pending: Vec::new(),
                };
                push(&mut records.conns, fresh, self.limit, &mut records.dropped);
            }
            id
        })
    }

    pub(super) fn received(&self, conn: u64, bytes: &[u8]) {
        if self.limit > 0
            && let Some(conn) = self.records.lock().conn(conn)
        {
            conn.pending.extend_from_slice(bytes);
        }
    }

    pub(super) fn left(&self, conn: u64, how: Left) {
        self.change(|records| {
            if let Some(conn) = records.conn(conn) {
                conn.left.get_or_insert((how, now()));
            }
        });
    }

    pub(super) fn closed(&self, conn: u64) {
        self.change(|records| {
            if let Some(conn) = records.conn(conn) {
                conn.closed_at = Some(now());
                conn.pending = Vec::new();
            }
        });
    }

    /// A request whose head was read.
    pub(super) fn head(&self, conn: u64, parts: &http::request::Parts) -> Entry {
        let (id, ordinal) = self.change(|records| {
            let id = records.next_request;
            records.next_request += 1;
            let ordinal = records.conn(conn).map_or(0, |conn| {
                conn.requests += 1;
                conn.requests - 1
            });
            if self.limit > 0 {
                let seen = seen(id, conn, ordinal, parts);
                push(&mut records.requests, seen, self.limit, &mut records.dropped);
            }
            (id, ordinal)
        });
        Entry { log: self.clone(), conn, id, ordinal }
    }

    /// Milliseconds since the engine's start.
    fn ms(&self, at: Instant) -> Json {
        Json::Float((at.saturating_duration_since(self.start).as_secs_f64() * 1e6).round() / 1e3)
    }

    pub(super) fn json(&self) -> Vec<(&'static str, Json)> {
        let records = self.records();
        let end = |at: Option<(&'static str, Instant)>| match at {
            Some((how, at)) => ordered! { "how": how, "at_ms": self.ms(at) },
            None => Json::Null,
        };
        let requests = records.requests.iter().map(|seen| self.request_json(seen)).collect::<Vec<_>>();
        let conn = |conn: &Conn| {
            let left = conn.left.map(|(left, at)| (if left == Left::Fin { "fin" } else { "reset" }, at));
            ordered! {
                "id": conn.id, "requests": conn.requests, "opened_ms": self.ms(conn.opened_at),
                "peer_left": end(left), "closed_ms": conn.closed_at.map(|at| self.ms(at)),
            }
        };
        vec![
            ("requests", Json::List(requests)),
            ("connections", Json::List(records.conns.iter().map(conn).collect())),
            ("dropped", records.dropped.into()),
        ]
    }

    fn request_json(&self, seen: &Seen) -> Json {
        // One character per byte: exact for any bytes, and readable.
        let latin1 = |bytes: &[u8]| bytes.iter().map(|&byte| char::from(byte)).collect::<String>();
        let ended = seen.ended.map(|(how, at)| ordered! { "how": how.as_str(), "at_ms": self.ms(at) });
        ordered! {
            "id": seen.id, "connection": seen.conn, "ordinal": seen.ordinal, "method": seen.method.as_str(),
            "target": seen.target.as_str(), "head_ms": self.ms(seen.head_at),
            "body_ms": seen.body_at.map(|at| self.ms(at)), "status": seen.status.map(|(status, _)| status),
            "answer_ms": seen.status.map(|(_, at)| self.ms(at)),
            "first_event_ms": seen.first_event_at.map(|at| self.ms(at)), "ended": ended, "stopped": seen.stopped,
            "raw_latin1": latin1(&seen.raw), "body": String::from_utf8_lossy(&seen.body).into_owned(),
        }
    }
}

fn push<T>(list: &mut VecDeque<T>, item: T, limit: usize, dropped: &mut u64) {
    if list.len() >= limit {
        list.pop_front();
        *dropped += 1;
    }
    list.push_back(item);
}

fn seen(id: u64, conn: u64, ordinal: u64, parts: &http::request::Parts) -> Seen {
    Seen {
        id,
        conn,
        ordinal,
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        headers: parts.headers.clone(),
        raw: Bytes::new(),
        body: Bytes::new(),
        head_at: now(),
        body_at: None,
        status: None,
        first_event_at: None,
        ended: None,
        stopped: None,
    }
}

/// One request's place in the log.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    log: Log,
    conn: u64,
    id: u64,
    ordinal: u64,
}

impl Entry {
    /// Which request of its connection, from 0; always 0 without a log.
    pub(super) fn ordinal(&self) -> u64 {
        self.ordinal
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        self.log.change(|records| {
            if let Some(seen) = records.request(self.id) {
                change(seen);
            }
        });
    }

    /// The whole body is there: what the connection received for it becomes the request's bytes.
    pub(super) fn body(&self, body: &Bytes) {
        self.log.change(|records| {
            let raw = records.conn(self.conn).map(|conn| take_message(&mut conn.pending, body.len()));
            if let Some(seen) = records.request(self.id) {
                (seen.body, seen.body_at) = (body.clone(), Some(now()));
                seen.raw = raw.map(Bytes::from).unwrap_or_default();
            }
        });
    }

    pub(super) fn status(&self, status: u16) {
        self.change(|seen| seen.status = Some((status, now())));
    }

    pub(super) fn first_event(&self) {
        self.change(|seen| seen.first_event_at = seen.first_event_at.or_else(|| Some(now())));
    }

    pub(super) fn ended(&self, how: Ended) {
        self.change(|seen| seen.ended = seen.ended.or_else(|| Some((how, now()))));
    }

    pub(super) fn stopped(&self, why: &'static str) {
        self.change(|seen| seen.stopped = seen.stopped.or(Some(why)));
    }
}

/// Cuts one message off the received bytes: by its length where it states one, else all there is. (A client that sends its
/// next request before the answer to a chunked one is not told apart.)
fn take_message(pending: &mut Vec<u8>, payload: usize) -> Vec<u8> {
    let head = memchr::memmem::find(pending, b"\r\n\r\n").map_or(pending.len(), |at| at + 4);
    let chunked = pending[..head].to_ascii_lowercase();
    let chunked = memchr::memmem::find(&chunked, b"\r\ntransfer-encoding:").is_some();
    let end = if chunked { pending.len() } else { (head + payload).min(pending.len()) };
    let rest = pending.split_off(end);
    std::mem::replace(pending, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_by_its_length_and_what_follows_stays() {
        let mut pending = b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nabGET / HTTP/1.1\r\n".to_vec();
        assert!(take_message(&mut pending, 2).ends_with(b"\r\n\r\nab"));
        assert_eq!(pending, b"GET / HTTP/1.1\r\n");
    }

    #[test]
    fn the_log_is_bounded_and_counts_what_it_forgot() {
        let log = Log::new(2);
        for _ in 0..5 {
            log.opened();
        }
        let ids: Vec<u64> = log.read(|records| records.conns.iter().map(|conn| conn.id).collect());
        assert_eq!((ids, log.records().dropped), (vec![3, 4], 3));
    }
}
