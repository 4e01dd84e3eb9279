//! Ways in: in memory, as the service below a `kube::Client`; over TCP in [`super::server`].

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use kube::client::Body;
use tower_service::Service;

use super::answer::answer;
use super::handle::FakeKube;
use super::reply::Reply;
use super::server::FakeServer;
use super::state::Shared;

/// Where InferenceServices are.
const OBJECTS: &str = "/apis/ome.io/v1beta1/namespaces/";

/// Who takes a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Replica(usize),
    InTurn,
}

/// A way in: one replica, or all in turn; with a token or without. It is a `tower` service of its own, which answers
/// on tokio's clock and opens no socket.
#[derive(Debug, Clone)]
pub struct Entry {
    pub(super) shared: Arc<Shared>,
    target: Target,
    token: Option<HeaderValue>,
}

impl Entry {
    pub(super) fn new(fake: &FakeKube, target: Target) -> Self {
        Self { shared: Arc::clone(&fake.shared), target, token: None }
    }

    /// Requests in memory carry this bearer token.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(HeaderValue::try_from(format!("Bearer {token}")).unwrap());
        self
    }

    /// The same way in over HTTP, on a free port of 127.0.0.1; what tokens requests carry is up to the client.
    pub async fn serve(&self) -> FakeServer {
        FakeServer::start(Self { token: None, ..self.clone() }).await
    }

    /// A client of the namespace `default`. Needs a runtime.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Answers one request.
    pub async fn answer(&self, mut request: Request<Bytes>) -> io::Result<Response<Reply>> {
        if let Some(token) = &self.token {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        let replica = self.replica();
        let path = request.uri().path();
        let own = path.strip_prefix(OBJECTS).and_then(|rest| rest.split_once('/')).map(|(ns, rest)| {
            let rest = rest.strip_prefix("inferenceservices").unwrap_or("unknown");
            format!("/api/v1/namespaces/{ns}/pods{rest}?{}", request.uri().query().unwrap_or_default())
        });
        match (own, self.shared.objects.get()) {
            (Some(target), Some(objects)) => {
                *request.uri_mut() = target.parse().map_err(io::Error::other)?;
                answer(Arc::clone(&objects.shared), replica, request).await
            }
            _ => answer(Arc::clone(&self.shared), replica, request).await,
        }
    }

    fn replica(&self) -> usize {
        match self.target {
            Target::Replica(index) => index,
            Target::InTurn => self.shared.write(|state| {
                let turn = state.balanced;
                state.balanced += 1;
                turn % state.replicas.len()
            }),
        }
    }
}

impl Service<Request<Body>> for Entry {
    type Response = Response<Reply>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<Reply>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let entry = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.map_err(io::Error::other)?;
            entry.answer(Request::from_parts(head, body)).await
        })
    }
}
