//! What is known about one client connection, written by its byte stream and its requests, read by its watchdog.
//!
//! hyper gives no hook between "connected" and "request head complete", none for a stalled write, and one timer for
//! both an idle connection and a slow head. So the stream under it notes what happens here (relaxed atomics, one
//! thread) and `Supervised` judges, with a timer that costs nothing until it fires.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::cut::RelayedEngine;
use crate::config::Timeouts;
use crate::drain::{Phase, Phases};
use crate::types::clock::{self, Instant};

/// Which protocol the client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    H1,
    H2,
}

impl Protocol {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::H1 => "h1",
            Self::H2 => "h2",
        }
    }
}

/// Why the watchdog ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    /// No complete request head in time.
    Head,
    /// Nothing between requests for too long.
    Idle,
    /// The client takes none of the bytes that wait for it.
    WriteStall,
    /// The same, while its request was cut by a drain.
    Cut,
}

/// Times are microseconds after `born`; 0 is "not now".
#[derive(Debug)]
pub struct Downstream {
    pub peer: SocketAddr,
    /// The peer's address as text, made once for the heads of all its requests.
    peer_text: Box<str>,
    pub phases: Arc<Phases>,
    born: Instant,
    /// Requests being served on it.
    open: AtomicU32,
    served: AtomicBool,
    /// Since when no request is being served.
    quiet_since: AtomicU64,
    /// Since when bytes of an incomplete request head are there.
    head_since: AtomicU64,
    /// Since when a write finds no room.
    blocked_since: AtomicU64,
    /// Grows each time everything written so far was handed to the kernel.
    flushed: AtomicU64,
    stalled: AtomicBool,
    /// A request was taken whose answer has not left in full.
    owed: AtomicBool,
    /// The last request was refused: the client may not have stopped sending it.
    refused: AtomicBool,
    /// The rest of a refused request is being thrown away (HTTP/1.1): it is neither a head nor silence.
    discarding: AtomicBool,
    /// HTTP/1.1: a request was read whole and its answer is not over.
    awaits_engine: AtomicBool,
    /// The client's end was seen meanwhile.
    left: AtomicBool,
    /// On HTTP/2 bytes between requests are frames of the connection, not a head.
    h2: AtomicBool,
    /// HTTP/1.1: whose bytes are relayed on it.
    pub engine: RelayedEngine,
}

impl Downstream {
    pub fn new(peer: SocketAddr, phases: Arc<Phases>) -> Arc<Self> {
        // On a dual-stack socket IPv4 peers come as `::ffff:a.b.c.d`.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        Arc::new(Self {
            peer,
            peer_text: peer.ip().to_string().into(),
            phases,
            born: clock::now(),
            open: AtomicU32::new(0),
            served: AtomicBool::new(false),
            quiet_since: AtomicU64::new(0),
            // A client that connects and sends nothing is a slow head from the start.
            head_since: AtomicU64::new(1),
            blocked_since: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
            owed: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            discarding: AtomicBool::new(false),
            awaits_engine: AtomicBool::new(false),
            left: AtomicBool::new(false),
            h2: AtomicBool::new(false),
            engine: RelayedEngine::default(),
        })
    }

    pub fn peer_text(&self) -> &str {
        &self.peer_text
    }

    fn now(&self) -> u64 {
        (clock::recent().saturating_duration_since(self.born).as_micros() as u64).max(1)
    }

    /// Bytes arrived from the client.
    #[inline]
    pub fn received(&self) {
        if self.open.load(Ordering::Relaxed) == 0
            && self.head_since.load(Ordering::Relaxed) == 0
            && !self.h2.load(Ordering::Relaxed)
            && !self.discarding.load(Ordering::Relaxed)
        {
            self.head_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// The HTTP/2 preface arrived: the connection is idle, not in the middle of a head.
    pub fn speaks_h2(&self) {
        self.h2.store(true, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        self.quiet_since.store(self.now(), Ordering::Relaxed);
    }

    /// A request head is complete.
    #[inline]
    pub fn request_started(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.served.store(true, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        self.owed.store(true, Ordering::Relaxed);
        self.refused.store(false, Ordering::Relaxed);
    }

    /// A response ended, however.
    #[inline]
    pub fn request_ended(&self) {
        self.awaits_engine.store(false, Ordering::Relaxed);
        if self.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.quiet_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// The open request was read whole: from now on the client has nothing to say but that it leaves.
    pub fn request_read(&self) {
        if !self.h2.load(Ordering::Relaxed) {
            self.awaits_engine.store(true, Ordering::Relaxed);
        }
    }

    /// Between [`request_read`](Self::request_read) and the end of that request, on HTTP/1.1.
    #[inline]
    pub fn awaits_engine(&self) -> bool {
        self.awaits_engine.load(Ordering::Relaxed)
    }

    pub fn mark_left(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    /// The client closed or reset its connection where hyper was not looking.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn write_progressed(&self) {
        if self.blocked_since.load(Ordering::Relaxed) != 0 {
            self.blocked_since.store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    pub fn write_blocked(&self) {
        if self.blocked_since.load(Ordering::Relaxed) == 0 {
            self.blocked_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Everything written so far left. hyper buffers the end of an answer before it lets go of its body, so with no
    /// request open that includes whole answers.
    #[inline]
    pub fn flushed(&self) {
        self.flushed.fetch_add(1, Ordering::Relaxed);
        if self.is_idle() {
            self.owed.store(false, Ordering::Relaxed);
        }
    }

    /// Whether bytes of an answer to a request may still be written. On HTTP/1.1 whatever is written otherwise is not
    /// ours.
    #[inline]
    pub fn owes_answer(&self) -> bool {
        self.owed.load(Ordering::Relaxed)
    }

    /// The request being answered was refused, perhaps before its client had sent all of it.
    pub fn mark_refused(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    pub fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Compared before and after, tells that everything written before has left.
    pub fn flush_count(&self) -> u64 {
        self.flushed.load(Ordering::Relaxed)
    }

    pub fn is_idle(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }

    /// It has had a request, ended or not.
    pub fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// Bytes of a request head are here, and it is not complete (HTTP/1.1).
    pub fn is_reading_head(&self) -> bool {
        self.is_idle() && self.head_since.load(Ordering::Relaxed) != 0
    }

    /// No write waits for room.
    pub fn is_flushed(&self) -> bool {
        self.blocked_since.load(Ordering::Relaxed) == 0
    }

    pub fn mark_stalled(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    /// The connection is being closed because the client took no bytes.
    pub fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    pub fn is_forced(&self) -> bool {
        self.phases.now() >= Phase::Forcing
    }

    /// What would end the connection next, and when: `Err` when it already has.
    pub fn verdict(&self, timeouts: &Timeouts) -> Result<Option<Instant>, Expired> {
        let now = self.now();
        let mut next: Option<u64> = None;
        let mut check = |since: u64, limit: Option<Duration>, expired: Expired| -> Result<(), Expired> {
            let Some(limit) = limit else { return Ok(()) };
            let at = since + limit.as_micros() as u64;
            if at <= now {
                return Err(expired);
            }
            next = Some(next.map_or(at, |n| n.min(at)));
            Ok(())
        };
        let blocked = self.blocked_since.load(Ordering::Relaxed);
        if blocked != 0 {
            check(blocked, timeouts.write_stall, Expired::WriteStall)?;
        }
        // What is thrown away has bounds of its own.
        if self.is_idle() && !self.discarding.load(Ordering::Relaxed) {
            let head = self.head_since.load(Ordering::Relaxed);
            if head == 0 {
                check(self.quiet_since.load(Ordering::Relaxed), timeouts.downstream_idle, Expired::Idle)?;
            } else {
                check(head, timeouts.header_read, Expired::Head)?;
            }
        }
        Ok(next.map(|at| self.born + Duration::from_micros(at)))
    }
}

/// Counts a request on its connection for as long as it lives.
#[derive(Debug)]
pub struct OpenRequest(pub Arc<Downstream>);

impl OpenRequest {
    pub fn new(down: &Arc<Downstream>) -> Self {
        down.request_started();
        Self(Arc::clone(down))
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.request_ended();
    }
}

/// Exists while the rest of a refused request is thrown away.
#[derive(Debug)]
pub struct Discarding(Arc<Downstream>);

impl Discarding {
    pub fn new(down: &Arc<Downstream>) -> Self {
        down.discarding.store(true, Ordering::Relaxed);
        Self(Arc::clone(down))
    }
}

impl Drop for Discarding {
    fn drop(&mut self) {
        clock::refresh();
        self.0.discarding.store(false, Ordering::Relaxed);
        self.0.quiet_since.store(self.0.now(), Ordering::Relaxed);
    }
}
