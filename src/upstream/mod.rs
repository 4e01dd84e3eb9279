//! Connections to engines.
//!
//! The HTTP/1.1 client is ours (`docs/decisions/0002-own-upstream-client.md`): the relaying task itself reads the
//! socket, so everything one read delivered goes on as one frame and one write, without a connection task, a channel or
//! a wake-up per chunk. It is strict: anything odd closes the connection, and a connection returns to its pool only at
//! the clean end of a message.
//!
//! * `transport` — the byte stream under a connection, and how one is dialled (the seam for in-memory tests).
//! * `resolve` — names to addresses, a bounded number at a time.
//! * `head` — response heads: what is accepted, and how the body is framed.
//! * `decode` — body framing to payload, in place.
//! * `conn` — one connection: read buffer, reads, reuse checks.
//! * `exchange` — writes a request and reads the final response head, both at once.
//! * `pool` — idle connections of one endpoint.

mod conn;
mod decode;
mod ejection;
mod error;
mod exchange;
mod get;
mod head;
mod pool;
mod resolve;
mod transport;

pub use conn::Conn;
pub use decode::{Decoder, Frame};
pub use ejection::Ejection;
pub use error::{Fault, LegError, Written};
pub use exchange::{Answer, Limits, Outbound, exchange};
pub use get::{Question, get};
pub use head::{BodyFraming, Head, MAX_HEAD_BYTES, MAX_HEADERS, parse};
pub use pool::{Pool, Reused};
pub use transport::{Dial, DialFuture, Duplex, Io, TcpDial};
