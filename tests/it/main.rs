//! Integration tests: whole conversations over real sockets. See `tests/README.md` for what belongs here.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code: what is not as expected must stop the test"
)]

mod admin;
mod architecture;
mod budgets;
mod config;
mod docs;
mod edges;
mod keys;
mod no_body;
mod observability;
mod openai_sdk;
mod policies;
mod process;
mod relay;
mod replay;
mod upstream;
