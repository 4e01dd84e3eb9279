//! 6. The answer back to the client, and everything that is released at its end.
//!
//! The response body carries everything: the permit, the hold, the upstream connection, the timers, the outcome. When it
//! is dropped, for any reason, all of that is released and exactly one outcome is recorded.
//!
//! Payload is forwarded untouched: never re-framed by event, never decoded, never delayed. The observer beside it
//! only looks (events, usage, in-stream errors) and gives up on what it cannot read.

mod body;
mod leg;
mod observe;
mod respond;
mod stream;
pub mod synth;
mod ticket;

pub use body::OutBody;
pub use leg::{Leg, Ruling};
pub use observe::{Observer, StreamFault, Usage};
pub use respond::respond;
pub use stream::Relay;
pub use ticket::Ticket;
