//! When KV left this engine for another, as the sending side saw it: what a drain has to wait for beside requests.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::types::clock::{Instant, now};

/// KV of one request on its way to a decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// vLLM: the prefill's id of the request, as in its parameters. SGLang: the room.
    pub of: String,
    /// It was kept for this. vLLM answers a pull of what is not with whatever is there.
    pub kept: bool,
    pub began: Instant,
    pub ended: Instant,
}

/// Those that are over. Bounded: the oldest go first. Clones are the same list.
#[derive(Debug, Clone)]
pub struct Moves {
    over: Arc<Mutex<VecDeque<Move>>>,
    limit: usize,
}

impl Moves {
    pub(super) fn new(limit: usize) -> Self {
        Self { over: Arc::default(), limit }
    }

    /// Those that are over by now; they are forgotten here.
    pub fn take(&self) -> Vec<Move> {
        self.over.lock().drain(..).collect()
    }

    /// It goes on until the guard is dropped.
    pub(super) fn begin(&self, of: String, kept: bool) -> Moving {
        Moving { moves: self.clone(), of, kept, began: now() }
    }
}

#[derive(Debug)]
pub(super) struct Moving {
    moves: Moves,
    of: String,
    kept: bool,
    began: Instant,
}

impl Drop for Moving {
    fn drop(&mut self) {
        let Moves { over, limit } = &self.moves;
        if *limit == 0 {
            return;
        }
        let mut over = over.lock();
        if over.len() >= *limit {
            over.pop_front();
        }
        over.push_back(Move {
            of: std::mem::take(&mut self.of),
            kept: self.kept,
            began: self.began,
            ended: now(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_listed_once_it_is_over_and_the_list_is_bounded() {
        let moves = Moves::new(2);
        let first = moves.begin("a".to_owned(), true);
        assert_eq!(moves.take(), []);
        drop(first);
        drop(moves.begin("b".to_owned(), false));
        drop(moves.begin("c".to_owned(), true));
        let names: Vec<(String, bool)> = moves.take().into_iter().map(|m| (m.of, m.kept)).collect();
        assert_eq!(names, [("b".to_owned(), false), ("c".to_owned(), true)]);
        assert_eq!(moves.take(), []);
    }
}
