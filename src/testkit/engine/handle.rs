//! Running engines: on loopback TCP or under a name of a [`MemoryNet`].

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::conn::{Conn, Exit};
use super::gate::{Gate, Gated};
use super::log::Log;
use super::script::{Script, ScriptCell};
use crate::testkit::memory::{DialFault, MemoryListener, MemoryNet, MemoryStream};
use crate::testkit::task::spawn;
use crate::testkit::wire::Wire;

const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts engines.
#[derive(Debug)]
pub struct Engine;

impl Engine {
    /// Listens on a free port of 127.0.0.1.
    pub async fn start_tcp(script: Script) -> EngineHandle {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = Place::Tcp(listener.local_addr().unwrap());
        let mut handle = EngineHandle::new(place, script);
        handle.accept_tcp(listener);
        handle
    }

    /// Listens on a name of an in-memory network.
    pub fn in_memory(net: &MemoryNet, name: &str, script: Script) -> EngineHandle {
        let place = Place::Memory(net.clone(), name.to_owned());
        let mut handle = EngineHandle::new(place, script);
        handle.accept_memory(net.listen(name));
        handle
    }

    /// An address on which connecting never completes.
    pub async fn black_hole() -> BlackHole {
        BlackHole::start().await
    }
}

#[derive(Debug)]
enum Place {
    Tcp(SocketAddr),
    Memory(MemoryNet, String),
}

#[derive(Debug)]
struct Acceptor {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// What the acceptor hands to each connection.
#[derive(Debug, Clone)]
struct Shared {
    cell: ScriptCell,
    log: Log,
    gate: Gate,
    kick: watch::Receiver<Exit>,
}

/// A running engine; dropping it ends it and its connections.
#[derive(Debug)]
pub struct EngineHandle {
    pub log: Log,
    place: Place,
    shared: Shared,
    kick: watch::Sender<Exit>,
    acceptor: Option<Acceptor>,
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        if let Some(acceptor) = &self.acceptor {
            acceptor.stop.cancel();
        }
    }
}

impl EngineHandle {
    fn new(place: Place, script: Script) -> Self {
        let (kick, kicked) = watch::channel(Exit::Close);
        let (log, cell) = (Log::new(), ScriptCell::new(script));
        let shared = Shared { cell, log: log.clone(), gate: Gate::default(), kick: kicked };
        Self { log, place, shared, kick, acceptor: None }
    }

    /// The TCP address; panics for an in-memory engine.
    pub fn addr(&self) -> SocketAddr {
        match &self.place {
            Place::Tcp(addr) => *addr,
            Place::Memory(_, name) => panic!("{name} is in memory"),
        }
    }

    /// `http://` and the address or the name.
    pub fn url(&self) -> String {
        match &self.place {
            Place::Tcp(addr) => format!("http://{addr}"),
            Place::Memory(_, name) => format!("http://{name}"),
        }
    }

    /// Connects to an in-memory engine; panics for a TCP one.
    pub async fn dial(&self) -> io::Result<MemoryStream> {
        match &self.place {
            Place::Memory(net, name) => net.dial(name).await,
            Place::Tcp(addr) => panic!("{addr} is not in memory"),
        }
    }

    /// Replaces the script, from the next request on.
    pub fn set_script(&self, script: Script) {
        self.shared.cell.set(script);
    }

    /// Closes every open connection.
    pub fn close_connections(&self) {
        self.kick.send_replace(Exit::Close);
    }

    /// Resets every open connection.
    pub fn reset_connections(&self) {
        self.kick.send_replace(Exit::Reset);
    }

    /// Closes the listener: later connections are refused, open ones live on.
    pub async fn refuse(&mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.stop.cancel();
            acceptor.task.await.unwrap();
        }
    }

    /// Undoes [`Self::refuse`] on the same address.
    pub async fn accept_again(&mut self) {
        self.refuse().await;
        match &self.place {
            Place::Tcp(addr) => {
                let listener = TcpListener::bind(*addr).await.unwrap();
                self.accept_tcp(listener);
            }
            Place::Memory(net, name) => {
                let listener = net.listen(name);
                self.accept_memory(listener);
            }
        }
    }

    /// Falls off the network (or returns): open connections freeze, new ones get no answer. On TCP the kernel
    /// still completes the connect; [`Engine::black_hole`] is for one that does not.
    pub fn blackhole(&self, on: bool) {
        self.shared.gate.freeze(on);
        if let Place::Memory(net, name) = &self.place {
            net.set_fault(name, if on { DialFault::BlackHole } else { DialFault::None });
        }
    }

    /// Closes the listener and every connection.
    pub async fn stop(&mut self) {
        self.refuse().await;
        self.close_connections();
        self.log.wait_all_closed(STOP_TIMEOUT).await;
    }

    fn accept_tcp(&mut self, listener: TcpListener) {
        let (stop, shared) = (CancellationToken::new(), self.shared.clone());
        let stopped = stop.clone().cancelled_owned();
        let task = spawn(async move {
            tokio::pin!(stopped);
            loop {
                let (stream, _) = tokio::select! {
                    () = &mut stopped => return,
                    accepted = listener.accept() => accepted.unwrap(),
                };
                stream.set_nodelay(true).unwrap();
                shared.serve(stream);
            }
        });
        self.acceptor = Some(Acceptor { stop, task });
    }

    fn accept_memory(&mut self, mut listener: MemoryListener) {
        let (stop, shared) = (CancellationToken::new(), self.shared.clone());
        let stopped = stop.clone().cancelled_owned();
        let task = spawn(async move {
            tokio::pin!(stopped);
            loop {
                let accepted = tokio::select! {
                    () = &mut stopped => return,
                    accepted = listener.accept() => accepted,
                };
                // An error means that the name was taken over.
                let Ok(stream) = accepted else { return };
                shared.serve(stream);
            }
        });
        self.acceptor = Some(Acceptor { stop, task });
    }
}

impl Shared {
    fn serve<IO: Wire>(&self, io: IO) {
        let io = Gated { io, gate: self.gate.clone() };
        let mut conn = Conn::new(io, self.cell.clone(), self.log.clone());
        let mut kick = self.kick.clone();
        kick.mark_unchanged();
        spawn(async move {
            let exit = tokio::select! {
                exit = conn.serve() => exit,
                // An error: the handle is gone.
                kicked = kick.changed() => kicked.map_or(Exit::Close, |()| *kick.borrow()),
            };
            conn.finish(exit).await;
        });
    }
}

/// A listener whose queue is full: the kernel drops further connection requests.
#[derive(Debug)]
pub struct BlackHole {
    pub addr: SocketAddr,
    _listener: socket2::Socket,
    _queued: Vec<TcpStream>,
}

impl BlackHole {
    async fn start() -> Self {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let addr = listener.local_addr().unwrap().as_socket().unwrap();
        let mut queued = Vec::new();
        while queued.len() < 16 {
            let dial = TcpStream::connect(addr);
            match tokio::time::timeout(Duration::from_millis(200), dial).await {
                Ok(stream) => queued.push(stream.unwrap()),
                Err(_) => return Self { addr, _listener: listener, _queued: queued },
            }
        }
        panic!("the kernel goes on accepting connections beyond the backlog");
    }
}
