//! Listening, and HTTP/1.1 over each connection until it ends, is cut, or the engine dies.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::body::{Body, Response};
use super::config::Wire;
use super::core::Core;
use super::front;
use super::log::Entry;
use super::socket::Socket;
use super::stream::Ticket;
use super::tap::{Cut, Tap};
use super::{sglang, vllm};

/// Which port a connection came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Front,
    Side,
}

/// Accepts until the engine dies or, at the front door, stops; the listener is closed then.
pub(super) async fn accept(core: Arc<Core>, listener: TcpListener, door: Door) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = core.dead.cancelled() => return,
            // The side port is open to the end: a request that may still finish needs its other half.
            () = core.stopping.cancelled(), if door == Door::Front => return,
            accepted = listener.accept() => accepted,
        };
        // Out of descriptors, or a connection that was gone before we saw it.
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let _ = stream.set_nodelay(true); // only costs time
        core.tasks.spawn_light(serve(Arc::clone(&core), Box::new(stream), door));
    }
}

/// One connection, to its end.
pub(super) async fn serve(core: Arc<Core>, socket: Box<dyn Socket>, door: Door) {
    match door {
        Door::Front => serve_front(core, socket).await,
        Door::Side => serve_side(core, socket).await,
    }
}

async fn serve_front(core: Arc<Core>, socket: Box<dyn Socket>) {
    let conn = core.log.opened();
    let cut = Cut::default();
    let service = service_fn(|request: Request<Incoming>| {
        let (core, cut) = (Arc::clone(&core), cut.clone());
        async move { Ok::<_, hyper::Error>(named(front_request(core, conn, cut, request).await?)) }
    });
    {
        let tap = TokioIo::new(Tap::new(socket, core.log.clone(), conn, cut.clone()));
        let connection = std::pin::pin!(http1::Builder::new().serve_connection(tap, service));
        tokio::select! {
            biased;
            () = core.dead.cancelled() => {}
            () = cut.now.cancelled() => {}
            _ = connection => {}
        }
    }
    core.log.closed(conn);
}

async fn serve_side(core: Arc<Core>, socket: Box<dyn Socket>) {
    let service = service_fn(|request: Request<Incoming>| {
        let core = Arc::clone(&core);
        async move { Ok::<_, Infallible>(side_request(&core, request).await) }
    });
    let connection = std::pin::pin!(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
    tokio::select! {
        biased;
        () = core.dead.cancelled() => {}
        _ = connection => {}
    }
}

async fn front_request(
    core: Arc<Core>,
    conn: u64,
    cut: Cut,
    request: Request<Incoming>,
) -> Result<Response, hyper::Error> {
    let (parts, body) = request.into_parts();
    let entry = core.log.head(conn, &parts);
    let ticket = Ticket::new(&core, entry.clone(), cut);
    let body = read(body).await?;
    entry.body(&body);
    let response = front::handle(ticket, &parts, &body).await;
    answered(&entry, &response);
    Ok(response)
}

fn answered(entry: &Entry, response: &Response) {
    entry.status(response.status().as_u16());
}

async fn side_request(core: &Arc<Core>, request: Request<Incoming>) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = read(body).await else { return Body::not_found() };
    let path = parts.uri.path();
    match core.config.wire {
        Wire::Sglang => sglang::handle(core, &parts.method, path, parts.uri.query().unwrap_or_default()),
        Wire::Vllm => vllm::handle(core, &parts.method, path, &body).await,
    }
}

async fn read(mut body: Incoming) -> Result<Bytes, hyper::Error> {
    let mut all = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            all.extend_from_slice(&data);
        }
    }
    Ok(all.into())
}

/// The engines' server names itself.
fn named(mut response: Response) -> Response {
    response.headers_mut().insert(header::SERVER, HeaderValue::from_static("uvicorn"));
    response
}
