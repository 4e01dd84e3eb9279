//! The accept loop: one queue for all traffic threads.
//!
//! One listener per thread (`SO_REUSEPORT`) would pin a gateway's few HTTP/2 connections to a few threads, and reset
//! connections still queued when a listener closes.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tracing::warn;

use super::worker::Lane;
use crate::drain::{Phase, Phases};
use crate::metrics::RouterMetrics;
use crate::upstream::Io;

/// Pause after an accept error that is not about one connection: out of descriptors, out of memory.
const BACKOFF: Duration = Duration::from_millis(50);

/// A wait for the next connection.
pub type AcceptFuture<'a> = Pin<Box<dyn Future<Output = io::Result<(Io, SocketAddr)>> + Send + 'a>>;

/// Where connections come from; the seam for in-memory tests.
pub trait Accept: Send + fmt::Debug {
    fn accept(&mut self) -> AcceptFuture<'_>;

    /// The next connection among those that are established and wait; `None` when there is none. Never waits.
    fn queued(&mut self) -> Option<io::Result<(Io, SocketAddr)>>;
}

impl Accept for TcpListener {
    fn accept(&mut self) -> AcceptFuture<'_> {
        Box::pin(async move {
            let (stream, peer) = TcpListener::accept(self).await?;
            Ok((Io::Tcp(stream), peer))
        })
    }

    /// Asks the kernel: the runtime may not yet know of a connection that is there.
    fn queued(&mut self) -> Option<io::Result<(Io, SocketAddr)>> {
        let (socket, peer) = match SockRef::from(&*self).accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) => return Some(Err(error)),
            Ok(accepted) => accepted,
        };
        let stream = socket.set_nonblocking(true).and_then(|()| TcpStream::from_std(socket.into()));
        let peer = peer.as_socket().ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted));
        Some(stream.and_then(|stream| Ok((Io::Tcp(stream), peer?))))
    }
}

/// An accepted connection on its way to a thread.
#[derive(Debug)]
pub struct Accepted {
    pub io: Io,
    pub peer: SocketAddr,
    /// Its place among `limits.connections`.
    pub place: OwnedSemaphorePermit,
}

/// Accepts until the process drains, and then what has been established by that time. At the connection limit it stops accepting, so that clients wait in the kernel's
/// queue instead of being cut off.
pub async fn accept_loop(
    mut listener: Box<dyn Accept>,
    lanes: Vec<Lane>,
    places: Arc<Semaphore>,
    metrics: RouterMetrics,
    phases: Arc<Phases>,
) {
    let mut draining = std::pin::pin!(phases.reached(Phase::Draining));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            let (io, peer) = listener.accept().await?;
            Ok::<_, io::Error>(Accepted { io, peer, place })
        };
        let accepted = tokio::select! {
            biased;
            () = &mut draining => break,
            accepted = next => accepted,
        };
        match accepted {
            Ok(accepted) => {
                metrics.connections_accepted.inc();
                hand_over(&lanes, accepted).await;
            }
            Err(error) if is_about_one_connection(&error) => metrics.accept_errors.inc(),
            Err(error) => {
                metrics.accept_errors.inc();
                warn!(%error, "accept failed; trying again shortly");
                sleep(BACKOFF).await;
            }
        }
    }
    close(listener, &lanes, &places, &metrics).await;
}

/// Takes what the kernel has accepted for us, which closing the listener would reset, and closes it.
async fn close(
    mut listener: Box<dyn Accept>,
    lanes: &[Lane],
    places: &Arc<Semaphore>,
    metrics: &RouterMetrics,
) {
    while let Ok(place) = Arc::clone(places).try_acquire_owned() {
        // Nothing between the last look and the close: a connection that is established in between is lost.
        let Some(accepted) = listener.queued() else {
            drop(listener);
            return;
        };
        match accepted {
            Ok((io, peer)) => {
                metrics.connections_accepted.inc();
                hand_over(lanes, Accepted { io, peer, place }).await;
            }
            Err(error) if is_about_one_connection(&error) => metrics.accept_errors.inc(),
            Err(error) => {
                metrics.accept_errors.inc();
                warn!(%error, "accept failed while the listener was being closed");
                return;
            }
        }
    }
}

/// To the thread with the fewest open streams, then the fewest connections; to one that does not pick up its
/// connections only when all are such, and never to one that has ended.
async fn hand_over(lanes: &[Lane], accepted: Accepted) {
    let open = lanes.iter().filter(|lane| lane.is_open());
    let Some(lane) = open.min_by_key(|lane| (lane.is_full(), lane.load())) else { return };
    lane.send(accepted).await;
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::ConnectionAborted | K::ConnectionReset | K::ConnectionRefused | K::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::super::worker::lane;
    use super::*;

    #[tokio::test]
    async fn a_connection_never_goes_to_a_thread_that_has_ended() {
        let (ended, receiver, _) = lane();
        drop(receiver);
        let (busy, mut receiver, load) = lane();
        load.streams.store(7, std::sync::atomic::Ordering::Relaxed);
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let io = Io::Boxed(Box::new(tokio::io::duplex(1).0));
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        hand_over(&[ended, busy], Accepted { io, peer, place }).await;
        assert!(receiver.try_recv().is_ok());
    }
}
