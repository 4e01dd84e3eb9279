//! The data path. Stages in order, one folder each; `docs/request-lifecycle.md` has the same headings:
//!
//! 1. `listener` — client to bytes: accept, protocol detection, connection timers.
//! 2. `request` — bytes to what we need to know: head rules, bounded body, peek, splices.
//! 3. `admission` — may it enter: keys, in-flight and buffer bounds.
//! 4. `route` — where to: snapshot and request facts to an endpoint.
//! 5. `dispatch` — attempts and retries on engines.
//! 6. `relay` — the answer back to the client, and everything that is released at its end.
//!
//! `pipeline` strings them together; `error` and `rescue` are the one table from failure to answer; `context` is what
//! requests share.

pub mod admission;
pub mod context;
pub mod dispatch;
pub mod error;
pub mod listener;
pub mod pipeline;
pub mod relay;
pub mod request;
pub mod rescue;
pub mod route;
