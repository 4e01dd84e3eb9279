//! The pool on real sockets where the kernel's view is the point, in memory elsewhere.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::testkit::memory::MemoryStream;
use crate::upstream::Io;

const IDLE: Duration = Duration::from_secs(4);

/// A connection of thread `home` and its engine's end.
async fn tcp(home: usize) -> (Conn, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    (Conn::new(Io::Tcp(near), home), far)
}

fn memory(home: usize) -> (Conn, MemoryStream) {
    let (near, far) = MemoryStream::pair(64);
    (Conn::new(Io::Boxed(Box::new(near)), home), far)
}

fn local(conn: &Conn) -> SocketAddr {
    match &conn.io {
        Io::Tcp(stream) => stream.local_addr().unwrap(),
        Io::Boxed(_) => panic!("not TCP"),
    }
}

/// What the engine sees within two seconds: `Ok(0)` is a close.
async fn seen(far: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<usize> {
    tokio::time::timeout(Duration::from_secs(2), far.read(&mut [0; 8])).await.unwrap()
}

#[tokio::test]
async fn a_connection_waits_in_the_slot_of_its_thread() {
    let pool = Pool::new(2, IDLE);
    let (conn, _far) = tcp(1).await;
    let address = local(&conn);
    pool.put(conn);
    assert_eq!((pool.slots[0].len(), pool.slots[1].len(), pool.overflow.len(), pool.len()), (0, 1, 0, 1));
    let reused = pool.take(1).unwrap();
    assert_eq!((local(&reused.conn), reused.conn.home), (address, 1));
    assert!(reused.idle < IDLE && pool.is_empty() && pool.take(1).is_none());
}

#[tokio::test]
async fn a_full_slot_overflows_to_all_threads_and_a_full_overflow_closes() {
    let pool = Pool::new(2, IDLE);
    let mut ends: Vec<_> = (0..=SLOT + OVERFLOW)
        .map(|_| {
            let (conn, far) = memory(0);
            pool.put(conn);
            far
        })
        .collect();
    assert_eq!((pool.slots[0].len(), pool.overflow.len(), pool.slots[1].len()), (SLOT, OVERFLOW, 0));
    // The last one is the hottest; it pushed out the one before, for which there was no other room.
    let pushed_out = ends.len() - 2;
    assert_eq!(seen(&mut ends[pushed_out]).await.unwrap(), 0, "the one too many is closed");
    let taken = pool.take(1).unwrap();
    assert_eq!(
        (pool.slots[0].len(), pool.overflow.len()),
        (SLOT, OVERFLOW - 1),
        "overflow before another's slot"
    );
    assert_eq!(taken.conn.home, 1);
    pool.put(taken.conn);
    assert_eq!(pool.slots[1].len(), 1, "it now belongs to the thread that took it");
    let own = pool.take(0).unwrap();
    assert_eq!((pool.slots[0].len(), pool.overflow.len(), own.conn.home), (SLOT - 1, OVERFLOW - 1, 0));
}

#[test]
fn a_stolen_connection_lives_on_the_runtime_that_took_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pool = Pool::new(2, IDLE);
    let first = runtime();
    let (conn, far) = first.block_on(tcp(0));
    pool.put(conn);
    let far = far.into_std().unwrap();
    let second = runtime();
    let mut conn = {
        let _inside = second.enter();
        pool.take(1).expect("stolen from the other thread's slot").conn
    };
    assert_eq!(conn.home, 1);
    // The runtime that made it ends: a connection still driven by it would fail or hang.
    drop(first);
    second.block_on(async {
        let mut far = TcpStream::from_std(far).unwrap();
        let answer = async {
            let mut request = [0; 4];
            far.read_exact(&mut request).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            far.write_all(b"pong").await.unwrap();
        };
        let ask = async {
            conn.io.write_all(b"ping").await.unwrap();
            assert_eq!(tokio::time::timeout(Duration::from_secs(2), conn.fill()).await.unwrap().unwrap(), 4);
        };
        tokio::join!(answer, ask);
    });
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_not_used_after_its_idle_time() {
    let pool = Pool::new(1, IDLE);
    let (conn, mut far) = memory(0);
    pool.put(conn);
    tokio::time::advance(IDLE.saturating_sub(Duration::from_millis(1))).await;
    let reused = pool.take(0).expect("fresh enough");
    assert_eq!(reused.idle, IDLE.saturating_sub(Duration::from_millis(1)));
    pool.put(reused.conn);
    tokio::time::advance(IDLE).await;
    assert!(pool.take(0).is_none() && pool.is_empty());
    assert_eq!(seen(&mut far).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_closes_the_old_and_the_ended_and_keeps_the_rest() {
    let pool = Pool::new(2, IDLE);
    let (old, _far_old) = memory(0);
    pool.put(old);
    let (other, _far_other) = memory(1);
    pool.put(other);
    tokio::time::advance(IDLE).await;
    let (fresh, _far_fresh) = memory(0);
    pool.put(fresh);
    let (ended, far_ended) = memory(0);
    pool.put(ended);
    drop(far_ended);
    pool.sweep(0);
    assert_eq!(
        (pool.slots[0].len(), pool.slots[1].len()),
        (1, 1),
        "another thread's slot is its own business"
    );
    assert!(pool.take(0).is_some(), "the fresh one");
}

#[tokio::test]
async fn what_an_engine_says_or_does_to_an_idle_connection_forbids_its_reuse() {
    for (what, thread) in [("fin", 0), ("fin", 1), ("byte", 0), ("byte", 1), ("rst", 0), ("rst", 1)] {
        let pool = Pool::new(2, IDLE);
        let (conn, mut far) = tcp(0).await;
        pool.put(conn);
        let mut kept = None;
        match what {
            "fin" => drop(far),
            "byte" => {
                far.write_all(b"x").await.unwrap();
                kept = Some(far);
            }
            _ => {
                far.set_zero_linger().unwrap();
                drop(far);
            }
        }
        // Long enough for the kernel to be asked; nothing here polls the connection meanwhile.
        std::thread::sleep(TRUST * 3);
        assert!(pool.take(thread).is_none(), "{what} on thread {thread}");
        drop(kept);
    }
}

#[tokio::test]
async fn a_sweep_sees_a_fin_without_asking_the_kernel() {
    let pool = Pool::new(1, IDLE);
    let (conn, far) = tcp(0).await;
    pool.put(conn);
    drop(far);
    tokio::time::sleep(Duration::from_millis(20)).await;
    pool.sweep(0);
    assert!(pool.is_empty());
}

#[tokio::test]
async fn only_a_clean_connection_is_kept_and_without_a_grown_buffer() {
    let pool = Pool::new(1, IDLE);
    let (mut conn, mut far) = tcp(0).await;
    conn.buffer().extend_from_slice(b"HTTP/1.1 200 OK");
    pool.put(conn);
    assert!(pool.is_empty(), "bytes after a message");
    assert!(matches!(seen(&mut far).await, Ok(0)));
    let (mut conn, _far) = memory(0);
    conn.buffer().reserve(64 * 1024);
    pool.put(conn);
    assert_eq!(pool.take(0).unwrap().conn.buf.capacity(), 0);
    let none = Pool::new(1, Duration::ZERO);
    let (conn, _far) = memory(0);
    none.put(conn);
    assert!(none.is_empty(), "an idle time of 0 keeps none");
}

#[tokio::test]
async fn a_closed_pool_closes_what_it_has_and_what_comes_and_opens_again() {
    let pool = Pool::new(2, IDLE);
    let (waiting, mut far_waiting) = tcp(0).await;
    let (busy, mut far_busy) = tcp(1).await;
    pool.put(waiting);
    pool.close();
    assert_eq!(seen(&mut far_waiting).await.unwrap(), 0);
    pool.put(busy);
    assert!(pool.is_empty());
    assert_eq!(seen(&mut far_busy).await.unwrap(), 0);
    pool.reopen();
    let (conn, _far) = tcp(0).await;
    pool.put(conn);
    assert_eq!(pool.len(), 1);
}

#[tokio::test]
async fn what_came_behind_the_message_is_seen_when_the_connection_comes_back() {
    let pool = Pool::new(1, IDLE);
    let (conn, mut far) = tcp(0).await;
    far.write_all(b"x").await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    pool.put(conn);
    assert!(pool.is_empty());
}

/// Closes the pool when it is asked for the `n`th time whether something can be read: between the check of a put, or the
/// pop of a sweep, and the push behind it.
struct Closes {
    pool: Arc<Pool>,
    n: u32,
}

impl AsyncRead for Closes {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        this.n -= 1;
        if this.n == 0 {
            this.pool.close();
        }
        Poll::Pending
    }
}

impl AsyncWrite for Closes {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_close_in_the_middle_of_a_put_or_a_sweep_leaves_nothing_behind() {
    for n in [1, 2] {
        let pool = Arc::new(Pool::new(1, IDLE));
        let io = Io::Boxed(Box::new(Closes { pool: Arc::clone(&pool), n }));
        pool.put(Conn::new(io, 0));
        assert_eq!(pool.len(), n as usize - 1, "closed during the put, or not yet");
        pool.sweep(0);
        assert!(pool.is_empty() && pool.is_closed());
    }
}

#[test]
fn puts_sweeps_and_takes_against_a_close_on_other_threads_leave_nothing_behind() {
    for round in 0..300 {
        let pool = Pool::new(1, IDLE);
        let conns: Vec<_> = (0..8).map(|_| memory(0)).collect();
        let (conns, _ends): (Vec<_>, Vec<_>) = conns.into_iter().unzip();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..round {
                    std::hint::spin_loop();
                }
                pool.close();
            });
            for conn in conns {
                pool.put(conn);
                pool.sweep(0);
                if let Some(reused) = pool.take(0) {
                    pool.put(reused.conn);
                }
            }
        });
        assert!(pool.is_empty(), "round {round}");
    }
}

/// It may be an old address by now; connections to an address itself are good for as long as they are used.
#[tokio::test(start_paused = true)]
async fn b156_a_connection_to_a_name_is_not_used_again_after_half_a_minute() {
    for (host, lives) in [("engines", false), ("10.0.0.7", true), ("fd00::7", true)] {
        let pool = Pool::of(host, 1, IDLE);
        let (mut conn, mut far) = memory(0);
        for _ in 0..29 {
            pool.put(conn);
            tokio::time::advance(Duration::from_secs(1)).await;
            clock::refresh();
            conn = pool.take(0).unwrap().conn;
        }
        pool.put(conn);
        tokio::time::advance(Duration::from_secs(1)).await;
        clock::refresh();
        let taken = pool.take(0);
        assert_eq!(taken.is_some(), lives, "{host}: taken");
        if let Some(taken) = taken {
            pool.put(taken.conn);
            assert_eq!(pool.len(), 1, "{host}: put back");
        } else {
            assert_eq!(seen(&mut far).await.unwrap(), 0, "closed");
            let (old, mut far) = memory(0);
            tokio::time::advance(OF_A_NAME).await;
            clock::refresh();
            pool.put(old);
            assert_eq!(
                (pool.len(), seen(&mut far).await.unwrap()),
                (0, 0),
                "nor kept when its last message ends"
            );
        }
    }
}
