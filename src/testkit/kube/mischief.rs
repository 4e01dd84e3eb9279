//! What goes wrong between a change and the watches: lost, doubled, delayed, overtaken, reversed.
//!
//! It is decided once, when the change is made, and holds for every watch of every replica, also one opened later.
//! The change itself is real: a LIST shows it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::store::Change;
use crate::types::clock::{Instant, now};

/// How one change reaches the watches.
#[derive(Debug, Clone, Default)]
pub(super) struct Delivery {
    pub(super) lost: bool,
    pub(super) twice: bool,
    /// Not before this.
    pub(super) due: Option<Instant>,
    /// While it is not due, later changes pass it.
    pub(super) overtaken: bool,
    /// It and so many changes after it arrive in reverse order, once all were made.
    pub(super) reversed_with: Option<usize>,
}

type Predicate = Arc<dyn Fn(&Change) -> bool + Send + Sync>;

#[derive(Default)]
pub(super) struct Mischief {
    pub(super) lose: usize,
    pub(super) lose_where: Option<Predicate>,
    pub(super) duplicate: usize,
    pub(super) delay: Option<(usize, Duration, bool)>,
    pub(super) reverse: usize,
}

impl fmt::Debug for Mischief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mischief").field("lose", &self.lose).finish_non_exhaustive()
    }
}

impl Mischief {
    pub(super) fn judge(&mut self, change: &Change) -> Delivery {
        let mut delivery = Delivery {
            lost: self.lose_where.as_ref().is_some_and(|loses| loses(change)),
            ..Delivery::default()
        };
        delivery.lost |= take_one(&mut self.lose);
        delivery.twice = take_one(&mut self.duplicate);
        if let Some((left, by, overtaken)) = &mut self.delay
            && take_one(left)
        {
            delivery.due = Some(now() + *by);
            delivery.overtaken = *overtaken;
        }
        if take_one(&mut self.reverse) {
            delivery.reversed_with = Some(self.reverse);
        }
        delivery
    }
}

fn take_one(left: &mut usize) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}
