//! The way in over HTTP/1.1 on loopback.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::front::Entry;
use super::reply::Reply;
use crate::testkit::engine::gate::{Gate, Gated};
use crate::testkit::task::spawn;

/// Who a kubeconfig's user is.
#[derive(Debug, Clone, Copy)]
pub enum Credentials<'a> {
    Nobody,
    /// The token itself.
    Token(&'a str),
    /// The file `token` beside the kubeconfig, with this in it; [`write_token`] rotates it.
    TokenFile(&'a str),
}

#[derive(Debug)]
struct Running {
    /// Ends the listener, then the connections.
    accepting: CancellationToken,
    serving: CancellationToken,
    acceptor: JoinHandle<()>,
}

/// A server on a port of its own; dropping it closes the listener and every connection.
#[derive(Debug)]
pub struct FakeServer {
    addr: SocketAddr,
    entry: Entry,
    gate: Gate,
    running: Option<Running>,
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.accepting.cancel();
            running.serving.cancel();
        }
    }
}

impl FakeServer {
    pub(super) async fn start(entry: Entry) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut server =
            Self { addr: listener.local_addr().unwrap(), entry, gate: Gate::default(), running: None };
        server.run(listener);
        server
    }

    /// Where it listens, also after a restart.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://` and the address.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Writes a kubeconfig into a folder; its only context is this server and the namespace `default`.
    pub fn kubeconfig(&self, dir: &Path, who: Credentials<'_>) -> PathBuf {
        let user = match who {
            Credentials::Nobody => "{}".to_owned(),
            Credentials::Token(token) => format!("{{ token: {token:?} }}"),
            Credentials::TokenFile(token) => {
                format!("{{ tokenFile: {:?} }}", write_token(dir, token).display().to_string())
            }
        };
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: fake\n\
             clusters:\n- name: fake\n  cluster: {{ server: {:?} }}\n\
             users:\n- name: fake\n  user: {user}\n\
             contexts:\n- name: fake\n  context: {{ cluster: fake, user: fake, namespace: default }}\n",
            self.url()
        );
        let path = dir.join("kubeconfig");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Closes the listener and every connection, at once.
    pub async fn stop(&mut self) {
        self.shut_down(Duration::ZERO).await;
    }

    /// As a real server leaves: no new connections at once, open watches cut after the drain (a real one takes about
    /// ten seconds).
    pub async fn shut_down(&mut self, drain: Duration) {
        if let Some(running) = self.running.take() {
            running.accepting.cancel();
            running.acceptor.await.unwrap();
            tokio::time::sleep(drain).await;
            running.serving.cancel();
        }
    }

    /// Listens again on the same port, after a [`Self::stop`] if there was none.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.run(TcpListener::bind(self.addr).await.unwrap());
    }

    /// Falls off the network, or returns: nothing is read from and written to any connection, new ones included, and
    /// nothing is closed. The kernel still completes connects.
    pub fn black_hole(&self, on: bool) {
        self.gate.freeze(on);
    }

    fn run(&mut self, listener: TcpListener) {
        let (accepting, serving) = (CancellationToken::new(), CancellationToken::new());
        let (entry, gate, stop, serve) =
            (self.entry.clone(), self.gate.clone(), accepting.clone(), serving.clone());
        let acceptor = spawn(async move {
            loop {
                let (stream, _) = tokio::select! {
                    () = stop.cancelled() => return,
                    accepted = listener.accept() => accepted.unwrap(),
                };
                stream.set_nodelay(true).unwrap();
                let (conn, over) =
                    (connection(entry.clone(), gate.clone(), stream), serve.clone().cancelled_owned());
                spawn(async move {
                    tokio::select! {
                        () = over => {}
                        () = conn => {}
                    }
                });
            }
        });
        self.running = Some(Running { accepting, serving, acceptor });
    }
}

async fn connection(entry: Entry, gate: Gate, stream: TcpStream) {
    let io = TokioIo::new(Gated { io: stream, gate });
    let service = service_fn(move |request| respond(entry.clone(), request));
    // A client that leaves, and a body that breaks on purpose, end the connection with an error.
    let _ = http1::Builder::new().serve_connection(io, service).await;
}

async fn respond(entry: Entry, request: Request<Incoming>) -> io::Result<Response<Reply>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    entry.answer(Request::from_parts(head, body)).await
}

/// Puts a token into the file `token` of a folder, in one step as a kubelet does.
pub fn write_token(dir: &Path, token: &str) -> PathBuf {
    let (path, new) = (dir.join("token"), dir.join("token.new"));
    std::fs::write(&new, token).unwrap();
    std::fs::rename(new, &path).unwrap();
    path
}
