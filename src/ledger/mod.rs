//! Who carries what.
//!
//! Every endpoint has one atomic word, its [`Gate`]: the top bit says *withdrawn*, the rest counts holds. A hold is one
//! request's claim on one endpoint, from the decision until its leg is over, and exists only as a guard
//! ([`Hold`]): nothing else changes the count (I4). Because taking a hold and withdrawing act on the same word,
//! "withdrawn, 0 holds" is a fact and not a guess (I3).

mod gate;
mod handoff;
mod stages;

pub use gate::{Gate, Hold, Holder, Withdrawn, Word};
pub use handoff::{Handoff, Handoffs};
pub use stages::{Counts, Stage, Stages};
