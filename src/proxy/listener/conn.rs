//! One client connection, from its first byte to its end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::sleep;
use tracing::debug;

use super::accept::Accepted;
use super::downstream::{Downstream, Protocol};
use super::leave::LINGER;
use super::sniff::sniff;
use super::stream::Watched;
use super::supervised::{Graceful, StreamTask, Supervised};
use super::unparsed::Unparsed;
use crate::drain::{Phase, Tracker};
use crate::metrics::Held;
use crate::proxy::context::Worker;
use crate::proxy::pipeline::handle;
use crate::proxy::relay::OutBody;
use crate::types::clock;
use crate::upstream::Io;

/// Bytes hyper may buffer per HTTP/1.1 connection in each direction, unless request heads need more.
const H1_BUFFER: usize = 64 * 1024;
/// Header fields that hyper takes without being told.
const HYPER_HEADERS: usize = 100;
/// HTTP/2 flow-control windows, bytes: prompts are large.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Response bytes hyper may buffer per HTTP/2 stream.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves one connection until it ends. Errors here are about that connection alone.
pub(super) async fn serve(worker: Arc<Worker>, accepted: Accepted) {
    clock::refresh();
    let Accepted { io, peer, place } = accepted;
    let _gauge = Held::one(&worker.shared.metrics.router.connections);
    let _place = (place, Counted(Arc::clone(&worker)));
    if let Io::Tcp(stream) = &io {
        let _ = stream.set_nodelay(true);
    }
    // Accepted on another thread: from here on its readiness is delivered on this one.
    let Ok(mut io) = io.rehome() else { return };
    let down = Downstream::new(peer, Arc::clone(&worker.shared.phases));
    let first = first_bytes(&worker, &mut io).await;
    clock::refresh();
    match first {
        Ok(Some((Protocol::H1, first))) => {
            let unparsed = Unparsed::new(Arc::clone(&worker));
            h1(worker, Watched::new(io, first, Arc::clone(&down), Some(unparsed)), down).await;
        }
        Ok(Some((Protocol::H2, first))) => {
            down.speaks_h2();
            h2(worker, Watched::new(io, first, Arc::clone(&down), None), down).await;
        }
        Ok(None) => debug!(%peer, "closed before a request"),
        Err(error) => debug!(%peer, %error, "failed before a request"),
    }
}

/// Detects the protocol within the header-read limit, and at shutdown within what a silent connection is given.
async fn first_bytes(worker: &Worker, io: &mut Io) -> io::Result<Option<(Protocol, BytesMut)>> {
    let shared = &worker.shared;
    let expired = async {
        let limit = shared.timeouts.header_read.map(sleep);
        let leave = async {
            shared.phases.reached(Phase::Draining).await;
            sleep(LINGER).await;
        };
        match limit {
            Some(limit) => tokio::select! { () = limit => {}, () = leave => {} },
            None => leave.await,
        }
    };
    tokio::select! {
        biased;
        first = sniff(io) => first,
        () = expired => Ok(None),
    }
}

/// Counts the connection in its thread's load; the accept loop counted it in.
struct Counted(Arc<Worker>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.load.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn h1(worker: Arc<Worker>, stream: Watched, down: Arc<Downstream>) {
    let limits = worker.shared.limits.load();
    let timeouts = Arc::clone(&worker.shared.timeouts);
    let mut builder = http1::Builder::new();
    builder
        // A client that closes its sending side has left (docs/request-lifecycle.md): hyper ends the connection.
        .half_close(false)
        // Above our own bound, so that a head between the two gets an answer that says by how much.
        .max_header_size(limits.header_bytes * 2)
        // Also the most that hyper holds of an answer for a client that does not read.
        .max_buf_size(H1_BUFFER.max(limits.header_bytes * 2))
        .pipeline_flush(false);
    // A bound set here, even hyper's own 100, makes hyper clear that many places on the heap for every request.
    if limits.headers > HYPER_HEADERS {
        builder.max_headers(limits.headers);
    }
    let front = Front { worker, down: Arc::clone(&down), protocol: Protocol::H1 };
    let conn = builder.serve_connection(TokioIo::new(stream), front);
    let expired = Box::pin(Supervised::new(H1(conn), Arc::clone(&down), timeouts)).await;
    if let Some(expired) = expired {
        debug!(peer = %down.peer, ?expired, "connection closed by a limit");
    }
}

async fn h2(worker: Arc<Worker>, stream: Watched, down: Arc<Downstream>) {
    let limits = worker.shared.limits.load();
    let timeouts = Arc::clone(&worker.shared.timeouts);
    let spawner = Streams {
        tracker: worker.tracker.clone(),
        down: Arc::clone(&down),
        write_stall: timeouts.write_stall,
    };
    let mut builder = http2::Builder::new(spawner);
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(limits.h2_streams)
        .max_header_list_size(u32::try_from(limits.header_bytes * 2).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BUFFER);
    let front = Front { worker, down: Arc::clone(&down), protocol: Protocol::H2 };
    let conn = builder.serve_connection(TokioIo::new(stream), front);
    let expired = Box::pin(Supervised::new(H2(conn), Arc::clone(&down), timeouts)).await;
    if let Some(expired) = expired {
        debug!(peer = %down.peer, ?expired, "connection closed by a limit");
    }
}

type Answered = Pin<Box<dyn Future<Output = Result<http::Response<OutBody>, Infallible>> + Send>>;

/// hyper's way into the pipeline.
struct Front {
    worker: Arc<Worker>,
    down: Arc<Downstream>,
    protocol: Protocol,
}

impl Service<Request<Incoming>> for Front {
    type Response = http::Response<OutBody>;
    type Error = Infallible;
    // Boxed: inline, every idle connection would carry the whole pipeline's state.
    type Future = Answered;

    fn call(&self, request: Request<Incoming>) -> Answered {
        let (worker, down, protocol) = (Arc::clone(&self.worker), Arc::clone(&self.down), self.protocol);
        Box::pin(async move { Ok(handle(worker, down, protocol, request).await) })
    }
}

/// Runs HTTP/2 streams as tasks of this thread.
#[derive(Clone)]
struct Streams {
    tracker: Tracker,
    down: Arc<Downstream>,
    write_stall: Option<std::time::Duration>,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        let task = StreamTask::new(future, Arc::clone(&self.down), self.write_stall);
        self.tracker.spawn_light(task);
    }
}

struct H1(http1::Connection<TokioIo<Watched>, Front>);
struct H2(http2::Connection<TokioIo<Watched>, Front, Streams>);

impl Future for H1 {
    type Output = hyper::Result<()>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl Graceful for H1 {
    /// HTTP/1.1 has no word for it outside a response.
    const SAYS_GOODBYE: bool = false;

    /// While unready the responses say `Connection: close`; an idle connection is closed only after the listener.
    fn may_finish(down: &Downstream, phase: Phase) -> bool {
        phase >= Phase::Draining && !down.is_idle()
    }

    fn finish(&mut self) {
        Pin::new(&mut self.0).graceful_shutdown();
    }
}

impl Future for H2 {
    type Output = hyper::Result<()>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl Graceful for H2 {
    const SAYS_GOODBYE: bool = true;

    /// GOAWAY is safe at once: streams already on their way are still taken, and new ones go to a new connection. That
    /// one is told only after its first request, or a client that still finds this process would be served nothing.
    fn may_finish(down: &Downstream, phase: Phase) -> bool {
        phase >= Phase::Unready && down.has_served()
    }

    fn finish(&mut self) {
        Pin::new(&mut self.0).graceful_shutdown();
    }
}
