//! What the engines saw of each request.

use std::collections::{HashMap, HashSet};

use tandem::engine::{Ended, Seen as Logged};
use tandem::types::clock::Instant;

use super::super::rig::CHAT;
use super::cases::Side;
use super::world::World;

/// One leg, from the log of the engine that had it.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) side: Side,
    /// Index of the host among those of its side.
    pub(super) host: usize,
    /// What the router named the attempt.
    pub(super) attempt: String,
    pub(super) logged: Logged,
}

impl Leg {
    pub(super) fn died(&self) -> bool {
        matches!(self.logged.ended, Some((Ended::Died, _)))
    }

    pub(super) fn runs_at(&self, at: Instant) -> bool {
        self.logged.head_at < at && self.logged.ended.is_none_or(|(_, ended)| ended >= at)
    }
}

/// All legs by the client's request id, in the order of their arrival.
pub(super) type Legs = HashMap<String, Vec<Leg>>;

/// Takes the logs of a round.
pub(super) fn collect(world: &mut World) -> Legs {
    let mut legs: Legs = HashMap::new();
    for (side, hosts) in [(Side::Prefill, &mut world.prefills), (Side::Decode, &mut world.decodes)] {
        for (host, at) in hosts.iter_mut().enumerate() {
            for life in &at.lives {
                let records = life.log.records();
                assert_eq!(records.dropped, 0, "the log is too short");
                for logged in records.requests.into_iter().filter(|r| r.path() == CHAT) {
                    let name = logged.headers["x-request-id"].to_str().unwrap().to_owned();
                    let (attempt, id) = name.split_at(17);
                    let leg = Leg { side, host, attempt: attempt.to_owned(), logged };
                    legs.entry(id.to_owned()).or_default().push(leg);
                }
                life.log.clear();
            }
        }
    }
    for legs in legs.values_mut() {
        legs.sort_by_key(|leg| leg.logged.head_at);
    }
    legs
}

/// What must never be used twice, over the whole storm.
#[derive(Debug, Default)]
pub(super) struct Once {
    rooms: HashSet<u64>,
    params: HashSet<String>,
}

impl Once {
    /// Both legs of an attempt name the same room and rid; no other attempt names them, and no parameters go to two decodes.
    pub(super) fn check(&mut self, legs: &[Leg]) -> Result<(), String> {
        let mut rooms: HashMap<&str, u64> = HashMap::new();
        for leg in legs {
            let body = leg.logged.json();
            if let Some(room) = body["bootstrap_room"].as_u64() {
                if !body["rid"].as_str().is_some_and(|rid| rid.starts_with(&leg.attempt)) {
                    return Err(format!("rid {} in attempt {}", body["rid"], leg.attempt));
                }
                match rooms.insert(&leg.attempt, room) {
                    Some(other) if other != room => {
                        return Err(format!("rooms {other} and {room} in one attempt"));
                    }
                    None if !self.rooms.insert(room) => return Err(format!("room {room} in two attempts")),
                    _ => {}
                }
            }
            if leg.side == Side::Decode
                && let Some(request) = body["kv_transfer_params"]["remote_request_id"].as_str()
                && !self.params.insert(request.to_owned())
            {
                return Err(format!("parameters of {request} sent to two decodes"));
            }
        }
        let mut seats: HashSet<(&str, Side)> = HashSet::new();
        match legs.iter().find(|leg| !seats.insert((&leg.attempt, leg.side))) {
            Some(leg) => Err(format!("two legs of {:?} in attempt {}", leg.side, leg.attempt)),
            None => Ok(()),
        }
    }
}
