//! Integration tests: whole conversations over real sockets. See `tests/README.md` for what belongs here.

mod admin;
mod config;
mod keys;
mod observability;
mod openai_sdk;
mod policies;
mod process;
mod relay;
mod replay;
