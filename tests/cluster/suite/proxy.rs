//! The network between router and API server: bytes pass, until they do not.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tandem::testkit::task::spawn;
use tandem::types::clock::{Instant, now};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passes,
    /// Half-open: nothing is forwarded any more, no end either, and nothing tells.
    Swallowed,
    Cut,
}

/// A way to one server, on a port of 127.0.0.1.
pub struct Proxy {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    /// Its port while it is shut: bound and not listening, which refuses.
    bound: Mutex<Option<TcpSocket>>,
    /// Dropping it ends the listener.
    accepting: Mutex<Option<watch::Sender<()>>>,
}

struct Shared {
    target: String,
    conns: Mutex<BTreeMap<u64, Conn>>,
    /// Of connections to come.
    fate: Mutex<Fate>,
}

struct Conn {
    fate: watch::Sender<Fate>,
    /// When something came from the server last.
    heard: Option<Instant>,
}

impl Proxy {
    /// To `host:port`, open.
    pub fn to(target: &str) -> Self {
        let bound = bind(SocketAddr::from(([127, 0, 0, 1], 0)));
        let addr = bound.local_addr().unwrap();
        let (conns, fate) = (Mutex::default(), Mutex::new(Fate::Passes));
        let shared = Arc::new(Shared { target: target.to_owned(), conns, fate });
        let proxy = Self { addr, shared, bound: Mutex::new(Some(bound)), accepting: Mutex::new(None) };
        proxy.open();
        proxy
    }

    /// Listens again, and new connections pass.
    pub fn open(&self) {
        *self.shared.fate.lock() = Fate::Passes;
        let Some(bound) = self.bound.lock().take() else { return };
        let listener = bound.listen(1024).unwrap();
        let (accepting, stop) = watch::channel(());
        *self.accepting.lock() = Some(accepting);
        spawn(accept(listener, Arc::clone(&self.shared), stop));
    }

    /// Refuses connections and cuts those that are open: no server there.
    pub async fn shut(&self) {
        let accepting = self.accepting.lock().take();
        if let Some(accepting) = accepting {
            accepting.send_replace(());
            // The port is free once the listener is gone, and ours again at once.
            accepting.closed().await;
            *self.bound.lock() = Some(bind(self.addr));
        }
        self.cut();
    }

    /// Ends every connection; new ones pass as before.
    pub fn cut(&self) {
        self.each(Fate::Cut, |_| true);
    }

    /// Every open connection is half-open from now on; new ones pass.
    pub fn swallow_open(&self) {
        self.each(Fate::Swallowed, |_| true);
    }

    /// Those on which the server said something since then are half-open from now on. How many.
    pub fn swallow_heard_since(&self, since: Instant) -> usize {
        self.each(Fate::Swallowed, |conn| conn.heard.is_some_and(|at| at >= since))
    }

    /// As if the network were gone: connections open and to come are half-open, until [`Self::open`].
    pub fn swallow_all(&self) {
        *self.shared.fate.lock() = Fate::Swallowed;
        self.swallow_open();
    }

    fn each(&self, fate: Fate, which: impl Fn(&Conn) -> bool) -> usize {
        let conns = self.shared.conns.lock();
        let chosen: Vec<&Conn> = conns.values().filter(|conn| which(conn)).collect();
        for conn in &chosen {
            conn.fate.send_replace(fate);
        }
        chosen.len()
    }
}

fn bind(at: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(at).unwrap();
    socket
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<()>) {
    let mut number = 0;
    loop {
        let stream = tokio::select! {
            _ = stop.changed() => break,
            accepted = listener.accept() => accepted.unwrap().0,
        };
        number += 1;
        spawn(carry(stream, Arc::clone(&shared), number));
    }
    // Before `stop`, by whose end others know that the port is free.
    drop(listener);
}

async fn carry(client: TcpStream, shared: Arc<Shared>, number: u64) {
    let (sender, mut fate) = watch::channel(*shared.fate.lock());
    shared.conns.lock().insert(number, Conn { fate: sender, heard: None });
    let fates = (fate.clone(), fate.clone());
    let both = async {
        let Ok(server) = TcpStream::connect(&shared.target).await else { return };
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        let heard = || {
            if let Some(conn) = shared.conns.lock().get_mut(&number) {
                conn.heard = Some(now());
            }
        };
        tokio::join!(
            pump(from_client, to_server, fates.0, || ()),
            pump(from_server, to_client, fates.1, heard)
        );
    };
    tokio::select! {
        _ = fate.wait_for(|fate| *fate == Fate::Cut) => {}
        () = both => {}
    }
    shared.conns.lock().remove(&number);
}

/// One direction, to its end.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut fate: watch::Receiver<Fate>,
    heard: impl Fn(),
) {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let n = from.read(&mut piece).await.unwrap_or(0);
        // What was swallowed never passes again.
        if fate.wait_for(|fate| *fate != Fate::Swallowed).await.is_err() || n == 0 {
            let _ = to.shutdown().await;
            return;
        }
        heard();
        if to.write_all(&piece[..n]).await.is_err() {
            return;
        }
    }
}
