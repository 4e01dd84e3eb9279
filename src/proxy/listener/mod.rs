//! 1. Client to bytes.
//!
//! One accept loop hands each connection to the traffic thread with the fewest open streams; that thread detects the
//! protocol and gives the stream to hyper, under a watchdog. Bounds: connections in the process, streams per HTTP/2
//! connection, header count and size, and a time limit on everything a client may be slow with.

mod accept;
mod conn;
mod cut;
mod downstream;
mod leave;
mod linger;
mod sniff;
mod stream;
mod supervised;
mod unparsed;
mod worker;

pub use accept::{Accept, AcceptFuture, Accepted, accept_loop};
pub use downstream::{Discarding, Downstream, Expired, OpenRequest, Protocol};
pub(crate) use supervised::STREAM;
pub use supervised::StreamProgress;
pub use worker::{Lane, Load, lane, run_worker};
