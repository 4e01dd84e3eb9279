//! Scripted faults: what the next requests meet instead of, or beside, the truth.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::log::RequestKind;

/// What one request meets.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing: a place in the queue that lets a request pass.
    Pass,
    /// This HTTP status with the body a server would write.
    Status { code: u16, retry_after: Option<u32> },
    /// Any status, content type and body: the error page of a proxy.
    Raw { code: u16, content_type: &'static str, body: Bytes },
    /// Nothing for so long, then this.
    After(Duration, Box<Fault>),
    /// The answer of now, delivered so much later.
    Late(Duration),
    /// No answer, ever.
    BlackHole,
    /// The connection ends without an answer.
    Refuse,
    /// The head of a good answer and nothing more, ever; a watch does not even end when its time is up.
    Silence,
    /// A watch that is accepted and at once gets this ERROR event, then ends. Other requests pass.
    InStream { code: u16 },
    /// The body breaks after so many bytes.
    Cut { after: usize },
    /// The body stops after so many bytes, and nothing ends it but the client.
    Stall { after: usize },
    /// A LIST has these bytes as its body; a watch says them first, then goes on as it should.
    Garbage(Bytes),
}

impl Fault {
    /// A refusal with a `Status` body.
    pub const fn status(code: u16) -> Self {
        Self::Status { code, retry_after: None }
    }

    /// 429 with `Retry-After`, in seconds.
    pub const fn throttled(retry_after: u32) -> Self {
        Self::Status { code: 429, retry_after: Some(retry_after) }
    }

    /// [`Self::Garbage`] of anything that is bytes.
    pub fn garbage(bytes: impl Into<Bytes>) -> Self {
        Self::Garbage(bytes.into())
    }

    /// A line of so many bytes that says nothing.
    pub fn huge_line(bytes: usize) -> Self {
        let mut line = vec![b'x'; bytes];
        line.push(b'\n');
        Self::garbage(line)
    }

    /// This fault, after nothing at all for so long.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self::After(delay, Box::new(self))
    }
}

/// Of which requests: a kind, on one replica or on any.
type Place = (RequestKind, Option<usize>);

#[derive(Debug, Default)]
pub(super) struct Faults {
    queued: BTreeMap<Place, VecDeque<Fault>>,
    lasting: BTreeMap<Place, Fault>,
}

impl Faults {
    pub(super) fn push(&mut self, place: Place, fault: Fault) {
        self.queued.entry(place).or_default().push_back(fault);
    }

    pub(super) fn set(&mut self, place: Place, fault: Option<Fault>) {
        match fault {
            Some(fault) => self.lasting.insert(place, fault),
            None => self.lasting.remove(&place),
        };
    }

    /// Forgets the faults of one replica, or all.
    pub(super) fn clear(&mut self, replica: Option<usize>) {
        let stays = |place: &Place| replica.is_some() && place.1 != replica;
        self.queued.retain(|place, _| stays(place));
        self.lasting.retain(|place, _| stays(place));
    }

    /// What the next request of this kind meets here: queued before lasting, this replica's before everybody's.
    pub(super) fn take(&mut self, kind: RequestKind, replica: usize) -> Fault {
        let places = [(kind, Some(replica)), (kind, None)];
        let queued = places.iter().find_map(|place| self.queued.get_mut(place)?.pop_front());
        let lasting = || places.iter().find_map(|place| self.lasting.get(place).cloned());
        queued.or_else(lasting).unwrap_or(Fault::Pass)
    }

    /// How many queued faults no request has met yet.
    pub(super) fn left(&self) -> usize {
        self.queued.values().map(VecDeque::len).sum()
    }
}
