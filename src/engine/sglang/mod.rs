//! SGLang's disaggregation: a prefill and a decode that get the same request at once and meet in a room of the prefill's
//! bootstrap server.
//!
//! * `room` — the bootstrap fields of a request.
//! * `rooms` — who is in which room (pure).
//! * `pages` — the decode's KV pages and their dirty marks (pure).
//! * `prefill`, `decode` — the two halves of a request.
//! * `bootstrap` — the prefill's second HTTP server.

mod bootstrap;
mod decode;
mod pages;
mod prefill;
pub(super) mod room;
mod rooms;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::config::{DuplicateRoom, Role};
use super::job::{Failure, Ready, Sequence, pause};

pub(super) use bootstrap::handle;
pub(super) use decode::PageHold;
use pages::Pages;
use rooms::Rooms;

/// Both roles' state; each uses its own half.
#[derive(Debug)]
pub(super) struct Disaggregation {
    rooms: Mutex<Rooms>,
    pages: Mutex<Pages>,
    freed: Notify,
}

/// What `/mock/log` and the gauges show.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) rooms: Vec<(u64, bool, bool, &'static str)>,
    /// Rooms in which a prefill request sits.
    pub(super) prefills: usize,
    pub(super) pages_used: usize,
    pub(super) pages_total: usize,
    pub(super) pages_dirty: usize,
    pub(super) pages_deferred: usize,
}

impl Disaggregation {
    pub(super) fn new(pages: u32) -> Self {
        Self { rooms: Mutex::default(), pages: Mutex::new(Pages::new(pages)), freed: Notify::new() }
    }

    pub(super) fn held(&self) -> Held {
        let (rooms, pages) = (self.rooms.lock(), self.pages.lock());
        Held {
            rooms: rooms.list(),
            prefills: rooms.held(),
            pages_used: pages.used(),
            pages_total: pages.total(),
            pages_dirty: pages.dirty(),
            pages_deferred: pages.deferred(),
        }
    }
}

/// The KV of a request, by what this engine is.
pub(super) async fn obtain(sequence: &Sequence) -> Result<Ready, Failure> {
    let role = sequence.core.config.role;
    // A primer and every sample use the same room; the second of them is one too many, on either side.
    if role != Role::Plain && sequence.request.samples > 1 {
        return Err(duplicate(sequence).await);
    }
    match role {
        Role::Plain => Ok(sequence.compute().await),
        Role::Prefill => prefill::run(sequence).await,
        Role::Decode => decode::run(sequence).await,
    }
}

/// A room that somebody else is in.
async fn duplicate(sequence: &Sequence) -> Failure {
    let config = &sequence.core.config;
    sequence.core.counts.duplicate_rooms.add(1);
    match config.duplicate_room {
        DuplicateRoom::Fail => failed(sequence, "bootstrap", "Duplicate or cancelled bootstrap room"),
        DuplicateRoom::Hang => {
            pause(config.waits.bootstrap).await;
            timed_out(sequence)
        }
    }
}

/// The time-out of whichever half this is.
fn timed_out(sequence: &Sequence) -> Failure {
    let waits = &sequence.core.config.waits;
    let (what, wait, poll) = match sequence.core.config.role {
        Role::Decode => ("transfer", waits.waiting, "WaitingForInput"),
        _ => ("bootstrap", waits.bootstrap, "Bootstrapping"),
    };
    let room = sequence.request.meetings[sequence.prompt].room;
    let seconds = wait.as_secs_f64();
    failed(sequence, what, &format!("Request {room} timed out after {seconds:.1}s in KVPoll.{poll}"))
}

/// The recorded wording of a pair's failures.
pub(super) fn failed(sequence: &Sequence, what: &str, why: &str) -> Failure {
    let (rid, room) = (&sequence.request.rid, sequence.request.meetings[sequence.prompt].room);
    let (who, request) = match sequence.core.config.role {
        Role::Decode => (format!("Decode {what}"), "decode_req.req"),
        _ => ("Prefill bootstrap".to_owned(), "req"),
    };
    let message = format!(
        "{who} failed for request rank=0 {request}.rid='{rid}' {request}.bootstrap_room={room} with exception \
         KVTransferError(bootstrap_room={room}): {why}"
    );
    Failure { status: 500, kind: "INTERNAL_SERVER_ERROR", message, param: None }
}
