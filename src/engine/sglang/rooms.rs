//! Rooms of a prefill's bootstrap server: where a prefill request and its decode meet.
//!
//! Either may come first. A room lives until both have left; who comes to a seat that is taken is a duplicate. Once both
//! are there the decode's pages are known to the prefill, and from then on it may write into them whatever the decode does.

use std::collections::HashMap;

use tokio::sync::watch;

/// How far a room is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// One of the two is missing.
    Waiting,
    /// Both are there; the prefill computes.
    Met,
    /// The prefill writes into the decode's pages.
    Writing,
    /// Written: this KV, of so many tokens.
    Done {
        content: u64,
        corrupted: bool,
    },
    Failed(String),
    /// As a decode sees it: the prefill's process is gone.
    Lost,
}

impl Phase {
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Failed(_) | Self::Lost)
    }

    /// Whether the prefill may write into the decode's pages now or later.
    pub(super) fn may_write(&self) -> bool {
        matches!(self, Self::Met | Self::Writing)
    }

    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Met => "met",
            Self::Writing => "writing",
            Self::Done { .. } => "done",
            Self::Failed(_) => "failed",
            Self::Lost => "lost",
        }
    }
}

/// Who sits where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seat {
    Prefill,
    Decode,
}

/// The seat is taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Duplicate;

#[derive(Debug)]
struct Room {
    prefill: bool,
    decode: bool,
    phase: watch::Sender<Phase>,
}

/// All rooms that somebody is in.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    rooms: HashMap<u64, Room>,
}

impl Rooms {
    /// Sits down; the receiver follows the room from here on.
    pub(super) fn enter(&mut self, id: u64, seat: Seat) -> Result<watch::Receiver<Phase>, Duplicate> {
        let room = self.rooms.entry(id).or_insert_with(|| Room {
            prefill: false,
            decode: false,
            phase: watch::Sender::new(Phase::Waiting),
        });
        let (taken, other) = match seat {
            Seat::Prefill => (&mut room.prefill, room.decode),
            Seat::Decode => (&mut room.decode, room.prefill),
        };
        // A room that is over is not entered again while somebody is still leaving it.
        if *taken || room.phase.borrow().is_over() {
            return Err(Duplicate);
        }
        *taken = true;
        if other {
            room.phase.send_replace(Phase::Met);
        }
        Ok(room.phase.subscribe())
    }

    /// The prefill's progress. Nothing once the room is over.
    pub(super) fn advance(&mut self, id: u64, phase: Phase) {
        if let Some(room) = self.rooms.get(&id)
            && !room.phase.borrow().is_over()
        {
            room.phase.send_replace(phase);
        }
    }

    /// Stands up. Leaving a room whose two had met and are not done fails it.
    pub(super) fn leave(&mut self, id: u64, seat: Seat, why: &str) {
        let Some(room) = self.rooms.get_mut(&id) else { return };
        match seat {
            Seat::Prefill => room.prefill = false,
            Seat::Decode => room.decode = false,
        }
        if room.phase.borrow().may_write() {
            room.phase.send_replace(Phase::Failed(why.to_owned()));
        }
        if !room.prefill && !room.decode {
            self.rooms.remove(&id);
        }
    }

    /// Rooms in which a prefill request sits.
    pub(super) fn held(&self) -> usize {
        self.rooms.values().filter(|room| room.prefill).count()
    }

    /// Every room: id, prefill there, decode there, phase.
    pub(super) fn list(&self) -> Vec<(u64, bool, bool, &'static str)> {
        let one = |(id, room): (&u64, &Room)| (*id, room.prefill, room.decode, room.phase.borrow().as_str());
        let mut all: Vec<_> = self.rooms.iter().map(one).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_may_come_first_and_they_meet() {
        for order in [[Seat::Prefill, Seat::Decode], [Seat::Decode, Seat::Prefill]] {
            let mut rooms = Rooms::default();
            let first = rooms.enter(7, order[0]).unwrap();
            assert_eq!(*first.borrow(), Phase::Waiting);
            let second = rooms.enter(7, order[1]).unwrap();
            assert_eq!((&*first.borrow(), &*second.borrow()), (&Phase::Met, &Phase::Met));
        }
    }

    #[test]
    fn a_live_room_takes_no_second_prefill_and_no_second_decode() {
        let mut rooms = Rooms::default();
        let _first = rooms.enter(7, Seat::Prefill).unwrap();
        assert_eq!(rooms.enter(7, Seat::Prefill).unwrap_err(), Duplicate);
        let _decode = rooms.enter(7, Seat::Decode).unwrap();
        assert_eq!(rooms.enter(7, Seat::Decode).unwrap_err(), Duplicate);
        rooms.advance(7, Phase::Done { content: 1, corrupted: false });
        rooms.leave(7, Seat::Prefill, "");
        assert!(rooms.enter(7, Seat::Prefill).is_err(), "its decode is still there");
        rooms.leave(7, Seat::Decode, "");
        assert!(rooms.enter(7, Seat::Prefill).is_ok(), "a number may be used again");
    }

    #[test]
    fn a_decode_that_leaves_before_they_met_leaves_the_prefill_waiting() {
        let mut rooms = Rooms::default();
        let _decode = rooms.enter(7, Seat::Decode).unwrap();
        rooms.leave(7, Seat::Decode, "gone");
        let prefill = rooms.enter(7, Seat::Prefill).unwrap();
        assert_eq!(*prefill.borrow(), Phase::Waiting);
        assert_eq!((rooms.held(), rooms.list()), (1, vec![(7, true, false, "waiting")]));
    }

    #[test]
    fn who_leaves_after_they_met_fails_the_other_unless_it_was_done() {
        let mut rooms = Rooms::default();
        let prefill = rooms.enter(7, Seat::Prefill).unwrap();
        let _decode = rooms.enter(7, Seat::Decode).unwrap();
        rooms.leave(7, Seat::Decode, "gone");
        assert_eq!(*prefill.borrow(), Phase::Failed("gone".to_owned()));
        rooms.advance(7, Phase::Done { content: 1, corrupted: false });
        assert_eq!(*prefill.borrow(), Phase::Failed("gone".to_owned()), "over is over");
        rooms.leave(7, Seat::Prefill, "");
        assert_eq!(rooms.list(), []);
    }
}
