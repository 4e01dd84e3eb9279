//! Integration tests: whole conversations over real sockets. See `tests/README.md` for what belongs here.

mod config;
mod edges;
mod openai_sdk;
mod process;
mod relay;
mod replay;
