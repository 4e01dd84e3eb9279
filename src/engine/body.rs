//! Answers: whole, by the line, or a stream of events.

use std::any::Any;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::Frame;
use tokio::sync::mpsc::UnboundedReceiver;

use super::json::{Json, ordered};
use super::stream::EventStream;

pub(super) type Response = http::Response<Body>;

/// Body of an answer, or of a request to a side port.
pub(super) enum Body {
    Full(Option<Bytes>),
    /// With what is held while it lasts.
    Lines {
        lines: UnboundedReceiver<String>,
        _hold: Box<dyn Any + Send>,
    },
    Events(Box<EventStream>),
}

impl Body {
    pub(super) fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(Some(bytes.into()))
    }

    pub(super) fn text(status: StatusCode, text: &str) -> Response {
        respond(status, "text/plain; charset=utf-8", Self::full(text.to_owned()))
    }

    pub(super) fn json(status: StatusCode, value: &Json) -> Response {
        respond(status, "application/json", Self::full(value.bytes()))
    }

    /// 200 without a body.
    pub(super) fn empty() -> Response {
        http::Response::new(Self::full(Bytes::new()))
    }

    pub(super) fn not_found() -> Response {
        Self::json(StatusCode::NOT_FOUND, &ordered! { "detail": "Not Found" })
    }

    pub(super) fn lines(lines: UnboundedReceiver<String>, hold: Box<dyn Any + Send>) -> Response {
        respond(StatusCode::OK, "text/plain; charset=utf-8", Self::Lines { lines, _hold: hold })
    }

    pub(super) fn events(events: EventStream) -> Response {
        respond(StatusCode::OK, "text/event-stream; charset=utf-8", Self::Events(Box::new(events)))
    }
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(
                bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))),
            ),
            Self::Lines { lines, .. } => {
                lines.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(Bytes::from(line)))))
            }
            Self::Events(events) => events.poll_next(cx).map(|next| next.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(bytes) if bytes.as_ref().is_none_or(Bytes::is_empty))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Full(bytes) => {
                http_body::SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            _ => http_body::SizeHint::default(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Lines { .. } => "Lines",
            Self::Events(_) => "Events",
        })
    }
}
