//! One watch: the request, and its lines as events.

use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::core::Request;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout, timeout_at};

use super::failure::{Failure, Kind};
use super::list::{Scope, collect};
use crate::discovery::pod::{Identity, identity};
use crate::types::clock;

/// The server ends a watch after this many seconds and a part at random.
const LASTS: u32 = 240;
const LASTS_JITTER: u32 = 50;
/// A watch that has not ended by then is dead: its connection is half-open.
const MARGIN: Duration = Duration::from_secs(10);
/// The head of the answer has to be there by then.
const HEAD: Duration = Duration::from_secs(10);
/// Longest line, bytes: etcd stores at most 1.5 MiB an object.
const LONGEST: usize = 4 << 20;

/// One open watch.
#[derive(Debug)]
pub(super) struct Watch {
    body: Body,
    buffer: BytesMut,
    /// Bytes of `buffer` without a line end.
    searched: usize,
    ends_by: Instant,
    pub(super) opened: Instant,
}

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// ADDED or MODIFIED: the object as JSON.
    Changed(String),
    /// Only what identifies it: the object is as it was before.
    Deleted(Identity),
    Bookmark(Option<u64>),
    Error(Failure),
}

impl Watch {
    /// Watches from `version` on.
    pub(super) async fn open(client: &Client, scope: &Scope, version: u64) -> Result<Self, Failure> {
        let lasts = LASTS + fastrand::u32(..LASTS_JITTER);
        let params = scope.watch_params().timeout(lasts);
        let request = Request::new(scope.path(client))
            .watch(&params, &version.to_string())
            .map_err(|error| Failure::new(Kind::Invalid, error.to_string()))?;
        let late = |_| Failure::new(Kind::Timeout, format!("no answer to a watch within {HEAD:?}"));
        let answer = timeout(HEAD, client.send(request.map(Body::from))).await.map_err(late)?;
        let (head, body) = answer.map_err(|e| Failure::of_client(&e))?.into_parts();
        if !head.status.is_success() {
            let body = timeout(HEAD, collect(body, 1 << 20)).await.map_err(late)??;
            return Err(Failure::of_answer(head.status, &head.headers, &body));
        }
        let opened = clock::now();
        let ends_by = opened + Duration::from_secs(lasts.into()) + MARGIN;
        Ok(Self { body, buffer: BytesMut::new(), searched: 0, ends_by, opened })
    }

    /// The next event; `None` when the server ended the watch. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(line) = self.line()? {
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return event(&line).map(Some);
            }
            let frame = timeout_at(self.ends_by, self.body.frame()).await;
            let frame = frame.map_err(|_| Failure::new(Kind::Timeout, "a watch that did not end in time"))?;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(Failure::of_client(&error)),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(Failure::new(Kind::Connection, "a watch was cut inside an event")),
            }
        }
    }

    fn line(&mut self) -> Result<Option<BytesMut>, Failure> {
        let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            if self.searched > LONGEST {
                return Err(Failure::new(Kind::Invalid, format!("an event of more than {LONGEST} bytes")));
            }
            return Ok(None);
        };
        let line = self.buffer.split_to(self.searched + end);
        self.buffer.advance(1);
        self.searched = 0;
        Ok(Some(line))
    }
}

/// The next event of a watch that may not be open. Cancel-safe.
pub(super) async fn next_event(watch: &mut Option<Watch>) -> Result<Option<Event>, Failure> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

/// Whether a line of a watch can be read.
pub fn is_event(line: &[u8]) -> bool {
    event(line).is_ok()
}

/// One line of a watch.
pub(super) fn event(line: &[u8]) -> Result<Event, Failure> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let envelope: Envelope<'_> = serde_json::from_slice(line)
        .map_err(|error| Failure::new(Kind::Invalid, format!("an event that cannot be read: {error}")))?;
    let object = envelope.object.get();
    Ok(match envelope.kind {
        "ADDED" | "MODIFIED" => Event::Changed(object.to_owned()),
        "DELETED" => Event::Deleted(identity(object)),
        "BOOKMARK" => Event::Bookmark(identity(object).version),
        "ERROR" => Event::Error(Failure::of_event(object)),
        other => return Err(Failure::new(Kind::Invalid, format!("an event of type {other:?}"))),
    })
}

#[cfg(test)]
#[path = "../tests/watch.rs"]
mod tests;
