//! Idle connections of one endpoint.
//!
//! One lock-free slot per traffic thread in front of a shared overflow. A connection normally comes back to the thread
//! it left, where its readiness is delivered; only when that slot is full or empty does it cross threads, which costs
//! two system calls to move it to the other runtime. The connection used last is taken first, so that few stay warm
//! and the others age out. Purely per-thread pools would stop reusing connections at low
//! rates, because engines close theirs after 5 s (uvicorn's keep-alive).
//!
//! The pool belongs to its endpoint and closes with it.

use std::iter;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;

use super::conn::Conn;
use crate::types::clock;

/// Life of a connection to a name. What the name stands for changes, and is looked up by new connections only: without an end
/// the old addresses would keep all of the load, and new ones get none (reqwest#2333).
const OF_A_NAME: Duration = Duration::from_secs(30);
/// Connections a thread keeps for itself.
const SLOT: usize = 32;
/// Connections that may wait for any thread.
const OVERFLOW: usize = 256;
/// Below this idle time the runtime's last readiness is trusted instead of asking the kernel. It is never older than one
/// round of the thread's scheduler, and engines do not close a connection they answered on so recently; above it the
/// question costs at most ten system calls a second and connection.
const TRUST: Duration = Duration::from_millis(100);

/// One traffic thread's own connections.
#[derive(Debug)]
struct Slot {
    /// The one put back last.
    hot: ArrayQueue<Conn>,
    rest: Later<{ SLOT - 1 }>,
}

/// Room that is made when it is used first: of thousands of endpoints most need none at any time.
#[derive(Debug, Default)]
struct Later<const N: usize>(OnceLock<ArrayQueue<Conn>>);

impl<const N: usize> Later<N> {
    fn push(&self, conn: Conn) -> Result<(), Conn> {
        self.0.get_or_init(|| ArrayQueue::new(N)).push(conn)
    }

    fn pop(&self) -> Option<Conn> {
        self.0.get()?.pop()
    }

    fn len(&self) -> usize {
        self.0.get().map_or(0, ArrayQueue::len)
    }
}

impl Slot {
    fn new() -> Self {
        Self { hot: ArrayQueue::new(1), rest: Later::default() }
    }

    fn pop(&self) -> Option<Conn> {
        self.hot.pop().or_else(|| self.rest.pop())
    }

    /// Gives back the one there is no room for.
    fn push(&self, conn: Conn) -> Result<(), Conn> {
        match self.hot.force_push(conn) {
            Some(older) => self.rest.push(older),
            None => Ok(()),
        }
    }

    fn len(&self) -> usize {
        self.hot.len() + self.rest.len()
    }

    fn queues(&self) -> impl Iterator<Item = &ArrayQueue<Conn>> {
        iter::once(&self.hot).chain(self.rest.0.get())
    }
}

/// A connection taken from the pool, and for how long it had waited there.
#[derive(Debug)]
pub struct Reused {
    pub conn: Conn,
    pub idle: Duration,
}

#[derive(Debug)]
pub struct Pool {
    slots: Box<[Slot]>,
    overflow: Later<OVERFLOW>,
    idle: Duration,
    /// One that is older is not used again.
    life: Duration,
    closed: AtomicBool,
}

impl Pool {
    /// A pool for `threads` traffic threads whose connections wait at most `idle`.
    pub fn new(threads: usize, idle: Duration) -> Self {
        let slots = (0..threads.max(1)).map(|_| Slot::new()).collect();
        let overflow = Later::default();
        Self { slots, overflow, idle, life: Duration::MAX, closed: AtomicBool::new(false) }
    }

    /// The same for the engine at `host`: connections to a name, and not to an address, live for half a minute at most.
    #[must_use]
    pub fn of(host: &str, threads: usize, idle: Duration) -> Self {
        let life = if host.parse::<IpAddr>().is_ok() { Duration::MAX } else { OF_A_NAME };
        Self { life, ..Self::new(threads, idle) }
    }

    /// Most connections that wait in a pool of so many threads.
    pub const fn capacity(threads: usize) -> usize {
        threads * SLOT + OVERFLOW
    }

    /// A connection on which a request can be sent now, driven by the runtime of `thread` (the calling one).
    pub fn take(&self, thread: usize) -> Option<Reused> {
        let own = self.slots.get(thread);
        while let Some(conn) = own.and_then(Slot::pop).or_else(|| self.foreign(thread)) {
            if let Some(reused) = self.revive(conn, thread) {
                return Some(reused);
            }
        }
        None
    }

    fn foreign(&self, thread: usize) -> Option<Conn> {
        self.overflow.pop().or_else(|| {
            self.slots.iter().enumerate().filter(|(i, _)| *i != thread).find_map(|(_, s)| s.pop())
        })
    }

    fn revive(&self, mut conn: Conn, thread: usize) -> Option<Reused> {
        let idle = clock::recent().saturating_duration_since(conn.idle_since?);
        if idle >= self.idle || self.is_old(&conn) {
            return None;
        }
        let moved = conn.home as usize != thread;
        if !conn.buf.is_empty() || !conn.io.quiet(moved || idle >= TRUST) {
            return None;
        }
        if moved {
            conn = conn.rehome(thread).ok()?;
        }
        Some(Reused { conn, idle })
    }

    /// Puts a connection back at the clean end of a message. Closes it where there is no room or no endpoint any more.
    pub fn put(&self, mut conn: Conn) {
        // What has arrived behind the message, bytes or a FIN, is often known already, without asking the kernel.
        let keeps = !self.is_closed() && !self.idle.is_zero() && !self.is_old(&conn);
        if !keeps || !conn.buf.is_empty() || !conn.io.quiet(false) {
            return;
        }
        conn.rest();
        if let Some(slot) = self.slots.get(conn.home as usize)
            && let Err(conn) = slot.push(conn)
        {
            let _ = self.overflow.push(conn);
        }
        self.close_again();
    }

    /// Closes what has waited too long. Called about once a second by each thread for its own slot.
    pub fn sweep(&self, thread: usize) {
        for queue in self.slots.get(thread).into_iter().flat_map(Slot::queues).chain(self.overflow.0.get()) {
            for _ in 0..queue.len() {
                let Some(mut conn) = queue.pop() else { break };
                let fresh =
                    conn.idle_since.is_some_and(|t| clock::now().saturating_duration_since(t) < self.idle);
                if fresh && conn.io.quiet(false) {
                    let _ = queue.push(conn);
                }
            }
        }
        self.close_again();
    }

    /// The endpoint left: closes every idle connection and keeps none from now on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // With the fence of `close_again`: a push either is seen by this drain or sees the pool closed.
        fence(Ordering::SeqCst);
        self.drain();
    }

    /// The endpoint came back: connections are kept again.
    pub fn reopen(&self) {
        self.closed.store(false, Ordering::Release);
    }

    pub fn len(&self) -> usize {
        self.overflow.len() + self.slots.iter().map(Slot::len).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_old(&self, conn: &Conn) -> bool {
        self.life != Duration::MAX
            && u128::from(clock::ms(clock::recent()).saturating_sub(conn.born)) >= self.life.as_millis()
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// After a push: the pool may have been closed, and emptied, since it was checked.
    fn close_again(&self) {
        fence(Ordering::SeqCst);
        if self.is_closed() {
            self.drain();
        }
    }

    fn drain(&self) {
        for queue in self.queues() {
            while queue.pop().is_some() {}
        }
    }

    fn queues(&self) -> impl Iterator<Item = &ArrayQueue<Conn>> {
        self.slots.iter().flat_map(Slot::queues).chain(self.overflow.0.get())
    }
}

#[cfg(test)]
#[path = "tests/pool.rs"]
mod tests;
