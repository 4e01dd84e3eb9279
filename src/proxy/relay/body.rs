//! The body type of every response.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Method;
use http_body::{Body, Frame, SizeHint};

use super::stream::{Aborted, Relay};
use super::ticket::Ticket;
use crate::proxy::listener::STREAM;

/// A response body that owns its request's [`Ticket`].
#[derive(Debug)]
pub struct OutBody {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Complete bytes, ours or an engine's.
    Full(Option<Bytes>, Box<Ticket>),
    Relay(Box<Relay>),
}

impl OutBody {
    /// Complete bytes; none of them for a HEAD, which hyper sees to on HTTP/1.1 only.
    pub fn full(bytes: Bytes, ticket: Box<Ticket>) -> Self {
        let sent = !bytes.is_empty() && ticket.method != Method::HEAD;
        Self { kind: Kind::Full(sent.then_some(bytes), ticket) }
    }

    pub fn relay(relay: Box<Relay>) -> Self {
        Self { kind: Kind::Relay(relay) }
    }
}

impl Body for OutBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.get_mut().kind {
            Kind::Full(bytes, ticket) => {
                // On HTTP/2 the client may have no room for it, and then hyper keeps it.
                let _ = STREAM.try_with(|progress| progress.gave_frame());
                Poll::Ready(bytes.take().map(|b| {
                    ticket.bytes_out += b.len() as u64;
                    Ok(Frame::data(b))
                }))
            }
            Kind::Relay(relay) => relay.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Full(bytes, _) => bytes.is_none(),
            Kind::Relay(relay) => relay.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Full(bytes, _) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Kind::Relay(relay) => relay.remaining().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
