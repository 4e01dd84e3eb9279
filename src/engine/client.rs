//! How one engine asks another's side port.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::body::Body;
use super::core::Core;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("connection: {0}")]
    Io(#[from] std::io::Error),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("request: {0}")]
    Request(#[from] http::Error),
    #[error("status {0}")]
    Status(u16),
}

/// Body of a 200.
pub(super) async fn get(core: &Arc<Core>, host: &str, port: u16, path: &str) -> Result<Bytes, Error> {
    whole(send(core, host, port, Method::GET, path, Bytes::new()).await?).await
}

/// Body of a 200.
pub(super) async fn post(
    core: &Arc<Core>,
    host: &str,
    port: u16,
    path: &str,
    body: Vec<u8>,
) -> Result<Bytes, Error> {
    whole(send(core, host, port, Method::POST, path, body.into()).await?).await
}

/// The lines of a 200 that goes on.
pub(super) async fn post_lines(core: &Arc<Core>, host: &str, port: u16, path: &str) -> Result<Lines, Error> {
    let body = send(core, host, port, Method::POST, path, Bytes::new()).await?;
    Ok(Lines { body, pending: Vec::new() })
}

async fn send(
    core: &Arc<Core>,
    host: &str,
    port: u16,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<Incoming, Error> {
    let socket = core.dialer.dial(host, port).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    let dead = core.dead.clone();
    core.tasks.spawn_light(async move {
        tokio::select! {
            () = dead.cancelled() => {}
            _ = connection => {}
        }
    });
    let request = Request::builder().method(method).uri(path).header("host", format!("{host}:{port}"));
    let answer = sender.send_request(request.body(Body::full(body))?).await?;
    match answer.status() {
        StatusCode::OK => Ok(answer.into_body()),
        status => Err(Error::Status(status.as_u16())),
    }
}

async fn whole(body: Incoming) -> Result<Bytes, Error> {
    Ok(body.collect().await?.to_bytes())
}

/// An answer read by the line.
#[derive(Debug)]
pub(super) struct Lines {
    body: Incoming,
    pending: Vec<u8>,
}

impl Lines {
    /// The next line without its end; `None` when the other side ended or is gone.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.pending) {
                let rest = self.pending.split_off(at + 1);
                let line = std::mem::replace(&mut self.pending, rest);
                return Some(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            let frame = self.body.frame().await?.ok()?;
            self.pending.extend_from_slice(frame.data_ref()?);
        }
    }
}
