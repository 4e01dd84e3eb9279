//! 2. Bytes to what we need to know.
//!
//! Pure functions over bytes and heads, apart from the one bounded read. In the order of a request:
//!
//! * [`head`] — may this head be served at all, and as which [`route::Route`]: strict where hyper is lenient.
//! * [`body`] — the one bounded read.
//! * [`peek`] — one pass over the body for the routed keys; proves that it is well-formed JSON.
//! * [`splice`] — edits of the body as segments that share its buffer.
//! * [`headers`] — the upstream request head, and what of a response head goes to the client.
//! * [`id`] — the request id; [`trace`] — the client's trace on two legs.
//!
//! `docs/request-rules.md` is the user's view of all this.

pub mod body;
mod class;
pub mod head;
pub mod headers;
mod host;
pub mod id;
pub mod key;
pub(super) mod media;
mod numbers;
#[cfg(any(test, feature = "testing"))]
pub mod oracle;
pub mod peek;
mod plain;
pub mod route;
pub mod scan;
pub mod splice;
pub mod trace;
