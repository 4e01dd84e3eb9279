//! The body of an answer: whole, or a watch that is stepped while somebody reads it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::watch::Watcher;

type Stepped = (Watcher, Option<io::Result<Bytes>>);

enum Source {
    Whole(Option<Bytes>),
    /// A watcher on its way to its next bytes.
    Watch(Pin<Box<dyn Future<Output = Stepped> + Send>>),
    Over,
}

/// Told of each whole piece that was taken.
type Taken = Box<dyn Fn(&[u8]) + Send>;

/// A response body. Dropping it closes the watch behind it.
pub struct Reply {
    source: Source,
    /// Bytes until it breaks or stalls; none: it does neither.
    left: Option<usize>,
    stalls: bool,
    /// It breaks at the next poll.
    breaking: bool,
    /// Called with each piece that is taken whole.
    taken: Option<Taken>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Reply {
    pub(super) fn full(bytes: Bytes) -> Self {
        Self {
            source: Source::Whole(Some(bytes).filter(|b| !b.is_empty())),
            left: None,
            stalls: false,
            breaking: false,
            taken: None,
        }
    }

    pub(super) fn watch(watcher: Watcher) -> Self {
        Self { source: Source::Watch(Box::pin(step(watcher))), ..Self::full(Bytes::new()) }
    }

    /// Calls this with each piece that is taken whole: a body, or a line of a watch.
    #[must_use]
    pub(super) fn when_taken(self, taken: impl Fn(&[u8]) + Send + 'static) -> Self {
        Self { taken: Some(Box::new(taken)), ..self }
    }

    #[must_use]
    pub(super) fn cut(mut self, after: usize) -> Self {
        self.left = Some(after);
        self
    }

    #[must_use]
    pub(super) fn stall(self, after: usize) -> Self {
        Self { stalls: true, ..self.cut(after) }
    }

    fn was_taken(&self, bytes: &[u8]) {
        if let Some(taken) = &self.taken {
            taken(bytes);
        }
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match &mut self.source {
            Source::Whole(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Source::Over => Poll::Ready(None),
            Source::Watch(future) => {
                let (watcher, bytes) = ready!(future.as_mut().poll(cx));
                if bytes.is_none() {
                    self.source = Source::Over;
                } else {
                    *future = Box::pin(step(watcher));
                }
                Poll::Ready(bytes)
            }
        }
    }

    /// An HTTP server forgets what it has not written yet when a body breaks: it gets one turn to write it.
    fn poll_break(&mut self, cx: &Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !std::mem::replace(&mut self.breaking, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.source = Source::Over;
        self.breaking = false;
        self.left = None;
        Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())))
    }
}

async fn step(mut watcher: Watcher) -> Stepped {
    let bytes = watcher.next().await;
    (watcher, bytes)
}

impl http_body::Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.left == Some(0) && this.stalls {
            return Poll::Pending;
        }
        if this.left == Some(0) || this.breaking {
            return this.poll_break(cx);
        }
        Poll::Ready(match (ready!(this.poll_bytes(cx)), this.left) {
            (Some(Err(_)), _) => return this.poll_break(cx),
            (Some(Ok(mut bytes)), Some(left)) => {
                if bytes.len() <= left {
                    this.was_taken(&bytes);
                }
                bytes.truncate(left);
                this.left = Some(left - bytes.len());
                Some(Ok(Frame::data(bytes)))
            }
            (Some(Ok(bytes)), None) => {
                this.was_taken(&bytes);
                Some(Ok(Frame::data(bytes)))
            }
            (None, _) => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!((&self.source, self.left), (Source::Whole(None) | Source::Over, None))
    }

    /// Whole bodies are framed by their length, as a server's are, also those that break before it.
    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Source::Watch(_) => SizeHint::default(),
            Source::Over => SizeHint::with_exact(0),
        }
    }
}
