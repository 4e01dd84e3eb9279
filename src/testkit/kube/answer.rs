//! From a request to its answer: log, fault, token, route.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use serde_json::Value;

use super::discovery;
use super::fault::Fault;
use super::list::list;
use super::log::{Recorded, RequestKind};
use super::options::{ListOptions, WatchOptions};
use super::query::{Query, Route};
use super::reply::Reply;
use super::state::Shared;
use super::status::Status;
use super::told::{self, note};
use super::watch::Watcher;
use super::writes;
use crate::types::clock::now;

/// A request taken apart.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) route: Route,
    pub(super) query: Query,
    pub(super) content_type: String,
    pub(super) body: Bytes,
    replica: usize,
    token: Option<String>,
    kind: RequestKind,
}

impl Asked {
    fn new(request: Request<Bytes>, replica: usize) -> Self {
        let (head, body) = request.into_parts();
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let token = text(header::AUTHORIZATION).strip_prefix("Bearer ").map(str::to_owned);
        let content_type = text(header::CONTENT_TYPE).to_owned();
        let (route, query) =
            (Route::parse(head.uri.path()), Query::parse(head.uri.query().unwrap_or_default()));
        let kind = match (&head.method, &route, query.flag("watch")) {
            (&Method::GET, Route::Pods(_), Some(true)) => RequestKind::Watch,
            (&Method::GET, Route::Pods(_), _) => RequestKind::List,
            _ => RequestKind::Other,
        };
        Self { method: head.method, route, query, content_type, body, replica, token, kind }
    }
}

/// Answers one request at a replica; an error is a connection that ends without an answer.
pub(super) async fn answer(
    shared: Arc<Shared>,
    replica: usize,
    request: Request<Bytes>,
) -> io::Result<Response<Reply>> {
    let (path, query) =
        (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
    let asked = Asked::new(request, replica);
    let recorded = Recorded {
        at: now(),
        kind: asked.kind,
        method: asked.method.to_string(),
        path,
        query,
        token: asked.token.clone(),
        replica,
        status: None,
    };
    let (number, fault) = shared.write(|state| {
        state.log.push(recorded);
        (state.log.len() - 1, state.faults.take(asked.kind, replica))
    });
    let response = meet(&shared, fault, &asked).await?;
    shared.write(|state| state.log[number].status = Some(response.status().as_u16()));
    Ok(response)
}

async fn meet(shared: &Arc<Shared>, mut fault: Fault, asked: &Asked) -> io::Result<Response<Reply>> {
    while let Fault::After(delay, then) = fault {
        tokio::time::sleep(delay).await;
        fault = *then;
    }
    match fault {
        Fault::Status { code, retry_after } => Ok(Status::of_code(code).retry_after(retry_after).response()),
        Fault::Raw { code, content_type, body } => {
            let head = Response::builder().status(code).header(header::CONTENT_TYPE, content_type);
            Ok(head.body(Reply::full(body)).unwrap())
        }
        Fault::BlackHole => std::future::pending().await,
        Fault::Refuse => Err(io::ErrorKind::ConnectionReset.into()),
        Fault::Garbage(body) if asked.kind != RequestKind::Watch => {
            Ok(json_head(StatusCode::OK).body(Reply::full(body)).unwrap())
        }
        fault => {
            let response = plainly(shared, asked, &fault).await.unwrap_or_else(|status| status.response());
            Ok(match fault {
                Fault::Late(delay) => {
                    tokio::time::sleep(delay).await;
                    response
                }
                Fault::Cut { after } => response.map(|body| body.cut(after)),
                Fault::Stall { after } => response.map(|body| body.stall(after)),
                Fault::Silence if asked.kind != RequestKind::Watch => response.map(|body| body.stall(0)),
                _ => response,
            })
        }
    }
}

fn json_head(code: StatusCode) -> http::response::Builder {
    Response::builder().status(code).header(header::CONTENT_TYPE, "application/json")
}

/// The true answer, except for what a fault does to the inside of a watch.
async fn plainly(shared: &Arc<Shared>, asked: &Asked, fault: &Fault) -> Result<Response<Reply>, Status> {
    if !shared.read(|state| state.settings.accepts(asked.token.as_deref())) {
        return Err(Status::of_code(401));
    }
    let (code, body) = match (&asked.method, &asked.route) {
        (&Method::GET, Route::Pods(ns)) if asked.kind == RequestKind::Watch => {
            return watch(shared, asked, ns.clone(), fault).await;
        }
        (&Method::GET, Route::Pods(ns)) => {
            let options = ListOptions::parse(ns.clone(), &asked.query)?;
            let body = text(&list(shared, asked.replica, &options).await?);
            let body = Reply::full(body).when_taken(note(shared, told::list));
            return Ok(json_head(StatusCode::OK).body(body).unwrap());
        }
        (&Method::GET, Route::Version | Route::Discovery(_)) => {
            (StatusCode::OK, discovery::document(&asked.route))
        }
        _ => shared.write(|state| writes::answer(state, asked))?,
    };
    Ok(json_head(code).body(Reply::full(text(&body))).unwrap())
}

async fn watch(
    shared: &Arc<Shared>,
    asked: &Asked,
    ns: Option<String>,
    fault: &Fault,
) -> Result<Response<Reply>, Status> {
    let mode = shared.read(|state| state.settings.watch_list);
    let options = WatchOptions::parse(ns, &asked.query, mode)?;
    let mut watcher = Watcher::open(shared, asked.replica, options).await?;
    match fault {
        Fault::Silence => watcher.mute(),
        Fault::InStream { code } => watcher.fail(&Status::of_code(*code)),
        Fault::Garbage(bytes) => watcher.say_first(bytes.clone()),
        _ => {}
    }
    let body = Reply::watch(watcher).when_taken(note(shared, told::line));
    Ok(json_head(StatusCode::OK).body(body).unwrap())
}

fn text(body: &Value) -> Bytes {
    Bytes::from(format!("{body}\n"))
}
