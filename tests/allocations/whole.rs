//! Requests over a client's connection: bytes in, bytes out, everything of the router but the sockets.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use tandem::app::{Router, build};
use tandem::config::LogSink;
use tandem::proxy::listener::{Accept, AcceptFuture, accept_loop, run_worker};
use tandem::upstream::Io;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::bench::Bench;
use crate::chat::Case;
use crate::inputs;

/// Turns of the event loop without a byte after which an answer is over: no timer runs meanwhile.
const QUIET: usize = 64;

/// The client: what it has still to send, and how much came back.
#[derive(Debug, Default)]
struct Client {
    to_send: Bytes,
    got: usize,
    reader: Option<Waker>,
}

/// The router's end of the client's connection.
#[derive(Debug)]
struct Connection(Arc<Mutex<Client>>);

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut client = self.0.lock();
        if client.to_send.is_empty() {
            client.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let size = client.to_send.len().min(buf.remaining());
        buf.put_slice(&client.to_send.split_to(size));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().got += buf.len();
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let size = bufs.iter().map(|buf| buf.len()).sum();
        self.0.lock().got += size;
        Poll::Ready(Ok(size))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A listener with so many connections, and no more.
#[derive(Debug)]
struct Door(VecDeque<Connection>);

impl Accept for Door {
    fn accept(&mut self) -> AcceptFuture<'_> {
        let next = self.0.pop_front();
        Box::pin(async {
            match next {
                Some(connection) => Ok((Io::Boxed(Box::new(connection)), (Ipv4Addr::LOCALHOST, 1).into())),
                None => std::future::pending().await,
            }
        })
    }

    fn queued(&mut self) -> Option<io::Result<(Io, SocketAddr)>> {
        None
    }
}

pub(crate) fn whole(bench: &mut Bench, case: Case) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let client = Arc::new(Mutex::new(Client::default()));
    let door = Door([Connection(Arc::clone(&client))].into());
    let Case { name, mut config, engines, body, .. } = case;
    config.access_log.sink = LogSink::Off;
    config.threads = Some(1);
    let inside = runtime.enter();
    let Router { shared, workers, lanes, places, .. } = build(config, Arc::new(engines)).unwrap();
    let (metrics, phases) = (shared.metrics.router.clone(), Arc::clone(&shared.phases));
    let accepting = runtime.spawn(accept_loop(Box::new(door), lanes, places, metrics, phases));
    let working: Vec<_> =
        workers.into_iter().map(|(worker, lane)| runtime.spawn(run_worker(worker, lane))).collect();
    drop(inside);
    let request = raw(&body);
    // Room for all of them: what it takes is not the router's.
    let mut answers = Vec::with_capacity(64);
    bench.with(
        &name.replace("chat/", "whole/"),
        4,
        || request.clone(),
        |request| {
            answers.push(runtime.block_on(ask(&client, request)));
        },
    );
    assert!(answers.iter().all(|length| *length > 400 && *length == answers[0]), "{answers:?}");
    assert!(!accepting.is_finished() && working.iter().all(|worker| !worker.is_finished()));
}

/// Bytes of the answer, once it is over.
async fn ask(client: &Mutex<Client>, request: Bytes) -> usize {
    let before = {
        let mut client = client.lock();
        client.to_send = request;
        if let Some(reader) = client.reader.take() {
            reader.wake();
        }
        client.got
    };
    let (mut seen, mut quiet) = (before, 0);
    while quiet < QUIET {
        tokio::task::yield_now().await;
        let got = client.lock().got;
        quiet = if got == seen { quiet + 1 } else { 0 };
        seen = got;
    }
    seen - before
}

/// The bench's request as bytes.
fn raw(body: &Bytes) -> Bytes {
    let parts = inputs::parts(body.len());
    let mut text = format!("{} {} HTTP/1.1\r\n", parts.method, parts.uri).into_bytes();
    for (name, value) in &parts.headers {
        text.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(body);
    text.into()
}
